package fsnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
)

// controlName is the folder of the mount's own files. It is at the root, and not listed there.
const controlName = ".storefs"

// What is in it. The node ids of these follow controlNode in this order, the folders last.
var controlNames = []string{"stats", "errors", "generation", "locks", "txn", "commit", "snapshots"}

const (
	txnNode       = controlNode + 5
	commitNode    = controlNode + 6
	snapshotsNode = controlNode + 7
)

// controlKey names a tree: the folder that it is in, txnNode or snapshotsNode, and its name there.
type controlKey struct {
	dir  uint64
	name string
}

// controlHandle is an open control file: its text at the time of the open.
type controlHandle struct {
	id   uint64
	text []byte
}

func isControl(id uint64) bool { return id >= controlNode && id <= snapshotsNode }

func controlIno(id uint64) uint64 { return 1<<61 + id }

func controlAttr(id uint64, root *backend.Entry, a *fuse.Attr) {
	*a = fuse.Attr{Ino: controlIno(id), Nlink: 1, Blksize: 4096, Mode: syscall.S_IFREG | 0o444}
	switch {
	case id == txnNode || id == commitNode || id == snapshotsNode:
		a.Mode = syscall.S_IFDIR | root.Mode&0o777 // who may change the store's root may use transactions
	case id == controlNode:
		a.Mode = syscall.S_IFDIR | 0o555
	}
	a.Uid, a.Gid = root.UID, root.GID
	a.Mtime, a.Mtimensec = split(root.Mtime)
	a.Ctime, a.Ctimensec = a.Mtime, a.Mtimensec
	a.Atime, a.Atimensec = a.Mtime, a.Mtimensec
}

func (s *Server) lookupControl(h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	id := uint64(controlNode)
	switch h.NodeId {
	case rootNode:
	case controlNode:
		i := slices.Index(controlNames, name)
		if i < 0 {
			return fuse.ENOENT
		}
		id += 1 + uint64(i)
	case txnNode, snapshotsNode:
		t, err := s.treeAt(controlKey{h.NodeId, name})
		if err != nil {
			return s.status("lookup of "+name, err)
		}
		s.answerRoot(t, out)
		return fuse.OK
	default:
		return fuse.ENOENT
	}
	root, err := s.main.entry(backend.RootRef)
	if err != nil {
		return s.status("lookup", err)
	}
	out.NodeId, out.Generation = id, 1
	controlAttr(id, &root, &out.Attr)
	if !s.o.Strict {
		out.SetEntryTimeout(longAgo)
		out.SetAttrTimeout(longAgo)
	}
	return fuse.OK
}

// forgetControl makes the kernel forget the attributes of the control files, which are the root's.
func (s *Server) forgetControl() {
	for id := uint64(controlNode); id <= snapshotsNode; id++ {
		s.fuse.InodeNotify(id, -1, 0)
	}
}

// answerRoot answers with the root of a tree, whose name the kernel does not keep.
func (s *Server) answerRoot(t *tree, out *fuse.EntryOut) {
	s.mu.Lock()
	s.holdLocked(t.root)
	s.mu.Unlock()
	t.answer(out, t.root)
	out.SetEntryTimeout(0)
}

func (s *Server) controlAttr(id uint64, out *fuse.AttrOut) fuse.Status {
	root, err := s.main.entry(backend.RootRef)
	if err != nil {
		return s.status("stat", err)
	}
	controlAttr(id, &root, &out.Attr)
	if !s.o.Strict {
		out.SetTimeout(longAgo)
	}
	return fuse.OK
}

// openControl reads a control file at the moment of the open.
func (s *Server) openControl(id uint64, flags uint32, out *fuse.OpenOut) fuse.Status {
	if id == controlNode || id >= txnNode {
		return fuse.Status(syscall.EISDIR)
	}
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return fuse.EACCES
	}
	var b bytes.Buffer
	switch controlNames[id-controlNode-1] {
	case "stats":
		s.writeStats(&b)
	case "errors":
		b.WriteString(s.errors.text())
	case "locks":
		b.WriteString(s.lockText())
	case "generation":
		snap, err := s.main.snapshot()
		if err != nil {
			return s.status("generation", err)
		}
		fmt.Fprintln(&b, snap.Generation())
		snap.Close()
	}
	out.Fh = s.newHandle(&controlHandle{id, b.Bytes()})
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	return fuse.OK
}

