package fsnode

import (
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// writeHandle is a file open for writing: its content is staged until it is published.
type writeHandle struct {
	t        *tree
	tid      uint32 // the thread that opened it
	replace  bool   // truncated or created at open: publication replaces whatever is there
	atEnd    bool   // O_APPEND: every write goes to the end
	excl     bool   // O_EXCL: publication expects that there is nothing
	released chan struct{}

	// Guarded by Server.mu.
	node      *node
	ref       backend.Ref // where it will be published
	gone      bool        // the key was unlinked: nothing will be published
	created   bool        // made by this open and not published yet
	unreserve func()      // ends the reservation of the name
	sharers   int         // read handles that show what is staged
	freed     bool        // released by the kernel: what is staged goes with the last sharer
	isDue     bool        // a release is on its way
	closed    bool        // the process that opened it has it open no longer
	finished  bool        // closed, and all that was written is published: its release is all that can be expected

	mu        sync.Mutex
	base      backend.Entry // the version that was opened, or was published last
	attr      backend.Attr  // of a file that is created
	value     backend.Value // of base, where it is not in stage
	stage     backend.Stage // nil: nothing was written yet
	appending bool          // stage is what comes after base; else, once there is one, it is everything
	dirty     bool          // there is something to publish
	failed    error         // a write that failed; nothing is published any more
	dead      bool          // abandoned
	set       backend.AttrChange
	writers   map[uint32]uint32 // threads that wrote, with their processes
}

func (t *tree) newWriteHandle(ref backend.Ref, flags, tid uint32) *writeHandle {
	h := &writeHandle{t: t, tid: tid, ref: ref, released: make(chan struct{})}
	h.atEnd = flags&syscall.O_APPEND != 0
	h.replace = flags&syscall.O_TRUNC != 0
	h.appending = h.atEnd && !h.replace
	h.dirty = h.replace
	return h
}

// create makes h the handle of a file that does not exist yet.
func (h *writeHandle) create(a backend.Attr, ino backend.Ino) {
	now := time.Now().UnixNano()
	h.created, h.dirty, h.attr = true, true, a
	h.replace = !h.appending
	h.base = backend.Entry{Ref: h.ref, Kind: backend.File, Ino: ino, Attr: a, Ctime: now}
	h.base.Mtime, h.base.Atime = now, now
}

// size returns the length of the content as the program that writes sees it.
func (h *writeHandle) sizeLocked() int64 {
	switch {
	case h.appending && h.stage != nil:
		return h.base.Size + h.stage.Size()
	case h.stage != nil:
		return h.stage.Size()
	case h.replace && h.value == nil:
		return 0
	}
	return h.base.Size
}

// entry returns what the program that writes sees of the file.
func (h *writeHandle) entry() backend.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.base
	e.Size = h.sizeLocked()
	e.Attr = h.set.Apply(e.Attr)
	return e
}

func (h *writeHandle) detached() bool {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	return h.gone
}

// openBy says whether the process of thread tid has h open.
func (h *writeHandle) openBy(tid uint32) bool {
	if tid == h.tid {
		return true
	}
	p, ok := processOf(tid)
	if !ok {
		return false
	}
	if p.tgid == h.tid || p.tgid == h.opener() {
		return true
	}
	n, ok := writable(p.tgid, h.numbers(), h.t.mounts.ours)
	return ok && n > 0
}

// numbers returns the inode numbers by which /proc may show the file.
func (h *writeHandle) numbers() []uint64 {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	return slices.Clone(h.node.told)
}

// opener returns the process that opened h; 0 if the thread that did it has ended.
func (h *writeHandle) opener() uint32 {
	p, _ := processOf(h.tid)
	return p.tgid
}

