package filestore

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// durable is what the file of that name says: the newest HEAD known to be on stable storage with all it names. Its
// file is not recycled, and nothing it names is removed. Written under the commit lock; not itself synced, as it
// matters only to living processes.
type durable struct {
	seq, gen uint64
	nextID   uint64 // tables and volumes from here on are not synced
	curVol   uint64 // nor is this volume
}

const durableSize = 4*8 + 4

// readDurable returns the zero durable if nothing is known: the file is damaged, cannot be read or, without the commit lock, is being written.
func (s *Store) readDurable() durable {
	d, _ := s.lastDurable()
	return d
}

// lastDurable is readDurable with the reason why something that was known is not known now.
func (s *Store) lastDurable() (durable, error) {
	var b [durableSize]byte
	if s.durf == nil {
		return durable{}, nil
	}
	if !s.durMap.read(b[:]) {
		n, err := readFull(s.durf, b[:], 0)
		if n == 0 || err != nil {
			return durable{}, err
		}
	}
	if checksum(b[:32]) != le.Uint32(b[32:]) {
		return durable{}, &backend.CorruptError{Path: s.durf.Name(), Offset: 32, Reason: "checksum mismatch"}
	}
	return durable{le.Uint64(b[:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])}, nil
}

// mapping is the start of a file in memory, shared with all who have the file open, so that a commit need not read it.
type mapping struct{ b []byte }

// mapDurable maps the file if it can; without, it is read.
func (s *Store) mapDurable() {
	if fi, err := s.durf.Info(); err == nil && fi.Size >= durableSize {
		s.durMap.b, _ = s.durf.Map(durableSize)
	}
}

func (m *mapping) unmap() {
	if m.b != nil {
		disk.Unmap(m.b)
		m.b = nil
	}
}

// read copies the first bytes of the file to b; false if there is no mapping, or the file ends before them, which the kernel
// tells by SIGBUS (mmap(2)).
func (m *mapping) read(b []byte) (ok bool) {
	if m.b == nil {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if e := recover(); e != nil {
			if _, fault := e.(interface{ Addr() uintptr }); !fault {
				panic(e)
			}
			ok = false
		}
	}()
	copy(b, m.b)
	return true
}

// durableOf returns what is to be said when h is on stable storage.
func durableOf(h *head) durable {
	d := durable{h.seq, h.gen, h.nextID, h.nextID}
	if n := len(h.vols); n > 0 {
		d.curVol = h.vols[n-1].id
	}
	return d
}

func (s *Store) writeDurableLocked(h *head) error {
	d := durableOf(h)
	var b []byte
	for _, v := range []uint64{d.seq, d.gen, d.nextID, d.curVol} {
		b = le.AppendUint64(b, v)
	}
	_, err := s.durf.WriteAt(le.AppendUint32(b, checksum(b)), 0)
	return err
}

// Sync implements backend.Store.
func (s *Store) Sync(ctx context.Context) error {
	s.life.RLock()
	defer s.life.RUnlock()
	return s.makeDurable(ctx)
}

// makeDurable syncs what the newest generation needs and is not durable yet, whoever committed it.
func (s *Store) makeDurable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, isNew, err := s.pinSynced(ctx)
	if err != nil {
		return err
	}
	defer s.unpin(p)
	if !isNew || s.opt.ReadOnly {
		return nil
	}
	release, err := s.acquire(ctx)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	defer release()
	if s.readDurable().seq < p.h.seq {
		return s.writeDurableLocked(p.h)
	}
	return nil
}

// pinSynced pins the newest generation, on stable storage with all that it needs; isNew says that this had to be done.
func (s *Store) pinSynced(ctx context.Context) (p *pin, isNew bool, err error) {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	for least := uint64(0); ; {
		if p, err = s.pinNewest(); err != nil {
			return nil, false, err
		}
		if p.h.seq < least {
			defer s.unpin(p)
			return nil, false, s.olderCopy(p, least)
		}
		d := s.readDurable()
		if d.seq == p.h.seq {
			return p, false, nil
		}
		if d.seq < p.h.seq {
			if err = s.syncFiles(ctx, p, d); err == nil {
				s.count.syncs.Add(1)
				return p, true, nil
			}
			err = fmt.Errorf("sync generation %d: %w", p.h.gen, err)
			s.unpin(p)
			return nil, false, err
		}
		s.unpin(p) // another has synced a newer one, but maybe not a table that only this one names
		least = d.seq
	}
}

// syncFiles syncs the files that p needs and that were not synced with d, which is older than p.
func (s *Store) syncFiles(ctx context.Context, p *pin, d durable) error {
	var paths []string
	for _, t := range p.h.tabs {
		if t.id >= d.nextID {
			paths = append(paths, s.tablePath(t.id))
		}
	}
	for _, v := range p.h.vols {
		if v.id >= d.curVol {
			paths = append(paths, s.volumePath(v.id))
		}
	}
	if p.h.solos > 0 && p.h.nextID > d.nextID {
		for r, err := range p.scan(0, volumeName(d.nextID)) {
			if err != nil {
				return err
			}
			if r.dir() != 0 {
				break
			}
			if id, _, err := r.volume(); err == nil {
				paths = append(paths, s.volumePath(id))
			}
		}
	}
	if p.h.nextID > d.nextID {
		paths = append(paths, s.dir+"/data", s.dir+"/index")
	}
	for _, path := range append(paths, s.dir) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.disk.Sync(path); err != nil {
			return err
		}
	}
	return p.f.Datasync()
}
