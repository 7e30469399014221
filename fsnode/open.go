package fsnode

import (
	"errors"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
)

// leastRoom is how much free space a file that is opened for writing must find, so that a full disk is noticed early.
const leastRoom = 64 << 10

func (s *Server) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.count(opOpen)
	if isControl(in.NodeId) {
		return s.openControl(in.NodeId, in.Flags, out)
	}
	n := s.nodeOf(in.NodeId)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	if in.Flags&syscall.O_ACCMODE == syscall.O_RDONLY && in.Flags&syscall.O_TRUNC == 0 {
		return n.t.openRead(n, in.Pid, out)
	}
	if n.t.readOnly {
		return fuse.EROFS
	}
	return n.t.openWrite(n, in, out)
}

// openRead opens n for reading if it is untainted and the key's newest version. Else it is refused with ESTALE, once; the
// open that would be refused twice gets the newest version past the page cache.
func (t *tree) openRead(n *node, tid uint32, out *fuse.OpenOut) fuse.Status {
	t.mu.Lock()
	r := t.retries[tid]
	if r != nil && r.n == n && !r.write && r.value != nil && !n.tainted {
		t.takeRetryLocked(tid)
		n.readers++
		n.v.read = true
		t.mu.Unlock()
		t.opened(&readHandle{t: t, node: n, value: r.value}, tid, out)
		return fuse.OK
	}
	ref, ino := n.at, n.v.e.Ino
	again := t.againLocked(tid, ref)
	t.mu.Unlock()

	t.awaitRelease(ref)
	snap, err := t.snapshot()
	if err != nil {
		return t.status("open", err)
	}
	defer func() { snap.Close() }()
	if !t.led(snap, ref.Dir, tid) {
		return fuse.Status(syscall.ESTALE)
	}
	e, err := snap.Lookup(ref)
	if errors.Is(err, backend.ErrNotFound) {
		if w := t.pendingAt(ref); w != nil {
			return t.openStaged(w, n, tid, out)
		}
	}
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		return t.status("open "+ref.Name, err)
	}
	for end := time.Now().Add(readersGone); again && err == nil && e.Kind != backend.File && time.Now().Before(end); {
		// A link has taken the place of the file that the second look at the path found. The kernel looks no third time, so
		// the open waits for the next file.
		time.Sleep(200 * time.Microsecond)
		if now, serr := t.snapshot(); serr == nil {
			snap.Close()
			snap = now
			e, err = snap.Lookup(ref)
		}
	}
	if err != nil && again {
		return fuse.ENOENT
	}
	fresh := err == nil && e.Ino == ino
	if !fresh && !again || err != nil || e.Kind != backend.File {
		t.refuse(tid, ref, false)
		return fuse.Status(syscall.ESTALE)
	}
	value, err := snap.Open(e)
	if err != nil {
		return t.status("open "+ref.Name, err)
	}
	h := &readHandle{t: t, node: n, value: value}
	t.mu.Lock()
	if fresh && !n.tainted && !n.reservedFor(true, tid) {
		n.readers++
		n.v.read = true
		t.mu.Unlock()
		t.opened(h, tid, out)
		return fuse.OK
	}
	t.mu.Unlock()
	if !again {
		value.Close()
		t.refuse(tid, ref, false)
		return fuse.Status(syscall.ESTALE)
	}
	t.mu.Lock()
	old := t.dropRetryLocked(tid)
	t.mu.Unlock()
	if old != nil {
		old.Close()
	}
	t.stats.direct.Add(1)
	h.direct = true
	t.opened(h, tid, out)
	return fuse.OK
}

// openStaged opens a key that is being created, and was never published, for reading. It exists for those who have it open: they see what
// is staged.
func (t *tree) openStaged(w *writeHandle, n *node, tid uint32, out *fuse.OpenOut) fuse.Status {
	if !w.openBy(tid) || !w.share() {
		return fuse.ENOENT
	}
	t.opened(&readHandle{t: t, node: n, value: staged{w}, direct: true}, tid, out)
	return fuse.OK
}

