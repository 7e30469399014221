package fsnode

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

type ctx = context.Context

// maxTries is how often an operation that depends on what it read is tried again when someone else was faster.
const maxTries = 1000

// commit commits b, and brings the known versions up to date. Names that the kernel knows are the caller's to forget.
func (s *Server) commit(ctx ctx, b *backend.Batch) (backend.Committed, error) {
	b.MaxValue = s.o.MaxValue
	done, err := s.store.Commit(ctx, b)
	if err != nil {
		return done, err
	}
	moved := map[backend.Ino]bool{}
	for _, c := range done.Changes {
		if c.Old != nil {
			moved[c.Old.Ino] = true
		}
	}
	s.mu.Lock()
	for _, c := range done.Changes { // what was unlinked, or had something else moved onto it
		if c.Old != nil && (c.New == nil || c.New.Ino != c.Old.Ino && moved[c.New.Ino]) {
			if v := s.versions[c.Old.Ino]; v != nil && v.e.Ref == c.Ref {
				v.gone = true
			}
		}
	}
	for _, c := range done.Changes {
		if c.New == nil {
			continue
		}
		if v := s.versions[c.New.Ino]; v != nil && c.New.Revision >= v.e.Revision {
			v.e, v.gone = *c.New, false
		}
	}
	s.mu.Unlock()
	return done, nil
}

// place returns where name in the directory that node id is would stand, if it may be changed.
func (s *Server) place(id uint64, name string) (backend.Ref, fuse.Status) {
	switch {
	case isControl(id) || id == rootNode && name == controlName:
		return backend.Ref{}, fuse.EPERM
	case s.o.ReadOnly:
		return backend.Ref{}, fuse.EROFS
	case len(name) > backend.MaxName:
		return backend.Ref{}, fuse.Status(syscall.ENAMETOOLONG)
	}
	dir := s.dirOf(id)
	if dir == 0 {
		return backend.Ref{}, fuse.ENOENT
	}
	return backend.Ref{Dir: dir, Name: name}, fuse.OK
}

// newAttr returns the attributes of something that the caller of h makes in directory dir.
func (s *Server) newAttr(h *fuse.InHeader, dir backend.Ino, mode uint32, isDir bool) backend.Attr {
	a := backend.Attr{Mode: mode & 0o7777, UID: h.Uid, GID: h.Gid}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.dirs[dir]; n != nil && n.v.e.Mode&syscall.S_ISGID != 0 {
		a.GID = n.v.e.GID
		if isDir {
			a.Mode |= syscall.S_ISGID
		}
	}
	return a
}

// made commits b, which makes something at ref, and answers with it.
func (s *Server) made(cancel <-chan struct{}, h *fuse.InHeader, what string, b *backend.Batch, ref backend.Ref, out *fuse.EntryOut) fuse.Status {
	ctx, stop := s.request(cancel)
	defer stop()
	done, err := s.commit(ctx, b)
	if err != nil {
		return s.status(what+" "+ref.Name, err)
	}
	e, _ := done.Entry(ref)
	s.mu.Lock()
	v := s.versionLocked(&e)
	if v.cur == nil {
		v.cur = s.newNodeLocked(v)
	}
	n := v.cur
	s.holdLocked(n)
	s.mu.Unlock()
	s.answer(out, n)
	return fuse.OK
}

func (s *Server) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opMkdir)
	ref, st := s.place(in.NodeId, name)
	if st != fuse.OK {
		return st
	}
	var b backend.Batch
	b.Mkdir(ref, s.newAttr(&in.InHeader, ref.Dir, in.Mode, true))
	return s.made(cancel, &in.InHeader, "mkdir", &b, ref, out)
}

func (s *Server) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opSymlink)
	ref, st := s.place(h.NodeId, name)
	if st != fuse.OK {
		return st
	}
	if len(target) > backend.MaxTarget {
		return fuse.Status(syscall.ENAMETOOLONG)
	}
	var b backend.Batch
	b.Symlink(ref, target, s.newAttr(h, ref.Dir, 0o777, false))
	return s.made(cancel, h, "symlink", &b, ref, out)
}

