package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/storefs/storefs/backend"
)

// Info describes a store.
type Info struct {
	Path       string
	Format     int // version
	Generation backend.Generation
	Files      uint64 // symbolic links among them
	Dirs       uint64 // the root among them
	Bytes      uint64 // of all values
	DiskFiles  int    // regular files that the store is made of; those of snapshots among them
	DiskBytes  int64  // that they take on disk
	Tables     int
	Volumes    int
	Spares     int
	Snapshots  int      // that have names
	Sync       SyncMode // of this Store value
	LastCommit time.Time
}

// Info returns what is so now; what is on disk may change while it is being counted.
func (s *Store) Info() (Info, error) {
	p, err := s.pinNewest()
	if err != nil {
		return Info{}, err
	}
	defer s.unpin(p)
	h := p.h
	i := Info{Path: s.dir, Format: formatVer, Generation: backend.Generation(h.gen), Files: h.files, Dirs: h.dirs, Bytes: h.bytes,
		Tables: len(h.tabs), Volumes: len(h.vols) + int(h.solos), Sync: s.opt.Sync, LastCommit: time.Unix(0, h.time)}
	for _, d := range []string{"", "index", "data", "snapshots", "tmp", "locks"} {
		if err := s.countFiles(d, &i); err != nil && !errors.Is(err, os.ErrNotExist) {
			return i, err
		}
	}
	return i, nil
}

// countFiles adds the store's files in one of its folders, "" for that which holds the others.
func (s *Store) countFiles(folder string, i *Info) error {
	entries, err := s.disk.ReadDir(filepath.Join(s.dir, folder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || folder == "" && !ours(e.Name()) {
			continue
		}
		fi, err := s.disk.Lstat(filepath.Join(s.dir, folder, e.Name()))
		if errors.Is(err, os.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case folder == "" && isSpare(e.Name()):
			i.Spares++
		case folder == "snapshots":
			i.Snapshots++
		}
		i.DiskFiles++
		i.DiskBytes += fi.Blocks * 512
	}
	return nil
}
