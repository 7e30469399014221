package backend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tidwall/btree"
)

// Txn is a store that shows one generation of another store with changes of its own on top. Its Commit changes only what
// it shows itself; Publish commits all of that to the other store at once, if nothing that was read or written here has changed
// there since. So transactions are serializable, as to what counts as read: the content of a file or link, that a name is there or is not, which
// directory it is, the names in a directory. Sizes, times and modes of files do not count. Values are staged by the other store, which
// may be a Txn too. Safe for concurrent use.
//
// It differs from other stores in one thing: Watch does not tell its commits.
type Txn struct {
	store Store
	base  Snapshot
	first Ino // of the numbers that are handed out here
	reads reads

	changing sync.Mutex // held through Commit, Publish and Close; before mu

	mu         sync.Mutex            // guards the following; never held while another commit is waited for
	tree       *btree.BTreeG[placed] // what differs from base; copied for each snapshot, which costs nothing
	local      Generation            // commits made here
	lastIno    Ino
	origin     map[Ino]*Entry // the entries of base that were moved or changed
	attributes map[Ino]bool   // directories of which attributes were set
	closed     bool
	ended      chan struct{}          // closed with it
	pins       map[Generation]int     // snapshots and values that are open
	stages     map[*txnStage]struct{} // taken over and not closed
	dropped    []droppedStage         // those of them that are in no newer snapshot than given, in order
}

// placed is what stands at a place.
type placed struct {
	Ref
	old    *Entry // in base
	new    *Entry // here; its Locator is a *txnContent if the content is not one of base
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
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	t := &Txn{
		store: s, base: base, first: txnIno,
		reads:  reads{version: map[Ref]Ino{}, present: map[Ref]bool{}, listed: map[Ino]Generation{}},
		tree:   btree.NewBTreeGOptions(before, btree.Options{NoLocks: true}),
		origin: map[Ino]*Entry{}, attributes: map[Ino]bool{}, ended: make(chan struct{}),
		pins: map[Generation]int{}, stages: map[*txnStage]struct{}{},
	}
	if outer, ok := s.(*Txn); ok {
		t.first = outer.first + txnInos
	}
	t.lastIno = t.first
	return t, nil
}

// txnInos is how many numbers a transaction has.
const txnInos Ino = 1 << 48

// made says whether the number was handed out here.
func (t *Txn) made(i Ino) bool { return i >= t.first && i-t.first < txnInos }

// Generation is the generation of the other store that the transaction began with.
func (t *Txn) Generation() Generation { return t.base.Generation() }

func (t *Txn) generationLocked() Generation { return t.base.Generation() + t.local }

