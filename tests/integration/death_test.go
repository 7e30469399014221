package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/daemon"
)

func init() {
	roles["crowd"] = func(args []string) error { return crowd(args[0]) }
}

// The daemon is killed while programs write. Whatever a close had acknowledged is there, nothing else has changed, the mountpoint is
// taken over, and the store is sound.
func TestDaemonIsKilled(t *testing.T) {
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		for _, opts := range []string{"sync=never", "sync=interval:50ms"} {
			t.Run(fmt.Sprint(round, " ", opts), func(t *testing.T) { killDaemon(t, round, opts) })
		}
	}
}

func killDaemon(t *testing.T, round int, opts string) {
	w := newWorld(t)
	m := w.mount(opts)
	n := w.mount()
	const writers, keys = 4, 8
	acked := make([]map[string]int, writers)
	enough := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	for p := range writers {
		acked[p] = map[string]int{}
		wg.Go(func() {
			r := seeded(uint64(100*round + p))
			for i := 1; ; i++ {
				key := fmt.Sprintf("k%d-%d", p, i%keys)
				err := os.WriteFile(m+"/"+key, append(fmt.Appendf(nil, "%09d ", i), proof(sizes[r.IntN(len(sizes))], r)...), 0o644)
				if err != nil {
					if !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EIO) {
						t.Errorf("writer: %v", err)
					}
					return
				}
				acked[p][key] = i
				if i == 20+7*round {
					once.Do(func() { close(enough) })
				}
			}
		})
	}
	<-enough
	w.mounts[0].kill(unix.SIGKILL)
	wg.Wait()
	// Through the mount that lives, through a new mount at the same place, and by the command line.
	write(t, n+"/alive", "yes")
	w.mountAt(m)
	total := 0
	for p := range writers {
		for key, i := range acked[p] {
			for _, dir := range []string{m, n} {
				b := read(t, dir+"/"+key)
				var got int
				if _, err := fmt.Sscanf(b, "%d", &got); err != nil || len(b) < 10 || proven([]byte(b[10:])) != nil {
					t.Fatalf("%s: %v", key, short(b))
				}
				if got != i && got != i+keys { // the write that was not acknowledged may be there too
					t.Errorf("%s is %d, acknowledged was %d", key, got, i)
				}
			}
			total++
		}
	}
	if total < keys {
		t.Errorf("only %d keys were written", total)
	}
	want(t, "alive", read(t, m+"/alive"), "yes")
}

// SIGTERM ends a daemon with status 0: what is half-written is not published, what is published stays, the mountpoint is free.
func TestDaemonIsTerminated(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v busy %v", sig, busy), func(t *testing.T) {
				w := newWorld(t)
				m := w.dir + "/m"
				must(t, os.Mkdir(m, 0o755))
				cmd, cancel := w.command(w.dir, binary, "mount", "-f", w.store, m)
				defer cancel()
				var errs strings.Builder
				cmd.Stderr = &errs
				must(t, cmd.Start())
				until(t, "mounted", func() bool { return daemon.Mounted(m) })
				write(t, m+"/k", "whole")
				if busy {
					half := open(t, m+"/k")
					f, err := os.Create(m + "/k")
					must(t, err)
					defer f.Close()
					f.WriteString("half")
					defer half.Close()
				}
				must(t, cmd.Process.Signal(sig))
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v: %s", err, &errs)
				}
				if daemon.Mounted(m) {
					t.Error("still mounted")
				}
				w.wantKey("k", "whole")
				w.mountAt(m)
				want(t, "value", read(t, m+"/k"), "whole")
			})
		}
	}
}

// umount of a mount in use is one line that says by whom, and the mount goes on.
func TestUmountWhileBusy(t *testing.T) {
	w, m := one(t)
	write(t, m+"/k", "v")
	busy := exec.Command("sleep", "60")
	busy.Dir = m
	must(t, busy.Start())
	r := w.run(binary, "umount", m)
	if r.status != 1 || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, itoa(busy.Process.Pid)) || r.out != "" {
		t.Errorf("status %d: %q %q", r.status, r.out, r.err)
	}
	want(t, "still there", read(t, m+"/k"), "v")
	busy.Process.Kill()
	busy.Wait()
	f := open(t, m+"/k")
	if r := w.run(binary, "umount", m); r.status != 1 || !strings.Contains(r.err, itoa(os.Getpid())) {
		t.Errorf("with a file open: status %d: %q", r.status, r.err)
	}
	must(t, f.Close())
}