func (t *tree) opened(h *readHandle, tid uint32, out *fuse.OpenOut) {
	t.served(tid)
	out.Fh = t.newHandle(h)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	if h.direct {
		out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	}
}

// openWrite opens n for writing if nobody else has it open. A truncating or appending open need not find the newest version.
func (t *tree) openWrite(n *node, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	tid := in.Pid
	blind := in.Flags&(syscall.O_TRUNC|syscall.O_APPEND) != 0
	t.mu.Lock()
	r := t.retries[tid]
	ref, ino, mode := n.at, n.v.e.Ino, n.v.e.Mode
	mine := r != nil && r.n == n && r.write
	again := !mine && t.againLocked(tid, ref)
	t.mu.Unlock()
	t.awaitRelease(ref)
	if err := t.room(leastRoom); err != nil {
		return t.status("open "+ref.Name, err)
	}
	h := t.newWriteHandle(ref, in.Flags, tid)
	if mine && !blind && r.value != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.takeRetryLocked(tid)
		h.base, h.value = n.v.e, r.value
		t.writingLocked(h, n, out)
		return fuse.OK
	}
	snap, err := t.snapshot()
	if err != nil {
		return t.status("open", err)
	}
	defer snap.Close()
	if !t.led(snap, ref.Dir, tid) {
		return fuse.Status(syscall.ESTALE)
	}
	e, err := snap.Lookup(ref)
	pending := errors.Is(err, backend.ErrNotFound) && t.pendingAt(ref) != nil
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		return t.status("open "+ref.Name, err)
	}
	switch {
	case pending:
		h.create(t.pendingAt(ref).attr, backend.FreeIno())
		again = true
	case err != nil && (mine || again) && blind:
		// Removed since the lookup. The kernel does not say O_CREAT here, but who replaces or appends hardly ever leaves it out.
		h.create(t.newAttr(&in.InHeader, ref.Dir, mode, false), backend.FreeIno())
		again = true
	case err != nil && (mine || again):
		return fuse.ENOENT
	case err != nil || !again && !mine && !blind && e.Ino != ino:
		t.refuse(tid, ref, true)
		return fuse.Status(syscall.ESTALE)
	default:
		h.base = e
		if !h.replace {
			if h.value, err = snap.Open(e); err != nil {
				return t.status("open "+ref.Name, err)
			}
		}
	}
	t.mu.Lock()
	if !mine && again {
		t.awaitReadersLocked(n, tid)
	}
	read := n.readers > 0 || n.reservedFor(false, tid)
	if !mine && (read || !again && (n.writingLocked() != nil || n.reservedFor(true, tid))) {
		t.mu.Unlock()
		h.free()
		t.refuse(tid, ref, true)
		return fuse.Status(syscall.ESTALE)
	}
	old := t.dropRetryLocked(tid)
	t.writingLocked(h, n, out)
	t.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return fuse.OK
}

// readersGone bounds the wait of a writer that may not be refused again for those who read the node: to cut what they see is worse.
const readersGone = 500 * time.Millisecond

// awaitReadersLocked waits until nobody reads n, but not for long. It gives up the lock meanwhile.
func (t *tree) awaitReadersLocked(n *node, tid uint32) {
	for end := time.Now().Add(readersGone); (n.readers > 0 || n.reservedFor(false, tid)) && time.Now().Before(end); {
		t.mu.Unlock()
		time.Sleep(time.Millisecond)
		t.mu.Lock()
	}
}

// writingLocked makes h the writer of n, which it taints, and answers with it.
func (t *tree) writingLocked(h *writeHandle, n *node, out *fuse.OpenOut) {
	delete(t.refused, h.tid)
	t.lastHandle++
	t.handles[t.lastHandle] = h
	out.Fh = t.lastHandle
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	h.node = n
	if n.writingLocked() == nil {
		n.writer = h
	}
	n.tainted = true
	if n.v.cur == n {
		n.v.cur = nil
	}
	t.enlistLocked(h)
}

