package fsnode

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
)

// fill says what stat shows of e.
func (t *tree) fill(a *fuse.Attr, e *backend.Entry) {
	*a = fuse.Attr{Ino: t.ino(e.Ino), Size: uint64(e.Size), Blocks: uint64(e.Size+511) / 512, Blksize: 4096, Nlink: 1}
	a.Mode = e.Mode
	if t.o.Umask != nil {
		a.Mode &^= *t.o.Umask
	}
	switch e.Kind {
	case backend.Dir:
		a.Mode |= syscall.S_IFDIR
	case backend.Symlink:
		a.Mode = syscall.S_IFLNK | 0o777
	default:
		a.Mode |= syscall.S_IFREG
	}
	a.Uid, a.Gid = e.UID, e.GID
	if t.o.UID != nil {
		a.Uid = *t.o.UID
	}
	if t.o.GID != nil {
		a.Gid = *t.o.GID
	}
	a.Atime, a.Atimensec = split(e.Atime)
	a.Mtime, a.Mtimensec = split(e.Mtime)
	a.Ctime, a.Ctimensec = split(e.Ctime)
}

func split(ns int64) (uint64, uint32) {
	sec, rest := ns/1e9, ns%1e9
	if rest < 0 {
		sec, rest = sec-1, rest+1e9
	}
	return uint64(sec), uint32(rest)
}

// answer fills the answer of a lookup with node n. The version is the node's: a retry is answered with a reserved node, whatever was
// committed since.
func (t *tree) answer(out *fuse.EntryOut, n *node) {
	t.mu.Lock()
	e := n.v.e
	t.mu.Unlock()
	out.NodeId, out.Generation = n.id, 1
	t.fill(&out.Attr, &e)
	if !t.o.Strict {
		out.SetEntryTimeout(longAgo)
		out.SetAttrTimeout(longAgo)
	}
	t.mu.Lock()
	if n.tainted {
		out.SetAttrTimeout(0)
	}
	n.tellLocked(e.Ino, out.AttrTimeout() > 0)
	t.namedLocked(n, e.Ref)
	t.mu.Unlock()
}

func (s *Server) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opLookup)
	if isControl(h.NodeId) || h.NodeId == rootNode && name == controlName {
		return s.lookupControl(h, name, out)
	}
	t, dir := s.dirOf(h.NodeId)
	if dir == 0 {
		return fuse.ENOENT
	}
	if len(name) > backend.MaxName {
		return fuse.Status(syscall.ENAMETOOLONG)
	}
	ref := backend.Ref{Dir: dir, Name: name}
	t.looks(h.Pid, ref)
	t.awaitRelease(ref)
	snap, err := t.snapshot()
	if err != nil {
		return s.status("lookup", err)
	}
	defer snap.Close()
	if !t.led(snap, dir, h.Pid) {
		return fuse.Status(syscall.ESTALE)
	}
	e, err := snap.Lookup(ref)
	if errors.Is(err, backend.ErrNotFound) {
		if st, ok := t.lookupPending(ref, h.Pid, out); ok {
			return st
		}
		s.mu.Lock()
		v := s.dropRetryLocked(h.Pid)
		s.mu.Unlock()
		if v != nil {
			v.Close()
		}
		return fuse.ENOENT
	}
	if err != nil {
		return s.status("lookup of "+name, err)
	}
	t.answer(out, t.bind(snap, &e, h.Pid))
	return fuse.OK
}

// lookupPending answers for a key that is being created and was never published: it exists for whoever has it open.
func (t *tree) lookupPending(ref backend.Ref, tid uint32, out *fuse.EntryOut) (fuse.Status, bool) {
	w := t.pendingAt(ref)
	if w == nil || !w.openBy(tid) {
		return 0, false
	}
	e := w.entry()
	t.mu.Lock()
	n := w.node
	t.holdLocked(n)
	n.tellLocked(e.Ino, false)
	t.namedLocked(n, ref)
	t.mu.Unlock()
	out.NodeId, out.Generation = n.id, 1
	t.fill(&out.Attr, &e)
	return fuse.OK, true
}

func (s *Server) Forget(id, count uint64) {
	s.count(opForget)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(id, count)
}

func (s *Server) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.count(opGetAttr)
	if isControl(in.NodeId) {
		return s.controlAttr(in.NodeId, out)
	}
	n := s.nodeOf(in.NodeId)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	s.mu.Lock()
	w, tainted, e, gone := n.writingLocked(), n.tainted, n.v.e, n.v.gone
	s.mu.Unlock()
	if in.Flags()&fuse.FUSE_GETATTR_FH != 0 {
		if h, ok := s.handle(in.Fh()).(*writeHandle); ok {
			w = h
		}
	}
	if w != nil {
		e = w.entry()
		gone = w.detached()
	} else if e.Kind != backend.File || tainted || !gone {
		e, gone = n.t.newest(n, e, gone)
	}
	n.t.answerAttr(out, n, &e)
	if gone {
		out.Nlink = 0
	}
	return fuse.OK
}

