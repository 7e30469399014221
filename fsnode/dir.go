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
func (t *tree) commit(ctx ctx, b *backend.Batch) (backend.Committed, error) {
	b.MaxValue = t.o.MaxValue
	done, err := t.store.Commit(ctx, b)
	if err != nil {
		return done, err
	}
	t.note(done)
	return done, nil
}

// note brings what is known of versions up to date with a commit.
func (t *tree) note(done backend.Committed) {
	moved := map[backend.Ino]bool{}
	for _, c := range done.Changes {
		if c.Old != nil {
			moved[c.Old.Ino] = true
		}
	}
	t.mu.Lock()
	for _, c := range done.Changes { // what was unlinked, or had something else moved onto it
		if c.Old != nil && (c.New == nil || c.New.Ino != c.Old.Ino && moved[c.New.Ino]) {
			if v := t.versions[c.Old.Ino]; v != nil && v.e.Ref == c.Ref {
				v.gone = true
			}
		}
	}
	for _, c := range done.Changes {
		if c.New == nil {
			continue
		}
		if v := t.versions[c.New.Ino]; v != nil && c.New.Revision >= v.e.Revision {
			v.e, v.gone = *c.New, false
		}
	}
	t.mu.Unlock()
}

// place returns where name in the directory that node id is would stand, and in which tree, if it may be changed.
func (s *Server) place(h *fuse.InHeader, id uint64, name string) (*tree, backend.Ref, fuse.Status) {
	if isControl(id) || id == rootNode && name == controlName {
		return nil, backend.Ref{}, fuse.EPERM
	}
	t, dir := s.dirOf(id)
	switch {
	case dir == 0:
		return nil, backend.Ref{}, fuse.ENOENT
	case t.readOnly:
		return nil, backend.Ref{}, fuse.EROFS
	case len(name) > backend.MaxName:
		return nil, backend.Ref{}, fuse.Status(syscall.ENAMETOOLONG)
	}
	if !t.ledNow(dir, h.Pid) {
		return nil, backend.Ref{}, fuse.Status(syscall.ESTALE)
	}
	return t, backend.Ref{Dir: dir, Name: name}, fuse.OK
}

// newAttr returns the attributes of something that the caller of h makes in directory dir.
func (t *tree) newAttr(h *fuse.InHeader, dir backend.Ino, mode uint32, isDir bool) backend.Attr {
	a := backend.Attr{Mode: mode & 0o7777, UID: h.Uid, GID: h.Gid}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.dirNodeLocked(dir); n != nil && n.v.e.Mode&syscall.S_ISGID != 0 {
		a.GID = n.v.e.GID
		if isDir {
			a.Mode |= syscall.S_ISGID
		}
	}
	return a
}

// made commits b, which makes something at ref, and answers with it.
func (t *tree) made(cancel <-chan struct{}, h *fuse.InHeader, what string, b *backend.Batch, ref backend.Ref, out *fuse.EntryOut) fuse.Status {
	ctx, stop := t.request(cancel)
	defer stop()
	done, err := t.commit(ctx, b)
	if err != nil {
		return t.status(what+" "+ref.Name, err)
	}
	e, _ := done.Entry(ref)
	t.mu.Lock()
	v := t.versionLocked(&e)
	if v.cur == nil {
		v.cur = t.newNodeLocked(v)
	}
	n := v.cur
	t.holdLocked(n)
	t.mu.Unlock()
	t.answer(out, n)
	return fuse.OK
}

func (s *Server) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opMkdir)
	if isControl(in.NodeId) {
		return s.mkdirControl(cancel, in, name, out)
	}
	t, ref, st := s.place(&in.InHeader, in.NodeId, name)
	if st != fuse.OK {
		return st
	}
	var b backend.Batch
	b.Mkdir(ref, t.newAttr(&in.InHeader, ref.Dir, in.Mode, true))
	return t.made(cancel, &in.InHeader, "mkdir", &b, ref, out)
}

func (s *Server) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opSymlink)
	t, ref, st := s.place(h, h.NodeId, name)
	if st != fuse.OK {
		return st
	}
	if len(target) > backend.MaxTarget {
		return fuse.Status(syscall.ENAMETOOLONG)
	}
	var b backend.Batch
	b.Symlink(ref, target, t.newAttr(h, ref.Dir, 0o777, false))
	return t.made(cancel, h, "symlink", &b, ref, out)
}

