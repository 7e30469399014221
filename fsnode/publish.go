package fsnode

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
)

func (s *Server) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	s.count(opFlush)
	defer s.dropLocks(in.Fh, in.LockOwner, false)
	h, ok := s.handle(in.Fh).(*writeHandle)
	if !ok {
		return fuse.OK
	}
	return s.status("publish", h.flush(in.Pid))
}

// flush is called for every descriptor of the open file that is closed, by thread tid. It publishes if that was the
// last one of the process that opened the file, and abandons what was written if a process that wrote it dies by a signal.
func (h *writeHandle) flush(tid uint32) error {
	h.mu.Lock()
	dirty := h.dirty && !h.dead
	h.mu.Unlock()
	if !dirty {
		return nil
	}
	p, ok := processOf(tid)
	if !ok { // another pid namespace: nothing can be known of it
		return h.publish()
	}
	opener := tid == h.tid || p.tgid == h.tid
	if !opener {
		o := h.opener()
		opener = o == 0 || o == p.tgid
	}
	switch {
	case p.exiting && killed(tid) && (opener || h.wroteBy(p.tgid)):
		h.abandon("killed by a signal while it was writing", p.tgid)
		return nil
	case !opener:
		h.expectRelease()
		return nil
	case !p.exiting && h.stillOpen(p.tgid):
		return nil
	}
	h.t.mu.Lock()
	h.closed = true
	h.t.mu.Unlock()
	err := h.publish()
	h.t.mu.Lock()
	h.finished = true
	h.t.mu.Unlock()
	return err
}

// wroteBy says whether a thread of process tgid wrote.
func (h *writeHandle) wroteBy(tgid uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for tid, g := range h.writers {
		if g == tgid || tid == tgid {
			return true
		}
	}
	return false
}

// stillOpen says whether the process has another descriptor of h: more descriptors are open for writing on this inode number
// than it has other handles of it.
func (h *writeHandle) stillOpen(tgid uint32) bool {
	inos := h.numbers()
	n, ok := writable(tgid, inos, h.t.mounts.ours)
	if !ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.stage == nil // nothing can be seen: then wait until there is something
	}
	if n == 0 {
		return false
	}
	var others []*writeHandle
	h.t.mu.Lock()
	for o := range h.t.writers[h.ref] {
		if o != h && !o.closed {
			others = append(others, o)
		}
	}
	h.t.mu.Unlock()
	for _, o := range others {
		if g := o.opener(); g == tgid || g == 0 {
			n--
		}
	}
	return n > 0
}

// publish commits what is staged at the last close, and tells the kernel.
func (h *writeHandle) publish() error {
	tell, err := h.commit(true)
	tell()
	return err
}

// commit commits what is staged. last says that the file is being closed: then an error is the end of it. tell is what
// remains to be said to the kernel, once nobody waits for this publication who may hold the lock of the directory.
func (h *writeHandle) commit(last bool) (tell func(), err error) {
	t := h.t
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.ctx), t.o.LockTimeout+time.Second)
	defer stop()
	t.names.RLock()
	h.mu.Lock()
	if !h.dirty || h.dead {
		h.mu.Unlock()
		t.names.RUnlock()
		return func() {}, nil
	}
	t.mu.Lock()
	ref, gone, created, old := h.ref, h.gone, h.created, h.node.v
	t.mu.Unlock()
	if gone {
		h.dirty = false
		h.mu.Unlock()
		t.names.RUnlock()
		return func() {}, nil
	}
	done, err := h.commitLocked(ctx, ref, created)
	if errors.Is(err, backend.ErrClosed) && t != t.main {
		err = fmt.Errorf("the transaction is over: %w", backend.ErrConflict)
	}
	if err != nil {
		h.dead = last
	}
	if err == nil {
		h.publishedLocked(done, ref)
	}
	h.mu.Unlock()
	t.names.RUnlock()
	if err != nil {
		t.stats.failed.Add(1)
		p, _ := processOf(h.tid)
		t.report(t.nameOf(ref), p.tgid, commandOf(p.tgid), "not published: "+err.Error())
		return func() {}, err
	}
	t.stats.publications.Add(1)
	return func() { h.tellKernel(done, ref, old, created) }, nil
}

