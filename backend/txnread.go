package backend

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// reads is what a transaction has seen of its base.
type reads struct {
	mu      sync.Mutex         // guards the following
	version map[Ref]Ino        // of which version a file was opened, which directory or link it was; 0 for nothing
	present map[Ref]bool       // whether there was a file
	listed  map[Ino]Generation // the revisions of directories
}

func (r *reads) sawVersion(ref Ref, i Ino) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version[ref] = i
}

func (r *reads) sawName(ref Ref, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present[ref] = there
}

func (r *reads) sawNames(dir Ino, revision Generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed[dir] = revision
}

// expect makes b depend on what was seen, but for the places of which it speaks already.
func (r *reads) expect(b *Batch, already map[Ref]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref, i := range r.version {
		if !already[ref] {
			b.Expect(ref, i)
		}
	}
	for ref, there := range r.present {
		_, seen := r.version[ref]
		switch {
		case already[ref] || seen:
		case there:
			b.ExpectFile(ref)
		default:
			b.Expect(ref, 0)
		}
	}
	for dir, revision := range r.listed {
		b.ExpectListing(dir, revision)
	}
}

// txnSnapshot is a transaction as it was at one moment.
type txnSnapshot struct {
	t      *Txn
	tree   *btree.BTreeG[placed]
	gen    Generation
	closed atomic.Bool
}

func (s *txnSnapshot) Generation() Generation { return s.gen }

func (s *txnSnapshot) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.t.unpin(s.gen)
}

// Lookup is as in Snapshot.
func (s *txnSnapshot) Lookup(ref Ref) (Entry, error) {
	if s.closed.Load() {
		return Entry{}, fmt.Errorf("look up key %q: %w", ref.Name, ErrClosed)
	}
	if p, ok := s.tree.Get(placed{Ref: ref}); ok && (ref.Name != "" || ref == RootRef) {
		if p.new == nil {
			return Entry{}, fmt.Errorf("look up key %q: %w", ref.Name, ErrNotFound)
		}
		return *p.new, nil
	}
	if s.t.made(ref.Dir) {
		return Entry{}, fmt.Errorf("look up key %q: %w", ref.Name, ErrNotFound)
	}
	e, err := s.t.base.Lookup(ref)
	switch {
	case err == nil && e.Kind == File:
		s.t.reads.sawName(ref, true)
	case err == nil:
		s.t.reads.sawVersion(ref, e.Ino)
	case errors.Is(err, ErrNotFound):
		s.t.reads.sawName(ref, false)
	}
	return e, err
}

// Parent is as in Snapshot.
func (s *txnSnapshot) Parent(dir Ino) (Ref, error) {
	if s.closed.Load() {
		return Ref{}, fmt.Errorf("look up directory %d: %w", dir, ErrClosed)
	}
	if p, ok := s.tree.Get(placed{Ref: Ref{dir, ""}}); ok && dir != 0 {
		if p.parent == nil {
			return Ref{}, fmt.Errorf("look up directory %d: %w", dir, ErrNotFound)
		}
		return *p.parent, nil
	}
	if s.t.made(dir) {
		return Ref{}, fmt.Errorf("look up directory %d: %w", dir, ErrNotFound)
	}
	ref, err := s.t.base.Parent(dir)
	if err == nil {
		s.t.reads.sawVersion(ref, dir)
	}
	return ref, err
}

// List is as in Snapshot.
func (s *txnSnapshot) List(dir Ino, after string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.closed.Load() {
			yield(Entry{}, fmt.Errorf("list directory %d: %w", dir, ErrClosed))
			return
		}
		if err := s.noteListing(dir); err != nil {
			yield(Entry{}, err)
			return
		}
		own := s.changes(dir, after)
		if !s.t.made(dir) {
			for e, err := range s.t.base.List(dir, after) {
				if err != nil {
					yield(Entry{}, err)
					return
				}
				if !own.until(e.Name, yield) {
					return
				}
				if !own.at(e.Name) && !yield(e, nil) {
					return
				}
			}
		}
		own.until("", yield)
	}
}

// changes returns a cursor over the changed places in directory dir with names after the given one.
func (s *txnSnapshot) changes(dir Ino, after string) *changeCursor {
	c := &changeCursor{it: s.tree.Iter(), dir: dir}
	for c.more = c.it.Seek(placed{Ref: Ref{dir, after}}); c.here() && c.it.Item().Name <= after; {
		c.more = c.it.Next()
	}
	return c
}

type changeCursor struct {
	it   btree.IterG[placed]
	dir  Ino
	more bool
}

func (c *changeCursor) here() bool { return c.more && c.it.Item().Dir == c.dir }

// at says whether the cursor stands at name.
func (c *changeCursor) at(name string) bool { return c.here() && c.it.Item().Name == name }

// until yields what stands at the places up to name, "" for all, and leaves the cursor at name if that is changed.
func (c *changeCursor) until(name string, yield func(Entry, error) bool) bool {
	for c.here() && (name == "" || c.it.Item().Name < name) {
		p := c.it.Item()
		c.more = c.it.Next()
		if p.new != nil && !yield(*p.new, nil) {
			return false
		}
	}
	return true
}

// noteListing remembers that the names of a directory of base were read.
func (s *txnSnapshot) noteListing(dir Ino) error {
	if s.t.made(dir) {
		return nil
	}
	at, err := s.t.base.Parent(dir)
	var e Entry
	if err == nil {
		e, err = s.t.base.Lookup(at)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		s.t.reads.sawNames(dir, e.Revision)
	}
	return err
}

// noteExpectation remembers what the success or failure of an expectation of a batch tells about base.
func (s *txnSnapshot) noteExpectation(e expectation) error {
	if e.kind == expectListing {
		return s.noteListing(e.ino)
	}
	if _, changed := s.tree.Get(placed{Ref: e.ref}); changed || s.t.made(e.ref.Dir) {
		return nil
	}
	have, err := s.t.base.Lookup(e.ref)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if e.kind != expectFile {
		s.t.reads.sawVersion(e.ref, have.Ino)
	}
	return nil
}

// Open is as in Snapshot.
func (s *txnSnapshot) Open(e Entry) (Value, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("open key %q: %w", e.Name, ErrClosed)
	}
	own, ok := e.Locator.(*txnContent)
	if !ok || own.t != s.t {
		return s.openBase(e)
	}
	v := &txnValue{s: s, size: e.Size}
	s.t.mu.Lock()
	s.t.pins[s.gen]++
	s.t.mu.Unlock()
	for _, p := range own.parts {
		var part Value = stageValue{p.Stage}
		if p.Entry != nil {
			var err error
			if part, err = s.openBase(*p.Entry); err != nil {
				return nil, errors.Join(err, v.Close())
			}
		}
		v.parts = append(v.parts, part)
	}
	return v, nil
}

// openBase opens a version of base, wherever it stands here.
func (s *txnSnapshot) openBase(e Entry) (Value, error) {
	s.t.mu.Lock()
	if was, ok := s.t.origin[e.Ino]; ok {
		e.Ref = was.Ref
	}
	s.t.mu.Unlock()
	v, err := s.t.base.Open(e)
	if err == nil {
		s.t.reads.sawVersion(e.Ref, e.Ino)
	}
	return v, err
}
