package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"
)

// Txn is a store that shows one generation of another store with changes of its own on top. Its Commit changes only what
// it shows itself; Publish commits all of that to the other store at once, if nothing that was read or written here has changed
// there since. So transactions are serializable. Values are staged by the other store. Safe for concurrent use.
//
// Read means: the content of a file was opened, a name was found absent or present, the names of a directory were listed.
type Txn struct {
	store Store
	base  Snapshot

	mu      sync.Mutex
	tree    *btree.BTreeG[placed]  // what differs from base; copied for each snapshot, which costs nothing
	local   Generation             // commits made here
	lastIno Ino                    //
	stages  map[*txnStage]struct{} // taken over from callers
	origin  map[Ino]Ref            // where the versions of base that were moved or changed stood
	opened  map[Ref]Ino            // what was read: versions,
	present map[Ref]bool           // presence and absence,
	listed  map[Ino]Generation     // and the revisions of directories
	closed  bool
}

// placed is what stands at a place.
type placed struct {
	Ref
	old    *Entry // in base
	new    *Entry // here; its Locator is a []Part if the content is not a value of base
	parent *Ref   // of a record under Ref{directory, ""}: where the directory stands; nil if it is gone
}

func before(a, b placed) bool {
	if a.Dir != b.Dir {
		return a.Dir < b.Dir
	}
	return a.Name < b.Name
}

// Begin starts a transaction on the newest generation of s.
func Begin(ctx context.Context, s Store) (*Txn, error) {
	base, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Txn{
		store: s, base: base,
		tree:    btree.NewBTreeGOptions(before, btree.Options{NoLocks: true}),
		lastIno: txnIno, stages: map[*txnStage]struct{}{}, origin: map[Ino]Ref{},
		opened: map[Ref]Ino{}, present: map[Ref]bool{}, listed: map[Ino]Generation{},
	}, nil
}

// Generation is the generation of the other store that the transaction began with.
func (t *Txn) Generation() Generation { return t.base.Generation() }

// Snapshot shows the transaction as it is now.
func (t *Txn) Snapshot(ctx context.Context) (Snapshot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	return t.snapshotLocked(true), nil
}

func (t *Txn) snapshotLocked(reading bool) *txnSnapshot {
	return &txnSnapshot{t: t, tree: t.tree.Copy(), gen: t.base.Generation() + t.local, reading: reading}
}

// Commit applies b to what the transaction shows.
func (t *Txn) Commit(ctx context.Context, b *Batch) (Committed, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return Committed{}, ErrClosed
	case ctx.Err() != nil:
		return Committed{}, ctx.Err()
	}
	view := t.snapshotLocked(false)
	changes, err := Resolve(view, b, view.gen+1, time.Now().UnixNano(), func() Ino { t.lastIno++; return t.lastIno })
	if err != nil || len(changes) == 0 {
		return Committed{Generation: view.gen}, err
	}
	t.local++
	for i := range changes {
		c := &changes[i]
		if c.New != nil && c.Parts != nil {
			c.New.Locator, c.Parts = t.ownLocked(c.Parts), nil
		}
		t.placeLocked(c)
	}
	return Committed{Generation: view.gen + 1, Changes: changes}, nil
}

// ownLocked takes over the stages of parts, and returns parts in terms of values of base and stages of ours.
func (t *Txn) ownLocked(parts []Part) []Part {
	own := make([]Part, 0, len(parts))
	for _, p := range parts {
		switch {
		case p.Entry == nil:
			st := p.Stage.(*txnStage).take()
			t.stages[st] = struct{}{}
			own = append(own, Part{Stage: st})
		default:
			if inner, ok := p.Entry.Locator.([]Part); ok {
				own = append(own, inner...)
				continue
			}
			e := *p.Entry
			if at, ok := t.origin[e.Ino]; ok {
				e.Ref = at
			}
			own = append(own, Part{Entry: &e})
		}
	}
	return own
}

