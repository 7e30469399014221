package filestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/storefs/storefs/backend"
)

// queue is the calls of Commit that wait for the commit lock. Whoever gets it answers the others too.
type queue struct {
	mu      sync.Mutex // guards waiting
	waiting []*request // in the order in which they came
}

// request is one call of Commit.
type request struct {
	b      *backend.Batch
	ctx    context.Context // ends also when it is answered
	cancel context.CancelFunc
	done   chan struct{} // closed when it is answered: what follows stands
	c      backend.Committed
	err    error
}

func (q *queue) join(ctx context.Context, b *backend.Batch) *request {
	r := &request{b: b, done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
	return r
}

// leave takes r out of the queue; false if somebody has taken it out to answer it.
func (q *queue) leave(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// next takes out the request that has waited longest; nil if there is none.
func (q *queue) next() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	r := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return r
}

func (r *request) answer() {
	close(r.done)
	r.cancel()
}

func (r *request) answered() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Commit implements backend.Store. Calls that wait for the lock at the same time are answered together: each makes a generation of its own, or
// fails by itself, on what the one before it leaves; but they are written in one HEAD, and with sync=always synced once.
func (s *Store) Commit(ctx context.Context, b *backend.Batch) (backend.Committed, error) {
	if s.opt.ReadOnly {
		return backend.Committed{}, backend.ErrReadOnly
	}
	s.life.RLock()
	defer s.life.RUnlock()
	r := s.queue.join(ctx, b)
	defer r.cancel()
	release, err := s.acquire(r.ctx)
	if err != nil {
		if s.queue.leave(r) {
			return backend.Committed{}, fmt.Errorf("commit: %w", err)
		}
		<-r.done // somebody is answering it, or has
		return r.c, r.err
	}
	defer release()
	for !r.answered() {
		s.answerLocked(r)
	}
	return r.c, r.err
}

// answerLocked makes the commits of those who have waited longest; r, whose caller does it, is still among those who wait.
func (s *Store) answerLocked(r *request) {
	all, whole := []*request{s.queue.next()}, false
	defer func() {
		if !whole {
			s.queue.leave(r)
		}
		for _, r := range all {
			if !whole {
				r.err = errPanicked
			}
			r.answer()
		}
	}()
	err := s.commitLocked(func(g *group) {
		for r := all[0]; r != nil; all = append(all, r) {
			if r.c, r.err = g.commit(r.b); g.full() {
				return
			}
			if r = s.queue.next(); r == nil {
				return
			}
		}
	})
	for _, r := range all {
		if err != nil && len(all) > 1 && !errors.Is(err, backend.ErrIndeterminate) {
			// It may be for one of them only: a full disk has room for the small.
			r.fail(s.commitLocked(func(g *group) { r.c, r.err = g.commit(r.b) }))
		} else {
			r.fail(err)
		}
	}
	whole = true
}

var errPanicked = errors.New("commit: a panic while others' commits were made with it")

// fail has the request fail with err, if that is one and it has not failed by itself.
func (r *request) fail(err error) {
	if err != nil && r.err == nil {
		if r.c.Generation > 0 {
			err = fmt.Errorf("generation %d: %w", r.c.Generation, err)
		}
		r.c, r.err = backend.Committed{}, fmt.Errorf("commit: %w", err)
	}
}