// umount right after the last close loses nothing, and returns when the store is closed.
func TestUmountRightAfterClose(t *testing.T) {
	w := newWorld(t)
	m := w.dir + "/m"
	must(t, os.Mkdir(m, 0o755))
	r := seeded(9)
	for i := range 10 {
		d := w.mountAt(m)
		v := proof(sizes[i%len(sizes)], r)
		must(t, os.WriteFile(m+"/k", v, 0o644))
		if i%2 == 0 {
			w.sh(`cd ` + m + `; { echo a; ( exec >&2; sleep 0.01 ) & echo b; } 2> /dev/null > background; cd /`)
		}
		until(t, "unmounted", func() bool { return w.run(binary, "umount", m).status == 0 })
		if !d.gone(0) {
			t.Error("umount returned before the daemon was gone")
		}
		w.wantKey("k", string(v))
		if i%2 == 0 {
			w.wantKey("background", "a\nb\n")
		}
	}
}

// What a lazy umount leaves open goes on, and is published when it is closed.
func TestFilesOpenOverLazyUmount(t *testing.T) {
	w, m := one(t)
	write(t, m+"/k", "old")
	f, err := os.Create(m + "/k")
	must(t, err)
	r := open(t, m+"/k")
	must(t, unix.Unmount(m, unix.MNT_DETACH))
	f.WriteString("new")
	must(t, f.Close())
	b := make([]byte, 10)
	n, _ := r.Read(b)
	want(t, "reader", string(b[:n]), "old")
	must(t, r.Close())
	if !w.mounts[0].gone(time.Minute) {
		t.Error("the daemon outlives the last open file")
	}
	w.wantKey("k", "new")
}

// Mounts and unmounts at once, some daemons killed: nothing is left.
func TestManyMounts(t *testing.T) {
	loops, each := 4, 5
	if testing.Short() {
		each = 2
	}
	w := newWorld(t)
	w.mount()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for p := range loops {
		wg.Go(func() {
			dir := fmt.Sprintf("%s/p%d", w.dir, p)
			os.Mkdir(dir, 0o755)
			for i := range each {
				r := w.run(binary, "mount", w.store, dir)
				if r.status != 0 {
					t.Errorf("mount: %s", r.err)
					return
				}
				served, err := daemon.Of(dir)
				if err != nil {
					t.Error(err)
					return
				}
				d := &mounted{dir, served.PID, served}
				mu.Lock()
				w.mounts = append(w.mounts, d)
				mu.Unlock()
				if err := os.WriteFile(fmt.Sprintf("%s/k%d", dir, p), []byte(itoa(i)), 0o644); err != nil {
					t.Error(err)
				}
				if (p+i)%4 == 0 {
					d.kill(unix.SIGKILL)
					d.gone(5 * time.Second)
					continue // the next mount takes the place over
				}
				r = w.run(binary, "umount", dir)
				for try := 0; try < 100 && strings.Contains(r.err, "is in use"); try++ { // a process that is being forked has our descriptors for a moment
					r = w.run(binary, "umount", dir)
				}
				if r.status != 0 {
					t.Errorf("umount: %s", r.err)
				}
			}
		})
	}
	wg.Wait()
	for p := range loops {
		w.wantKey(fmt.Sprintf("k%d", p), itoa(each-1))
	}
}

// A daemon is killed while it tells the kernel of a name whose directory is locked by programs that wait for it. They get an error, and the
// mountpoint is taken over, although the kernel would let neither side end.
func TestKilledWhileTellingTheKernel(t *testing.T) {
	w, m := one(t)
	must(t, os.Mkdir(m+"/d", 0o755))
	d, caught := w.mounts[0], false
	for round := 0; round < 20 && !caught; round++ {
		write(t, m+"/d/k", "v")
		read(t, m+"/d/k") // the kernel knows the name
		d.kill(unix.SIGSTOP)
		w.put("d/k", "told of when the daemon goes on")
		crowd := exec.Command(os.Args[0], m+"/d")
		crowd.Env = append(w.env, "STOREFS_TEST_ROLE=crowd")
		must(t, crowd.Start())
		ended := make(chan error, 1)
		go func() { ended <- crowd.Wait() }()
		until(t, "the crowd waits", func() bool { return waitsIn(crowd.Process.Pid, "request_wait_answer") })
		d.kill(unix.SIGCONT)
		for running := true; running && !caught; {
			select {
			case <-ended:
				running = false
			default:
				caught = waitsIn(d.pid, "fuse_reverse_inval_entry")
			}
		}
		if caught {
			d.kill(unix.SIGKILL)
			<-ended
			d = w.mountAt(m)
		}
	}
	if !caught {
		t.Error("the daemon never had to wait")
	}
	want(t, "d/k", read(t, m+"/d/k"), "told of when the daemon goes on")
}

// crowd makes files in a folder, all at once.
func crowd(folder string) error {
	errs := make(chan error)
	const many = 100
	for i := range many {
		go func() { errs <- os.WriteFile(fmt.Sprintf("%s/crowd%d", folder, i), nil, 0o644) }()
	}
	var err error
	for range many {
		err = errors.Join(err, <-errs)
	}
	return err
}

// waitsIn says whether a thread of the process waits in that function of the kernel.
func waitsIn(pid int, function string) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	for _, f := range files {
		if b, _ := os.ReadFile(f); string(b) == function {
			return true
		}
	}
	return false
}