func (h *writeHandle) commitLocked(ctx context.Context, ref backend.Ref, created bool) (backend.Committed, error) {
	if h.failed != nil {
		return backend.Committed{}, h.failed
	}
	stage := h.stage
	if stage == nil {
		if h.value != nil && !h.replace && !h.appending {
			return backend.Committed{}, nil
		}
		st, err := h.t.store.NewStage()
		if err != nil {
			return backend.Committed{}, err
		}
		defer st.Close()
		stage = st
	}
	var b backend.Batch
	ifNew := h.base.Attr
	if created {
		ifNew = h.attr
	}
	switch {
	case h.excl && created:
		b.Expect(ref, 0)
	case !h.replace && !h.appending:
		b.Expect(ref, h.base.Ino)
	}
	if h.appending {
		b.Append(ref, stage, &ifNew, h.set)
	} else {
		b.Put(ref, stage, &ifNew, h.set)
	}
	if created { // fstat has shown this number already
		b.Number(h.base.Ino)
	}
	done, err := h.t.commit(ctx, &b)
	if h.excl && created && errors.Is(err, backend.ErrConflict) {
		err = backend.ErrExists
	}
	return done, err
}

// publishedLocked makes what was published the base of what is written to h from now on.
func (h *writeHandle) publishedLocked(done backend.Committed, ref backend.Ref) {
	h.dirty, h.set = false, backend.AttrChange{}
	e, ok := done.Entry(ref)
	if !ok {
		return
	}
	h.base = e
	h.t.mu.Lock()
	h.created = false
	h.t.mu.Unlock()
	if h.stage != nil && !h.appending && h.stage.Size() == e.Size {
		return // the stage still has it
	}
	if h.stage != nil {
		h.stage.Close()
		h.stage = nil
	}
	if h.value != nil {
		h.value.Close()
		h.value = nil
	}
	if e.Size == 0 {
		return
	}
	snap, err := h.t.snapshot()
	if err != nil {
		return
	}
	defer snap.Close()
	if now, err := snap.Lookup(ref); err == nil && now.Ino == e.Ino {
		h.value, _ = snap.Open(now)
	}
}

// tellKernel makes the kernel see what was published. Old was the version of the handle's node. A name that nobody but the
// writer has looked at is left as it is: its node becomes one of the new version.
func (h *writeHandle) tellKernel(done backend.Committed, ref backend.Ref, old *version, created bool) {
	t := h.t
	e, ok := done.Entry(ref)
	if !ok {
		return
	}
	t.mu.Lock()
	seen := created || old.read || old.nodes > 1 || h.node.writer != h || t.o.Strict
	t.rebaseLocked(h.node, &e)
	kept := h.node.kept
	h.node.kept = false
	unreserve := h.unreserve
	h.unreserve = nil
	t.mu.Unlock()
	if unreserve != nil {
		unreserve()
	}
	if seen {
		t.forgetName(ref)
	}
	if kept {
		t.fuse.InodeNotify(h.node.id, -1, 0)
	}
	for i := range done.Changes {
		if c := &done.Changes[i]; c.New != nil && c.New.Kind == backend.Dir {
			t.forgetAttr(c.New)
		}
	}
}

func (s *Server) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	s.count(opRelease)
	switch h := s.takeHandle(in.Fh).(type) {
	case *readHandle:
		h.release()
	case *writeHandle:
		h.release()
	}
	s.dropLocks(in.Fh, 0, true) // after the publication, which they may guard
}

// release ends h: what was not published yet is.
func (h *writeHandle) release() {
	tell, _ := h.commit(true) // an error is in .storefs/errors; nobody else would hear of it
	t := h.t
	t.mu.Lock()
	if h.node.writer == h {
		h.node.writer = nil
	}
	if w := t.writers[h.ref]; w != nil {
		delete(w, h)
		if len(w) == 0 {
			delete(t.writers, h.ref)
		}
	}
	if h.isDue {
		h.isDue = false
		t.due.Add(-1)
	}
	t.mu.Unlock()
	close(h.released)
	tell()
	h.free()
}

// abandon drops what was written. tgid is the process on whose account, 0 if there is none.
func (h *writeHandle) abandon(why string, tgid uint32) {
	h.mu.Lock()
	lost := h.dirty && !h.dead
	h.dead = true
	h.mu.Unlock()
	if !lost {
		return
	}
	h.t.mu.Lock()
	ref := h.ref
	h.t.mu.Unlock()
	h.t.stats.abandoned.Add(1)
	if tgid == 0 {
		tgid = h.opener()
	}
	h.t.report(h.t.nameOf(ref), tgid, commandOf(tgid), "abandoned: "+why)
}