// Snapshot shows the transaction as it is now. What is looked at in it counts as read.
func (t *Txn) Snapshot(ctx context.Context) (Snapshot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("snapshot: %w", ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := t.generationLocked()
	t.pins[g]++
	return &txnSnapshot{t: t, tree: t.tree.Copy(), gen: g}, nil
}

// Commit applies b to what the transaction shows. What an operation looks at counts as read, also when it fails.
func (t *Txn) Commit(ctx context.Context, b *Batch) (Committed, error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.generationLocked() + 1
	c, err := t.commitLocked(ctx, b, g)
	if err != nil {
		return Committed{}, fmt.Errorf("commit generation %d of transaction: %w", g, err)
	}
	return c, nil
}

func (t *Txn) commitLocked(ctx context.Context, b *Batch, g Generation) (Committed, error) {
	if t.closed {
		return Committed{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Committed{}, err
	}
	view := &txnSnapshot{t: t, tree: t.tree, gen: g - 1}
	for _, e := range b.expect {
		if err := view.noteExpectation(e); err != nil {
			return Committed{}, err
		}
	}
	for _, o := range b.ops {
		if o.kind == opSetAttr && o.ref.Dir&aliasIno != aliasIno {
			if e, err := view.Lookup(o.ref); err == nil && e.Kind == Dir {
				t.attributes[e.Ino] = true
			}
		}
	}
	changes, err := Resolve(view, b, g, time.Now().UnixNano(), func() Ino { t.lastIno++; return t.lastIno })
	if err != nil || len(changes) == 0 {
		return Committed{Generation: g - 1}, err
	}
	for i, c := range changes {
		changes[i].Own = true
		if _, known := t.tree.Get(placed{Ref: c.Ref}); !known && c.Old != nil {
			t.origin[c.Old.Ino] = c.Old
		}
	}
	if err := t.ownLocked(changes); err != nil {
		return Committed{}, err
	}
	t.countLocked(changes)
	for _, c := range changes {
		t.placeLocked(c)
	}
	t.local++
	t.sweepLocked()
	return Committed{Generation: g, Changes: changes}, nil
}

func (t *Txn) placeLocked(c Change) {
	p, known := t.tree.Get(placed{Ref: c.Ref})
	if !known {
		p = placed{Ref: c.Ref, old: c.Old}
	}
	p.new = c.New
	t.tree.Set(p)
	if c.Old != nil && c.Old.Kind == Dir && (c.New == nil || c.New.Ino != c.Old.Ino) {
		// Unless another change, before this one, has said where it stands now.
		if at, ok := t.tree.Get(placed{Ref: Ref{c.Old.Ino, ""}}); !ok || at.parent == nil || *at.parent == c.Ref {
			t.tree.Set(placed{Ref: Ref{c.Old.Ino, ""}})
		}
	}
	if c.New != nil && c.New.Kind == Dir {
		ref := c.Ref
		t.tree.Set(placed{Ref: Ref{c.New.Ino, ""}, parent: &ref})
	}
}

// Publish commits everything to the other store in one generation, and closes the transaction. When something that was read or written
// here was changed there meanwhile it returns ErrConflict; after any error nothing is changed, and the transaction goes on.
// A transaction that has changed nothing is published without a commit, and never in conflict: all that it read is of one generation.
func (t *Txn) Publish(ctx context.Context) (Committed, error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return Committed{}, fmt.Errorf("publish: %w", ErrClosed)
	}
	b := t.batchLocked()
	t.mu.Unlock()
	done := Committed{Generation: t.base.Generation()}
	if !b.Empty() {
		var err error
		if done, err = t.store.Commit(ctx, b); err != nil {
			return Committed{}, fmt.Errorf("publish: %w", err)
		}
	}
	t.close() // what it says has no bearing on what is published
	return done, nil
}

// batchLocked says what Publish commits, and on what it depends.
func (t *Txn) batchLocked() *Batch {
	p := publication{t: t, b: &Batch{}, expected: map[Ref]bool{}, names: map[Ino]bool{}}
	t.tree.Scan(func(at placed) bool {
		if at.Name != "" || at.Dir == 0 { // where a directory stands follows from the rest
			p.place(at)
		}
		return true
	})
	for _, e := range p.dirs {
		was := t.origin[e.Ino]
		if c := difference(was.Attr, e.Attr); p.names[e.Ino] || c.Mtime != nil || c.Atime != nil {
			p.b.touch(e, was)
		}
	}
	for _, dir := range p.moved {
		p.b.reach(dir)
	}
	if !p.b.Empty() {
		t.reads.expect(p.b, p.expected)
	}
	return p.b
}

// publication is the batch that publishes a transaction, being made.
type publication struct {
	t        *Txn
	b        *Batch
	expected map[Ref]bool // places that an expectation speaks of
	names    map[Ino]bool // directories in which names came or went
	dirs     []*Entry     // directories of base that are there and changed
	moved    []Ino        // those of them that stand elsewhere
}

func (p *publication) place(at placed) {
	was, e := at.old, at.new
	if e != nil && e.Kind == Dir && !p.t.made(e.Ino) {
		p.dirs = append(p.dirs, e)
	}
	if was != nil && e != nil && was.Ino == e.Ino {
		p.expectWhole(was)
		if c := difference(was.Attr, e.Attr); e.Kind != Dir && !c.Empty() || !untimed(c).Empty() {
			p.b.place(at.Ref, e, was, nil)
		}
		return
	}
	if (was == nil) != (e == nil) {
		p.names[at.Dir] = true
	}
	switch {
	case was == nil && e == nil: // made and removed; that nothing was there has been read
		return
	case was == nil:
		p.expect(at.Ref, 0)
	default:
		p.expectWhole(was)
		if p.t.removedLocked(was.Ino) { // whoever made something in it since would lose it
			p.b.ExpectListing(was.Ino, was.Revision)
		}
	}
	ref := Ref{p.t.outside(at.Dir), at.Name}
	if e == nil {
		p.b.place(ref, nil, nil, nil)
		return
	}
	if from := p.t.origin[e.Ino]; from != nil && !p.t.made(e.Ino) {
		p.b.place(ref, e, from, nil)
		if e.Kind == Dir {
			p.moved = append(p.moved, e.Ino)
		}
		return
	}
	fresh := *e
	fresh.Ino, fresh.Locator = p.t.outside(e.Ino), nil
	p.b.place(ref, &fresh, nil, p.t.published(e))
}

// expectWhole makes the commit depend on was being what it was, attributes included: or another's change of mode would be lost. Of a directory these count
// if they were set here, or if it was moved; otherwise it has only been touched by what came into it.
func (p *publication) expectWhole(was *Entry) {
	p.expected[was.Ref] = true
	now, _ := p.t.tree.Get(placed{Ref: was.Ref})
	moved := now.new == nil || now.new.Ino != was.Ino
	switch {
	case was.Kind != Dir:
		p.b.expectUnchanged(was)
	case p.t.attributes[was.Ino] || moved && !p.t.removedLocked(was.Ino):
		p.b.expectAttributes(was)
	default:
		p.b.Expect(was.Ref, was.Ino)
	}
}

func (p *publication) expect(ref Ref, ino Ino) {
	p.expected[ref] = true
	if !p.t.made(ref.Dir) { // nobody else has put anything in there
		p.b.Expect(ref, ino)
	}
}

// outside returns what stands for a number in the batch that publishes.
func (t *Txn) outside(i Ino) Ino {
	if t.made(i) {
		return i | aliasIno
	}
	return i
}

// removedLocked says whether directory dir was removed here.
func (t *Txn) removedLocked(dir Ino) bool {
	rec, ok := t.tree.Get(placed{Ref: Ref{dir, ""}})
	return ok && dir != 0 && rec.parent == nil
}

// Watch yields nothing, for a transaction changes by its own commits alone, and ErrClosed when it is published or closed.
func (t *Txn) Watch(ctx context.Context, from Generation) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		select {
		case <-ctx.Done():
		case <-t.ended:
			yield(Change{}, fmt.Errorf("watch from generation %d: %w", from, ErrClosed))
		}
	}
}

