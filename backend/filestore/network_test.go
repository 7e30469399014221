package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend/filestore/disk"
)

// A store on a file system of several machines can be read, and not made or changed.
func TestNetworkFileSystemIsRefused(t *testing.T) {
	local := t.TempDir()
	s, err := Open(local, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	nfs := disk.New(func(c *disk.Call) error {
		err := c.Do()
		if c.Op == disk.Statfs && err == nil {
			c.Space().Type = 0x6969
		}
		return err
	})
	made := t.TempDir() + "/new/store"
	for _, dir := range []string{local, made} {
		s, err := Open(dir, &Options{Create: true, Disk: nfs})
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "nfs") || !strings.Contains(err.Error(), "local disk") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := os.Lstat(filepath.Dir(made)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	s, err = Open(local, &Options{ReadOnly: true, Disk: nfs})
	if err != nil {
		t.Fatalf("for reading: %v", err)
	}
	s.Close()
}

// A file system on which everybody gets every lock holds no store.
func TestFileSystemWithoutLocksIsRefused(t *testing.T) {
	dir := t.TempDir()
	useless := disk.New(func(c *disk.Call) error {
		if c.Op == disk.Flock {
			c.Grant()
			return nil
		}
		return c.Do()
	})
	s, err := Open(dir, &Options{Create: true, Disk: useless})
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "flock") {
		t.Error(err)
	}
}
