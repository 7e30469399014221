package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/lockmgr"
)

// Commit implements backend.Store.
func (s *Store) Commit(ctx context.Context, b *backend.Batch) (backend.Committed, error) {
	if s.opt.ReadOnly {
		return backend.Committed{}, backend.ErrReadOnly
	}
	s.life.RLock()
	defer s.life.RUnlock()
	release, err := s.acquire(ctx)
	if err != nil {
		return backend.Committed{}, fmt.Errorf("commit: %w", err)
	}
	defer release()
	c, err := s.commitLocked(b)
	if err == nil && len(c.Changes) > 0 {
		s.count.commits.Add(1)
		signal(s.dirty)
	}
	return c, err
}

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

func (s *Store) commitLocked(b *backend.Batch) (backend.Committed, error) {
	var none backend.Committed
	p, err := s.pinNewest()
	if err != nil {
		return none, err
	}
	defer s.unpin(p)
	h := *p.h
	h.gen, h.seq, h.time = h.gen+1, h.seq+1, time.Now().UnixNano()
	changes, err := backend.Resolve(&snapshot{p: p}, b, backend.Generation(h.gen), h.time, func() backend.Ino {
		h.nextIno++
		return backend.Ino(h.nextIno - 1)
	})
	if err != nil {
		return none, err
	}
	if len(changes) == 0 {
		return backend.Committed{Generation: backend.Generation(p.h.gen)}, nil
	}
	t := &tx{s: s, base: p, h: &h}
	if err := s.makeLocked(t, changes); err != nil {
		if !errors.Is(err, backend.ErrIndeterminate) {
			t.undo()
		}
		return none, fmt.Errorf("commit generation %d: %w", h.gen, err)
	}
	for _, j := range t.joins {
		j.st.joined = true
	}
	for i := range changes {
		changes[i].Own = true
	}
	if len(t.trash) > 0 {
		s.discard(t.trash)
		signal(s.kick)
	}
	return backend.Committed{Generation: backend.Generation(h.gen), Changes: changes}, nil
}

func (s *Store) makeLocked(t *tx, changes []backend.Change) error {
	for i := range changes {
		if err := t.apply(&changes[i]); err != nil {
			t.release()
			return err
		}
	}
	t.finish()
	if err := t.release(); err != nil {
		return err
	}
	if t.newFile && s.opt.Sync == Always {
		if err := s.disk.Sync(s.dir + "/data"); err != nil {
			return err
		}
	}
	var added []*table
	if t.h.recBytes > headBound {
		nt, err := s.spillLocked(t.h)
		if err != nil && !(errors.Is(err, unix.ENOSPC) && t.h.recBytes < spareSize-4096) {
			return err
		}
		if nt != nil {
			added = append(added, nt)
		}
	}
	s.noteOwn(t.h.gen)
	if err := s.installLocked(t.base, t.h, added...); err != nil {
		s.disown(t.h.gen)
		for _, nt := range added {
			nt.meta.Load().f.Close()
			if !errors.Is(err, backend.ErrIndeterminate) {
				s.disk.Remove(nt.path)
			}
		}
		return err
	}
	if len(added) > 0 {
		s.count.spills.Add(1)
		signal(s.kick)
	}
	return nil
}

// spillLocked moves all records of h, which is not installed yet, into a new table.
func (s *Store) spillLocked(h *head) (*table, error) {
	id := h.nextID
	path := s.tablePath(id)
	if err := s.disk.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
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
	h.nextID++
	h.tabs = append(slices.Clone(h.tabs), m.info)
	h.recs, h.recBytes = nil, 0
	return nt, nil
}

const manyOwn = 8192

// noteOwn remembers that this Store value made the generation.
func (s *Store) noteOwn(gen uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[gen] = true
	delete(s.own, gen-manyOwn)
	if len(s.own) > 2*manyOwn { // most were followed by others' commits
		for g := range s.own {
			if g+manyOwn < gen {
				delete(s.own, g)
			}
		}
	}
}

func (s *Store) disown(gen uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, gen)
}
