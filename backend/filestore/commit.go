package filestore

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/lockmgr"
)

// acquire takes the commit lock.
func (s *Store) acquire(ctx context.Context) (func(), error) {
	if s.isClosed() {
		return nil, backend.ErrClosed
	}
	release, err := s.disk.Acquire(ctx, s.lock)
	if errors.Is(err, lockmgr.ErrClosed) || err != nil && s.isClosed() {
		err = backend.ErrClosed
	}
	return release, err
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// spillLocked moves all records of h, which is not installed yet, into a new table.
func (s *Store) spillLocked(h *head) (*table, error) {
	id, err := s.claimID(h, s.tablePath)
	if err != nil {
		return nil, err
	}
	path := s.tablePath(id)
	f, err := s.disk.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	w := newTableWriter(f, s.spillBuf, id)
	for _, r := range h.recs {
		if err = w.add(r); err != nil {
			break
		}
	}
	var m *tableMeta
	if err == nil {
		m, err = w.finish()
	}
	if err == nil && s.opt.Sync == Always {
		if err = f.Sync(); err == nil {
			err = s.disk.Sync(s.dir + "/index")
		}
	}
	if err != nil {
		f.Close()
		s.disk.Remove(path)
		return nil, err
	}
	nt := &table{s: s, id: id, path: path}
	nt.meta.Store(m)
	h.tabs = append(slices.Clone(h.tabs), m.info)
	h.recs, h.recBytes = nil, 0
	return nt, nil
}

const manyOwn = 8192

// noteOwn remembers that this Store value made the generations from first to last.
func (s *Store) noteOwn(first, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gen := first; gen <= last; gen++ {
		s.own[gen] = true
		delete(s.own, gen-manyOwn)
	}
	if len(s.own) > 2*manyOwn { // most were followed by others' commits
		for g := range s.own {
			if g+manyOwn < last {
				delete(s.own, g)
			}
		}
	}
}

func (s *Store) disown(first, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gen := first; gen <= last; gen++ {
		delete(s.own, gen)
	}
}
