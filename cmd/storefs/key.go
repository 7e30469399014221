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

// reserved is the name at the root under which a mount shows its own files.
const reserved = ".storefs"

// checkKey returns an error unless key is a path that a mount can show: names separated by single slashes.
func checkKey(key string) error {
	if key == "" {
		return errors.New(`key "": is empty`)
	}
	names := strings.Split(key, "/")
	for _, name := range names {
		if name == "" {
			return hinted(fmt.Errorf("key %q: has an empty name in it", key), "no slash at the beginning, at the end, or twice")
		}
		if err := backend.ValidName(name); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
	}
	if names[0] == reserved {
		return fmt.Errorf("key %q: %s at the root is reserved", key, reserved)
	}
	return nil
}

// place returns where key stands, whether or not there is anything. The error is about a directory on the way: ErrNotFound if
// it does not exist.
func place(s backend.Snapshot, key string) (backend.Ref, error) {
	parent, name := "", key
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		parent, name = key[:i], key[i+1:]
	}
	e, err := backend.Walk(s, parent)
	if err != nil {
		return backend.Ref{}, err
	}
	if e.Kind != backend.Dir {
		return backend.Ref{}, fmt.Errorf("key %q: %w", parent, backend.ErrNotDir)
	}
	return backend.Ref{Dir: e.Ino, Name: name}, nil
}

// placeMaking is place, but makes the directories that are missing on the way. Each is a commit of its own,
// because a batch cannot name a directory that it makes itself.
func placeMaking(ctx context.Context, st backend.Store, key string) (backend.Ref, error) {
	ref := backend.Ref{Dir: backend.RootIno}
	rest := key
	for {
		name, after, deeper := strings.Cut(rest, "/")
		ref.Name = name
		if !deeper {
			return ref, nil
		}
		dir, err := ensureDir(ctx, st, ref)
		if err != nil {
			return ref, err
		}
		ref.Dir, rest = dir, after
	}
}

// ensureDir returns the directory at ref, which it makes if there is nothing.
func ensureDir(ctx context.Context, st backend.Store, ref backend.Ref) (backend.Ino, error) {
	for {
		e, err := lookup(ctx, st, ref)
		if err == nil && e.Kind != backend.Dir {
			return 0, backend.ErrNotDir
		}
		if err == nil || !errors.Is(err, backend.ErrNotFound) {
			return e.Ino, err
		}
		var b backend.Batch
		b.Mkdir(ref, ownAttr(0o777))
		done, err := st.Commit(ctx, &b)
		if errors.Is(err, backend.ErrExists) {
			continue // someone else has made it meanwhile
		}
		if err != nil {
			return 0, err
		}
		if e, ok := done.Entry(ref); ok {
			return e.Ino, nil
		}
	}
}

func lookup(ctx context.Context, st backend.Store, ref backend.Ref) (backend.Entry, error) {
	s, err := st.Snapshot(ctx)
	if err != nil {
		return backend.Entry{}, err
	}
	defer s.Close()
	return s.Lookup(ref)
}

// inPlace runs commit with the place of key, whose missing directories it makes first, again for as long as someone
// removes one of them between the two.
func inPlace(ctx context.Context, st backend.Store, key string, commit func(backend.Ref) error) error {
	const tries = 100 // a directory that comes and goes faster than this is not going to stay
	for try := 1; ; try++ {
		ref, err := placeMaking(ctx, st, key)
		if err == nil {
			err = commit(ref)
		}
		if !errors.Is(err, backend.ErrNotFound) || try == tries {
			return err
		}
	}
}

// ownAttr returns what a new entry of this user gets: mode without the bits of the umask.
func ownAttr(mode uint32) backend.Attr {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return backend.Attr{Mode: mode &^ uint32(mask), UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
}
