package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

const (
	mergeWidth = 4         // tables of one tier that stand together before they are merged
	maxTables  = 24        // more than that are merged whatever their sizes
	mergeByte  = 1<<62 + 1 // of the lock file: held by the process that merges
)

// tier is the size class of a table: below 64 KiB, below 256 KiB, below 1 MiB and so on.
func tier(n uint64) int { return (bits.Len64(n>>16) + 1) / 2 }

// dueMerge returns the range of tables to be merged next, empty if none: the smallest tier of which mergeWidth
// tables stand together with none of a higher tier between them. So every record is written again once a tier.
func dueMerge(tabs []tabInfo) (from, to int) {
	top := 0
	for _, t := range tabs {
		top = max(top, tier(t.length))
	}
	for level := 0; level <= top; level++ {
		n := 0
		for i, j := 0, 0; j < len(tabs); j++ {
			switch k := tier(tabs[j].length); {
			case k > level:
				i, n = j+1, 0
			case k == level:
				n++
			}
			if n >= mergeWidth && (j+1 == len(tabs) || tier(tabs[j+1].length) > level) {
				return i, j + 1
			}
		}
	}
	if len(tabs) > maxTables {
		return len(tabs) / 2, len(tabs)
	}
	return 0, 0
}

// Compact moves all records into one table.
func (s *Store) Compact(ctx context.Context) error {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.bareHead(ctx); err != nil {
		return err
	}
	_, err := s.merge(ctx, func(tabs []tabInfo) (int, int) {
		if len(tabs) < 2 {
			return 0, 0
		}
		return 0, len(tabs)
	})
	return err
}

// bareHead moves the records of HEAD into a table.
func (s *Store) bareHead(ctx context.Context) error {
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.commitLocked(func(g *group) {
		if len(g.h.recs) > 0 {
			g.h, g.bare = g.next(), true
		}
	})
}

// merge makes one merge of the tables that choose returns; false if there is nothing to do, or another does it.
func (s *Store) merge(ctx context.Context, choose func([]tabInfo) (from, to int)) (bool, error) {
	p, err := s.pinNewest()
	if err != nil {
		return false, err
	}
	defer s.unpin(p)
	if from, to := choose(p.h.tabs); from == to {
		return false, nil
	}
	done, ok, err := s.disk.LockByte(s.lock, mergeByte)
	if err != nil || !ok {
		return false, err
	}
	defer done()
	// Another process may have merged between the pin and the lock.
	q, err := s.pinNewest()
	if err != nil {
		return false, err
	}
	defer s.unpin(q)
	from, to := choose(q.h.tabs)
	if from == to {
		return false, nil
	}
	f, err := s.tempFile()
	if err != nil {
		return false, err
	}
	w, history, err := s.writeMerged(ctx, q, from, to, f)
	ok = false
	if err == nil {
		ok, err = s.swapMerged(ctx, q, from, to, w, history)
	}
	if !ok {
		s.disk.Remove(f.Name())
		f.Close()
	}
	if err != nil {
		return false, fmt.Errorf("merge tables: %w", err)
	}
	s.count.merges.Add(1)
	return true, nil
}

// writeMerged writes the newest record of each key of the tables from to to. Old removals go if there is no older table.
func (s *Store) writeMerged(ctx context.Context, p *pin, from, to int, f *disk.File) (*tableWriter, uint64, error) {
	var cs []*cursor
	for i := to - 1; i >= from; i-- {
		c, err := tableCursor(p.tabs.list[i])
		if err != nil {
			return nil, 0, err
		}
		c.once = true
		cs = append(cs, c)
	}
	w := newTableWriter(f, bufio.NewWriterSize(nil, 128<<10), 0)
	history := p.h.history
	n := 0
	for r, err := range mergeFrom(cs, 0, "") {
		if n++; err == nil && n%1024 == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return nil, 0, err
		}
		if from == 0 && r.kind() == recTomb && r.rev()+keepRemovals < p.h.gen {
			history = max(history, r.rev())
			continue
		}
		if err := w.add(r); err != nil {
			return nil, 0, err
		}
	}
	return w, history, w.body()
}

// swapMerged puts the merged table in the place of those it was made of; false if it did not.
func (s *Store) swapMerged(ctx context.Context, p *pin, from, to int, w *tableWriter, history uint64) (bool, error) {
	if s.opt.Sync == Always { // nearly all of it while nobody waits
		if err := w.f.Sync(); err != nil {
			return false, err
		}
	}
	release, err := s.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	now, err := s.pinNewest()
	if err != nil {
		return false, err
	}
	defer s.unpin(now)
	if len(now.h.tabs) < to || !slices.Equal(now.h.tabs[:to], p.h.tabs[:to]) {
		return false, nil // cannot be while mergeByte is held; the merge is simply lost
	}
	h := *now.h
	h.seq++
	h.history = max(h.history, history)
	id, err := s.claimID(&h, s.tablePath)
	if err != nil {
		return false, err
	}
	w.info.id = id
	nt := &table{s: s, id: w.info.id, path: s.tablePath(w.info.id)}
	if err := s.nameMerged(w, nt); err != nil {
		s.disk.Remove(nt.path)
		return false, err
	}
	h.tabs = slices.Concat(h.tabs[:from], []tabInfo{nt.meta.Load().info}, h.tabs[to:])
	if err := s.installLocked(now, &h, nt); err != nil {
		if !errors.Is(err, backend.ErrIndeterminate) {
			s.disk.Remove(nt.path)
		}
		return false, err
	}
	var gone []trash
	for _, t := range now.h.tabs[from:to] {
		gone = append(gone, trash{t.id, false, h.seq})
	}
	s.discard(gone)
	return true, nil
}

// nameMerged gives the table its last part and its place.
func (s *Store) nameMerged(w *tableWriter, nt *table) error {
	m, err := w.footer()
	if err == nil {
		err = w.f.Chmod(s.fileMode)
	}
	if err == nil {
		err = s.disk.Rename(w.f.Name(), nt.path)
	}
	if err == nil && s.opt.Sync == Always {
		if err = w.f.Sync(); err == nil {
			err = s.disk.Sync(s.dir + "/index")
		}
	}
	nt.meta.Store(m)
	return err
}