// Sync does nothing: what is not published is not kept.
func (t *Txn) Sync(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("sync: %w", ErrClosed)
	}
	return nil
}

// Close abandons what was not published. Snapshots and values still open stay readable, and keep what they need, until they are closed. A second
// Close does nothing, nor does one after Publish.
func (t *Txn) Close() error {
	t.changing.Lock()
	defer t.changing.Unlock()
	return t.close()
}

func (t *Txn) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	close(t.ended)
	return t.sweepLocked()
}

// unpin ends a use of generation g of the transaction.
func (t *Txn) unpin(g Generation) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pins[g]--; t.pins[g] == 0 {
		delete(t.pins, g)
	}
	return t.sweepLocked()
}

// sweepLocked closes the stages that nobody can read any more, and all that there is after the end.
func (t *Txn) sweepLocked() error {
	if t.closed && len(t.pins) == 0 {
		var err error
		for st := range t.stages {
			err = errors.Join(err, st.end())
		}
		t.stages, t.dropped = nil, nil
		return errors.Join(err, t.base.Close())
	}
	if len(t.dropped) == 0 {
		return nil
	}
	oldest := t.generationLocked()
	for g := range t.pins {
		oldest = min(oldest, g)
	}
	var err error
	for len(t.dropped) > 0 && t.dropped[0].last < oldest {
		st := t.dropped[0].stage
		t.dropped = t.dropped[1:]
		if _, mine := t.stages[st]; mine && st.uses == 0 {
			delete(t.stages, st)
			err = errors.Join(err, st.end())
		}
	}
	return err
}

// Space is that of the other store.
func (t *Txn) Space() (Space, error) {
	if s, ok := t.store.(Spacer); ok {
		return s.Space()
	}
	return Space{}, errors.ErrUnsupported
}
