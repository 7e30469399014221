package fsnode

import (
	"errors"
	"io"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// readHandle is a file open for reading: one version, whole, until it is closed.
type readHandle struct {
	t      *tree
	node   *node
	value  backend.Value
	direct bool // past the page cache, and not counted as a reader of node
}

func (h *readHandle) release() {
	h.t.mu.Lock()
	if !h.direct {
		h.node.readers--
	}
	h.t.mu.Unlock()
	h.value.Close()
}

func (s *Server) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	s.count(opRead)
	var n int
	var err error
	switch h := s.handle(in.Fh).(type) {
	case *readHandle:
		n, err = h.value.ReadAt(buf, int64(in.Offset))
	case *writeHandle:
		n, err = h.readAt(buf, int64(in.Offset))
	case *controlHandle:
		if in.Offset < uint64(len(h.text)) {
			n = copy(buf, h.text[in.Offset:])
		}
	default:
		return nil, fuse.EBADF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, s.status("read", err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (s *Server) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	s.count(opLseek)
	var size int64
	switch h := s.handle(in.Fh).(type) {
	case *readHandle:
		size = h.value.Size()
	case *writeHandle:
		e := h.entry()
		size = e.Size
	default:
		return fuse.EBADF
	}
	if int64(in.Offset) >= size {
		return fuse.Status(syscall.ENXIO)
	}
	switch in.Whence {
	case unix.SEEK_DATA: // everything is data
		out.Offset = in.Offset
	case unix.SEEK_HOLE:
		out.Offset = uint64(size)
	default:
		return fuse.EINVAL
	}
	return fuse.OK
}

// copyInto writes the first n bytes of v to st.
func copyInto(st backend.Stage, v backend.Value, n int64) error {
	if n == 0 {
		return nil
	}
	buf := make([]byte, min(n, 256<<10))
	for off := int64(0); off < n; {
		k, err := v.ReadAt(buf[:min(int64(len(buf)), n-off)], off)
		if k == 0 && err != nil {
			return err
		}
		if _, err := st.WriteAt(buf[:k], off); err != nil {
			return err
		}
		off += int64(k)
	}
	return nil
}
