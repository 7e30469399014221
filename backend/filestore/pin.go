package filestore

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// pin is one generation held fast: a HEAD file under a shared lock, so that no process writes to it or removes what it names.
type pin struct {
	s    *Store
	h    *head
	f    *disk.File // nil of what was never HEAD
	ino  uint64
	tabs *tableSet
	refs int    // guarded by Store.mu
	name string // of the spare that f became, if this process knows; guarded by Store.mu
}

// tableSet is the open tables of one or more pins, oldest first.
type tableSet struct {
	refs int // guarded by Store.mu
	list []*table
}

// headIno returns the inode of the file that is HEAD now.
func (s *Store) headIno() (uint64, error) {
	i, err := s.dirf.StatAt("HEAD")
	return i.Ino, err
}

// pinNewest returns the newest generation with one more reference to it. While the name HEAD leads to the file we have
// pinned nothing was committed: nobody writes to a pinned file, and its inode number is not given to another.
func (s *Store) pinNewest() (*pin, error) {
	for {
		ino, err := s.headIno()
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, backend.ErrClosed
		}
		if err == nil && s.cur != nil && s.cur.ino == ino {
			p := s.cur
			p.refs++
			s.mu.Unlock()
			return p, nil
		}
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		p, err := s.readHead()
		if err != nil {
			return nil, err
		}
		ok, err := s.adopt(p)
		if err != nil {
			return nil, err
		}
		if ok {
			return p, nil
		}
	}
}

// isHead says whether the file of p, a generation that was HEAD, still is.
func (s *Store) isHead(p *pin) (bool, error) {
	ino, err := s.headIno()
	return ino == p.ino, err
}

// adopt makes p, fresh from readHead, the newest pin. It reports false, and lets p go, if that or a newer one is there already.
func (s *Store) adopt(p *pin) (bool, error) {
	s.mu.Lock()
	old := s.cur
	if s.closed || old != nil && (old.h.seq > p.h.seq || old.ino == p.ino) {
		s.mu.Unlock()
		defer p.f.Close()
		if old != nil && old.h.seq > p.h.seq {
			return false, s.notOlder(p, old.h.seq)
		}
		return false, nil
	}
	p.tabs = s.tableSetLocked(p.h.tabs)
	p.refs = 2
	s.cur = p
	s.mu.Unlock()
	if old != nil {
		s.unpin(old)
	}
	return true, nil
}

// notOlder returns an error if p is still HEAD, though one with the higher sequence number seq was: as long as p is locked no commit makes it HEAD again,
// so somebody has put an older copy there.
func (s *Store) notOlder(p *pin, seq uint64) error {
	if still, err := s.isHead(p); err != nil || !still {
		return err
	}
	return s.olderCopy(p, seq)
}

// olderCopy says that p is HEAD though one with the higher sequence number seq was.
func (s *Store) olderCopy(p *pin, seq uint64) error {
	return &backend.CorruptError{Path: filepath.Join(s.dir, "HEAD"), Offset: offSeq,
		Reason: fmt.Sprintf("an older copy: its sequence number is %d, and %d was there", p.h.seq, seq)}
}

// readHead opens, locks and decodes HEAD.
func (s *Store) readHead() (*pin, error) {
	path := filepath.Join(s.dir, "HEAD")
	mode := os.O_RDWR
	if s.opt.ReadOnly {
		mode = os.O_RDONLY
	}
	for try := 0; ; try++ {
		if try > 100 {
			runtime.Gosched()
		}
		f, err := s.openHead("HEAD", mode)
		if err != nil {
			return nil, err
		}
		ino, err := inoOf(f)
		var now uint64
		ok := false
		if err == nil {
			ok, err = f.TryShared()
		}
		if err == nil && ok {
			now, err = s.headIno()
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		if !ok || now != ino { // a writer recycles it: it is HEAD no more
			f.Close()
			continue
		}
		h, err := readHeadFile(f, path)
		if err != nil {
			f.Close()
			return nil, err
		}
		return &pin{s: s, h: h, f: f, ino: ino}, nil
	}
}

func inoOf(f *disk.File) (uint64, error) {
	i, err := f.Info()
	return i.Ino, err
}

func readHeadFile(f *disk.File, path string) (*head, error) {
	buf := make([]byte, 16<<10)
	n, err := readFull(f, buf, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	total, err := headLength(buf[:n], path)
	if err != nil && !errors.Is(err, backend.ErrFormat) {
		return nil, err
	}
	if fi, ierr := f.Info(); ierr != nil || int64(total) > fi.Size {
		if err = cmp.Or(ierr, err); err != nil {
			return nil, err
		}
		return nil, &backend.CorruptError{Path: path, Offset: fi.Size, Reason: "the file ends too early"}
	}
	if total > n {
		buf = append(make([]byte, 0, total), buf[:n]...)[:total]
		if n, err = readFull(f, buf, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return decodeHead(buf[:n], path)
}

// tableSetLocked returns the set of tables that a HEAD names, with one reference.
func (s *Store) tableSetLocked(infos []tabInfo) *tableSet {
	ts := &tableSet{refs: 1}
	for _, i := range infos {
		t := s.tables[i.id]
		if t == nil {
			t = &table{s: s, id: i.id, path: s.tablePath(i.id), want: i}
			s.tables[i.id] = t
		}
		t.refs++
		ts.list = append(ts.list, t)
	}
	return ts
}

// addRef takes one more reference to a pin that the caller has a reference to.
func (s *Store) addRef(p *pin) {
	s.mu.Lock()
	p.refs++
	s.mu.Unlock()
}

// unpin gives a reference back. The last one unlocks the file, and closes the tables that no pin needs.
func (s *Store) unpin(p *pin) {
	var gone []*table
	s.mu.Lock()
	p.refs--
	if p.refs > 0 {
		s.mu.Unlock()
		return
	}
	if p.tabs.refs--; p.tabs.refs == 0 {
		for _, t := range p.tabs.list {
			if t.refs--; t.refs == 0 {
				delete(s.tables, t.id)
				gone = append(gone, t)
			}
		}
	}
	keep := p.name != "" && !s.closed && s.spareFiles[p.name].f == nil && p.f.Unlock() == nil
	if keep {
		s.spareFiles[p.name] = spare{p.name, p.f, p.ino, p.h.seq}
	}
	s.mu.Unlock()
	if !keep && p.f != nil {
		p.f.Close()
	}
	for _, t := range gone {
		t.close()
	}
}