func (t *Txn) placeLocked(c *Change) {
	p, known := t.tree.Get(placed{Ref: c.Ref})
	if !known {
		p = placed{Ref: c.Ref, old: c.Old}
		if c.Old != nil {
			t.origin[c.Old.Ino] = c.Ref
		}
	}
	p.new = c.New
	t.tree.Set(p)
	if c.Old != nil && c.Old.Kind == Dir {
		if at, ok := t.tree.Get(placed{Ref: Ref{c.Old.Ino, ""}}); !ok || at.parent == nil || *at.parent == c.Ref {
			t.tree.Set(placed{Ref: Ref{c.Old.Ino, ""}})
		}
	}
	if c.New != nil && c.New.Kind == Dir {
		t.tree.Set(placed{Ref: Ref{c.New.Ino, ""}, parent: &c.Ref})
	}
}

// Publish commits everything to the other store in one generation, and closes the transaction. When something that was read or written
// here was changed there meanwhile it returns ErrConflict, with nothing changed, and the transaction goes on.
func (t *Txn) Publish(ctx context.Context) (Committed, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return Committed{}, ErrClosed
	}
	b := t.batchLocked()
	if b.Empty() {
		done := Committed{Generation: t.base.Generation()}
		return done, t.closeLocked()
	}
	done, err := t.store.Commit(ctx, b)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrConflict, err)
	}
	if err != nil {
		return done, err
	}
	t.closeLocked()
	return done, nil
}

// batchLocked says what Publish commits, and on what it depends.
func (t *Txn) batchLocked() *Batch {
	b := &Batch{}
	touched := map[Ino]Ref{}
	var moved []Ino
	t.tree.Scan(func(p placed) bool {
		if p.Name == "" && p.Dir != 0 {
			return true // where a directory stands follows from the rest
		}
		t.publishPlace(b, p, touched, &moved)
		return true
	})
	for _, ref := range touched {
		b.touch(ref)
	}
	for _, dir := range moved {
		b.reach(dir)
	}
	if b.Empty() {
		return b
	}
	for ref, ino := range t.opened {
		b.Expect(ref, ino)
	}
	for ref, there := range t.present {
		if there {
			b.ExpectPresence(ref)
		} else {
			b.Expect(ref, 0)
		}
	}
	for dir, rev := range t.listed {
		b.ExpectListing(dir, rev)
	}
	return b
}

func (t *Txn) publishPlace(b *Batch, p placed, touched map[Ino]Ref, moved *[]Ino) {
	was := Ino(0)
	if p.old != nil {
		was = p.old.Ino
	}
	switch {
	case p.old == nil && p.new == nil:
		return // made and removed
	case p.old != nil && p.new != nil && p.old.Ino == p.new.Ino:
		c := difference(p.old.Attr, p.new.Attr)
		if p.new.Kind == Dir { // its times change with what is in it
			c.Mtime, c.Atime = nil, nil
		}
		if !c.Empty() {
			b.Expect(p.Ref, was)
			b.SetAttr(p.Ref, c)
		}
		return
	}
	b.Expect(p.Ref, was)
	if (p.old == nil || p.new == nil) && !t.removed(p.Dir) {
		touched[p.Dir] = p.Ref
	}
	if p.old != nil && p.old.Kind == Dir && t.removed(was) { // whoever made something in it since would lose it
		b.ExpectListing(was, p.old.Revision)
	}
	if p.new == nil {
		b.place(p.Ref, nil, nil)
		return
	}
	e := *p.new
	parts, own := e.Locator.([]Part)
	if !own {
		if at, ok := t.origin[e.Ino]; ok {
			e.Ref = at
		}
		parts = nil
	} else if parts == nil {
		parts = []Part{}
	}
	parts = slices.Clone(parts)
	for i := range parts {
		if st, ok := parts[i].Stage.(*txnStage); ok {
			parts[i].Stage = st.Stage
		}
	}
	e.Locator = nil
	b.place(p.Ref, &e, parts)
	if e.Kind == Dir {
		*moved = append(*moved, e.Ino)
	}
}