// abandonAll ends the handles that the kernel did not release before the mount ended. A file whose last
// process had closed it is published, any other is abandoned.
func (s *Server) abandonAll() {
	s.mu.Lock()
	all := s.handles
	s.handles = map[uint64]any{}
	s.mu.Unlock()
	for _, h := range all {
		switch h := h.(type) {
		case *readHandle:
			h.release()
		case *dirHandle:
			h.release()
		case *writeHandle:
			s.mu.Lock()
			closed := h.closed
			s.mu.Unlock()
			if !closed {
				h.abandon("the mount ended", 0)
			}
			h.release()
		}
	}
}

func (s *Server) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	s.count(opFsync)
	if h, ok := s.handle(in.Fh).(*writeHandle); ok {
		tell, err := h.commit(false)
		soon(tell) // the kernel holds the file's lock, which who holds the directory's may wait for
		if err != nil {
			return s.status("fsync", err)
		}
	}
	return s.sync(cancel, in.Fh)
}

// sync makes durable what the store that handle fh belongs to has committed.
func (s *Server) sync(cancel <-chan struct{}, fh uint64) fuse.Status {
	t := treeOfHandle(s.handle(fh))
	if t == nil || t.readOnly {
		return fuse.OK
	}
	ctx, stop := s.request(cancel)
	defer stop()
	return s.status("sync", t.store.Sync(ctx))
}

// enlistLocked makes h known as a writer of its place.
func (t *tree) enlistLocked(h *writeHandle) {
	w := t.writers[h.ref]
	if w == nil {
		w = map[*writeHandle]struct{}{}
		t.writers[h.ref] = w
	}
	w[h] = struct{}{}
}

// pendingAt returns a handle that is creating the key at ref and has published nothing; nil if there is none.
func (t *tree) pendingAt(ref backend.Ref) *writeHandle {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.writers[ref] {
		if h.created && !h.gone {
			return h
		}
	}
	return nil
}

// detachWriters makes the writers of ref, which was unlinked, publish nothing.
func (t *tree) detachWriters(ref backend.Ref) {
	t.mu.Lock()
	var ends []func()
	for h := range t.writers[ref] {
		h.gone = true
		if h.unreserve != nil {
			ends = append(ends, h.unreserve)
			h.unreserve = nil
		}
	}
	t.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// moveWriters makes the writers of from publish at to. Those of to go on: the last close wins.
func (t *tree) moveWriters(from, to backend.Ref, flags backend.RenameFlags) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, b := t.writers[from], t.writers[to]
	if from == to || len(a) == 0 && len(b) == 0 {
		return
	}
	delete(t.writers, from)
	for h := range a {
		h.ref = to
	}
	if flags&backend.Exchange != 0 {
		delete(t.writers, to)
		for h := range b {
			h.ref = from
			t.enlistLocked(h)
		}
	}
	for h := range a {
		t.enlistLocked(h)
	}
}

// releaseSoon bounds the wait for a release that is due. It comes within microseconds, if another process does not hold the file.
const releaseSoon = 100 * time.Millisecond

// expectRelease is called when a process that did not open the file closed a descriptor: if the one that opened it has none
// any more that may have been the last.
func (h *writeHandle) expectRelease() {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	if h.closed && !h.isDue {
		h.isDue = true
		h.t.due.Add(1)
	}
}

// awaitRelease waits for releases of ref that are due, so that what comes after the close sees what it published.
func (t *tree) awaitRelease(ref backend.Ref) {
	if t.due.Load() == 0 {
		return
	}
	t.mu.Lock()
	var due []*writeHandle
	for h := range t.writers[ref] {
		if h.isDue {
			due = append(due, h)
		}
	}
	t.mu.Unlock()
	for _, h := range due {
		timer := time.NewTimer(releaseSoon)
		select {
		case <-h.released:
		case <-timer.C:
			t.mu.Lock()
			if h.isDue {
				h.isDue = false
				t.due.Add(-1)
			}
			t.mu.Unlock()
		}
		timer.Stop()
	}
}

func (s *Server) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return fuse.Status(syscall.EOPNOTSUPP)
}