// loadLocked makes stage hold the whole content.
func (h *writeHandle) loadLocked() error {
	if h.stage != nil && !h.appending {
		return nil
	}
	st, err := h.t.store.NewStage()
	if err != nil {
		return err
	}
	if h.value != nil {
		err = copyInto(st, h.value, h.base.Size)
	} else if !h.replace && h.base.Size > 0 {
		err = syscall.ESTALE
	}
	if err == nil && h.stage != nil {
		err = copyInto(shifted{st, h.base.Size}, stageValue{h.stage}, h.stage.Size())
	}
	if err != nil {
		st.Close()
		return err
	}
	if h.stage != nil {
		h.stage.Close()
	}
	h.stage, h.appending = st, false
	return nil
}

// shifted is a stage seen from an offset on, for copying.
type shifted struct {
	backend.Stage
	by int64
}

func (s shifted) WriteAt(b []byte, off int64) (int, error) { return s.Stage.WriteAt(b, off+s.by) }

// stageValue is a stage read as a value.
type stageValue struct{ backend.Stage }

func (s *Server) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	s.count(opWrite)
	h, ok := s.handle(in.Fh).(*writeHandle)
	if !ok {
		return 0, fuse.EBADF
	}
	n, err := h.write(data, int64(in.Offset), in.Pid)
	if err != nil {
		return 0, s.status("write", err)
	}
	return uint32(n), fuse.OK
}

func (h *writeHandle) write(data []byte, off int64, tid uint32) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wroteLocked(tid)
	h.unfinished()
	n, err := h.writeLocked(data, off)
	if err != nil && h.failed == nil {
		h.failed = err
		h.dirty = true
	}
	return n, err
}

func (h *writeHandle) writeLocked(data []byte, off int64) (int, error) {
	if h.failed != nil {
		return 0, h.failed
	}
	if h.appending {
		if h.stage == nil {
			st, err := h.t.store.NewStage()
			if err != nil {
				return 0, err
			}
			h.stage = st
		}
	} else if err := h.loadLocked(); err != nil {
		return 0, err
	}
	if h.atEnd {
		off = h.stage.Size()
	}
	end := off + int64(len(data))
	if h.appending {
		end += h.base.Size
	}
	if limit := h.t.o.MaxValue; limit > 0 && end > limit {
		return 0, backend.ErrTooLarge
	}
	if err := h.t.quota(h.base.Size, end); err != nil {
		return 0, err
	}
	if (off+int64(len(data)))>>16 != off>>16 { // every 64 KiB
		if err := h.t.room(roomFor(h.stage.Size(), off+int64(len(data)))); err != nil {
			return 0, err
		}
	}
	n, err := h.stage.WriteAt(data, off)
	if err == nil {
		h.dirty = true
		h.set.Mtime = nil
		h.base.Mtime = time.Now().UnixNano()
	}
	return n, err
}

// unfinished notes that h is used after the process that opened it closed it.
func (h *writeHandle) unfinished() {
	h.t.mu.Lock()
	h.finished = false
	if h.node.writer == nil {
		h.node.writer = h
	}
	h.t.mu.Unlock()
}

// roomFor is the free space that a stage of some size needs to become one of size to: what is new, and what is copied when it is committed,
// as values of up to a MiB are.
func roomFor(size, to int64) int64 {
	return leastRoom + max(to-size, 0) + min(size, 1<<20)
}

// wroteLocked notes the process of a thread that writes, for when it is killed.
func (h *writeHandle) wroteLocked(tid uint32) {
	if _, known := h.writers[tid]; known || tid == h.tid {
		return
	}
	if h.writers == nil {
		h.writers = map[uint32]uint32{}
	}
	p, _ := processOf(tid)
	h.writers[tid] = p.tgid
}

