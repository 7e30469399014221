package fsnode

import (
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// Limits of extended attributes, as in xattr(7); all of one key have to fit into maxXattrs bytes.
const (
	maxXattrValue = 64 << 10
	maxXattrs     = 64 << 10
)

// xattrs returns the extended attributes of what node id is.
func (s *Server) xattrs(id uint64) (map[string]string, fuse.Status) {
	n := s.nodeOf(id)
	if n == nil {
		return nil, fuse.Status(syscall.ESTALE)
	}
	s.mu.Lock()
	w, e, gone := n.writingLocked(), n.v.e, n.v.gone
	s.mu.Unlock()
	if w != nil {
		e = w.entry()
	} else {
		e, _ = n.t.newest(n, e, gone)
	}
	return e.Xattrs, fuse.OK
}

func (s *Server) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	s.count(opGetXattr)
	if s.o.NoXattr {
		return 0, fuse.ENOSYS
	}
	if isControl(h.NodeId) || !strings.HasPrefix(name, "user.") {
		return 0, fuse.ENODATA
	}
	x, st := s.xattrs(h.NodeId)
	if st != fuse.OK {
		return 0, st
	}
	v, ok := x[name]
	if !ok {
		return 0, fuse.ENODATA
	}
	if len(dest) < len(v) {
		return uint32(len(v)), fuse.ERANGE
	}
	return uint32(copy(dest, v)), fuse.OK
}

func (s *Server) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	s.count(opListXattr)
	if s.o.NoXattr {
		return 0, fuse.ENOSYS
	}
	if isControl(h.NodeId) {
		return 0, fuse.OK
	}
	x, st := s.xattrs(h.NodeId)
	if st != fuse.OK {
		return 0, st
	}
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(x)) {
		b = append(append(b, name...), 0)
	}
	if len(dest) < len(b) {
		return uint32(len(b)), fuse.ERANGE
	}
	return uint32(copy(dest, b)), fuse.OK
}

func (s *Server) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, data []byte) fuse.Status {
	s.count(opSetXattr)
	switch {
	case s.o.NoXattr:
		return fuse.ENOSYS
	case isControl(in.NodeId):
		return fuse.EPERM
	case !strings.HasPrefix(name, "user."):
		return fuse.Status(syscall.EOPNOTSUPP)
	case len(data) > maxXattrValue:
		return fuse.Status(syscall.E2BIG)
	}
	have, st := s.xattrs(in.NodeId)
	if st != fuse.OK {
		return st
	}
	_, exists := have[name]
	if in.Flags&unix.XATTR_CREATE != 0 && exists {
		return fuse.Status(syscall.EEXIST)
	}
	if in.Flags&unix.XATTR_REPLACE != 0 && !exists {
		return fuse.ENODATA
	}
	total := len(name) + len(data)
	for k, v := range have {
		if k != name {
			total += len(k) + len(v)
		}
	}
	if total > maxXattrs {
		return fuse.Status(syscall.ENOSPC)
	}
	return s.changeXattr(cancel, in.NodeId, backend.AttrChange{SetXattr: map[string]string{name: string(data)}})
}

func (s *Server) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	s.count(opRemoveXattr)
	if s.o.NoXattr {
		return fuse.ENOSYS
	}
	if isControl(h.NodeId) {
		return fuse.EPERM
	}
	have, st := s.xattrs(h.NodeId)
	if st != fuse.OK {
		return st
	}
	if _, ok := have[name]; !ok {
		return fuse.ENODATA
	}
	return s.changeXattr(cancel, h.NodeId, backend.AttrChange{RemoveXattr: []string{name}})
}

func (s *Server) changeXattr(cancel <-chan struct{}, id uint64, c backend.AttrChange) fuse.Status {
	n := s.nodeOf(id)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	ctx, stop := s.request(cancel)
	defer stop()
	s.mu.Lock()
	w := n.writingLocked()
	s.mu.Unlock()
	if w != nil && w.setAttr(c) {
		return fuse.OK
	}
	return s.status("set extended attribute", n.t.setAttr(ctx, n, c))
}
