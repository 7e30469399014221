package integration

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// rename in all its ways is one commit that everybody sees when it returns.
func TestRename(t *testing.T) {
	w, m, n := two(t)
	w.sh(`echo a > a; echo b > b; mkdir -p d1/sub d2 full; echo x > d1/sub/k; echo y > full/y; ln -s a l`)
	rename2 := func(from, to string, flags uint) error {
		return unix.Renameat2(unix.AT_FDCWD, m+"/"+from, unix.AT_FDCWD, m+"/"+to, flags)
	}
	wantErr(t, "NOREPLACE over a file", rename2("a", "b", unix.RENAME_NOREPLACE), unix.EEXIST)
	want(t, "b", read(t, n+"/b"), "b\n")
	must(t, rename2("a", "new", unix.RENAME_NOREPLACE))
	must(t, rename2("new", "a", 0))
	must(t, rename2("a", "b", unix.RENAME_EXCHANGE))
	want(t, "a", read(t, n+"/a"), "b\n")
	want(t, "b", read(t, n+"/b"), "a\n")
	must(t, rename2("a", "d1", unix.RENAME_EXCHANGE)) // of a file and a directory
	// The other kernel does not ask about a name that it knows as a file when it is to be a directory on the way.
	until(t, "exchanged with a directory", func() bool {
		b, err := os.ReadFile(n + "/a/sub/k")
		return err == nil && string(b) == "x\n"
	})
	want(t, "exchanged with a file", read(t, n+"/d1"), "b\n")
	must(t, rename2("a", "d1", unix.RENAME_EXCHANGE))
	wantErr(t, "EXCHANGE with nothing", rename2("a", "no", unix.RENAME_EXCHANGE), unix.ENOENT)
	wantErr(t, "EXCHANGE with its own child", rename2("d1", "d1/sub", unix.RENAME_EXCHANGE), unix.EINVAL)
	wantErr(t, "WHITEOUT", rename2("a", "wh", unix.RENAME_WHITEOUT), unix.EINVAL)
	must(t, rename2("d1", "d2", 0)) // over an empty directory
	want(t, "over an empty directory", read(t, n+"/d2/sub/k"), "x\n")
	wantErr(t, "over a full directory", rename2("d2", "full", 0), unix.ENOTEMPTY)
	want(t, "full", read(t, n+"/full/y"), "y\n")
	must(t, rename2("a", "a", 0)) // to itself
	must(t, rename2("a", "d2/sub/k", 0))
	want(t, "into a directory", read(t, n+"/d2/sub/k"), "b\n")
	must(t, rename2("l", "d2/l", 0))
	link, err := os.Readlink(n + "/d2/l")
	must(t, err)
	want(t, "moved link", link, "a")
	wantListing(t, n, "b", "d2", "full")
}

// A file that is renamed while it is open for writing is published under its new name.
func TestRenameWhileOpenForWriting(t *testing.T) {
	w, m, n := two(t)
	for _, c := range []struct{ name, before, script, key, gone string }{
		{"new key", "", `mv k k2`, "k2", "k"},
		{"overwritten key", "old", `mv k k2`, "k2", "k"},
		{"into a directory", "old", `mkdir d && mv k d/k`, "d/k", "k"},
		{"its directory is renamed", "old", `mkdir a && mv k a/k && mv a b`, "b/k", "k"},
		{"over another key", "old", `echo x > k2 && mv -f k k2`, "k2", "k"},
		{"there and back", "old", `mv k k2 && mv k2 k`, "k", "k2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			w.sh(`rm -rf k* d a b`)
			if c.before != "" {
				write(t, m+"/k", c.before)
			}
			f, err := os.Create(m + "/k")
			must(t, err)
			f.WriteString("new value")
			if c.before == "" {
				// The key is not there for other processes before it is published: the writer renames it itself.
				must(t, os.Rename(m+"/k", m+"/k2"))
			} else {
				w.sh(c.script)
			}
			must(t, f.Close())
			want(t, "value", read(t, n+"/"+c.key), "new value")
			if _, err := os.Stat(n + "/" + c.gone); !os.IsNotExist(err) {
				t.Errorf("%s: %v", c.gone, err)
			}
		})
	}
}

// Downloaders and editors: a temporary file beside the key, renamed over it, in a loop; readers see values whole, and always one.
func TestRenameOverInALoop(t *testing.T) {
	w, m, n := two(t)
	r := seeded(5)
	write(t, m+"/k", string(proof(500, r)))
	var stop atomic.Bool
	var wg sync.WaitGroup
	for _, dir := range []string{m, n} {
		wg.Go(func() {
			for !stop.Load() {
				b, err := os.ReadFile(dir + "/k")
				if err == nil {
					err = proven(b)
				}
				if err != nil {
					t.Errorf("in %s: %v", dir, err)
					return
				}
			}
		})
	}
	for i := range 150 {
		dir := []string{m, n}[i%2]
		must(t, os.WriteFile(dir+"/k.tmp", proof(sizes[i%7], r), 0o644))
		must(t, os.Rename(dir+"/k.tmp", dir+"/k"))
	}
	stop.Store(true)
	wg.Wait()
	wantListing(t, n, "k")
	w.settle(m)
}

