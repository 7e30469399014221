package filestore

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// candidate is a HEAD file found after a power failure.
type candidate struct {
	name string
	h    *head
	err  error
}

// candidates reads HEAD and all spares, the newest first.
func (s *Store) candidates() ([]candidate, error) {
	names, err := s.listSpares()
	if err != nil {
		return nil, err
	}
	var cs []candidate
	for _, n := range append([]string{"HEAD"}, names...) {
		c := candidate{name: n}
		var f *disk.File
		if f, c.err = s.openHead(n, os.O_RDONLY); c.err == nil {
			c.h, c.err = readHeadFile(f, f.Name())
			f.Close()
		}
		if n != "HEAD" && errors.Is(c.err, errForeign) {
			continue
		}
		cs = append(cs, c)
	}
	// Of equal sequence numbers the later is right: the other was never named HEAD.
	slices.SortStableFunc(cs, func(a, b candidate) int {
		switch {
		case a.h == nil || b.h == nil:
			return cmp.Compare(btoi(a.h == nil), btoi(b.h == nil))
		case a.h.seq != b.h.seq:
			return cmp.Compare(b.h.seq, a.h.seq)
		}
		return cmp.Compare(b.h.time, a.h.time)
	})
	return cs, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// comparable is candidates, if it is known of each what it is: one of a newer format, or that cannot be read now, may be the newest.
func (s *Store) comparable() ([]candidate, error) {
	cs, err := s.candidates()
	for _, c := range cs {
		if c.err != nil && !errors.Is(c.err, backend.ErrCorrupt) && !errors.Is(c.err, os.ErrNotExist) {
			return nil, c.err
		}
	}
	return cs, err
}

// spareGeneration says whether a spare holds a generation.
func spareGeneration(cs []candidate) bool {
	return slices.ContainsFunc(cs, func(c candidate) bool { return c.h != nil && c.name != "HEAD" })
}

// recover finds the newest generation. If the machine was started anew since HEAD was written, or HEAD is no good and
// nothing was written since the start, that is the newest one which is whole. HEAD damaged while the machine ran is an error.
func (s *Store) recover() error {
	p, err := s.pinNewest()
	if err == nil {
		defer s.unpin(p)
		if p.h.boot == s.boot {
			if d := s.readDurable(); d.seq > p.h.seq {
				return s.notOlder(p, d.seq)
			}
			return nil
		}
		if s.opt.ReadOnly {
			return s.wholeReadOnly(p)
		}
	} else if s.opt.ReadOnly && s.unrecovered() {
		return s.mustRecover()
	} else if !errors.Is(err, backend.ErrCorrupt) && !errors.Is(err, os.ErrNotExist) || s.opt.ReadOnly {
		return s.headGone(err)
	}
	release, lerr := s.disk.Acquire(s.ctx, s.lock)
	if lerr != nil {
		return lerr
	}
	defer release()
	if p, err := s.pinNewest(); err == nil { // another may have recovered it meanwhile
		defer s.unpin(p)
		if p.h.boot == s.boot {
			return nil
		}
	} else if !errors.Is(err, backend.ErrCorrupt) && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cs, cerr := s.comparable()
	if cerr != nil {
		return cerr
	}
	if err != nil && slices.ContainsFunc(cs, func(c candidate) bool { return c.h != nil && c.h.boot == s.boot }) {
		return s.headGone(err)
	}
	why := err
	for _, c := range cs {
		if c.err == nil {
			c.err = s.whole(c.h)
		}
		if c.err == nil {
			return s.restoreLocked(c.h, cs)
		}
		if why == nil || c.name == "HEAD" {
			why = c.err
		}
		if !errors.Is(c.err, backend.ErrCorrupt) && !errors.Is(c.err, os.ErrNotExist) { // not readable now
			return c.err
		}
	}
	return s.headGone(why)
}

// headGone makes damage of the lack of a HEAD in what is a store.
func (s *Store) headGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &backend.CorruptError{Path: filepath.Join(s.dir, "HEAD"), Reason: "the file is gone"}
	}
	return err
}

