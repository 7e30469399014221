package filestore

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// Finding is one thing that is wrong with a store.
type Finding struct {
	Path     string // of the file, relative to the store
	Offset   int64  // in it
	Reason   string
	Snapshot string // the name of the generation that it was found in; "" for the newest, and for what is no generation's
	Keys     []Key  // that it concerns, as far as they can be known
	From     *Key   // where they are known as a run only: its first; nil if Keys says all
	Before   *Key   // what comes after it; nil if nothing does
}

// Key is a place as a path from the root, which ends with a slash if it is all of a directory.
type Key struct {
	Path string
	Dir  backend.Ino // not 0: where this directory stands is not known, and Path begins in it
}

func (k Key) String() string {
	if k.Dir != 0 {
		return fmt.Sprintf("%q in directory %d", k.Path, k.Dir)
	}
	return fmt.Sprintf("%q", k.Path)
}

func (f Finding) String() string {
	text := fmt.Sprintf("%s: damaged at byte %d: %s", f.Path, f.Offset, f.Reason)
	if f.Snapshot != "" {
		text = fmt.Sprintf("snapshot %q: %s", f.Snapshot, text)
	}
	for i, k := range f.Keys {
		text += []string{": key ", ", key "}[min(i, 1)] + k.String()
	}
	switch {
	case f.From != nil && f.Before != nil:
		text += fmt.Sprintf(": keys from %v to before %v", f.From, f.Before)
	case f.From != nil:
		text += fmt.Sprintf(": keys from %v on", f.From)
	}
	return text
}

// isDamage says whether err is about what is on the disk, rather than about what kept from looking at it.
func isDamage(err error) bool {
	return errors.Is(err, backend.ErrCorrupt) || errors.Is(err, backend.ErrFormat) || slices.ContainsFunc(
		[]error{unix.EIO, unix.EUCLEAN, unix.EBADMSG, unix.EISDIR, unix.ENOTDIR, unix.ELOOP, unix.ENXIO}, func(e error) bool { return errors.Is(err, e) })
}

// finding returns what err, for which isDamage holds, says.
func (s *Store) finding(err error) Finding {
	var c *backend.CorruptError
	var p *os.PathError
	switch {
	case errors.As(err, &c):
		return Finding{Path: s.relative(c.Path), Offset: c.Offset, Reason: c.Reason}
	case errors.As(err, &p):
		return Finding{Path: s.relative(p.Path), Reason: p.Op + ": " + p.Err.Error()}
	}
	return Finding{Reason: err.Error()}
}

// relative returns the path as it is from the store's directory; that itself is ".".
func (s *Store) relative(path string) string {
	if path == s.dir {
		return "."
	}
	return strings.TrimPrefix(path, s.dir+"/")
}