// answerAttr fills the answer of a request for the attributes of n, which are those of e. The kernel keeps those of a version; those of
// a node that has, or had, a writer change without its knowing.
func (t *tree) answerAttr(out *fuse.AttrOut, n *node, e *backend.Entry) {
	t.fill(&out.Attr, e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !n.tainted && !t.o.Strict {
		out.SetTimeout(longAgo)
	}
	n.tellLocked(e.Ino, out.Timeout() > 0)
}

// newest returns what to say of node n, of which e is known: a directory or link, and a node that a writer left behind, as it is now;
// a version with the attributes that it has now, or had last.
func (t *tree) newest(n *node, e backend.Entry, gone bool) (backend.Entry, bool) {
	t.awaitRelease(e.Ref)
	snap, err := t.snapshot()
	if err != nil {
		return e, gone
	}
	defer snap.Close()
	ref := e.Ref
	if e.Kind == backend.Dir {
		if ref, err = snap.Parent(e.Ino); err != nil {
			return e, true
		}
	}
	now, err := snap.Lookup(ref)
	if err != nil {
		return e, gone || errors.Is(err, backend.ErrNotFound)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case now.Ino == e.Ino:
		if now.Revision >= n.v.e.Revision {
			n.v.e = now
		}
		return now, false
	case n.tainted && now.Kind == backend.File && !gone:
		return now, false
	}
	return e, gone
}

func (s *Server) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.count(opSetAttr)
	if isControl(in.NodeId) {
		return fuse.EPERM
	}
	n := s.nodeOf(in.NodeId)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	ctx, stop := s.request(cancel)
	defer stop()
	s.mu.Lock()
	w := n.writingLocked()
	s.mu.Unlock()
	if fh, ok := in.GetFh(); ok {
		if h, ok := s.handle(fh).(*writeHandle); ok {
			w = h
		}
	}
	change := attrChange(in)
	if size, ok := in.GetSize(); ok {
		var err error
		if w != nil && w.openBy(in.Pid) {
			err = w.truncate(int64(size))
		} else if n.t.truncateRefused(n, in.Pid) {
			return fuse.Status(syscall.ESTALE)
		} else {
			err = n.t.truncate(ctx, n, int64(size))
			change = backend.AttrChange{}
		}
		if err != nil {
			return s.status("truncate", err)
		}
	}
	if !change.Empty() {
		if s.o.UID != nil {
			change.UID = nil
		}
		if s.o.GID != nil {
			change.GID = nil
		}
		if w == nil || !w.setAttr(change) {
			if err := n.t.setAttr(ctx, n, change); err != nil {
				return s.status("set attributes", err)
			}
		}
	}
	s.mu.Lock()
	e, tainted := n.v.e, n.tainted
	s.mu.Unlock()
	if w != nil {
		e = w.entry()
	} else if tainted {
		e, _ = n.t.newest(n, e, false)
	}
	n.t.answerAttr(out, n, &e)
	return fuse.OK
}

// attrChange says what in asks for, but for the size.
func attrChange(in *fuse.SetAttrIn) (c backend.AttrChange) {
	if mode, ok := in.GetMode(); ok {
		mode &= 0o7777
		c.Mode = &mode
	}
	if uid, ok := in.GetUID(); ok {
		c.UID = &uid
	}
	if gid, ok := in.GetGID(); ok {
		c.GID = &gid
	}
	now := time.Now().UnixNano()
	if in.Valid&fuse.FATTR_ATIME != 0 {
		t := now
		if in.Valid&fuse.FATTR_ATIME_NOW == 0 {
			t = int64(in.Atime)*1e9 + int64(in.Atimensec)
		}
		c.Atime = &t
	}
	if in.Valid&fuse.FATTR_MTIME != 0 {
		t := now
		if in.Valid&fuse.FATTR_MTIME_NOW == 0 {
			t = int64(in.Mtime)*1e9 + int64(in.Mtimensec)
		}
		c.Mtime = &t
	}
	return c
}

// setAttr commits a change of attributes of the key that n is, whatever its version is by now. A key that is gone has none to
// change; its open files go on.
func (t *tree) setAttr(ctx ctx, n *node, c backend.AttrChange) error {
	if t.readOnly {
		return backend.ErrReadOnly
	}
	t.mu.Lock()
	e, gone := n.v.e, n.v.gone
	t.mu.Unlock()
	if e.Kind == backend.Dir {
		if e, gone = t.newest(n, e, gone); gone {
			return backend.ErrNotFound
		}
	}
	if gone {
		return nil
	}
	ref := e.Ref
	var b backend.Batch
	b.SetAttr(ref, c)
	done, err := t.commit(ctx, &b)
	if now, ok := done.Entry(ref); ok && err == nil {
		t.forgetAttrOfOthers(n, &now)
	}
	if n.id == rootNode && err == nil {
		t.forgetControl()
	}
	return err
}

