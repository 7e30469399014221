package backend

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// txnContent is the Locator of what a transaction wrote: the concatenation of parts, which are values of its base and its stages. The
// refs in them are those of base. Never changed.
type txnContent struct {
	t     *Txn
	parts []Part
}

// txnStage is a stage of the other store. From the commit that takes it over it is never written again, and closed by the transaction.
type txnStage struct {
	t     *Txn
	mu    sync.Mutex // guards the following: the values of several readers share it
	stage Stage
	taken bool
	uses  int // in the transaction's tree; guarded by Txn.mu
}

// droppedStage is a stage that no generation of the transaction after last has.
type droppedStage struct {
	stage *txnStage
	last  Generation
}

// NewStage makes a stage in the other store.
func (t *Txn) NewStage() (Stage, error) {
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("stage: %w", ErrClosed)
	}
	return t.newStage()
}

func (t *Txn) newStage() (*txnStage, error) {
	st, err := t.store.NewStage()
	if err != nil {
		return nil, err
	}
	return &txnStage{t: t, stage: st}, nil
}

func (s *txnStage) ReadAt(b []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage.ReadAt(b, off)
}

func (s *txnStage) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage.Size()
}

var errTaken = fmt.Errorf("stage that was committed: %w", ErrInvalid)

func (s *txnStage) WriteAt(b []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		return 0, errTaken
	}
	return s.stage.WriteAt(b, off)
}

func (s *txnStage) Truncate(size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		return errTaken
	}
	return s.stage.Truncate(size)
}

// Close is as in Stage; of a stage that was taken over it does nothing.
func (s *txnStage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		return nil
	}
	return s.stage.Close()
}

func (s *txnStage) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = true
}

// end closes a stage that was taken over.
func (s *txnStage) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage.Close()
}

// ownLocked takes over the stages in changes, and puts their contents into terms of base and of these stages. It changes nothing when it fails.
func (t *Txn) ownLocked(changes []Change) (err error) {
	own := ownership{t: t, copies: map[Stage]*txnStage{}}
	contents := make([]*txnContent, len(changes))
	for i, c := range changes {
		if c.New == nil || c.Parts == nil {
			continue
		}
		if contents[i], err = own.content(c.Parts); err != nil {
			for _, st := range own.made {
				err = errors.Join(err, st.Close())
			}
			return err
		}
	}
	for i := range changes {
		if contents[i] != nil {
			changes[i].New.Locator, changes[i].Parts = contents[i], nil
		}
	}
	for _, st := range append(own.made, own.given...) {
		st.take()
		t.stages[st] = struct{}{}
		if st.uses == 0 { // it may be, right after countLocked
			t.dropped = append(t.dropped, droppedStage{st, t.generationLocked()})
		}
	}
	return nil
}

// ownership is the taking over of the stages of one commit.
type ownership struct {
	t      *Txn
	copies map[Stage]*txnStage // of stages that are not the transaction's
	made   []*txnStage
	given  []*txnStage
}

func (o *ownership) content(parts []Part) (*txnContent, error) {
	c := &txnContent{t: o.t, parts: []Part{}}
	for _, p := range parts {
		if p.Stage != nil {
			st, err := o.stage(p.Stage)
			if err != nil {
				return nil, err
			}
			if c.parts, err = o.join(append(c.parts, Part{Stage: st})); err != nil {
				return nil, err
			}
			continue
		}
		if inner, ok := p.Entry.Locator.(*txnContent); ok && inner.t == o.t {
			c.parts = append(c.parts, inner.parts...)
			continue
		}
		e := *p.Entry
		if was, ok := o.t.origin[e.Ino]; ok {
			e.Ref = was.Ref
		}
		c.parts = append(c.parts, Part{Entry: &e})
	}
	return c, nil
}

// stage returns the transaction's stage for s: s itself, or a copy if it is another store's.
func (o *ownership) stage(s Stage) (*txnStage, error) {
	if st, ok := s.(*txnStage); ok && st.t == o.t {
		if _, live := o.t.stages[st]; st.taken && !live {
			return nil, errTaken
		}
		o.given = append(o.given, st)
		return st, nil
	}
	if o.copies[s] == nil {
		st, err := o.concatenate(s)
		if err != nil {
			return nil, err
		}
		o.copies[s] = st
	}
	return o.copies[s], nil
}

func (o *ownership) concatenate(pieces ...Stage) (*txnStage, error) {
	st, err := o.t.newStage()
	if err != nil {
		return nil, err
	}
	o.made = append(o.made, st)
	for _, s := range pieces {
		if _, err := io.Copy(io.NewOffsetWriter(st, st.Size()), io.NewSectionReader(s, 0, s.Size())); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// joinMax is the longest stage made of several, so that a value appended to in small pieces is not as many parts.
const joinMax = 64 << 10

// join makes one of the last two parts, and again, while they are stages and the last is as long as the one before: each byte is copied O(log n) times.
func (o *ownership) join(parts []Part) ([]Part, error) {
	for n := len(parts); n > 1 && parts[n-2].Stage != nil; n-- {
		a, z := parts[n-2].Stage, parts[n-1].Stage
		if a.Size() > z.Size() || a.Size()+z.Size() > joinMax {
			break
		}
		both, err := o.concatenate(a, z)
		if err != nil {
			return nil, err
		}
		parts = append(parts[:n-2], Part{Stage: both})
	}
	return parts, nil
}

// countLocked counts the uses of stages, and notes those that have none any more.
func (t *Txn) countLocked(changes []Change) {
	each := func(e *Entry, n int) {
		if e == nil {
			return
		}
		c, ok := e.Locator.(*txnContent)
		if !ok || c.t != t {
			return
		}
		for _, p := range c.parts {
			if p.Stage == nil {
				continue
			}
			st := p.Stage.(*txnStage)
			if st.uses += n; st.uses == 0 {
				t.dropped = append(t.dropped, droppedStage{st, t.generationLocked()})
			}
		}
	}
	for _, c := range changes {
		each(c.New, 1)
	}
	for _, c := range changes {
		each(c.Old, -1)
	}
}

// published returns the content of e, which was made here, as the other store is to have it: in its own stages.
func (t *Txn) published(e *Entry) []Part {
	c, ok := e.Locator.(*txnContent)
	if !ok {
		return nil
	}
	parts := make([]Part, len(c.parts))
	for i, p := range c.parts {
		if st, ok := p.Stage.(*txnStage); ok {
			p.Stage = st.stage
		}
		parts[i] = p
	}
	return parts
}

// stageValue is a stage that is not written any more. It stays its owner's.
type stageValue struct{ Stage }

func (stageValue) Close() error { return nil }

// txnValue is the concatenation of values. It holds its generation of the transaction.
type txnValue struct {
	s      *txnSnapshot
	parts  []Value
	size   int64
	closed atomic.Bool
}

func (v *txnValue) Size() int64 { return v.size }

func (v *txnValue) ReadAt(b []byte, off int64) (int, error) {
	switch {
	case v.closed.Load():
		return 0, ErrClosed
	case off < 0:
		return 0, errOffset
	}
	n := 0
	for _, p := range v.parts {
		if n == len(b) {
			return n, nil
		}
		size := p.Size()
		if off >= size {
			off -= size
			continue
		}
		want := min(len(b)-n, int(min(size-off, 1<<62)))
		k, err := p.ReadAt(b[n:n+want], off)
		n += k
		if k < want {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
		off = 0
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (v *txnValue) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	var err error
	for _, p := range v.parts {
		err = errors.Join(err, p.Close())
	}
	return errors.Join(err, v.s.t.unpin(v.s.gen))
}
