package backend

import (
	"context"
	"iter"
)

// Fixed returns a store that shows s for ever, and refuses every change with ErrReadOnly. Closing it closes s.
func Fixed(s Snapshot) Store { return fixedStore{s} }

// held is the snapshot of a fixed store, which outlives those that were taken of it.
type held struct{ Snapshot }

func (held) Close() error { return nil }

type fixedStore struct{ s Snapshot }

func (f fixedStore) Snapshot(ctx context.Context) (Snapshot, error) { return held{f.s}, nil }
func (f fixedStore) Commit(ctx context.Context, b *Batch) (Committed, error) {
	return Committed{}, ErrReadOnly
}
func (f fixedStore) Watch(ctx context.Context, from Generation) iter.Seq2[Change, error] {
	return func(func(Change, error) bool) { <-ctx.Done() }
}
func (f fixedStore) NewStage() (Stage, error)       { return nil, ErrReadOnly }
func (f fixedStore) Sync(ctx context.Context) error { return nil }
func (f fixedStore) Close() error                   { return f.s.Close() }