func (s *Server) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	s.count(opReadlink)
	n := s.nodeOf(h.NodeId)
	if n == nil {
		return nil, fuse.Status(syscall.ESTALE)
	}
	s.mu.Lock()
	e, at, gone := n.v.e, n.at, n.v.gone
	s.mu.Unlock()
	if e.Kind != backend.Symlink {
		return nil, fuse.EINVAL
	}
	if now, err := n.t.entry(at); !gone && (err != nil || now.Ino != e.Ino) {
		if err == nil && now.Kind == backend.Symlink {
			return []byte(now.Target), fuse.OK
		}
		if s.refuseOnce(h.Pid) {
			return nil, fuse.Status(syscall.ESTALE) // something else stands there
		}
	}
	return []byte(e.Target), fuse.OK
}

// Mknod makes an empty file; there are no device nodes here.
func (s *Server) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	s.count(opMknod)
	t, ref, st := s.place(&in.InHeader, in.NodeId, name)
	if st != fuse.OK {
		return st
	}
	if in.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fuse.EPERM
	}
	stage, err := t.store.NewStage()
	if err != nil {
		return s.status("mknod", err)
	}
	defer stage.Close()
	a := t.newAttr(&in.InHeader, ref.Dir, in.Mode, false)
	var b backend.Batch
	b.Expect(ref, 0)
	b.Put(ref, stage, &a, backend.AttrChange{})
	if st = t.made(cancel, &in.InHeader, "mknod", &b, ref, out); st == fuse.Status(syscall.ESTALE) {
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
	t, ref, st := s.place(h, h.NodeId, name)
	if st != fuse.OK {
		return st
	}
	t.awaitRelease(ref)
	ctx, stop := s.request(cancel)
	defer stop()
	s.names.Lock()
	defer s.names.Unlock()
	var b backend.Batch
	b.Remove(ref)
	_, err := t.commit(ctx, &b)
	if errors.Is(err, backend.ErrNotFound) && t.pendingAt(ref) != nil {
		err = nil
	}
	if err != nil {
		return s.status("unlink "+name, err)
	}
	t.detachWriters(ref)
	return fuse.OK
}

func (s *Server) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	s.count(opRmdir)
	if isControl(h.NodeId) {
		return s.rmdirControl(cancel, h, name)
	}
	t, ref, st := s.place(h, h.NodeId, name)
	if st != fuse.OK {
		return st
	}
	ctx, stop := s.request(cancel)
	defer stop()
	var b backend.Batch
	b.Rmdir(ref)
	_, err := t.commit(ctx, &b)
	return s.status("rmdir "+name, err)
}

func (s *Server) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	s.count(opRename)
	if isControl(in.NodeId) || isControl(in.Newdir) {
		return s.renameControl(cancel, in, oldName, newName)
	}
	t, from, st := s.place(&in.InHeader, in.NodeId, oldName)
	if st != fuse.OK {
		return st
	}
	other, to, st := s.place(&in.InHeader, in.Newdir, newName)
	if st != fuse.OK {
		return st
	}
	if other != t {
		return fuse.Status(syscall.EXDEV)
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
	t.awaitRelease(from)
	t.awaitRelease(to)
	ctx, stop := s.request(cancel)
	defer stop()
	s.names.Lock()
	defer s.names.Unlock()
	var b backend.Batch
	b.Rename(from, to, flags)
	_, err := t.commit(ctx, &b)
	if errors.Is(err, backend.ErrNotFound) && t.pendingAt(from) != nil && flags&backend.Exchange == 0 {
		err = t.renamePending(from, to, flags)
	}
	if err != nil {
		return s.status("rename "+oldName, err)
	}
	t.moveWriters(from, to, flags)
	t.mu.Lock()
	t.movedLocked(from, to, flags&backend.Exchange != 0)
	t.mu.Unlock()
	return fuse.OK
}

// renamePending checks what rename(2) demands for a key that is being created and has nothing published: it moves without a commit.
func (t *tree) renamePending(from, to backend.Ref, flags backend.RenameFlags) error {
	if err := backend.ValidName(to.Name); err != nil {
		return err
	}
	e, err := t.entry(to)
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
