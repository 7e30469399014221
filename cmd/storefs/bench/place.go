package bench

import (
	"fmt"
	"os"

	"github.com/storefs/storefs/backend/filestore"
)

// Kind says what the place is that is measured.
type Kind string

const (
	Directory Kind = "directory" // plain files: writing in place is seen by readers as it goes on, so reading takes a lock
	Mount     Kind = "mount"     // a directory of a storefs mount
	Store     Kind = "store"     // a store, through package filestore
)

// Spec describes a place, for another process too.
type Spec struct {
	Kind     Kind
	Path     string
	ReadFrom string             // directories: where reading goes, another mount of the same store; "" is Path
	Sync     filestore.SyncMode // stores
	Under    string             // the directory in it where everything happens
}

// place is where keys are kept. Keys are names in one directory. Not safe for concurrent use.
type place interface {
	read(key string, buf []byte) ([]byte, error) // the whole value, in buf if that is long enough
	write(key string, value []byte) error
	increment(key string) error // adds one to a value that counter made, which nobody else does meanwhile
	unlink(key string) error
	missing(key string) error                          // looks for a key that is not there
	list() (n int, err error)                          // counts the keys
	fill(first, end int, value func(int) []byte) error // makes the keys keyName(first) to keyName(end-1)
	remove() error                                     // removes the directory and all in it
	close() error
}

// files is what a place can do that consists of files.
type files interface {
	replace(key string, value []byte) error // through a new file
	stat(key string) error
}

// engine is what a place can do that is a store.
type engine interface {
	reopen() error
	compact() error
	bytesOnDisk() (int64, error)
}

func (s Spec) open() (place, error) {
	if s.Kind == Store {
		return openStore(s)
	}
	return openDirectory(s)
}

// in returns the same place with another directory in it.
func (s Spec) in(under string) Spec {
	s.Under = under
	return s
}

func ownName() string { return fmt.Sprintf("storefs-bench-%d", os.Getpid()) }

func keyName(i int) string { return fmt.Sprintf("k%08d", i) }