// controlEntries lists a control folder.
func (s *Server) controlEntries(id uint64) []fuse.DirEntry {
	var list []fuse.DirEntry
	switch id {
	case controlNode:
		for i, name := range controlNames {
			d := fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: controlIno(controlNode + 1 + uint64(i))}
			if d.Ino >= controlIno(txnNode) {
				d.Mode = syscall.S_IFDIR
			}
			list = append(list, d)
		}
	case txnNode:
		s.mu.Lock()
		for k, t := range s.trees {
			if k.dir == txnNode {
				list = append(list, fuse.DirEntry{Name: k.name, Mode: syscall.S_IFDIR, Ino: t.ino(backend.RootIno)})
			}
		}
		s.mu.Unlock()
	case snapshotsNode:
		if sn, ok := s.main.store.(backend.Snapshotter); ok {
			all, _ := sn.Snapshots(s.ctx)
			for _, n := range all {
				list = append(list, fuse.DirEntry{Name: n.Name, Mode: syscall.S_IFDIR})
			}
		}
	}
	slices.SortFunc(list, func(a, b fuse.DirEntry) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return list
}

// treeAt returns the transaction or snapshot of that name.
func (s *Server) treeAt(k controlKey) (*tree, error) {
	s.mu.Lock()
	t := s.trees[k]
	s.mu.Unlock()
	if k.dir == txnNode {
		if t == nil {
			return nil, backend.ErrNotFound
		}
		return t, nil
	}
	return s.snapshotTree(k, t)
}

// snapshotTree returns the tree of a named snapshot. It may have been removed, or made again, through another mount.
func (s *Server) snapshotTree(k controlKey, t *tree) (*tree, error) {
	sn, ok := s.main.store.(backend.Snapshotter)
	if !ok {
		return nil, backend.ErrNotFound
	}
	all, err := sn.Snapshots(s.ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(n backend.NamedSnapshot) bool { return n.Name == k.name })
	if i >= 0 && t != nil && t.snapshotOf == all[i] {
		return t, nil
	}
	if t != nil {
		s.endTree(k, t)
	}
	if i < 0 {
		return nil, backend.ErrNotFound
	}
	snap, err := sn.OpenSnapshot(s.ctx, k.name)
	if err != nil {
		return nil, err
	}
	t, err = s.newTree(backend.Fixed(snap), controlName+"/snapshots/"+k.name+"/", 0)
	if err != nil {
		snap.Close()
		return nil, err
	}
	t.readOnly, t.snapshotOf = true, all[i]
	return s.enterTree(k, t)
}

// enterTree makes t known as k; ErrExists if something else is.
func (s *Server) enterTree(k controlKey, t *tree) (*tree, error) {
	s.mu.Lock()
	other := s.trees[k]
	if other == nil {
		s.trees[k] = t
	}
	s.mu.Unlock()
	if other == nil {
		return t, nil
	}
	t.end()
	t.store.Close()
	if k.dir == snapshotsNode {
		return other, nil
	}
	return nil, backend.ErrExists
}

// endTree forgets t, which is known as k.
func (s *Server) endTree(k controlKey, t *tree) {
	s.mu.Lock()
	if s.trees[k] == t {
		delete(s.trees, k)
	}
	s.mu.Unlock()
	t.end()
	t.store.Close()
}

// endTrees ends all transactions and lets go of the snapshots.
func (s *Server) endTrees() {
	s.mu.Lock()
	all := s.trees
	s.trees = map[controlKey]*tree{}
	s.mu.Unlock()
	for _, t := range all {
		t.store.Close()
	}
}

