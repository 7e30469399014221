package fsnode

import (
	"errors"
	"iter"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
)

// dirHandle is an open directory: its entries at the moment of the open, or of the last rewind. An offset is the number of
// entries before it, "." and ".." first, so it stays true while keys come and go.
type dirHandle struct {
	t    *tree
	dir  backend.Ino
	node uint64

	mu      sync.Mutex
	snap    backend.Snapshot
	parent  backend.Ino
	next    func() (backend.Entry, error, bool)
	stop    func()
	pos     uint64         // the offset that next leads to
	ahead   *backend.Entry // taken from next and not yet given out; it is at pos
	markers []string       // the name at every markEvery entries, to find an offset again
}

const markEvery = 1024

func (s *Server) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.count(opOpenDir)
	h := &dirHandle{t: s.main, node: in.NodeId}
	if !isControl(in.NodeId) {
		if h.t, h.dir = s.dirOf(in.NodeId); h.dir == 0 {
			return fuse.Status(syscall.ESTALE)
		}
		if !h.t.ledNow(h.dir, in.Pid) {
			return fuse.Status(syscall.ESTALE)
		}
		if err := h.rewind(); err != nil {
			return s.status("opendir", err)
		}
	}
	s.served(in.Pid)
	out.Fh = s.newHandle(h)
	return fuse.OK
}

// rewind takes the newest generation.
func (h *dirHandle) rewind() error {
	snap, err := h.t.snapshot()
	if err != nil {
		return err
	}
	at, err := snap.Parent(h.dir)
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		snap.Close()
		return err
	}
	h.closeLocked()
	h.snap, h.parent, h.markers = snap, max(at.Dir, backend.RootIno), nil
	h.seek(0)
	return nil
}

// seek makes pos the next offset.
func (h *dirHandle) seek(pos uint64) {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	h.ahead = nil
	var from uint64
	after := ""
	if k := min(pos/markEvery, uint64(len(h.markers))); k > 0 {
		from, after = k*markEvery, h.markers[k-1]
	}
	h.next, h.stop = iter.Pull2(h.snap.List(h.dir, after))
	for h.pos = from; h.pos < pos; {
		e, err := h.peek()
		if e == nil || err != nil {
			return
		}
		h.taken()
	}
}

// peek returns the entry at pos; nil at the end.
func (h *dirHandle) peek() (*backend.Entry, error) {
	if h.ahead == nil {
		e, err, ok := h.next()
		if !ok || err != nil {
			return nil, err
		}
		h.ahead = &e
	}
	return h.ahead, nil
}

// taken steps over the entry that peek returned.
func (h *dirHandle) taken() {
	h.pos++
	if h.pos%markEvery == 0 && uint64(len(h.markers)) < h.pos/markEvery {
		h.markers = append(h.markers, h.ahead.Name)
	}
	h.ahead = nil
}

func (h *dirHandle) closeLocked() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	if h.snap != nil {
		h.snap.Close()
		h.snap = nil
	}
}

func (h *dirHandle) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closeLocked()
}

func (s *Server) ReleaseDir(in *fuse.ReleaseIn) {
	s.count(opReleaseDir)
	if h, ok := s.takeHandle(in.Fh).(*dirHandle); ok {
		h.release()
	}
	s.dropLocks(in.Fh, 0, true)
}

func (s *Server) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	s.count(opFsyncDir)
	return s.sync(cancel, in.Fh)
}

func (s *Server) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	s.count(opReadDir)
	return s.readDir(in, func(d fuse.DirEntry, e *backend.Entry) bool { return out.AddDirEntry(d) })
}

func (s *Server) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	s.count(opReadDirPlus)
	var newest backend.Snapshot
	defer func() {
		if newest != nil {
			newest.Close()
		}
	}()
	return s.readDir(in, func(d fuse.DirEntry, e *backend.Entry) bool {
		o := out.AddDirLookupEntry(d)
		if o == nil {
			return false
		}
		*o = fuse.EntryOut{}
		if e == nil {
			return true
		}
		// What the kernel keeps must be the newest: the directory may be older.
		t := s.handle(in.Fh).(*dirHandle).t
		if newest == nil {
			var err error
			if newest, err = t.snapshot(); err != nil {
				return true
			}
		}
		now, err := newest.Lookup(e.Ref)
		if err != nil || now.Ino != e.Ino {
			return true // no node: the kernel will look it up
		}
		n, _ := t.bindListed(&now)
		t.answer(o, n)
		return true
	})
}

// readDir gives entries from an offset on to add until it returns false. Entries of the directory itself, and of the
// control folder, come without an entry of the store.
func (s *Server) readDir(in *fuse.ReadIn, add func(fuse.DirEntry, *backend.Entry) bool) fuse.Status {
	h, ok := s.handle(in.Fh).(*dirHandle)
	if !ok {
		return fuse.EBADF
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	off := in.Offset
	if off == 0 && h.dir != 0 && h.pos > 0 {
		if err := h.rewind(); err != nil {
			return s.status("readdir", err)
		}
	}
	ino, up := h.t.ino(h.dir), h.t.ino(h.parent)
	if h.dir == 0 {
		ino, up = controlIno(h.node), uint64(backend.RootIno)
	}
	for i, d := range []fuse.DirEntry{{Name: ".", Mode: syscall.S_IFDIR, Ino: ino}, {Name: "..", Mode: syscall.S_IFDIR, Ino: up}} {
		if d.Off = uint64(i) + 1; off < d.Off && !add(d, nil) {
			return fuse.OK
		}
	}
	if h.dir == 0 {
		for i, d := range s.controlEntries(h.node) {
			if d.Off = uint64(i) + 3; off < d.Off && !add(d, nil) {
				break
			}
		}
		return fuse.OK
	}
	if pos := max(off, 2) - 2; pos != h.pos {
		h.seek(pos)
	}
	for {
		e, err := h.peek()
		if err != nil {
			return s.status("readdir", err)
		}
		if e == nil {
			return fuse.OK
		}
		d := fuse.DirEntry{Name: e.Name, Ino: h.t.ino(e.Ino), Mode: modes[e.Kind], Off: h.pos + 3}
		if !(h.dir == backend.RootIno && h.t == s.main && e.Name == controlName) && !add(d, e) {
			return fuse.OK
		}
		h.taken()
	}
}

var modes = map[backend.Kind]uint32{backend.File: syscall.S_IFREG, backend.Dir: syscall.S_IFDIR, backend.Symlink: syscall.S_IFLNK}