// Create makes a file and opens it. What is opened for writing exists for others once it is published.
func (s *Server) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	s.count(opCreate)
	t, ref, st := s.place(&in.InHeader, in.NodeId, name)
	if st != fuse.OK {
		return st
	}
	if in.Mode&syscall.S_IFMT != 0 && in.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fuse.EPERM
	}
	t.awaitRelease(ref)
	excl := in.Flags&syscall.O_EXCL != 0
	var unreserve func()
	if r, ok := t.store.(backend.Reserver); ok && excl {
		release, err := r.Reserve(ref)
		if err != nil {
			return s.status("create "+name, err)
		}
		unreserve = release
	}
	giveUp := func(st fuse.Status) fuse.Status {
		if unreserve != nil {
			unreserve()
		}
		return st
	}
	e, err := t.entry(ref)
	if err == nil {
		if excl || e.Kind != backend.File {
			return giveUp(fuse.Status(syscall.EEXIST))
		}
		return t.openExisting(in, &e, out)
	}
	if !errors.Is(err, backend.ErrNotFound) {
		return giveUp(s.status("create "+name, err))
	}
	if excl && t.pendingAt(ref) != nil {
		return giveUp(fuse.Status(syscall.EEXIST))
	}
	if err := t.room(leastRoom); err != nil {
		return giveUp(s.status("create "+name, err))
	}
	a := t.newAttr(&in.InHeader, ref.Dir, in.Mode, false)
	if in.Flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return giveUp(t.createEmpty(cancel, in, ref, a, excl, out))
	}
	h := t.newWriteHandle(ref, in.Flags, in.Pid)
	h.create(a, backend.FreeIno())
	h.excl, h.unreserve = excl, unreserve
	e = h.entry()
	s.mu.Lock()
	n := t.newNodeLocked(t.versionLocked(&e))
	s.holdLocked(n)
	n.tellLocked(e.Ino, false)
	t.namedLocked(n, ref)
	t.writingLocked(h, n, &out.OpenOut)
	s.mu.Unlock()
	out.NodeId, out.Generation = n.id, 1
	t.fill(&out.Attr, &e)
	return fuse.OK
}

// openExisting is Create of a file that someone else has made meanwhile.
func (t *tree) openExisting(in *fuse.CreateIn, e *backend.Entry, out *fuse.CreateOut) fuse.Status {
	t.mu.Lock()
	v := t.versionLocked(e)
	n := t.newNodeLocked(v)
	t.holdLocked(n)
	t.mu.Unlock()
	t.answer(&out.EntryOut, n)
	out.SetEntryTimeout(0)
	open := fuse.OpenIn{InHeader: in.InHeader, Flags: in.Flags}
	var st fuse.Status
	if in.Flags&syscall.O_ACCMODE == syscall.O_RDONLY && in.Flags&syscall.O_TRUNC == 0 {
		st = t.openRead(n, in.Pid, &out.OpenOut)
	} else {
		st = t.openWrite(n, &open, &out.OpenOut)
	}
	if st != fuse.OK {
		t.Forget(n.id, 1)
	}
	return st
}

// createEmpty is Create for a file that is opened for reading only: there will be nothing to publish later.
func (t *tree) createEmpty(cancel <-chan struct{}, in *fuse.CreateIn, ref backend.Ref, a backend.Attr, excl bool, out *fuse.CreateOut) fuse.Status {
	stage, err := t.store.NewStage()
	if err != nil {
		return t.status("create "+ref.Name, err)
	}
	defer stage.Close()
	var b backend.Batch
	b.Expect(ref, 0)
	b.Put(ref, stage, &a, backend.AttrChange{})
	st := t.made(cancel, &in.InHeader, "create", &b, ref, &out.EntryOut)
	if st == fuse.Status(syscall.ESTALE) {
		e, err := t.entry(ref)
		if excl || err != nil {
			return fuse.Status(syscall.EEXIST)
		}
		return t.openExisting(in, &e, out)
	}
	if st != fuse.OK {
		return st
	}
	if st = t.openRead(t.nodeOf(out.NodeId), in.Pid, &out.OpenOut); st != fuse.OK {
		t.Forget(out.NodeId, 1)
	}
	return st
}
