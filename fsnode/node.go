package fsnode

import (
	"slices"
	"time"

	"github.com/storefs/storefs/backend"
)

// node is one inode of the kernel. Everything in it is guarded by Server.mu.
type node struct {
	id      uint64
	t       *tree
	v       *version
	lookups uint64 // references that the kernel holds; the node leaves the table when there are none

	// Of a file. INVARIANT: a node with a writer is tainted; a tainted node has no readers.
	tainted  bool                   // opened for writing at some time: the kernel's size and pages are not the version's
	readers  int                    // open read handles
	writer   *writeHandle           // the handle that is open for writing
	reserved map[uint32]reservation // by the thread that was refused and will open it
	at       backend.Ref            // the name by which the kernel knows it
	placed   backend.Generation     // of a directory: when that was last found to be so
	told     []uint64               // the inode numbers that the kernel may show for it
	kept     bool                   // the kernel was told to keep its attributes
}

// tellLocked notes what an answer says of n: its inode number, and whether the kernel may keep its attributes.
func (n *node) tellLocked(i backend.Ino, keep bool) {
	n.kept = keep
	ino := n.t.ino(i)
	if !slices.Contains(n.told, ino) {
		n.told = append(n.told, ino)
		if len(n.told) > maxTold {
			n.told = n.told[1:]
		}
	}
}

// reservation keeps a node for a thread that was refused, from its lookup to its open.
type reservation struct {
	write bool
	until time.Time // then the thread is taken for dead
}

// version is one version of a key, or a directory, or a link, as far as the kernel knows nodes of it. Guarded by Server.mu.
type version struct {
	e     backend.Entry // what is known of it; e.Ref is where it stands
	cur   *node         // the node that lookups hand out; nil if the next lookup makes one
	nodes int           // nodes of it in the table
	gone  bool          // the key was unlinked, or another was moved onto it
	read  bool          // was opened for reading through this mount
}

const (
	rootNode     = 1
	controlNode  = 2 // .storefs, followed by the files in it
	firstNode    = 64
	reserveFor   = 10 * time.Second
	longAgo      = time.Hour // how long the kernel may keep what changes only by commits
	maxKeptTries = 64
	maxTold      = 8
)

// live says whether the reservations of n that still count include one that is, or is not, for writing, other than by tid.
func (n *node) reservedFor(write bool, tid uint32) bool {
	now := time.Now()
	for t, r := range n.reserved {
		if now.After(r.until) {
			delete(n.reserved, t)
		} else if r.write == write && t != tid {
			return true
		}
	}
	return false
}

func (n *node) reserve(tid uint32, write bool) {
	if n.reserved == nil {
		n.reserved = map[uint32]reservation{}
	}
	n.reserved[tid] = reservation{write, time.Now().Add(reserveFor)}
}

// versionLocked returns the version of entry e, and brings what is known of it up to date.
func (t *tree) versionLocked(e *backend.Entry) *version {
	v := t.versions[e.Ino]
	if v == nil {
		v = &version{e: *e}
		t.versions[e.Ino] = v
	} else if e.Revision >= v.e.Revision {
		v.e, v.gone = *e, false
	}
	return v
}

// newNodeLocked makes a node of v, which is in the table once the kernel holds it.
func (t *tree) newNodeLocked(v *version) *node {
	t.lastNode++
	return &node{id: t.lastNode, t: t, v: v}
}

// writingLocked returns the handle that is open for writing on n; nil if there is none but for its release.
func (n *node) writingLocked() *writeHandle {
	if n.writer == nil || n.writer.finished {
		return nil
	}
	return n.writer
}

// holdLocked counts a reference that an answer gives to the kernel.
func (s *Server) holdLocked(n *node) {
	if n.lookups == 0 {
		s.nodes[n.id] = n
		if v := n.t.versions[n.v.e.Ino]; v != nil { // n, kept for a retry, was forgotten meanwhile
			n.v = v
		} else {
			n.t.versions[n.v.e.Ino] = n.v
		}
		n.v.nodes++
		if n.v.e.Kind == backend.Dir {
			n.t.dirs[n.v.e.Ino] = append(n.t.dirs[n.v.e.Ino], n)
		}
	}
	n.lookups++
}

// forgetLocked takes references back.
func (s *Server) forgetLocked(id, count uint64) {
	n := s.nodes[id]
	if n == nil || id == rootNode {
		return
	}
	if n.lookups > count {
		n.lookups -= count
		return
	}
	n.lookups = 0
	delete(s.nodes, id)
	if n.t.named[n.at] == n {
		delete(n.t.named, n.at)
	}
	s.leaveLocked(n)
	if n.v.e.Kind == backend.Dir {
		ino := n.v.e.Ino
		n.t.dirs[ino] = slices.DeleteFunc(n.t.dirs[ino], func(o *node) bool { return o == n })
		if len(n.t.dirs[ino]) == 0 {
			delete(n.t.dirs, ino)
		}
	}
}

// leaveLocked takes n, which is no longer in the table or becomes a node of another version, off its version.
func (s *Server) leaveLocked(n *node) {
	v := n.v
	v.nodes--
	if v.cur == n {
		v.cur = nil
	}
	if v.nodes == 0 && n.t.versions[v.e.Ino] == v {
		delete(n.t.versions, v.e.Ino)
	}
}

