package filestore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/storefs/storefs/backend"
)

// snapshot is a reference to a pin.
type snapshot struct {
	p      *pin
	closed atomic.Bool
}

// Snapshot implements backend.Store.
func (s *Store) Snapshot(ctx context.Context) (backend.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := s.pinNewest()
	if err != nil {
		return nil, err
	}
	return &snapshot{p: p}, nil
}

func (n *snapshot) Generation() backend.Generation { return backend.Generation(n.p.h.gen) }

func (n *snapshot) Lookup(ref backend.Ref) (backend.Entry, error) {
	if n.closed.Load() {
		return backend.Entry{}, backend.ErrClosed
	}
	r, err := n.p.get(uint64(ref.Dir), ref.Name)
	if err != nil {
		return backend.Entry{}, err
	}
	if r == nil || !r.isEntry() {
		return backend.Entry{}, backend.ErrNotFound
	}
	e := backend.Entry{Ref: ref, Revision: backend.Generation(r.rev())}
	if err := r.decode(&e); err != nil {
		return e, n.p.damaged(r, err)
	}
	return e, nil
}

// get returns the newest record of the key, nil if there is none.
func (p *pin) get(dir uint64, name string) (rec, error) {
	if i, ok := p.h.find(dir, name); ok {
		return p.h.recs[i], nil
	}
	if len(p.tabs.list) == 0 {
		return nil, nil
	}
	hash := keyHash(dir, name)
	for i := len(p.tabs.list) - 1; i >= 0; i-- {
		if r, err := p.tabs.list[i].get(dir, name, hash); r != nil || err != nil {
			return r, err
		}
	}
	return nil, nil
}

func (p *pin) damaged(r rec, err error) error {
	return &backend.CorruptError{Path: p.s.dir, Reason: fmt.Sprintf("record of %q in directory %d: %v", r.name(), r.dir(), err)}
}

// cursors returns one cursor for each source of records, newest first.
func (p *pin) cursors() ([]*cursor, error) {
	cs := []*cursor{{recs: p.h.recs}}
	for i := len(p.tabs.list) - 1; i >= 0; i-- {
		c, err := tableCursor(p.tabs.list[i])
		if err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// scan yields the newest record of each key at or after the given one, removals too.
func (p *pin) scan(dir uint64, name string) iter.Seq2[rec, error] {
	cs, err := p.cursors()
	if err != nil {
		return func(yield func(rec, error) bool) { yield(nil, err) }
	}
	return mergeFrom(cs, dir, name)
}

func (n *snapshot) Parent(dir backend.Ino) (backend.Ref, error) {
	if n.closed.Load() {
		return backend.Ref{}, backend.ErrClosed
	}
	if dir == 0 {
		return backend.Ref{}, backend.ErrNotFound
	}
	r, err := n.p.get(uint64(dir), "")
	if err != nil {
		return backend.Ref{}, err
	}
	if r == nil || r.kind() == recTomb {
		return backend.Ref{}, backend.ErrNotFound
	}
	ref, err := r.parent()
	if err != nil {
		return ref, n.p.damaged(r, err)
	}
	return ref, nil
}

func (n *snapshot) List(dir backend.Ino, after string) iter.Seq2[backend.Entry, error] {
	return func(yield func(backend.Entry, error) bool) {
		if n.closed.Load() {
			yield(backend.Entry{}, backend.ErrClosed)
			return
		}
		if dir == 0 {
			return
		}
		for r, err := range n.p.scan(uint64(dir), after+"\x00") {
			if err != nil {
				yield(backend.Entry{}, err)
				return
			}
			if r.dir() != uint64(dir) {
				return
			}
			if !r.isEntry() {
				continue
			}
			e, err := r.entry()
			if err != nil {
				err = n.p.damaged(r, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (n *snapshot) Open(e backend.Entry) (backend.Value, error) {
	if n.closed.Load() {
		return nil, backend.ErrClosed
	}
	if e.Kind == backend.Dir {
		return nil, backend.ErrIsDir
	}
	if e.Kind != backend.File {
		return nil, fmt.Errorf("symbolic link: %w", backend.ErrInvalid)
	}
	l, ok := e.Locator.(*locator)
	if !ok {
		have, err := n.Lookup(e.Ref)
		if err != nil {
			return nil, err
		}
		if l, ok = have.Locator.(*locator); !ok || have.Ino != e.Ino {
			return nil, backend.ErrNotFound
		}
	}
	return n.p.open(l), nil
}

func (n *snapshot) Close() error {
	if n.closed.Swap(true) {
		return nil
	}
	n.p.s.unpin(n.p)
	return nil
}

var errNegative = errors.New("negative offset")