// removed says whether directory dir was removed here.
func (t *Txn) removed(dir Ino) bool {
	rec, ok := t.tree.Get(placed{Ref: Ref{dir, ""}})
	return ok && dir != 0 && rec.parent == nil
}

// difference returns the change that makes b of a.
func difference(a, b Attr) (c AttrChange) {
	if a.Mode != b.Mode {
		c.Mode = &b.Mode
	}
	if a.UID != b.UID {
		c.UID = &b.UID
	}
	if a.GID != b.GID {
		c.GID = &b.GID
	}
	if a.Mtime != b.Mtime {
		c.Mtime = &b.Mtime
	}
	if a.Atime != b.Atime {
		c.Atime = &b.Atime
	}
	for k, v := range b.Xattrs {
		if have, ok := a.Xattrs[k]; !ok || have != v {
			if c.SetXattr == nil {
				c.SetXattr = map[string]string{}
			}
			c.SetXattr[k] = v
		}
	}
	for k := range a.Xattrs {
		if _, ok := b.Xattrs[k]; !ok {
			c.RemoveXattr = append(c.RemoveXattr, k)
		}
	}
	return c
}

// Watch yields nothing: what a transaction shows changes by its own commits alone. It waits for ctx to end.
func (t *Txn) Watch(ctx context.Context, from Generation) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) { <-ctx.Done() }
}

// Sync does nothing: what is not published is not kept.
func (t *Txn) Sync(ctx context.Context) error { return nil }

// Close abandons what was not published.
func (t *Txn) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closeLocked()
}

func (t *Txn) closeLocked() error {
	if t.closed {
		return nil
	}
	t.closed = true
	for st := range t.stages {
		st.Stage.Close()
	}
	t.stages = nil
	return t.base.Close()
}

// Space is that of the other store.
func (t *Txn) Space() (Space, error) {
	if s, ok := t.store.(Spacer); ok {
		return s.Space()
	}
	return Space{}, errors.ErrUnsupported
}

// NewStage makes a stage in the other store.
func (t *Txn) NewStage() (Stage, error) {
	st, err := t.store.NewStage()
	if err != nil {
		return nil, err
	}
	return &txnStage{Stage: st}, nil
}

// txnStage is a stage that a commit takes over: it is empty afterwards for the one who made it.
type txnStage struct {
	Stage
	mu    sync.Mutex // guards reads of a stage that was taken over, which is never written again
	taken bool
}

func (s *txnStage) take() *txnStage {
	own := &txnStage{Stage: s.Stage}
	s.taken, s.Stage = true, emptyStage{}
	return own
}

func (s *txnStage) ReadAt(b []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Stage.ReadAt(b, off)
}

// emptyStage is what is left of a stage that was taken over.
type emptyStage struct{}

func (emptyStage) ReadAt([]byte, int64) (int, error)  { return 0, io.EOF }
func (emptyStage) WriteAt([]byte, int64) (int, error) { return 0, ErrClosed }
func (emptyStage) Size() int64                        { return 0 }
func (emptyStage) Truncate(int64) error               { return ErrClosed }
func (emptyStage) Close() error                       { return nil }

// txnSnapshot is a transaction as it was at one moment.
type txnSnapshot struct {
	t       *Txn
	tree    *btree.BTreeG[placed]
	gen     Generation
	reading bool // what is looked at counts as read
}

func (s *txnSnapshot) Generation() Generation { return s.gen }
func (s *txnSnapshot) Close() error           { return nil }