func (s *Server) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	s.count(opReadlink)
	n := s.nodeOf(h.NodeId)
	if n == nil {
		return nil, fuse.Status(syscall.ESTALE)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.v.e.Kind != backend.Symlink {
		return nil, fuse.EINVAL
	}
	return []byte(n.v.e.Target), fuse.OK
}

// Mknod makes an empty file; there are no device nodes here.
func (s *Server) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opMknod)
	ref, st := s.place(in.NodeId, name)
	if st != fuse.OK {
		return st
	}
	if in.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fuse.EPERM
	}
	stage, err := s.store.NewStage()
	if err != nil {
		return s.status("mknod", err)
	}
	defer stage.Close()
	a := s.newAttr(&in.InHeader, ref.Dir, in.Mode, false)
	var b backend.Batch
	b.Expect(ref, 0)
	b.Put(ref, stage, &a, backend.AttrChange{})
	if st = s.made(cancel, &in.InHeader, "mknod", &b, ref, out); st == fuse.Status(syscall.ESTALE) {
		st = fuse.Status(syscall.EEXIST)
	}
	return st
}

// Link refuses: a key has one place.
func (s *Server) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opLink)
	return fuse.EPERM
}

func (s *Server) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	s.count(opUnlink)
	ref, st := s.place(h.NodeId, name)
	if st != fuse.OK {
		return st
	}
	s.awaitRelease(ref)
	ctx, stop := s.request(cancel)
	defer stop()
	s.names.Lock()
	defer s.names.Unlock()
	var b backend.Batch
	b.Remove(ref)
	_, err := s.commit(ctx, &b)
	if errors.Is(err, backend.ErrNotFound) && s.pendingAt(ref) != nil {
		err = nil
	}
	if err != nil {
		return s.status("unlink "+name, err)
	}
	s.detachWriters(ref)
	return fuse.OK
}

func (s *Server) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	s.count(opRmdir)
	ref, st := s.place(h.NodeId, name)
	if st != fuse.OK {
		return st
	}
	ctx, stop := s.request(cancel)
	defer stop()
	var b backend.Batch
	b.Rmdir(ref)
	_, err := s.commit(ctx, &b)
	return s.status("rmdir "+name, err)
}

func (s *Server) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	s.count(opRename)
	from, st := s.place(in.NodeId, oldName)
	if st != fuse.OK {
		return st
	}
	to, st := s.place(in.Newdir, newName)
	if st != fuse.OK {
		return st
	}
	var flags backend.RenameFlags
	if in.Flags&unix.RENAME_NOREPLACE != 0 {
		flags |= backend.NoReplace
	}
	if in.Flags&unix.RENAME_EXCHANGE != 0 {
		flags |= backend.Exchange
	}
	if in.Flags&^uint32(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return fuse.EINVAL
	}
	s.awaitRelease(from)
	s.awaitRelease(to)
	ctx, stop := s.request(cancel)
	defer stop()
	s.names.Lock()
	defer s.names.Unlock()
	var b backend.Batch
	b.Rename(from, to, flags)
	_, err := s.commit(ctx, &b)
	if errors.Is(err, backend.ErrNotFound) && s.pendingAt(from) != nil && flags&backend.Exchange == 0 {
		err = s.renamePending(from, to, flags)
	}
	if err != nil {
		return s.status("rename "+oldName, err)
	}
	s.moveWriters(from, to, flags)
	return fuse.OK
}

// renamePending checks what rename(2) demands for a key that is being created and has nothing published: it moves without a commit.
func (s *Server) renamePending(from, to backend.Ref, flags backend.RenameFlags) error {
	if err := backend.ValidName(to.Name); err != nil {
		return err
	}
	e, err := s.entry(to)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return nil
	case err != nil:
		return err
	case flags&backend.NoReplace != 0:
		return backend.ErrExists
	case e.Kind == backend.Dir:
		return backend.ErrIsDir
	}
	return nil
}
