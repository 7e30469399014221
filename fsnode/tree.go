package fsnode

import (
	"time"

	"github.com/storefs/storefs/backend"
)

// tree is one store as it is seen through the mount: the mounted store itself at the root, and transactions and snapshots in
// folders of the control directory.
type tree struct {
	*Server
	store    backend.Store
	readOnly bool
	path     string // where its root is in the mount, for messages: "" or ".storefs/txn/NAME/"
	salt     uint64 // what inode numbers are shown as: another tree's file is another file, even if it is the same version

	snapshotOf backend.NamedSnapshot // of a snapshot
	creator    uint32                // the process that began a transaction

	// Guarded by Server.mu.
	used     time.Time // a transaction: last
	versions map[backend.Ino]*version
	dirs     map[backend.Ino][]*node // the nodes of directories, by their number, the newest last
	writers  map[backend.Ref]map[*writeHandle]struct{}
	named    map[backend.Ref]*node // what the kernel was last told that a name leads to
	root     *node
	ended    bool // published, abandoned or let go: nothing of it can be used any more
}

// newTree makes the tree of a store, with its root as a node that is held until the tree ends.
func (s *Server) newTree(store backend.Store, path string, rootID uint64) (*tree, error) {
	t := &tree{
		Server: s, store: store, path: path, readOnly: s.o.ReadOnly,
		versions: map[backend.Ino]*version{}, dirs: map[backend.Ino][]*node{},
		writers: map[backend.Ref]map[*writeHandle]struct{}{}, named: map[backend.Ref]*node{},
	}
	root, err := t.entry(backend.RootRef)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := t.versionLocked(&root)
	t.root = t.newNodeLocked(v)
	if rootID != 0 {
		t.root.id = rootID
	} else {
		t.salt = t.root.id << 20
	}
	v.cur = t.root
	s.holdLocked(t.root)
	return t, nil
}

// end lets go of a tree. What is open in it fails from now on.
func (t *tree) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.forgetLocked(t.root.id, 1)
}

// dirNodeLocked returns the newest node of directory dir; nil if the kernel knows none.
func (t *tree) dirNodeLocked(dir backend.Ino) *node {
	if all := t.dirs[dir]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// ino returns the inode number that is shown for i.
func (t *tree) ino(i backend.Ino) uint64 {
	if i == backend.RootIno && t.salt == 0 {
		return uint64(i)
	}
	return uint64(i) ^ t.salt
}