// restoreLocked makes h the newest generation again.
func (s *Store) restoreLocked(h *head, cs []candidate) error {
	n := *h
	for _, c := range cs {
		if c.h != nil {
			n.seq = max(n.seq, c.h.seq)
			n.nextID = max(n.nextID, c.h.nextID)
			n.nextIno = max(n.nextIno, c.h.nextIno) // those of lost generations may be known to someone
		}
	}
	if err := s.beyondSnapshots(&n); err != nil {
		return err
	}
	n.nextIno += 1 << 20
	s.mu.Lock()
	old := s.cur
	s.cur = nil
	s.mu.Unlock()
	if old != nil {
		s.unpin(old)
	}
	if err := s.keepLocked(h.seq); err != nil {
		return err
	}
	return s.renewLocked(&pin{h: &head{seq: n.seq}}, &n)
}

// beyondSnapshots raises the numbers of h so that no file which a snapshot names is written to. They are beyond already, unless the
// disk has forgotten what was synced.
func (s *Store) beyondSnapshots(h *head) error {
	snaps, err := s.standing()
	if err != nil {
		return err
	}
	for _, st := range snaps {
		h.seq, h.nextID = max(h.seq, st.seq), max(h.nextID, st.nextID)
	}
	return nil
}

// keepLocked protects the HEAD file with the sequence number from being recycled until the store is whole again.
func (s *Store) keepLocked(seq uint64) error {
	return s.writeDurableLocked(&head{seq: seq})
}

// whole returns an error if anything that h names is missing, or if anything newer than what is known to be durable is damaged.
func (s *Store) whole(h *head) error {
	s.mu.Lock()
	p := &pin{s: s, h: h, tabs: s.tableSetLocked(h.tabs), refs: 1}
	s.mu.Unlock()
	defer s.unpin(p)
	for _, t := range p.tabs.list {
		if _, err := t.open(); err != nil {
			return err
		}
	}
	for _, v := range h.vols {
		if err := s.longEnough(v.id, v.length); err != nil {
			return err
		}
	}
	d := s.readDurable()
	if d.seq > h.seq {
		d = durable{} // h is older than that: nothing is known
	}
	return s.newIsWhole(p, d)
}

// newIsWhole checks the records, volumes and values that are newer than d.
func (s *Store) newIsWhole(p *pin, d durable) error {
	cs := []*cursor{{recs: p.h.recs}}
	for i := len(p.tabs.list) - 1; i >= 0; i-- {
		if t := p.h.tabs[i]; t.id < d.nextID {
			continue
		}
		c, err := tableCursor(p.tabs.list[i])
		if err != nil {
			return err
		}
		cs = append(cs, c)
	}
	buf := make([]byte, blockSize)
	for r, err := range mergeFrom(cs, 0, "") {
		if err != nil {
			return err
		}
		switch {
		case r.kind() == recVolume:
			id, n, err := r.volume()
			if err == nil {
				err = s.longEnough(id, n)
			}
			if err != nil {
				return err
			}
		case r.rev() > d.gen && r.kind() == recExtents:
			e, err := r.entry()
			if err != nil {
				return p.damaged(r, err)
			}
			for _, x := range locatorOf(&e).exts {
				if x.vol < d.curVol { // synced before
					continue
				}
				if err := s.vols.verify(x, buf); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *Store) longEnough(id, n uint64) error {
	path := s.volumePath(id)
	fi, err := s.disk.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return &backend.CorruptError{Path: path, Reason: "the volume is missing"}
	}
	if err != nil {
		return err
	}
	if uint64(fi.Size) < n {
		return &backend.CorruptError{Path: path, Offset: fi.Size, Reason: fmt.Sprintf("the volume ends before its %d bytes", n)}
	}
	return nil
}

// wholeReadOnly lets a store be read that was not opened for writing since the machine started, if HEAD is good as it is.
func (s *Store) wholeReadOnly(p *pin) error {
	cs, err := s.comparable()
	if err != nil {
		return err
	}
	if cs[0].h == nil || cs[0].h.seq != p.h.seq {
		return s.mustRecover()
	}
	return s.whole(p.h)
}

func (s *Store) mustRecover() error {
	return fmt.Errorf("%s: the machine went down; open the store once for writing to recover it: %w", s.dir, backend.ErrReadOnly)
}

// unrecovered says whether the store was not opened for writing since the machine started, as far as the HEAD files that can be read know.
func (s *Store) unrecovered() bool {
	cs, err := s.candidates()
	return err == nil && len(cs) > 0 && cs[0].h != nil && !slices.ContainsFunc(cs, func(c candidate) bool { return c.h != nil && c.h.boot == s.boot })
}
