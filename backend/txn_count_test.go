package backend_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/storefs/storefs/backend"
)

// countingStore counts the snapshots, values and stages of a store that are open.
type countingStore struct {
	backend.Store
	snapshots, values, stages atomic.Int64
	most                      atomic.Int64 // stages at once
}

// open says what is open; "" if nothing is.
func (c *countingStore) open() string {
	s, v, st := c.snapshots.Load(), c.values.Load(), c.stages.Load()
	if s == 0 && v == 0 && st == 0 {
		return ""
	}
	return fmt.Sprintf("%d snapshots, %d values, %d stages are open", s, v, st)
}

func (c *countingStore) Snapshot(ctx context.Context) (backend.Snapshot, error) {
	s, err := c.Store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	c.snapshots.Add(1)
	return &countedSnapshot{s, c, atomic.Bool{}}, nil
}

func (c *countingStore) NewStage() (backend.Stage, error) {
	s, err := c.Store.NewStage()
	if err != nil {
		return nil, err
	}
	c.most.Store(max(c.most.Load(), c.stages.Add(1)))
	return &countedStage{s, c, atomic.Bool{}}, nil
}

type countedSnapshot struct {
	backend.Snapshot
	c      *countingStore
	closed atomic.Bool
}

func (s *countedSnapshot) Close() error {
	if !s.closed.Swap(true) {
		s.c.snapshots.Add(-1)
	}
	return s.Snapshot.Close()
}

func (s *countedSnapshot) Open(e backend.Entry) (backend.Value, error) {
	v, err := s.Snapshot.Open(e)
	if err != nil {
		return nil, err
	}
	s.c.values.Add(1)
	return &countedValue{v, s.c, atomic.Bool{}}, nil
}

type countedValue struct {
	backend.Value
	c      *countingStore
	closed atomic.Bool
}

func (v *countedValue) Close() error {
	if !v.closed.Swap(true) {
		v.c.values.Add(-1)
	}
	return v.Value.Close()
}

type countedStage struct {
	backend.Stage
	c      *countingStore
	closed atomic.Bool
}

func (s *countedStage) Close() error {
	if !s.closed.Swap(true) {
		s.c.stages.Add(-1)
	}
	return s.Stage.Close()
}