// rebaseLocked makes n, which a writer has just published, a node of the version that was published.
func (t *tree) rebaseLocked(n *node, e *backend.Entry) {
	if n.lookups > 0 {
		t.leaveLocked(n)
	}
	n.v = t.versionLocked(e)
	if n.lookups > 0 {
		n.v.nodes++
	}
}

// nodeOf returns the node with an id that the kernel sent; nil if there is none, which cannot happen.
func (s *Server) nodeOf(id uint64) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[id]
}

// dirOf returns the directory that node id is, and its tree; 0 if it is none.
func (s *Server) dirOf(id uint64) (*tree, backend.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[id]; n != nil && n.v.e.Kind == backend.Dir && !n.t.ended {
		if n.t != s.main {
			n.t.used = time.Now()
		}
		return n.t, n.v.e.Ino
	}
	return nil, 0
}

// retry remembers a thread that was refused: the kernel looks the name up again, twice (a revalidation, and a lookup because
// the node differs), forgets the first answer in between, and opens; all with the same thread id.
type retry struct {
	write bool
	t     *tree
	ref   backend.Ref
	n     *node         // handed out by the first lookup after the refusal
	value backend.Value // the version's content, for the open: served even if a commit comes meanwhile
	until time.Time
}

// takeRetryLocked removes the record of a thread.
func (s *Server) takeRetryLocked(tid uint32) *retry {
	r := s.retries[tid]
	delete(s.retries, tid)
	if r != nil && r.n != nil {
		delete(r.n.reserved, tid)
	}
	return r
}

// dropRetryLocked forgets a retry, and returns the value to be closed without the lock.
func (s *Server) dropRetryLocked(tid uint32) backend.Value {
	if r := s.takeRetryLocked(tid); r != nil {
		return r.value
	}
	return nil
}

// refuse records that the open of a node at ref by thread tid was answered with ESTALE.
func (t *tree) refuse(tid uint32, ref backend.Ref, write bool) {
	t.stats.refused.Add(1)
	now := time.Now()
	var drop []backend.Value
	t.mu.Lock()
	if v := t.dropRetryLocked(tid); v != nil {
		drop = append(drop, v)
	}
	if len(t.retries) > maxKeptTries {
		for other, r := range t.retries {
			if now.After(r.until) {
				if v := t.dropRetryLocked(other); v != nil {
					drop = append(drop, v)
				}
			}
		}
	}
	t.noteRefusedLocked(tid)
	t.retries[tid] = &retry{write: write, t: t, ref: ref, until: now.Add(reserveFor)}
	t.mu.Unlock()
	for _, v := range drop {
		v.Close()
	}
}

// bind chooses the node that a lookup by thread tid hands out for entry e of snapshot snap, and counts the reference.
func (t *tree) bind(snap backend.Snapshot, e *backend.Entry, tid uint32) *node {
	if e.Kind != backend.File {
		n, was := t.bindListed(e)
		if was != nil {
			t.forgetSoon(*was)
		}
		return n
	}
	var value, old backend.Value
	t.mu.Lock()
	r := t.retries[tid]
	if r != nil && (r.t != t || r.ref != e.Ref || time.Now().After(r.until)) {
		old = t.dropRetryLocked(tid)
		r = nil
	}
	if r != nil && r.n == nil {
		// Opened before anything is decided, so that the retry that follows cannot be left without its content.
		t.mu.Unlock()
		value, _ = snap.Open(*e)
		t.mu.Lock()
		r = t.retries[tid]
	}
	n := t.chooseLocked(e, tid, r, &value)
	t.holdLocked(n)
	t.mu.Unlock()
	for _, v := range []backend.Value{value, old} {
		if v != nil {
			v.Close()
		}
	}
	return n
}

// elsewhere says whether the kernel knows the node of v by another name than e.Ref. Then it has to be another node here. A node with two
// names could not be asked whether the right one still leads to it; and to move a directory the kernel would need locks that may be taken,
// and then tells the program ESTALE.
func elsewhere(v *version, e *backend.Entry, root *node) bool {
	return v.cur != nil && v.cur != root && v.cur.at != (backend.Ref{}) && v.cur.at != e.Ref
}

// bindListed chooses the node that a listing hands out for e, and counts the reference. If e is a directory that the kernel knows elsewhere,
// was says where.
func (t *tree) bindListed(e *backend.Entry) (n *node, was *backend.Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.versionLocked(e)
	if elsewhere(v, e, t.root) {
		at := v.cur.at
		was, v.cur = &at, nil
	}
	if v.cur == nil || v.cur.tainted {
		v.cur = t.newNodeLocked(v)
	}
	t.holdLocked(v.cur)
	return v.cur, was
}

// chooseLocked is bind for a file. It keeps *value, setting it to nil, if it reserves a node.
func (t *tree) chooseLocked(e *backend.Entry, tid uint32, r *retry, value *backend.Value) *node {
	if r != nil && r.n != nil {
		return r.n // the second lookup after the refusal
	}
	v := t.versionLocked(e)
	if r != nil && r.write {
		n := t.newNodeLocked(v)
		n.tainted = true
		n.reserve(tid, true)
		r.n, r.value, *value = n, *value, nil
		return n
	}
	if v.cur == nil || v.cur.tainted || elsewhere(v, e, t.root) {
		v.cur = t.newNodeLocked(v)
	}
	if r != nil {
		v.cur.reserve(tid, false)
		r.n, r.value, *value = v.cur, *value, nil
	}
	return v.cur
}
