package backend

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound is returned when there is nothing at a place, or its directory does not exist.
	ErrNotFound = errors.New("no such key")
	// ErrExists is returned by operations that must not replace, and by Reserve.
	ErrExists = errors.New("key exists")
	// ErrNotEmpty is returned when a directory that has entries would go.
	ErrNotEmpty = errors.New("directory not empty")
	// ErrIsDir is returned where a directory stands and none may.
	ErrIsDir = errors.New("is a directory")
	// ErrNotDir is returned where something else than a directory stands and one must.
	ErrNotDir = errors.New("not a directory")
	// ErrInvalid is returned for an operation that can never work, such as moving a directory into itself.
	ErrInvalid = errors.New("invalid operation")
	// ErrName is returned for a name that no directory can hold. The detail is a *NameError.
	ErrName = errors.New("invalid name")
	// ErrConflict is returned by Commit when an expectation of the batch does not hold.
	ErrConflict = errors.New("changed by someone else meanwhile")
	// ErrTooLarge is returned by Commit and stages when a value would be longer than allowed.
	ErrTooLarge = errors.New("value too large")
	// ErrReadOnly is returned by everything that would change a store opened for reading only.
	ErrReadOnly = errors.New("read-only store")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("closed")
	// ErrCorrupt is returned when stored bytes are not what was written. The detail is a *CorruptError.
	ErrCorrupt = errors.New("damaged store")
	// ErrFormat is returned by opening what is no store, or one of a newer format.
	ErrFormat = errors.New("not a store of a known format")
	// ErrIndeterminate is returned by Commit when it cannot tell whether the commit point was reached.
	ErrIndeterminate = errors.New("outcome unknown")
	// ErrHistoryGone is yielded by Watch when what changed since the asked generation is no longer known.
	ErrHistoryGone = errors.New("history no longer known")
)

// CorruptError says where damage was found.
type CorruptError struct {
	Path   string // the file
	Offset int64  // byte offset in it of the block, record or field that is wrong
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: damaged at byte %d: %s", e.Path, e.Offset, e.Reason)
}

func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// NameError says what is wrong with a name.
type NameError struct {
	Name   string
	Reason string
}

func (e *NameError) Error() string { return fmt.Sprintf("name %q %s", e.Name, e.Reason) }

func (e *NameError) Is(target error) bool { return target == ErrName }
