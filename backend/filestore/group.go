package filestore

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// A group that has reached one of these bounds takes no further commits.
const (
	groupCommits = 64
	groupBytes   = 1 << 20 // of values written to volumes
)

// group is commits that are made in one HEAD, each on what those before it leave.
type group struct {
	s    *Store
	base *pin
	h    *head // what they leave
	txs  []*tx
	bare bool // no records are to be left in HEAD, however few there are
}

// commitLocked installs what fill puts into a group.
func (s *Store) commitLocked(fill func(*group)) error {
	p, err := s.pinNewest()
	if err != nil {
		return err
	}
	defer s.unpin(p)
	g := &group{s: s, base: p, h: p.h}
	fill(g)
	return g.installLocked()
}

// full says whether the group is to be installed before anything else is added.
func (g *group) full() bool {
	written := uint64(0)
	for _, t := range g.txs {
		written += t.written
	}
	return len(g.txs) >= groupCommits || g.h.recBytes > g.s.sizes.head || written >= groupBytes
}

// next returns what the next commit may change, to be taken over by add.
func (g *group) next() *head {
	h := *g.h
	h.seq = g.base.h.seq + 1
	return &h
}

// view shows what the commits so far leave.
func (g *group) view() *snapshot {
	if len(g.txs) == 0 {
		return &snapshot{p: g.base}
	}
	return &snapshot{p: &pin{s: g.s, h: g.h, tabs: g.base.tabs}}
}

// commit adds a commit of b; what it returns stands when the group is installed. After an error nothing is added.
func (g *group) commit(b *backend.Batch) (backend.Committed, error) {
	h := g.next()
	h.gen, h.time = h.gen+1, time.Now().UnixNano()
	changes, err := backend.Resolve(g.view(), b, backend.Generation(h.gen), h.time, func() backend.Ino {
		h.nextIno++
		return backend.Ino(h.nextIno - 1)
	})
	if err != nil {
		return backend.Committed{}, err
	}
	if len(changes) == 0 {
		return backend.Committed{Generation: backend.Generation(g.h.gen)}, nil
	}
	t := &tx{s: g.s, base: g.base, h: h}
	for i := range changes {
		if err := t.apply(&changes[i]); err != nil {
			t.release()
			t.undo()
			return backend.Committed{}, fmt.Errorf("commit: generation %d: %w", h.gen, err)
		}
		changes[i].Own = true
	}
	g.add(t)
	return backend.Committed{Generation: backend.Generation(h.gen), Changes: changes}, nil
}

// add takes over what t has done.
func (g *group) add(t *tx) {
	t.release()
	t.finish()
	g.txs, g.h = append(g.txs, t), t.h
}

// installLocked makes the commits, or none of them.
func (g *group) installLocked() error {
	if len(g.txs) == 0 && !g.bare {
		return nil
	}
	s, first, last := g.s, g.base.h.gen+1, g.h.gen
	s.noteOwn(first, last)
	if err := g.writeLocked(); err != nil {
		s.disown(first, last)
		if !errors.Is(err, backend.ErrIndeterminate) {
			for _, t := range g.txs {
				t.undo()
			}
		}
		return err
	}
	if last >= first {
		s.count.commits.Add(last + 1 - first)
	}
	signal(s.dirty)
	for _, t := range g.txs {
		if len(t.trash) > 0 {
			s.discard(t.trash)
			signal(s.kick)
		}
	}
	return nil
}

// writeLocked syncs what must be, moves the records out of a HEAD that is too long, and installs it.
func (g *group) writeLocked() error {
	s := g.s
	if s.opt.Sync == Always {
		if err := g.sync(); err != nil {
			return err
		}
	}
	var added []*table
	if g.h.recBytes > s.sizes.head || g.bare {
		nt, err := s.spillLocked(g.h)
		if err != nil && !(errors.Is(err, unix.ENOSPC) && g.h.recBytes < spareSize-4096) {
			return err
		}
		if nt != nil {
			added = append(added, nt)
		}
	}
	if err := s.installLocked(g.base, g.h, added...); err != nil {
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

// sync syncs the shared volumes that were written to, and their folder if there are new files in it.
func (g *group) sync() error {
	synced, newFile := map[uint64]bool{}, false
	for _, t := range g.txs {
		newFile = newFile || t.newFile
		for _, id := range t.wrote {
			if synced[id] {
				continue
			}
			synced[id] = true
			v, err := g.s.vols.get(id)
			if err != nil {
				return err
			}
			err = v.f.Datasync()
			g.s.vols.put(v)
			if err != nil {
				return err
			}
		}
	}
	if newFile {
		return g.s.disk.Sync(g.s.dir + "/data")
	}
	return nil
}
