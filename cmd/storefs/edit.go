package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// edit makes a batch of changes to paths on top of a snapshot. Each sees what those before it did. Directories that are missing
// on the way are made.
type edit struct {
	s     backend.Snapshot
	b     backend.Batch
	known map[string]spot // what was changed, and the directories that were looked up
	attr  backend.Attr    // of directories that are made on the way
}

// spot is what stands at a path.
type spot struct {
	kind backend.Kind // 0 for nothing
	ino  backend.Ino  // of a directory
	made bool         // by this batch
}

// commitEdit commits what fn does to an edit, which it does again for as long as others change meanwhile what it has looked at. When fn does nothing
// nothing is committed.
func commitEdit(ctx context.Context, st backend.Store, fn func(*edit) error) error {
	const tries = 100 // what changes faster than this is not going to stay
	for try := 1; ; try++ {
		raced, err := tryEdit(ctx, st, fn)
		if !raced || try == tries {
			return err
		}
	}
}

func tryEdit(ctx context.Context, st backend.Store, fn func(*edit) error) (raced bool, err error) {
	s, err := st.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	defer s.Close()
	e := &edit{s: s, known: map[string]spot{"": {backend.Dir, backend.RootIno, false}}, attr: ownAttr(0o777)}
	if err := fn(e); err != nil {
		return false, err
	}
	_, err = st.Commit(ctx, &e.b)
	for _, p := range plain {
		if errors.Is(err, p) {
			now, serr := st.Snapshot(ctx)
			if serr != nil {
				return false, err
			}
			defer now.Close()
			return now.Generation() != s.Generation(), err
		}
	}
	return false, err
}

// at returns what stands at path. The error is a *blockedError if something on the way is no directory.
func (e *edit) at(path string) (spot, error) {
	if k, ok := e.known[path]; ok {
		return k, nil
	}
	dir, name := splitPath(path)
	d, err := e.at(dir)
	switch {
	case err != nil:
		return spot{}, err
	case d.kind == 0 || d.made:
		return spot{}, nil
	case d.kind != backend.Dir:
		return spot{}, &blockedError{dir}
	}
	entry, err := e.s.Lookup(backend.Ref{Dir: d.ino, Name: name})
	if errors.Is(err, backend.ErrNotFound) {
		return spot{}, nil
	}
	if err != nil {
		return spot{}, err
	}
	k := spot{kind: entry.Kind, ino: entry.Ino}
	if k.kind == backend.Dir {
		e.known[path] = k
	}
	return k, nil
}

// ref returns where path stands, after making the directories that are missing on the way.
func (e *edit) ref(path string) (backend.Ref, error) {
	dir, name := splitPath(path)
	d, err := e.at(dir)
	switch {
	case err != nil:
		return backend.Ref{}, err
	case d.kind == 0:
		if d.ino, err = e.mkdir(dir, e.attr); err != nil {
			return backend.Ref{}, err
		}
	case d.kind != backend.Dir:
		return backend.Ref{}, &blockedError{dir}
	}
	return backend.Ref{Dir: d.ino, Name: name}, nil
}

// mkdir makes a directory where nothing is.
func (e *edit) mkdir(path string, a backend.Attr) (backend.Ino, error) {
	ref, err := e.ref(path)
	if err != nil {
		return 0, err
	}
	ino := e.b.Mkdir(ref, a)
	e.known[path] = spot{backend.Dir, ino, true}
	return ino, nil
}

// put makes the content of st the value at path. ifNew are the attributes of a new file, and set changes those of any.
func (e *edit) put(path string, st backend.Stage, ifNew backend.Attr, set backend.AttrChange) error {
	k, err := e.at(path)
	switch {
	case err != nil:
		return err
	case k.kind == backend.Dir:
		return backend.ErrIsDir
	case k.kind == backend.Symlink:
		return errSymlink
	}
	ref, err := e.ref(path)
	if err != nil {
		return err
	}
	e.b.Put(ref, st, &ifNew, set)
	e.known[path] = spot{kind: backend.File}
	return nil
}

// symlink makes a symbolic link where nothing is.
func (e *edit) symlink(path, target string, a backend.Attr) error {
	ref, err := e.ref(path)
	if err != nil {
		return err
	}
	e.b.Symlink(ref, target, a)
	e.known[path] = spot{kind: backend.Symlink}
	return nil
}

// remove removes a file or a symbolic link.
func (e *edit) remove(path string) error {
	k, err := e.at(path)
	switch {
	case err != nil:
		return err
	case k.kind == 0:
		return backend.ErrNotFound
	case k.kind == backend.Dir:
		return backend.ErrIsDir
	}
	ref, err := e.ref(path)
	if err != nil {
		return err
	}
	e.b.Remove(ref)
	e.known[path] = spot{}
	return nil
}

// rename moves what stands at from.
func (e *edit) rename(from, to string) error {
	dst, err := e.ref(to)
	if err != nil {
		return err
	}
	src, err := e.ref(from)
	if err != nil {
		return err
	}
	e.b.Rename(src, dst, 0)
	return nil
}

// errSymlink is returned for a key whose value is to be replaced, and that has none.
var errSymlink = errors.New("is a symbolic link")

// blockedError says that there is a file or a symbolic link at path, below which something is to be.
type blockedError struct{ path string }

func (e *blockedError) Error() string {
	return fmt.Sprintf("%q is a key, not a directory", pathKey(e.path))
}

func (e *blockedError) Is(target error) bool { return target == backend.ErrNotDir }

// walk is backend.Walk that says what is in the way.
func walk(s backend.Snapshot, path string) (backend.Entry, error) {
	e, err := backend.Walk(s, path)
	if !errors.Is(err, backend.ErrNotDir) {
		return e, err
	}
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if e, err := backend.Walk(s, path[:i]); err == nil && e.Kind != backend.Dir {
			return e, &blockedError{path[:i]}
		}
	}
	return e, err
}

// splitPath returns the directory and the name.
func splitPath(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// ownAttr returns what a new entry of this user gets: mode without the bits of the umask.
func ownAttr(mode uint32) backend.Attr {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return backend.Attr{Mode: mode &^ uint32(mask), UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
}
