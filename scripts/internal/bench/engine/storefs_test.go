package engine

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

type storefs struct {
	dir string
	o   filestore.Options
	st  *filestore.Store
}

var ctx = context.Background()

func openStorefs(dir string, sync bool) (db, error) {
	s := &storefs{dir: filepath.Join(dir, "kv"), o: filestore.Options{Create: true, Sync: filestore.Never}}
	if sync {
		s.o.Sync = filestore.Always
	}
	return s, s.open()
}

func (s *storefs) open() (err error) {
	s.st, err = filestore.Open(s.dir, &s.o)
	return err
}

func at(key string) backend.Ref { return backend.Ref{Dir: backend.RootIno, Name: key} }

func read(s backend.Snapshot, key string) (int, error) {
	e, err := s.Lookup(at(key))
	if err != nil {
		return 0, err
	}
	v, err := s.Open(e)
	if err != nil {
		return 0, err
	}
	defer v.Close()
	var buf [size]byte
	return v.ReadAt(buf[:], 0)
}

func (s *storefs) get(key string) (int, error) {
	snap, err := s.st.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	return read(snap, key)
}

func (s *storefs) pinned(fn func(func(string) (int, error)) error) error {
	snap, err := s.st.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snap.Close()
	return fn(func(key string) (int, error) { return read(snap, key) })
}

func (s *storefs) put(keys []string, value []byte) error {
	var b backend.Batch
	for _, key := range keys {
		st, err := s.st.NewStage()
		if err != nil {
			return err
		}
		defer st.Close()
		if _, err := st.WriteAt(value, 0); err != nil {
			return err
		}
		b.Put(at(key), st, &backend.Attr{Mode: 0o644}, backend.AttrChange{})
	}
	_, err := s.st.Commit(ctx, &b)
	return err
}

func (s *storefs) scan(first string, n int) (found int, err error) {
	snap, err := s.st.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	after := first[:len(first)-1] + string(first[len(first)-1]-1) + strings.Repeat("~", 10) // just before first
	for e, err := range snap.List(backend.RootIno, after) {
		if err != nil {
			return found, err
		}
		_ = e
		if found++; found == n {
			break
		}
	}
	return found, nil
}

func (s *storefs) reopen() error {
	if err := s.st.Close(); err != nil {
		return err
	}
	return s.open()
}

func (s *storefs) close() error { return s.st.Close() }
