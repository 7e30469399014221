package fsnode

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/lockmgr"
)

// Locks belong to the key, not to the version that was opened, and hold across all mounts of the store. An open file
// keeps to the key that it led to when it first locked it, whatever is renamed later.

// lockID returns what the locks of handle fh belong to, and its path.
func (s *Server) lockID(fh uint64) (id, path string, ok bool) {
	s.mu.Lock()
	id, known := s.lockIDs[fh]
	t := treeOfHandle(s.handles[fh])
	var ref backend.Ref
	switch h := s.handles[fh].(type) {
	case *readHandle:
		ref = h.node.v.e.Ref
	case *writeHandle:
		ref = h.ref
	case *dirHandle:
		if h.dir == 0 {
			s.mu.Unlock()
			name := fmt.Sprintf("%s/%d", controlName, h.node)
			return name, name, true
		}
		if n := h.t.dirNodeLocked(h.dir); n != nil {
			ref = n.v.e.Ref
		}
	case *controlHandle: // storefs txn queues for such a lock: the kernel has none for FUSE directories
		s.mu.Unlock()
		name := controlName + "/" + controlNames[h.id-controlNode-1]
		return name, name, true
	default:
		s.mu.Unlock()
		return "", "", false
	}
	if !known {
		id = fmt.Sprintf("%d/%s", ref.Dir, ref.Name)
	}
	s.mu.Unlock()
	return id, t.nameOf(ref), true
}

func lockKind(flags uint32) lockmgr.Kind {
	if flags&fuse.FUSE_LK_FLOCK != 0 {
		return lockmgr.Flock
	}
	return lockmgr.Record
}

func lockRange(l *fuse.FileLock) lockmgr.Range {
	r := lockmgr.Range{Start: int64(l.Start)}
	if l.End < math.MaxInt64 {
		r.Len = int64(l.End-l.Start) + 1
	}
	return r
}

func (s *Server) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	s.count(opOther)
	if s.o.Locks == nil {
		return fuse.ENOSYS
	}
	id, path, ok := s.lockID(in.Fh)
	if !ok {
		return fuse.EBADF
	}
	o := lockmgr.Owner{Key: path, Kind: lockKind(in.LkFlags), ID: in.Owner}
	out.Lk = in.Lk
	h, held := s.o.Locks.Test(id, o, lockRange(&in.Lk), in.Lk.Typ == syscall.F_WRLCK)
	if !held {
		out.Lk.Typ = syscall.F_UNLCK
		return fuse.OK
	}
	out.Lk = fuse.FileLock{Start: uint64(h.Range.Start), End: math.MaxInt64, Typ: syscall.F_RDLCK, Pid: h.PID}
	if h.Range.Len > 0 {
		out.Lk.End = uint64(h.Range.Start + h.Range.Len - 1)
	}
	if h.Exclusive {
		out.Lk.Typ = syscall.F_WRLCK
	}
	return fuse.OK
}

func (s *Server) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	s.count(opOther)
	return s.setLock(cancel, in, false)
}

func (s *Server) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	s.count(opOther)
	return s.setLock(cancel, in, true)
}

func (s *Server) setLock(cancel <-chan struct{}, in *fuse.LkIn, wait bool) fuse.Status {
	if s.o.Locks == nil {
		return fuse.ENOSYS
	}
	id, path, ok := s.lockID(in.Fh)
	if !ok {
		return fuse.EBADF
	}
	kind, r := lockKind(in.LkFlags), lockRange(&in.Lk)
	if in.Lk.Typ == syscall.F_UNLCK {
		return s.status("unlock "+path, s.o.Locks.Unlock(id, kind, in.Owner, r))
	}
	p, _ := processOf(in.Pid)
	o := lockmgr.Owner{Key: path, Kind: kind, ID: in.Owner, PID: p.tgid, Command: commandOf(p.tgid)}
	ctx, stop := s.request(cancel)
	defer stop()
	err := s.o.Locks.Lock(ctx, id, o, r, in.Lk.Typ == syscall.F_WRLCK, wait)
	switch {
	case errors.Is(err, lockmgr.ErrLocked) && !wait:
		return fuse.EAGAIN
	case err != nil:
		if errors.Is(err, lockmgr.ErrLocked) {
			s.report(path, p.tgid, o.Command, "not locked: "+err.Error())
		}
		return s.status("lock "+path, err)
	}
	s.mu.Lock()
	s.lockIDs[in.Fh] = id
	if s.lockOwners[in.Fh] == nil {
		s.lockOwners[in.Fh] = map[lockOwner]struct{}{}
	}
	s.lockOwners[in.Fh][lockOwner{kind, in.Owner}] = struct{}{}
	w, _ := s.handles[in.Fh].(*writeHandle)
	s.mu.Unlock()
	if w != nil {
		w.refresh()
	}
	return fuse.OK
}

type lockOwner struct {
	kind lockmgr.Kind
	id   uint64
}

// dropLocks ends the locks that were taken through handle fh: record locks of one owner at a close, all when the file is released.
func (s *Server) dropLocks(fh uint64, owner uint64, all bool) {
	if s.o.Locks == nil {
		return
	}
	s.mu.Lock()
	id, locked := s.lockIDs[fh]
	var drop []lockOwner
	for o := range s.lockOwners[fh] {
		if all || o.kind == lockmgr.Record && o.id == owner {
			drop = append(drop, o)
			delete(s.lockOwners[fh], o)
		}
	}
	if all {
		delete(s.lockIDs, fh)
		delete(s.lockOwners, fh)
	}
	s.mu.Unlock()
	if !locked {
		return
	}
	for _, o := range drop {
		s.o.Locks.Drop(id, o.kind, o.id)
	}
}

// refresh makes the newest version what h is based on, if nothing was written to it yet: a program that opens a file, waits for its lock,
// reads, and writes back would else work on what the one before it has replaced.
func (h *writeHandle) refresh() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t.mu.Lock()
	ref, created := h.ref, h.created
	h.t.mu.Unlock()
	if h.dirty || h.stage != nil || created || h.replace {
		return
	}
	snap, err := h.t.snapshot()
	if err != nil {
		return
	}
	defer snap.Close()
	e, err := snap.Lookup(ref)
	if err != nil || e.Kind != backend.File || e.Ino == h.base.Ino {
		return
	}
	v, err := snap.Open(e)
	if err != nil {
		return
	}
	if h.value != nil {
		h.value.Close()
	}
	h.base, h.value = e, v
}

// lockText lists who holds locks: key, kind, what of it, pid and command, separated by tabs.
func (s *Server) lockText() string {
	if s.o.Locks == nil {
		return ""
	}
	var b strings.Builder
	for _, h := range s.o.Locks.Holders() {
		mode := "shared"
		if h.Exclusive {
			mode = "exclusive"
		}
		fmt.Fprintf(&b, "%q\t%s\t%s\t%d\t%q\n", h.Key, h.Kind, mode, h.PID, h.Command)
	}
	return b.String()
}