func (h *writeHandle) readAt(buf []byte, off int64) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stage == nil && h.value == nil:
		return 0, io.EOF
	case h.stage == nil:
		return h.value.ReadAt(buf, off)
	case !h.appending:
		return h.stage.ReadAt(buf, off)
	}
	n := 0
	if off < h.base.Size && h.value != nil {
		k, err := h.value.ReadAt(buf[:min(int64(len(buf)), h.base.Size-off)], off)
		if n = k; err != nil && err != io.EOF || n == len(buf) {
			return n, err
		}
	}
	k, err := h.stage.ReadAt(buf[n:], off+int64(n)-h.base.Size)
	return n + k, err
}

// truncate changes the size of the staged content.
func (h *writeHandle) truncate(size int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		return h.failed
	}
	if limit := h.t.o.MaxValue; limit > 0 && size > limit {
		return backend.ErrTooLarge
	}
	if size == h.sizeLocked() {
		return nil
	}
	if have := h.sizeLocked(); size > have {
		if err := errors.Join(h.t.quota(h.base.Size, size), h.t.room(roomFor(have, size))); err != nil {
			return err
		}
	}
	if size == 0 && h.value != nil { // nothing of what is there is needed
		h.value.Close()
		h.value = nil
		h.base.Size = 0
	}
	if err := h.loadLocked(); err != nil {
		return err
	}
	if err := h.stage.Truncate(size); err != nil {
		return err
	}
	h.dirty = true
	h.set.Mtime = nil
	h.base.Mtime = time.Now().UnixNano()
	return nil
}

// setAttr keeps an attribute change for the publication. It returns false if the change has to be committed now as well, because
// the key exists already.
func (h *writeHandle) setAttr(c backend.AttrChange) bool {
	h.t.mu.Lock()
	created, gone := h.created, h.gone
	h.t.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if created || gone {
		h.set = h.set.Merge(c)
		return true
	}
	if h.dirty {
		h.set = h.set.Merge(backend.AttrChange{Atime: c.Atime, Mtime: c.Mtime})
	}
	h.base.Attr = c.Apply(h.base.Attr)
	return false
}

func (s *Server) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	s.count(opFallocate)
	h, ok := s.handle(in.Fh).(*writeHandle)
	if !ok {
		return fuse.EBADF
	}
	if in.Mode&^unix.FALLOC_FL_KEEP_SIZE != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	end := int64(in.Offset + in.Length)
	if limit := s.o.MaxValue; limit > 0 && end > limit {
		return fuse.Status(syscall.EFBIG)
	}
	if err := h.t.room(leastRoom + int64(in.Length)); err != nil {
		return s.status("fallocate", err)
	}
	if e := h.entry(); in.Mode == 0 && end > e.Size {
		return s.status("fallocate", h.truncate(end))
	}
	return fuse.OK
}

// staged is what a handle that is being written shows to those who have it open and open it again by its name.
type staged struct{ h *writeHandle }

func (s staged) ReadAt(b []byte, off int64) (int, error) { return s.h.readAt(b, off) }

func (s staged) Size() int64 {
	e := s.h.entry()
	return e.Size
}

func (s staged) Close() error {
	s.h.t.mu.Lock()
	s.h.sharers--
	last := s.h.freed && s.h.sharers == 0
	s.h.t.mu.Unlock()
	if last {
		s.h.free()
	}
	return nil
}

// share counts a read handle that shows what is staged; false if it is gone already.
func (h *writeHandle) share() bool {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	if h.freed {
		return false
	}
	h.sharers++
	return true
}

// free gives back what h holds; it is not used any more, but by its sharers.
func (h *writeHandle) free() {
	h.t.mu.Lock()
	h.freed = true
	shared := h.sharers > 0
	h.t.mu.Unlock()
	if shared {
		return
	}
	h.mu.Lock()
	if h.stage != nil {
		h.stage.Close()
		h.stage = nil
	}
	if h.value != nil {
		h.value.Close()
		h.value = nil
	}
	h.mu.Unlock()
	h.t.mu.Lock()
	unreserve := h.unreserve
	h.unreserve = nil
	h.t.mu.Unlock()
	if unreserve != nil {
		unreserve()
	}
}
