package integration

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// What a commit changed is seen by every open and listing that starts after it returned, through any mount and the command line.
func TestCommitIsSeenEverywhereAtOnce(t *testing.T) {
	w, m, n := two(t)
	mounts := []string{m, n, w.mount("strict")}
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for i := range rounds {
		from := mounts[i%3]
		value := "value " + itoa(i)
		write(t, from+"/k", value)
		for _, to := range mounts {
			want(t, to+" after a write in "+from, read(t, to+"/k"), value)
			if st := statIn(t, to+"/k"); st.Size() != int64(len(value)) {
				until(t, "stat shows the new size", func() bool { return statIn(t, to+"/k").Size() == int64(len(value)) })
			}
		}
		if i%5 == 0 {
			w.wantKey("k", value)
			w.put("k", value+" by the command line")
			for _, to := range mounts {
				want(t, to+" after a put", read(t, to+"/k"), value+" by the command line")
			}
		}
	}
}

func statIn(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	return st
}

// Through the mount of the commit, and through a strict one, stat is never late.
func TestStatIsExactWhereTheCommitWasMade(t *testing.T) {
	w, m := one(t)
	strict := w.mount("strict")
	for i := range 100 {
		size := int64(1 + i*7%90)
		write(t, m+"/k", string(make([]byte, size)))
		for _, dir := range []string{m, strict} {
			if got := statIn(t, dir+"/k").Size(); got != size {
				t.Fatalf("round %d: %s shows size %d, not %d", i, dir, got, size)
			}
		}
		must(t, os.Truncate(m+"/k", size+5))
		must(t, os.Chmod(m+"/k", fs.FileMode(0o600+i%8)))
		for _, dir := range []string{m, strict} {
			if st := statIn(t, dir+"/k"); st.Size() != size+5 || st.Mode() != fs.FileMode(0o600+i%8) {
				t.Fatalf("round %d: %s shows size %d, mode %v", i, dir, st.Size(), st.Mode())
			}
		}
	}
}

// A key that was missing a moment ago, and was looked for, is seen once it is made; one that was there is missing once it is removed.
func TestNewAndRemovedKeysAreSeenAtOnce(t *testing.T) {
	w, m, n := two(t)
	missing := func(path string) {
		t.Helper()
		if _, err := os.Open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("open of %s: %v", path, err)
		}
	}
	makers := []struct{ name, make, remove string }{
		{"mount", `echo x > $M/d/%`, `rm $M/d/%`},
		{"other mount", `echo x > $N/d/%`, `rm $N/d/%`},
		{"command line", `echo x | $BIN put $S d/%`, `$BIN rm $S d/%`},
		{"rename", `echo x > $N/t && mv $N/t $N/d/%`, `mv $M/d/% $M/t`},
		{"touch", `touch $M/d/%`, `unlink $N/d/%`},
	}
	must(t, os.Mkdir(m+"/d", 0o755))
	for i := range 6 {
		for _, c := range makers {
			name := "k" + itoa(i)
			for _, dir := range []string{m, n} {
				missing(filepath.Join(dir, "d", name))
				wantListing(t, dir+"/d")
			}
			w.sh("name=" + name + "; " + replaceAll(c.make, "%", "$name"))
			for _, dir := range []string{m, n} {
				f, err := os.Open(filepath.Join(dir, "d", name))
				if err != nil {
					t.Fatalf("made by %s: %v", c.name, err)
				}
				f.Close()
				wantListing(t, dir+"/d", name)
			}
			w.sh("name=" + name + "; " + replaceAll(c.remove, "%", "$name"))
		}
	}
}

func wantListing(t *testing.T, dir string, wanted ...string) {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	got, err := f.Readdirnames(-1)
	must(t, err)
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Fatalf("listing of %s: %q, not %q", dir, got, wanted)
	}
}

// Directories are made, moved and removed for everybody too, and a process that is inside one stays there.
func TestDirectoriesAreSeenAtOnce(t *testing.T) {
	_, m, n := two(t)
	for i := range 20 {
		must(t, os.MkdirAll(m+"/a/b/c", 0o755))
		write(t, n+"/a/b/c/k", itoa(i))
		inside := open(t, n+"/a/b")
		must(t, os.Rename(m+"/a/b", m+"/b"))
		want(t, "moved", read(t, n+"/b/c/k"), itoa(i))
		if _, err := os.Open(n + "/a/b/c/k"); err == nil {
			t.Fatal("the old path still opens")
		}
		b, err := os.ReadFile("/proc/self/fd/" + itoa(int(inside.Fd())) + "/c/k")
		if err != nil || string(b) != itoa(i) {
			t.Errorf("through an open directory that was moved: %q, %v", b, err)
		}
		must(t, inside.Close())
		must(t, os.RemoveAll(n+"/b"))
		must(t, os.Remove(n+"/a"))
		wantListing(t, m)
		until(t, "stat misses what another mount removed", func() bool { _, err := os.Stat(m + "/a"); return err != nil })
	}
}

// A key may come back as something else.
func TestKeyChangesItsKind(t *testing.T) {
	w, m, n := two(t)
	for range 10 {
		write(t, m+"/k", "file")
		want(t, "file", read(t, n+"/k"), "file")
		w.sh(`rm k; mkdir k; echo inner > k/k`)
		want(t, "directory", read(t, n+"/k/k"), "inner\n")
		w.sh(`rm -r $N/k; ln -s target $N/k; echo pointed > $N/target`)
		want(t, "link", read(t, m+"/k"), "pointed\n")
		w.sh(`rm k $N/target`)
		wantListing(t, n)
	}
}

// An open that found nothing at its second look is over: the thread's next open is no second look.
func TestOpenAfterOneThatFoundNothingIsAFirstOne(t *testing.T) {
	w, m := one(t)
	s, err := filestore.Open(w.store, nil)
	must(t, err)
	defer s.Close()
	put := func(b *backend.Batch, name, value string) {
		st, err := s.NewStage()
		must(t, err)
		t.Cleanup(func() { st.Close() })
		_, err = st.WriteAt([]byte(value), 0)
		must(t, err)
		b.Put(backend.Ref{Dir: backend.RootIno, Name: name}, st, &backend.Attr{Mode: 0o644}, backend.AttrChange{})
	}
	runtime.LockOSThread() // the daemon knows who asks by the thread
	defer runtime.UnlockOSThread()
	for i := range 100 {
		value := "round " + itoa(i)
		var before, change backend.Batch
		put(&before, "gone", "x")
		put(&before, "k", "x")
		_, err := s.Commit(t.Context(), &before)
		must(t, err)
		read(t, m+"/gone")
		read(t, m+"/k")
		change.Remove(backend.Ref{Dir: backend.RootIno, Name: "gone"})
		put(&change, "k", value)
		_, err = s.Commit(t.Context(), &change)
		must(t, err)
		if _, err := os.Open(m + "/gone"); !errors.Is(err, fs.ErrNotExist) { // maybe before the daemon has told the kernel
			t.Fatalf("round %d: a removed key: %v", i, err)
		}
		want(t, "the other", read(t, m+"/k"), value)
	}
	if n := stats(t, m)["storefs_opens_direct_total"]; n != 0 {
		t.Errorf("%v opens were served past the page cache", n)
	}
}