func (s *txnSnapshot) Lookup(ref Ref) (Entry, error) {
	if p, ok := s.tree.Get(placed{Ref: ref}); ok {
		if p.new == nil {
			return Entry{}, ErrNotFound
		}
		return *p.new, nil
	}
	e, err := s.t.base.Lookup(ref)
	if s.reading && (err == nil || errors.Is(err, ErrNotFound)) {
		s.t.mu.Lock()
		s.t.present[ref] = err == nil
		s.t.mu.Unlock()
	}
	return e, err
}

func (s *txnSnapshot) Parent(dir Ino) (Ref, error) {
	if p, ok := s.tree.Get(placed{Ref: Ref{dir, ""}}); ok && dir != 0 {
		if p.parent == nil {
			return Ref{}, ErrNotFound
		}
		return *p.parent, nil
	}
	return s.t.base.Parent(dir)
}

func (s *txnSnapshot) List(dir Ino, after string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.reading {
			s.noteListing(dir)
		}
		base, stop := iter.Pull2(s.t.base.List(dir, after))
		defer stop()
		own := s.tree.Iter()
		defer own.Release()
		more := own.Seek(placed{Ref: Ref{dir, after}})
		for more && (own.Item().Name == "" || own.Item().Name <= after) && own.Item().Dir == dir {
			more = own.Next()
		}
		e, err, ok := base()
		for {
			mine := more && own.Item().Dir == dir
			switch {
			case ok && err != nil:
				yield(Entry{}, err)
				return
			case !mine && !ok:
				return
			case !mine || ok && cmp.Less(e.Name, own.Item().Name):
				if !yield(e, nil) {
					return
				}
				e, err, ok = base()
				continue
			}
			p := own.Item()
			if ok && e.Name == p.Name {
				e, err, ok = base()
			}
			if p.new != nil && !yield(*p.new, nil) {
				return
			}
			more = own.Next()
		}
	}
}

// noteListing remembers that the names of a directory of base were read.
func (s *txnSnapshot) noteListing(dir Ino) {
	at, err := s.t.base.Parent(dir)
	if err != nil {
		return
	}
	e, err := s.t.base.Lookup(at)
	if err != nil {
		return
	}
	s.t.mu.Lock()
	s.t.listed[dir] = e.Revision
	s.t.mu.Unlock()
}

func (s *txnSnapshot) Open(e Entry) (Value, error) {
	parts, own := e.Locator.([]Part)
	if !own {
		v, err := s.t.base.Open(e)
		if err == nil && s.reading {
			s.noteOpen(e)
		}
		return v, err
	}
	v := &txnValue{size: e.Size}
	for _, p := range parts {
		if p.Stage != nil {
			v.parts = append(v.parts, stageValue{p.Stage})
			continue
		}
		inner, err := s.t.base.Open(*p.Entry)
		if err != nil {
			v.Close()
			return nil, err
		}
		if s.reading {
			s.noteOpen(*p.Entry)
		}
		v.parts = append(v.parts, inner)
	}
	return v, nil
}

// noteOpen remembers that the content of a version of base was read.
func (s *txnSnapshot) noteOpen(e Entry) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	at, ok := s.t.origin[e.Ino]
	if !ok {
		at = e.Ref
	}
	s.t.opened[at] = e.Ino
}

// stageValue is a stage that is not written any more. It stays its owner's.
type stageValue struct{ Stage }

func (stageValue) Close() error { return nil }

// txnValue is the concatenation of values.
type txnValue struct {
	parts []Value
	size  int64
}

func (v *txnValue) Size() int64 { return v.size }

func (v *txnValue) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for _, p := range v.parts {
		if off >= p.Size() {
			off -= p.Size()
			continue
		}
		want := min(int64(len(b)-n), p.Size()-off)
		k, err := p.ReadAt(b[n:n+int(want)], off)
		n += k
		if int64(k) < want {
			return n, err
		}
		if n == len(b) {
			return n, nil
		}
		off = 0
	}
	return n, io.EOF
}

func (v *txnValue) Close() error {
	var err error
	for _, p := range v.parts {
		err = errors.Join(err, p.Close())
	}
	return err
}
