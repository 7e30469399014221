package fsnode

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestProcessOfFindsTheProcessOfAThread(t *testing.T) {
	p, ok := processOf(uint32(syscall.Gettid()))
	if !ok || p.tgid != uint32(os.Getpid()) || p.exiting {
		t.Errorf("processOf(own thread) = %+v, %v; want process %d, alive", p, ok, os.Getpid())
	}
	if _, ok := processOf(0); ok {
		t.Error("a process outside our pid namespace was found")
	}
}

// A process that has ended and was not waited for is past its last descriptor, as one is when the kernel closes them at exit.
func TestKilledTellsASignalFromAnExit(t *testing.T) {
	for script, want := range map[string]bool{"kill -9 $$": true, "exit 3": false} {
		cmd := exec.Command("sh", "-c", script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := uint32(cmd.Process.Pid)
		out.Read(make([]byte, 1)) // until it has closed its output, which exit does before anything else can be seen
		for {
			p, ok := processOf(pid)
			if !ok {
				t.Fatalf("process of %q is gone before it was waited for", script)
			}
			if p.exiting {
				break
			}
		}
		if got := killed(pid); got != want {
			t.Errorf("killed after %q = %v, want %v", script, got, want)
		}
		cmd.Wait()
	}
}

func TestWritableCountsDescriptorsByInode(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	dup, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := writable(uint32(os.Getpid()), []uint64{st.Ino}, func(uint64) bool { return true }); !ok || n != 2 {
		t.Errorf("writable = %d, %v; want 2: the file and its duplicate, not the one open for reading", n, ok)
	}
	syscall.Close(dup)
	if n, ok := writable(uint32(os.Getpid()), []uint64{st.Ino}, func(uint64) bool { return true }); !ok || n != 1 {
		t.Errorf("writable = %d, %v after the duplicate was closed; want 1", n, ok)
	}
}
