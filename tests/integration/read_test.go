package integration

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// replacements are ways to replace the value of k, none of which an open file may show. M is the mount of the
// reader, N the other one.
var replacements = []struct{ name, script string }{
	{"overwritten", `cp $W/new $M/k`},
	{"overwritten by the other mount", `cp $W/new $N/k`},
	{"overwritten by the command line", `$BIN put $S k $W/new`},
	{"appended to", `cat $W/new >> $M/k`},
	{"appended to by the other mount", `cat $W/new >> $N/k`},
	{"unlinked", `rm $M/k`},
	{"unlinked by the other mount", `rm $N/k`},
	{"removed by the command line", `$BIN rm $S k`},
	{"renamed over", `cp $W/new $M/x && mv -f $M/x $M/k`},
	{"renamed over by the other mount", `cp $W/new $N/x && mv -f $N/x $N/k`},
	{"renamed away", `mv $M/k $M/away`},
	{"renamed over by the command line", `$BIN put $S x $W/new && $BIN mv $S x k`},
	{"truncated", `truncate -s 10 $M/k`},
	{"truncated by the other mount", `truncate -s 0 $N/k`},
	{"lengthened", `truncate -s 3000000 $M/k`},
	{"written to in place", `printf XXXX | dd of=$M/k bs=1 seek=3 conv=notrunc status=none`},
	{"written to in place by the other mount", `printf XXXX | dd of=$N/k bs=1 seek=3 conv=notrunc status=none`},
	{"emptied", `: > $M/k`},
	{"removed with its directory", `rm $M/k && mkdir $M/k && echo x > $M/k/y`},
	{"replaced many times", `for i in $(seq 40); do cp $W/new $M/k; echo $i > $N/k; done`},
}

