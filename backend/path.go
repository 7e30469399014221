package backend

import (
	"errors"
	"fmt"
	"strings"
)

// Walk returns the entry at a path of names separated by slashes; "" is the root. ErrNotFound if there is none,
// ErrNotDir if something on the way is no directory. Symbolic links are not followed.
func Walk(s Snapshot, path string) (Entry, error) {
	e, err := s.Lookup(RootRef)
	if err != nil || path == "" {
		return e, err
	}
	for name := range strings.SplitSeq(path, "/") {
		if e.Kind != Dir {
			return Entry{}, fmt.Errorf("key %q: %w", path, ErrNotDir)
		}
		if e, err = s.Lookup(Ref{e.Ino, name}); err != nil {
			if errors.Is(err, ErrNotFound) {
				err = fmt.Errorf("key %q: %w", path, ErrNotFound)
			}
			return Entry{}, err
		}
	}
	return e, nil
}

// Path returns the path at which ref stands, as Walk takes it.
func Path(s Snapshot, ref Ref) (string, error) {
	if ref == RootRef {
		return "", nil
	}
	path := ref.Name
	for ref.Dir != RootIno {
		var err error
		if ref, err = s.Parent(ref.Dir); err != nil {
			return "", err
		}
		path = ref.Name + "/" + path
	}
	return path, nil
}
