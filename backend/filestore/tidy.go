package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// trash is a file that HEADs from sequence number seq on do not name.
type trash struct {
	id     uint64
	volume bool
	seq    uint64
}

func (s *Store) trashPath(t trash) string {
	if t.volume {
		return s.volumePath(t.id)
	}
	return s.tablePath(t.id)
}

// discard has files removed when nobody can need them.
func (s *Store) discard(t []trash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trash = append(s.trash, t...)
}

func (s *Store) trashed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.trash)
}

// tidy removes what can be removed now.
func (s *Store) tidy(ctx context.Context) error {
	if s.trashed() == 0 {
		return nil
	}
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.tidyLocked()
}

// tidyLocked removes trash, and spares beyond manySpares. A file is needed by a pinned HEAD file with a sequence number
// below that of the first HEAD that does not name it, and by the durable one likewise; and by the snapshots that name it. What a
// named snapshot needs is forgotten: RemoveSnapshot looks for it. A reader that has opened HEAD
// but not yet locked it pins nothing: it will find that HEAD is another file, and begin again.
func (s *Store) tidyLocked() error {
	oldest := s.readDurable().seq
	names, err := s.listSpares()
	if err != nil {
		return err
	}
	free := 0
	for _, name := range names {
		f, err := s.openHead(name, os.O_RDWR)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, errForeign) {
			continue
		}
		if errors.Is(err, os.ErrPermission) { // somebody may be reading it
			return nil
		}
		if err != nil {
			return err
		}
		ok, err := f.TryExclusive()
		var seq uint64
		if err == nil {
			seq, err = sequenceOf(f)
		}
		switch {
		case err != nil:
			f.Close()
			return err
		case !ok:
			oldest = min(oldest, seq)
		case seq != s.readDurable().seq:
			if free++; free > manySpares {
				s.disk.Remove(f.Name())
			}
		}
		f.Close()
	}
	gone, err := s.unneededLocked(oldest)
	if err != nil {
		return err
	}
	for _, t := range gone {
		if err := s.disk.Remove(s.trashPath(t)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if t.volume {
			s.vols.forget(t.id)
		}
	}
	return nil
}

// unneededLocked takes out of the trash what can be removed. oldest is the sequence number of the oldest HEAD that matters.
func (s *Store) unneededLocked(oldest uint64) (gone []trash, err error) {
	snaps, err := s.standing()
	if err != nil {
		return nil, err
	}
	defer s.releaseStanding(snaps)
	s.mu.Lock()
	all := slices.Clone(s.trash) // it grows under the commit lock only
	s.mu.Unlock()
	var keep []trash
	for _, t := range all {
		if t.seq > oldest {
			keep = append(keep, t)
		} else if st := s.heldBy(snaps, t); st == nil {
			gone = append(gone, t)
		} else if st.removed {
			keep = append(keep, t)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trash = keep
	return gone, nil
}

// sweep finds what dead processes have left: their stages, and tables and volumes that HEAD does not name.
func (s *Store) sweep(ctx context.Context) error {
	names, err := s.disk.List(filepath.Join(s.dir, "tmp"))
	if err != nil {
		return err
	}
	if err := s.sweepTemp(names); err != nil {
		return err
	}
	quiet, err := s.quiet()
	if quiet || err != nil {
		return err
	}
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.sweepLocked()
}

// sweepTemp removes those of the files of tmp/ that nobody has locked.
func (s *Store) sweepTemp(names []string) error {
	if err := s.forgetRemoved(names); err != nil {
		return err
	}
	for _, n := range names {
		s.sweepFile(filepath.Join(s.dir, "tmp", n))
	}
	return nil
}

// quiet says whether HEAD and the snapshots name all tables and volumes there are.
func (s *Store) quiet() (bool, error) {
	p, err := s.pinNewest()
	if err != nil {
		return false, err
	}
	defer s.unpin(p)
	files, err := s.files()
	if err != nil || len(files) == len(p.h.tabs)+len(p.h.vols)+int(p.h.solos) {
		return err == nil, err
	}
	snaps, err := s.standing()
	if err != nil || len(snaps) == 0 {
		return false, err
	}
	defer s.releaseStanding(snaps)
	for _, t := range files {
		named, err := p.names(t.id, t.volume)
		if err != nil {
			return false, err
		}
		if t.seq = p.h.seq; !named && s.heldBy(snaps, t) == nil {
			return false, nil
		}
	}
	return true, nil
}

// files returns the tables and volumes there are, whoever names them.
func (s *Store) files() ([]trash, error) {
	var all []trash
	for _, dir := range []string{"index", "data"} {
		names, err := s.disk.List(filepath.Join(s.dir, dir))
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if id, ok := fileID(n); ok {
				all = append(all, trash{id: id, volume: dir == "data"})
			}
		}
	}
	return all, nil
}

func (s *Store) sweepLocked() error {
	p, err := s.pinNewest()
	if err != nil {
		return err
	}
	defer s.unpin(p)
	files, err := s.files()
	if err != nil {
		return err
	}
	s.mu.Lock()
	known := map[uint64]bool{}
	for _, t := range s.trash {
		known[t.id] = true
	}
	s.mu.Unlock()
	var left []trash
	for _, t := range files {
		if t.id >= p.h.nextID { // of a commit that was not completed; the next one may make it anew
			if err := s.disk.Remove(s.trashPath(t)); err != nil && !foreign(err) {
				return err
			}
			s.vols.forget(t.id)
			continue
		}
		named, err := p.names(t.id, t.volume)
		if err != nil {
			return err
		}
		if !named && !known[t.id] {
			left = append(left, trash{t.id, t.volume, p.h.seq})
		}
	}
	s.discard(left)
	return s.tidyLocked()
}

// names says whether the generation needs the table or volume id.
func (p *pin) names(id uint64, volume bool) (bool, error) {
	if !volume {
		return slices.ContainsFunc(p.h.tabs, func(t tabInfo) bool { return t.id == id }), nil
	}
	if _, ok := p.h.volume(id); ok {
		return true, nil
	}
	r, err := p.get(0, volumeName(id))
	return r != nil && r.kind() == recVolume, err
}
