package filestore

import (
	"io/fs"
	"path/filepath"
	"syscall"
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
	err = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == s.dir {
			return nil // removed meanwhile
		}
		dir := filepath.Dir(path)
		switch {
		case dir == s.dir && !ours(d.Name()) && d.IsDir():
			return fs.SkipDir
		case dir == s.dir && !ours(d.Name()) || !d.Type().IsRegular():
			return nil
		case dir == s.dir && isSpare(d.Name()):
			i.Spares++
		case dir == filepath.Join(s.dir, "snapshots"):
			i.Snapshots++
		}
		i.DiskFiles++
		if fi, err := d.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				i.DiskBytes += st.Blocks * 512
			}
		}
		return nil
	})
	return i, err
}
