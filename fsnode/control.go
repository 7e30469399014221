package fsnode

import (
	"bytes"
	"fmt"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
)

// controlName is the folder of the mount's own files. It is at the root, and not listed there.
const controlName = ".storefs"

// controlFiles are the files in it; their node ids follow controlNode.
var controlFiles = []string{"stats", "errors", "generation", "locks"}

// controlHandle is an open control file: its text at the time of the open.
type controlHandle struct{ text []byte }

func isControl(id uint64) bool {
	return id >= controlNode && id <= controlNode+uint64(len(controlFiles))
}

func controlAttr(id uint64, root *backend.Entry, a *fuse.Attr) {
	*a = fuse.Attr{Ino: 1<<61 + id, Nlink: 1, Blksize: 4096, Mode: syscall.S_IFREG | 0o444}
	if id == controlNode {
		a.Mode = syscall.S_IFDIR | 0o555
	}
	a.Uid, a.Gid = root.UID, root.GID
	a.Mtime, a.Mtimensec = split(root.Mtime)
	a.Ctime, a.Ctimensec = a.Mtime, a.Mtimensec
	a.Atime, a.Atimensec = a.Mtime, a.Mtimensec
}

func (s *Server) lookupControl(h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	id := uint64(controlNode)
	if h.NodeId == controlNode {
		for i, f := range controlFiles {
			if f == name {
				id = controlNode + 1 + uint64(i)
			}
		}
		if id == controlNode {
			return fuse.ENOENT
		}
	} else if h.NodeId != rootNode {
		return fuse.ENOENT
	}
	root, err := s.entry(backend.RootRef)
	if err != nil {
		return s.status("lookup", err)
	}
	out.NodeId, out.Generation = id, 1
	controlAttr(id, &root, &out.Attr)
	return fuse.OK
}

func (s *Server) controlAttr(id uint64, out *fuse.AttrOut) fuse.Status {
	root, err := s.entry(backend.RootRef)
	if err != nil {
		return s.status("stat", err)
	}
	controlAttr(id, &root, &out.Attr)
	return fuse.OK
}

// openControl reads a control file at the moment of the open.
func (s *Server) openControl(id uint64, flags uint32, out *fuse.OpenOut) fuse.Status {
	if id == controlNode {
		return fuse.Status(syscall.EISDIR)
	}
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return fuse.EACCES
	}
	var b bytes.Buffer
	switch controlFiles[id-controlNode-1] {
	case "stats":
		s.writeStats(&b)
	case "errors":
		b.WriteString(s.errors.text())
	case "locks":
		b.WriteString(s.lockText())
	case "generation":
		snap, err := s.snapshot()
		if err != nil {
			return s.status("generation", err)
		}
		fmt.Fprintln(&b, snap.Generation())
		snap.Close()
	}
	out.Fh = s.newHandle(&controlHandle{b.Bytes()})
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	return fuse.OK
}