// An open file shows the version that it was opened on, in whatever way it is read.
func TestOpenFileKeepsItsVersion(t *testing.T) {
	w, m, _ := two(t)
	k := filepath.Join(m, "k")
	r := seeded(1)
	for ci, c := range replacements {
		for i, size := range []int{200, 9000, 700000} {
			if testing.Short() && i != ci%3 {
				continue
			}
			t.Run(c.name+"/"+itoa(size), func(t *testing.T) {
				w := w.in(t)
				must(t, os.RemoveAll(k))
				old := proof(size, r)
				must(t, os.WriteFile(k, old, 0o644))
				must(t, os.WriteFile(filepath.Join(w.dir, "new"), proof(size+77, r), 0o644))

				unread, begun, mapped := open(t, k), open(t, k), open(t, k)
				part := make([]byte, size/3)
				_, err := io.ReadFull(begun, part)
				must(t, err)
				pages, err := unix.Mmap(int(mapped.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
				must(t, err)
				defer unix.Munmap(pages)
				private, err := unix.Mmap(int(mapped.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
				must(t, err)
				defer unix.Munmap(private)

				w.sh(c.script)

				same := func(how string, got []byte) {
					t.Helper()
					if !bytes.Equal(got, old) {
						t.Errorf("%s: %v", how, proven(got))
					}
				}
				rest, err := io.ReadAll(begun)
				must(t, err)
				same("read in two parts", append(part, rest...))
				same("shared map", pages)
				same("private map", private)
				same("sent", sendfile(t, unread, size+100))
				same("spliced", splice(t, unread, size+100))
				all := make([]byte, size+100)
				n, _ := unread.ReadAt(all, 0)
				same("pread", all[:n])
				dup, err := unix.Dup(int(unread.Fd()))
				must(t, err)
				d := os.NewFile(uintptr(dup), "dup")
				got, err := io.ReadAll(d)
				must(t, err)
				d.Close()
				same("dup", got)
				same("inherited", inherited(t, begun))
				if st, err := unread.Stat(); err != nil || st.Size() != int64(size) {
					t.Errorf("fstat: %v, %v", st.Size(), err)
				}
				for _, f := range []*os.File{unread, begun, mapped} {
					must(t, f.Close())
				}
			})
		}
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// sendfile reads f from its beginning with sendfile(2).
func sendfile(t *testing.T, f *os.File, most int) []byte {
	t.Helper()
	to, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer to.Close()
	var off int64
	for off < int64(most) {
		n, err := unix.Sendfile(int(to.Fd()), int(f.Fd()), &off, most)
		must(t, err)
		if n == 0 {
			break
		}
	}
	b, err := os.ReadFile(to.Name())
	must(t, err)
	return b
}

// splice reads f from its beginning through a pipe.
func splice(t *testing.T, f *os.File, most int) []byte {
	t.Helper()
	var p [2]int
	must(t, unix.Pipe2(p[:], unix.O_CLOEXEC))
	out := os.NewFile(uintptr(p[0]), "pipe")
	defer out.Close()
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(out)
		got <- b
	}()
	var off int64
	for off < int64(most) {
		n, err := unix.Splice(int(f.Fd()), &off, p[1], nil, most, 0)
		if err != nil || n == 0 {
			break
		}
	}
	unix.Close(p[1])
	return <-got
}

// inherited returns what a child reads through f from its beginning.
func inherited(t *testing.T, f *os.File) []byte {
	t.Helper()
	_, err := f.Seek(0, io.SeekStart)
	must(t, err)
	cmd := exec.Command("cat")
	cmd.Stdin = f
	b, err := cmd.Output()
	must(t, err)
	return b
}

// A descriptor that is forgotten, in a process or in several, stops no commit and no removal, through any mount.
func TestForgottenDescriptorStopsNobody(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "first")
	for _, dir := range []string{m, n} {
		for range 20 {
			open(t, dir+"/k")
		}
	}
	dirHandle := open(t, n)
	forgotten := open(t, m+"/k")
	w.sh(`for i in $(seq 100); do echo v$i > k; echo v$i > $N/k2; [ $((i % 10)) != 0 ] || echo $i | $BIN put $S k3; done; rm k2; mkdir d; mv k d/k`)
	w.wantKey("d/k", "v100\n")
	b, err := io.ReadAll(forgotten)
	must(t, err)
	want(t, "forgotten descriptor", string(b), "first")
	names, err := dirHandle.Readdirnames(-1)
	must(t, err)
	t.Log("a directory that was opened before lists", names)
	if n := strings.Count(w.sh("ls "+w.store), "HEAD"); n > 12 {
		t.Errorf("%d files named HEAD: each commit under a pin seems to keep one", n)
	}
}

// Readers never wait for the commit lock, even when a process holds it.
func TestReadersDoNotNeedTheCommitLock(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "value")
	f, err := os.OpenFile(w.store+"/lock", os.O_RDWR, 0)
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	want(t, "read under the lock", read(t, m+"/k"), "value")
	want(t, "read under the lock, other mount", read(t, n+"/k"), "value")
	w.wantKey("k", "value")
	names, err := os.ReadDir(n)
	must(t, err)
	if len(names) != 1 {
		t.Errorf("listing under the lock: %v", names)
	}
	must(t, f.Close())
	write(t, m+"/k", "next")
}

// A program that reads the file it is writing over sees the old value in the reader and the new one afterwards.
func TestReaderAndWriterInOneProcess(t *testing.T) {
	_, m, n := two(t)
	write(t, m+"/k", "old")
	r := open(t, m+"/k")
	f, err := os.Create(m + "/k")
	must(t, err)
	_, err = f.WriteString("new")
	must(t, err)
	r2 := open(t, m+"/k")
	for _, r := range []*os.File{r, r2} {
		b, err := io.ReadAll(r)
		must(t, err)
		want(t, "reader beside the writer", string(b), "old")
	}
	want(t, "other mount", read(t, n+"/k"), "old")
	must(t, f.Close())
	want(t, "after close", read(t, m+"/k"), "new")
	want(t, "after close, other mount", read(t, n+"/k"), "new")
}
