package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/storefs/storefs/lockmgr"
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
// below that of the first HEAD that does not name it, and by the durable one likewise. A reader that has opened HEAD
// but not yet locked it pins nothing: it will find that HEAD is another file, and begin again.
func (s *Store) tidyLocked() error {
	oldest := s.readDurable().seq
	names, err := s.listSpares()
	if err != nil {
		return err
	}
	free := 0
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		ok, err := lockmgr.TryExclusive(f)
		seq := sequenceOf(f)
		switch {
		case err != nil:
			f.Close()
			return err
		case !ok:
			oldest = min(oldest, seq)
		case seq != s.readDurable().seq:
			if free++; free > manySpares {
				os.Remove(f.Name())
			}
		}
		f.Close()
	}
	s.mu.Lock()
	var gone, keep []trash
	for _, t := range s.trash {
		if t.seq <= oldest {
			gone = append(gone, t)
		} else {
			keep = append(keep, t)
		}
	}
	s.trash = keep
	s.mu.Unlock()
	for _, t := range gone {
		if err := os.Remove(s.trashPath(t)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if t.volume {
			s.vols.forget(t.id)
		}
	}
	return nil
}

// sweep finds what dead processes have left: their stages, and tables and volumes that HEAD does not name.
func (s *Store) sweep(ctx context.Context) error {
	names, err := readNames(filepath.Join(s.dir, "tmp"))
	if err != nil {
		return err
	}
	for _, n := range names {
		path := filepath.Join(s.dir, "tmp", n)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // gone meanwhile, or another user's
		}
		if ok, err := lockmgr.TryExclusive(f); ok && err == nil {
			os.Remove(path)
		}
		f.Close()
	}
	tabs, err := readNames(filepath.Join(s.dir, "index"))
	if err != nil {
		return err
	}
	vols, err := readNames(filepath.Join(s.dir, "data"))
	if err != nil {
		return err
	}
	p, err := s.pinNewest()
	if err != nil {
		return err
	}
	quiet := len(tabs) == len(p.h.tabs) && len(vols) == len(p.h.vols)+int(p.h.solos)
	s.unpin(p)
	if quiet {
		return nil
	}
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.sweepLocked()
}

func (s *Store) sweepLocked() error {
	p, err := s.pinNewest()
	if err != nil {
		return err
	}
	defer s.unpin(p)
	var left []trash
	for _, dir := range []string{"index", "data"} {
		names, err := readNames(filepath.Join(s.dir, dir))
		if err != nil {
			return err
		}
		for _, n := range names {
			id, err := strconv.ParseUint(n, 16, 64)
			if err != nil || len(n) != 16 {
				continue // none of ours
			}
			if id >= p.h.nextID { // of a commit that was not completed; the next one may make it anew
				if err := os.Remove(filepath.Join(s.dir, dir, n)); err != nil {
					return err
				}
				s.vols.forget(id)
				continue
			}
			named, err := p.names(id, dir == "data")
			if err != nil {
				return err
			}
			if !named {
				left = append(left, trash{id, dir == "data", p.h.seq})
			}
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

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
