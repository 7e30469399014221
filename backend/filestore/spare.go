package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

const (
	spareSize  = 64 << 10 // what every spare has on disk from the start, so that a full disk does not stop removals
	minSpares  = 2
	spareWait  = time.Second
	manySpares = 6 // more than that are removed when nobody holds them
)

// spare is an open spare. The name is what it had when it was opened.
type spare struct {
	name string
	f    *disk.File
	ino  uint64
	seq  uint64 // of the HEAD that it was, unless another has committed since; 0 if not known
}

// mayBe says whether the spare is the HEAD with the sequence number, as far as can be read.
func (sp *spare) mayBe(seq uint64) bool {
	if sp.seq == 0 {
		n, err := sequenceOf(sp.f)
		if err != nil {
			return true
		}
		sp.seq = n
	}
	return sp.seq == seq
}

// doubtSparesLocked forgets what may have changed if another Store value has committed since this one did. If none has, a spare
// holds what it held, or what a commit that failed has left there, which is no generation and not durable.
func (s *Store) doubtSparesLocked(base *pin) {
	if base.h.seq == s.lastSeq {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, sp := range s.spareFiles {
		sp.seq = 0
		s.spareFiles[name] = sp
	}
}

// listSpares returns the names of the spares there are.
func (s *Store) listSpares() ([]string, error) {
	names, err := s.disk.List(s.dir)
	names = slices.DeleteFunc(names, func(n string) bool { return !isSpare(n) })
	slices.Sort(names)
	return names, err
}

// isSpare says whether a file of that name is a spare; HEAD.bak is somebody's own.
func isSpare(name string) bool {
	n, ok := strings.CutPrefix(name, "HEAD.")
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// takeSpareLocked returns a spare that nobody holds, exclusively locked. It never returns the file with the sequence number durable.
func (s *Store) takeSpareLocked(durable uint64) (sp spare, isNew bool, err error) {
	for range 2 {
		for i := 0; i < len(s.spareNames); {
			name := s.spareNames[i]
			sp, err := s.openSpareLocked(name)
			if errors.Is(err, os.ErrNotExist) {
				s.spareNames = slices.Delete(s.spareNames, i, i+1)
				continue
			}
			if foreign(err) {
				i++
				continue
			}
			if err != nil {
				return sp, false, err
			}
			ok, err := sp.f.TryExclusive()
			if err != nil {
				sp.f.Close()
				return sp, false, err
			}
			if ok && (durable == 0 || !sp.mayBe(durable)) {
				copy(s.spareNames[1:i+1], s.spareNames[:i]) // the next commit tries it first
				s.spareNames[0] = name
				return sp, false, nil
			}
			s.keepSpare(sp)
			i++
		}
		names, err := s.listSpares()
		if err != nil {
			return sp, false, err
		}
		if slices.Equal(slices.Sorted(slices.Values(s.spareNames)), names) {
			break
		}
		s.spareNames = names
	}
	if sp, err = s.makeSpare(s.spareNames); err == nil {
		s.spareNames = slices.Insert(s.spareNames, 0, sp.name)
		s.count.spares.Add(1)
	}
	return sp, true, err
}

// awaitSpareLocked returns a spare on a full disk, on which none can be made: one that a reader lets go of soon, or the one that is kept because it
// is the newest durable generation, once base is durable instead.
func (s *Store) awaitSpareLocked(base *pin, d durable) (spare, error) {
	if base.f != nil && d.seq != base.h.seq {
		if _, err := s.settleLocked(base, d); err != nil {
			return spare{}, err
		}
	}
	for end := time.Now().Add(spareWait); ; time.Sleep(time.Millisecond) { // readers of other processes tell nobody when they let go
		sp, _, err := s.takeSpareLocked(base.h.seq)
		if !errors.Is(err, unix.ENOSPC) || time.Now().After(end) {
			return sp, err
		}
	}
}

// settleLocked makes base durable, of which d is a part already.
func (s *Store) settleLocked(base *pin, d durable) (durable, error) {
	if err := s.syncFiles(s.ctx, base, d); err != nil {
		return d, err
	}
	return durableOf(base.h), s.writeDurableLocked(base.h)
}

// openSpareLocked opens the file that has the name now: others exchange names, but only under the commit lock.
func (s *Store) openSpareLocked(name string) (spare, error) {
	s.mu.Lock()
	sp := s.spareFiles[name]
	delete(s.spareFiles, name)
	s.mu.Unlock()
	if sp.f != nil {
		if st, err := s.dirf.StatAt(name); err == nil && st.Ino == sp.ino {
			return sp, nil
		}
		sp.f.Close()
	}
	f, err := s.openHead(name, os.O_RDWR)
	if err != nil {
		return spare{}, err
	}
	return newSpare(name, f)
}

// errForeign is the error of what stands under a name of ours and is no regular file.
var errForeign = errors.New("is no regular file")

// openHead opens HEAD or a spare: errForeign if that name leads to anything but a file.
func (s *Store) openHead(name string, flags int) (*disk.File, error) {
	path := filepath.Join(s.dir, name)
	f, err := s.disk.Open(path, flags, 0)
	if err == nil {
		var i disk.Info
		if i, err = f.Info(); err == nil && i.Regular() {
			return f, nil
		}
		f.Close()
	}
	if err == nil || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		err = &os.PathError{Op: "open", Path: path, Err: errForeign}
	}
	return nil, err
}

// foreign says whether something could not be opened or removed because it is not ours.
func foreign(err error) bool {
	return errors.Is(err, errForeign) || errors.Is(err, unix.EISDIR) || errors.Is(err, os.ErrPermission)
}

// claimID takes the next number for a file whose path that is. What a commit that was not completed has left there is removed, what somebody else
// has put there is passed over.
func (s *Store) claimID(h *head, path func(id uint64) string) (uint64, error) {
	for {
		err := s.disk.Remove(path(h.nextID))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !foreign(err) {
			return 0, err
		}
		h.nextID++
		if !foreign(err) {
			return h.nextID - 1, nil
		}
	}
}

// newSpare takes over f.
func newSpare(name string, f *disk.File) (spare, error) {
	ino, err := inoOf(f)
	if err != nil {
		f.Close()
	}
	return spare{name, f, ino, 0}, err
}

// keepSpare unlocks a spare and keeps it open for later.
func (s *Store) keepSpare(sp spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.spareFiles[sp.name].f != nil || sp.f.Unlock() != nil {
		sp.f.Close()
		return
	}
	s.spareFiles[sp.name] = sp
}

// sequenceOf returns the sequence number of a HEAD file; 0 of one that never was HEAD.
func sequenceOf(f *disk.File) (uint64, error) {
	var b [8]byte
	if n, err := readFull(f, b[:], offSeq); err != nil || n < 8 {
		return 0, err
	}
	return le.Uint64(b[:]), nil
}

// makeSpare makes a spare with its space allocated, exclusively locked.
func (s *Store) makeSpare(names []string) (spare, error) {
	var f *disk.File
	var name, path string
	err := os.ErrExist
	for n := 0; errors.Is(err, os.ErrExist); n++ {
		if name = fmt.Sprintf("HEAD.%d", n); !slices.Contains(names, name) {
			path = filepath.Join(s.dir, name)
			f, err = s.disk.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		}
	}
	if err != nil {
		return spare{}, err
	}
	ok, err := f.TryExclusive()
	if err == nil && !ok {
		err = fmt.Errorf("%s: new file is locked", path)
	}
	if err == nil {
		_, err = f.WriteAt(make([]byte, spareSize), 0)
	}
	if err != nil {
		s.disk.Remove(path)
		f.Close()
		return spare{}, err
	}
	return newSpare(name, f)
}

// install writes h into a spare and makes that HEAD. base is the newest pin; added are tables that h names and base does not.
//
//	step                               after a crash here
//	write into a spare nobody holds    a file that is newer, but not named HEAD: ignored while HEAD is valid
//	sync=always: sync it               the same; after a power failure it may count as committed
//	exchange the names: commit point   committed
func (s *Store) installLocked(base *pin, h *head, added ...*table) error {
	d, err := s.lastDurable()
	if err != nil && base.f != nil { // or the durable HEAD could be taken for a spare
		if d, err = s.settleLocked(base, d); err != nil {
			return err
		}
	}
	if s.opt.Sync == Always && base.f != nil && d.seq != base.h.seq { // of someone who does not sync always
		if err := s.syncFiles(s.ctx, base, d); err != nil {
			return err
		}
	}
	s.doubtSparesLocked(base)
	sp, isNew, err := s.takeSpareLocked(d.seq)
	if errors.Is(err, unix.ENOSPC) {
		sp, err = s.awaitSpareLocked(base, d)
	}
	if err != nil {
		return err
	}
	f := sp.f
	sp.seq = 0
	h.boot = s.boot
	s.scratch = h.encode(s.scratch)
	_, err = f.WriteAt(s.scratch, 0)
	if err == nil && s.opt.Sync == Always {
		if err = f.Datasync(); err == nil && isNew {
			err = s.dirf.Sync()
		}
	}
	if err == nil {
		// Nobody else takes an exclusive lock between the two: that is done under the commit lock only.
		var ok bool
		if ok, err = f.TryShared(); err == nil && !ok {
			err = fmt.Errorf("%s: locked by someone without the commit lock", f.Name())
		}
	}
	if err == nil {
		err = s.exchangeLocked(sp.name, sp.ino)
	}
	if err != nil {
		if !errors.Is(err, backend.ErrIndeterminate) {
			err = spoil(f, err)
		}
		s.keepSpare(sp)
		return err
	}
	s.lastSeq = h.seq
	p := &pin{s: s, h: h, f: f, ino: sp.ino, refs: 1}
	s.mu.Lock()
	if len(added) == 0 && base.tabs != nil && sameTables(h.tabs, base.h.tabs) {
		p.tabs = base.tabs
		p.tabs.refs++
	} else {
		for _, t := range added {
			s.tables[t.id] = t
		}
		p.tabs = s.tableSetLocked(h.tabs)
	}
	old := s.cur
	s.cur = p
	if old != nil && old.ino == base.ino {
		old.name = sp.name
	}
	s.mu.Unlock()
	if old != nil {
		s.unpin(old)
	}
	if s.opt.Sync == Always {
		s.writeDurableLocked(h) // committed it is; the next commit syncs it again if this did not work
	}
	return nil
}

// spoil makes a spare with which a commit came to err no generation, so that it does not count after a power failure. If that
// cannot be done either, nobody can tell.
func spoil(f *disk.File, err error) error {
	_, serr := f.WriteAt(make([]byte, headFixed), 0)
	if serr == nil {
		serr = f.Datasync()
	}
	if serr != nil {
		return fmt.Errorf("%w: %w", backend.ErrIndeterminate, errors.Join(err, serr))
	}
	return err
}

func sameTables(a, b []tabInfo) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// exchangeLocked gives the spare, whose inode is ino, the name HEAD, and what was HEAD the spare's name.
func (s *Store) exchangeLocked(name string, ino uint64) error {
	err := error(unix.ENOSYS)
	if !s.opt.noExchange {
		err = s.dirf.ExchangeAt(name, "HEAD")
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOENT) {
		err = s.replaceLocked(name)
	}
	if err == nil {
		return nil
	}
	now, serr := s.headIno()
	switch {
	case serr != nil:
		return fmt.Errorf("%w: %w", backend.ErrIndeterminate, errors.Join(err, serr))
	case now == ino:
		return nil
	}
	return err
}

// replaceLocked serves where the file system has no exchange, and where there is no HEAD: what was HEAD gets a new name if that can be.
func (s *Store) replaceLocked(name string) error {
	for n := 0; n < 1000; n++ {
		kept := fmt.Sprintf("HEAD.%d", n)
		err := s.dirf.LinkAt("HEAD", kept)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		break
	}
	return s.dirf.RenameAt(name, "HEAD")
}