// truncate commits a new size of the key that n is.
func (t *tree) truncate(ctx ctx, n *node, size int64) error {
	if t.readOnly {
		return backend.ErrReadOnly
	}
	if t.o.MaxValue > 0 && size > t.o.MaxValue {
		return backend.ErrTooLarge
	}
	for range maxTries {
		t.mu.Lock()
		e, gone := n.v.e, n.v.gone
		t.mu.Unlock()
		if gone {
			return backend.ErrNotFound
		}
		err := t.truncateOnce(ctx, n, e.Ref, size)
		if errors.Is(err, backend.ErrConflict) {
			continue
		}
		return err
	}
	return backend.ErrConflict
}

// truncateRefused says whether a truncation of n by thread tid has to be answered with ESTALE, because n has readers: the kernel would
// cut what they see.
func (t *tree) truncateRefused(n *node, tid uint32) bool {
	t.mu.Lock()
	ref, read := n.at, n.readers > 0 || n.reservedFor(false, tid)
	r := t.retries[tid]
	again := t.againLocked(tid, ref) && (r == nil || r.n != n || t.refusedLocked(tid))
	if !read || again {
		n.tainted = true
		if n.v.cur == n {
			n.v.cur = nil
		}
		old := t.dropRetryLocked(tid)
		t.mu.Unlock()
		if old != nil {
			old.Close()
		}
		return false
	}
	t.mu.Unlock()
	t.refuse(tid, ref, true)
	return true
}

func (t *tree) truncateOnce(ctx ctx, n *node, ref backend.Ref, size int64) error {
	t.awaitRelease(ref)
	snap, err := t.snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	e, err := snap.Lookup(ref)
	if err != nil {
		return err
	}
	if e.Kind != backend.File {
		return backend.ErrIsDir
	}
	if size > e.Size {
		if err := errors.Join(t.quota(e.Size, size), t.room(roomFor(e.Size, size))); err != nil {
			return err
		}
	}
	v, err := snap.Open(e)
	if err != nil {
		return err
	}
	defer v.Close()
	st, err := t.store.NewStage()
	if err != nil {
		return err
	}
	defer st.Close()
	if err := copyInto(st, v, min(size, e.Size)); err != nil {
		return err
	}
	if err := st.Truncate(size); err != nil {
		return err
	}
	var b backend.Batch
	b.Expect(ref, e.Ino)
	b.Put(ref, st, nil, backend.AttrChange{})
	done, err := t.commit(ctx, &b)
	if err != nil {
		return err
	}
	now, _ := done.Entry(ref)
	t.replaced(n, &now) // the name leads to n, and n is of the new version now: nothing needs to be forgotten
	return nil
}

// replaced notes that n's version was replaced by what the kernel will be told of n itself until it looks the name up again.
func (t *tree) replaced(n *node, e *backend.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.v.cur == n {
		n.v.cur = nil
	}
	n.tainted = true
	t.rebaseLocked(n, e)
}

func (s *Server) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }

func (s *Server) StatFs(cancel <-chan struct{}, h *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s.count(opStatFs)
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, backend.MaxName
	sp, ok := s.main.store.(backend.Spacer)
	if !ok {
		return fuse.OK
	}
	space, err := sp.Space()
	if err != nil {
		return s.status("statfs", err)
	}
	if limit := uint64(s.o.MaxStore); limit > 0 {
		space.Total = min(space.Total, limit)
		space.Free = min(space.Free, limit-min(limit, space.Bytes))
		space.Available = min(space.Available, space.Free)
	}
	out.Blocks, out.Bfree, out.Bavail = space.Total/4096, space.Free/4096, space.Available/4096
	out.Files, out.Ffree = space.Keys+1<<40, 1<<40
	return fuse.OK
}

// quota returns EDQUOT if a value that grows from size to size would make all values together longer than the mount allows.
func (t *tree) quota(size, to int64) error {
	sp, ok := t.store.(backend.Spacer)
	if !ok || t.o.MaxStore == 0 || to <= size {
		return nil
	}
	space, err := sp.Space()
	if err == nil && int64(space.Bytes)+to-size > t.o.MaxStore {
		return syscall.EDQUOT
	}
	return nil
}

// room returns ENOSPC unless n more bytes can be expected to fit. It is only a hint: the commit decides.
func (t *tree) room(n int64) error {
	sp, ok := t.store.(backend.Spacer)
	if !ok {
		return nil
	}
	space, err := sp.Space()
	if err != nil {
		return nil
	}
	have := space.Available
	if os.Geteuid() == 0 {
		have = space.Free
	}
	if have < uint64(n) {
		return syscall.ENOSPC
	}
	return nil
}