// A file that is unlinked while it is open goes on for those who have it open, with link count 0, and is never published again.
func TestUnlinkWhileOpen(t *testing.T) {
	w, m, n := two(t)
	nlink := func(f *os.File) uint64 {
		var st unix.Stat_t
		must(t, unix.Fstat(int(f.Fd()), &st))
		return uint64(st.Nlink)
	}
	for _, remover := range []string{`rm -f k`, `rm -f $N/k`, `$BIN rm $S k`, `echo x > x; mv -f x k; rm k`} {
		t.Run(remover, func(t *testing.T) {
			w := w.in(t)
			write(t, m+"/k", "0123456789")
			r := open(t, m+"/k")
			inPlace, err := os.OpenFile(m+"/k", os.O_RDWR, 0)
			must(t, err)
			over, err := os.Create(m + "/k")
			must(t, err)
			over.WriteString("staged")
			inPlace.WriteAt([]byte("X"), 0)
			w.sh(remover)
			b, err := io.ReadAll(r)
			must(t, err)
			want(t, "open reader", string(b), "0123456789")
			own := make([]byte, 10)
			_, err = inPlace.ReadAt(own, 0)
			must(t, err)
			want(t, "open writer", string(own), "X123456789")
			if remover == `rm -f k` {
				for name, f := range map[string]*os.File{"reader": r, "in place": inPlace, "over": over} {
					if got := nlink(f); got != 0 {
						t.Errorf("%s: link count %d", name, got)
					}
				}
			}
			if err := inPlace.Close(); err != nil && !errors.Is(err, unix.ESTALE) {
				t.Errorf("close in place: %v", err)
			}
			must(t, over.Close())
			w.settle(m)
			if v, ok := w.get("k"); ok && remover == `rm -f k` {
				t.Errorf("published after the unlink: %q", v)
			}
			os.Remove(n + "/k")
			must(t, r.Close())
		})
	}
}

// A key that is unlinked while it is being made is never there.
func TestUnlinkWhileBeingMade(t *testing.T) {
	w, m, n := two(t)
	f, err := os.Create(m + "/k")
	must(t, err)
	f.WriteString("value")
	must(t, os.Remove(m+"/k"))
	g, err := os.Create(m + "/k") // and another takes its name
	must(t, err)
	g.WriteString("second")
	must(t, f.Close())
	if _, ok := w.get("k"); ok {
		t.Error("the unlinked one was published")
	}
	must(t, g.Close())
	want(t, "second", read(t, n+"/k"), "second")
	f, err = os.OpenFile(m+"/x", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	must(t, err)
	must(t, os.Remove(m+"/x"))
	must(t, f.Close())
	wantListing(t, n, "k")
}

// A directory that is removed with a file in it open, and one that is removed while a file is being made in it.
func TestDirectoryGoesUnderOpenFiles(t *testing.T) {
	w, m, n := two(t)
	must(t, os.Mkdir(m+"/d", 0o755))
	write(t, m+"/d/k", "value")
	r := open(t, m+"/d/k")
	f, err := os.Create(m + "/d/new")
	must(t, err)
	f.WriteString("staged")
	w.sh(`rm $N/d/k; rmdir $N/d`)
	b, err := io.ReadAll(r)
	must(t, err)
	want(t, "reader", string(b), "value")
	if err := f.Close(); err == nil {
		t.Error("close of a file whose directory is gone succeeded")
	}
	wantListing(t, m)
	wantListing(t, n)
	must(t, os.Mkdir(m+"/d", 0o755))
	wantListing(t, n+"/d")
}

// O_EXCL: of all who make a key, through two mounts, one succeeds.
func TestExclusiveCreation(t *testing.T) {
	_, m, n := two(t)
	for i := range 60 {
		var won atomic.Int32
		var wg sync.WaitGroup
		for p := range 6 {
			wg.Go(func() {
				f, err := os.OpenFile([]string{m, n}[p%2]+"/k"+itoa(i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
				if errors.Is(err, os.ErrExist) {
					return
				}
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				f.WriteString(itoa(p))
				if err := f.Close(); err == nil {
					won.Add(1)
				} else if !errors.Is(err, os.ErrExist) {
					t.Errorf("close: %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d made the key", i, won.Load())
		}
		if len(read(t, n+"/k"+itoa(i))) != 1 {
			t.Fatal("wrong value")
		}
	}
}

// mkdir as a lock: one of all succeeds.
func TestMkdirAsLock(t *testing.T) {
	w, m, _ := two(t)
	write(t, m+"/c", "0")
	w.sh(`for p in 1 2 3 4; do ( d=$M; [ $((p % 2)) = 0 ] && d=$N; cd $d
	for i in $(seq 6); do until mkdir lock 2> /dev/null; do sleep 0.00$p; done; n=$(cat c); echo $((n+1)) > c; rmdir lock; done ) & done; wait`)
	w.wantKey("c", "24\n")
}
