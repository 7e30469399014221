package backend_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestResolveAsTheKernel does random operations, several to a batch, to a Memory and, by system calls on open directories,
// to a folder: both must refuse the same ones for the same reason, and show the same tree.
func TestResolveAsTheKernel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top, err := os.MkdirTemp(t.TempDir(), "tree")
		if err != nil {
			t.Fatal(err)
		}
		k := &kernel{t: t, store: backend.NewMemory(), top: top}
		defer k.closeDirs()
		k.compare(rt)
		rt.Repeat(map[string]func(*rapid.T){"batch": k.batch, "": k.compare})
	})
}

// kernel is a Memory beside a folder.
type kernel struct {
	t     *testing.T
	store *backend.Memory
	top   string
	dirs  map[backend.Ino]int // open descriptors of the directories there were before the batch
	inos  []backend.Ino
}

func (k *kernel) closeDirs() {
	for _, fd := range k.dirs {
		unix.Close(fd)
	}
	k.dirs, k.inos = map[backend.Ino]int{}, nil
}

// step is an operation in both forms.
type step struct {
	add  func(b *backend.Batch)
	call func() error
}

func (k *kernel) batch(rt *rapid.T) {
	var done []step
	for range rapid.IntRange(1, 5).Draw(rt, "operations") {
		s := k.draw(rt)
		err := s.call()
		if err != nil {
			k.commit(rt, append(done, s), err) // and nothing of it is done
			break
		}
		done = append(done, s)
	}
	k.commit(rt, done, nil)
}

// commit makes one batch of steps and wants what the kernel said.
func (k *kernel) commit(rt *rapid.T, steps []step, want error) {
	b := &backend.Batch{}
	for _, s := range steps {
		s.add(b)
	}
	_, err := k.store.Commit(k.t.Context(), b)
	if errors.Is(want, unix.ENOTEMPTY) && errors.Is(err, backend.ErrIsDir) {
		return // a file moved onto a directory above it: the kernel looks at that before it looks at the kinds
	}
	if want == nil && err != nil || want != nil && !errors.Is(err, meaning(want)) {
		rt.Fatalf("the kernel says %v, the store %v", want, err)
	}
}

func meaning(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return backend.ErrNotFound
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ELOOP): // O_NOFOLLOW of a symbolic link
		return backend.ErrExists
	case errors.Is(err, unix.ENOTEMPTY):
		return backend.ErrNotEmpty
	case errors.Is(err, unix.EISDIR):
		return backend.ErrIsDir
	case errors.Is(err, unix.ENOTDIR):
		return backend.ErrNotDir
	case errors.Is(err, unix.EINVAL):
		return backend.ErrInvalid
	}
	return err
}

func (k *kernel) draw(rt *rapid.T) step {
	place := func(label string) (backend.Ref, int, string) {
		dir := rapid.SampledFrom(k.inos).Draw(rt, label+" in")
		name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, label)
		return backend.Ref{Dir: dir, Name: name}, k.dirs[dir], name
	}
	ref, fd, name := place("at")
	a := backend.Attr{Mode: 0o755}
	switch rapid.SampledFrom([]string{"put", "append", "mkdir", "mkdir", "symlink", "remove", "rmdir", "rename", "rename", "rename"}).Draw(rt, "op") {
	case "put", "append":
		appending := rapid.Bool().Draw(rt, "append")
		content := rapid.SampledFrom([]string{"", "x", "yy"}).Draw(rt, "content")
		return step{func(b *backend.Batch) {
			s, _ := k.store.NewStage()
			s.WriteAt([]byte(content), 0)
			if appending {
				b.Append(ref, s, &a, backend.AttrChange{})
			} else {
				b.Put(ref, s, &a, backend.AttrChange{})
			}
		}, func() error {
			flags := unix.O_WRONLY | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_TRUNC
			if appending {
				flags = flags&^unix.O_TRUNC | unix.O_APPEND
			}
			f, err := unix.Openat(fd, name, flags, 0o644)
			if err != nil {
				return err
			}
			defer unix.Close(f)
			_, err = unix.Write(f, []byte(content))
			return err
		}}
	case "mkdir":
		return step{func(b *backend.Batch) { b.Mkdir(ref, a) }, func() error { return unix.Mkdirat(fd, name, 0o755) }}
	case "symlink":
		return step{func(b *backend.Batch) { b.Symlink(ref, "a", a) }, func() error { return unix.Symlinkat("a", fd, name) }}
	case "remove":
		return step{func(b *backend.Batch) { b.Remove(ref) }, func() error { return unix.Unlinkat(fd, name, 0) }}
	case "rmdir":
		return step{func(b *backend.Batch) { b.Rmdir(ref) }, func() error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) }}
	}
	to, toFD, toName := place("to")
	flags := rapid.SampledFrom([]backend.RenameFlags{0, 0, backend.NoReplace, backend.Exchange}).Draw(rt, "flags")
	return step{func(b *backend.Batch) { b.Rename(ref, to, flags) }, func() error {
		f := uint(0)
		switch flags {
		case backend.NoReplace:
			f = unix.RENAME_NOREPLACE
		case backend.Exchange:
			f = unix.RENAME_EXCHANGE
		}
		return unix.Renameat2(fd, name, toFD, toName, f)
	}}
}

// compare fails unless the trees are the same, and opens the directories for the next batch.
func (k *kernel) compare(rt *rapid.T) {
	s, err := k.store.Snapshot(k.t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	defer s.Close()
	k.closeDirs()
	var have, want strings.Builder
	k.showStore(rt, &have, s, backend.RootIno, "")
	showFolder(rt, &want, k.top, "")
	if have.String() != want.String() {
		rt.Fatalf("the store shows\n%sthe folder\n%s", have.String(), want.String())
	}
}

func (k *kernel) showStore(rt *rapid.T, out *strings.Builder, s backend.Snapshot, dir backend.Ino, path string) {
	fd, err := unix.Open(filepath.Join(k.top, path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		rt.Fatalf("open %q: %v", path, err)
	}
	k.dirs[dir] = fd
	k.inos = append(k.inos, dir)
	for e, err := range s.List(dir, "") {
		if err != nil {
			rt.Fatal(err)
		}
		p := path + "/" + e.Name
		content := e.Target
		if e.Kind == backend.File {
			v, err := s.Open(e)
			if err != nil {
				rt.Fatal(err)
			}
			b := make([]byte, v.Size())
			v.ReadAt(b, 0)
			content = string(b)
		}
		fmt.Fprintf(out, "%s %d %q\n", p, e.Kind, content)
		if e.Kind == backend.Dir {
			k.showStore(rt, out, s, e.Ino, p)
		}
	}
}

func showFolder(rt *rapid.T, out *strings.Builder, top, path string) {
	entries, err := os.ReadDir(filepath.Join(top, path))
	if err != nil {
		rt.Fatal(err)
	}
	for _, e := range entries {
		p := path + "/" + e.Name()
		kind, content := backend.File, ""
		switch {
		case e.IsDir():
			kind = backend.Dir
		case e.Type()&os.ModeSymlink != 0:
			kind = backend.Symlink
			content, err = os.Readlink(filepath.Join(top, p))
		default:
			var b []byte
			b, err = os.ReadFile(filepath.Join(top, p))
			content = string(b)
		}
		if err != nil {
			rt.Fatal(err)
		}
		fmt.Fprintf(out, "%s %d %q\n", p, kind, content)
		if kind == backend.Dir {
			showFolder(rt, out, top, p)
		}
	}
}