// mkdirControl begins a transaction, or makes a snapshot.
func (s *Server) mkdirControl(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	k := controlKey{in.NodeId, name}
	switch {
	case s.o.ReadOnly:
		return fuse.EROFS
	case len(name) > backend.MaxName:
		return fuse.Status(syscall.ENAMETOOLONG)
	case k.dir != txnNode && k.dir != snapshotsNode:
		return fuse.EPERM
	}
	ctx, stop := s.request(cancel)
	defer stop()
	if k.dir == snapshotsNode {
		sn, ok := s.main.store.(backend.Snapshotter)
		if !ok {
			return fuse.Status(syscall.EOPNOTSUPP)
		}
		if _, err := sn.CreateSnapshot(ctx, name); err != nil {
			return s.status("snapshot "+name, err)
		}
		t, err := s.treeAt(k)
		if err != nil {
			return s.status("snapshot "+name, err)
		}
		s.answerRoot(t, out)
		return fuse.OK
	}
	t, err := s.begin(ctx, k, in.Pid)
	if err != nil {
		return s.status("transaction "+name, err)
	}
	s.answerRoot(t, out)
	return fuse.OK
}

func (s *Server) begin(ctx context.Context, k controlKey, tid uint32) (*tree, error) {
	txn, err := backend.Begin(ctx, s.main.store)
	if err != nil {
		return nil, err
	}
	t, err := s.newTree(txn, controlName+"/txn/"+k.name+"/", 0)
	if err != nil {
		txn.Close()
		return nil, err
	}
	p, _ := processOf(tid)
	t.creator, t.used = p.tgid, time.Now()
	return s.enterTree(k, t)
}

// rmdirControl abandons a transaction, or removes a snapshot.
func (s *Server) rmdirControl(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	k := controlKey{h.NodeId, name}
	if k.dir != txnNode && k.dir != snapshotsNode {
		return fuse.EPERM
	}
	if s.o.ReadOnly {
		return fuse.EROFS
	}
	t, err := s.treeAt(k)
	if err != nil {
		return s.status("rmdir "+name, err)
	}
	if k.dir == snapshotsNode {
		ctx, stop := s.request(cancel)
		defer stop()
		if err := s.main.store.(backend.Snapshotter).RemoveSnapshot(ctx, name); err != nil {
			return s.status("rmdir "+name, err)
		}
	}
	s.endTree(k, t)
	return fuse.OK
}

// renameControl publishes a transaction: it is moved into the folder commit.
func (s *Server) renameControl(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if in.NodeId != txnNode || in.Newdir != commitNode {
		return fuse.EPERM
	}
	k := controlKey{txnNode, oldName}
	t, err := s.treeAt(k)
	if err != nil {
		return s.status("commit "+oldName, err)
	}
	ctx, stop := s.request(cancel)
	defer stop()
	s.names.Lock() // nothing is published into the transaction meanwhile
	done, err := t.store.(*backend.Txn).Publish(ctx)
	s.names.Unlock()
	if err != nil {
		if errors.Is(err, backend.ErrConflict) && !s.refuseOnce(in.Pid) { // the kernel tries once more
			p, _ := processOf(in.Pid)
			s.report(t.path, p.tgid, commandOf(p.tgid), "not committed: "+err.Error())
		}
		return s.status("commit "+oldName, err)
	}
	s.endTree(k, t)
	s.main.note(done)
	for _, c := range done.Changes {
		s.main.changed(c)
	}
	return fuse.OK
}

// A transaction whose creator is dead, and that nobody has used for forgottenAfter, is abandoned.
const (
	forgottenAfter = 5 * time.Minute
	lookForForgot  = 30 * time.Second
)

// dropForgotten abandons forgotten transactions until the mount ends.
func (s *Server) dropForgotten() {
	tick := time.NewTicker(lookForForgot)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			s.abandonForgotten(now)
		}
	}
}

func (s *Server) abandonForgotten(now time.Time) {
	s.mu.Lock()
	drop := map[controlKey]*tree{}
	for k, t := range s.trees {
		if k.dir == txnNode && now.Sub(t.used) > forgottenAfter {
			drop[k] = t
		}
	}
	for _, h := range s.handles { // what is open is used
		if t := treeOfHandle(h); t != nil {
			for k := range drop {
				if drop[k] == t {
					delete(drop, k)
				}
			}
		}
	}
	s.mu.Unlock()
	for k, t := range drop {
		if _, alive := processOf(t.creator); !alive {
			s.report(t.path, t.creator, "", "abandoned: its creator is dead and nobody uses it")
			s.endTree(k, t)
		}
	}
}

func treeOfHandle(h any) *tree {
	switch h := h.(type) {
	case *readHandle:
		return h.t
	case *writeHandle:
		return h.t
	case *dirHandle:
		return h.t
	}
	return nil
}
