package filestore

import (
	"context"
	"errors"
	"time"

	"github.com/storefs/storefs/backend"
)

// syncer makes commits durable within the interval.
func (s *Store) syncer(ctx context.Context) {
	defer s.wg.Done()
	t := time.NewTimer(s.opt.Interval)
	defer t.Stop()
	for {
		select {
		case <-s.dirty:
		case <-ctx.Done():
			return
		}
		t.Reset(s.opt.Interval)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		err := s.makeDurable(ctx)
		s.report(err)
		if err != nil {
			signal(s.dirty) // again after another interval
		}
		s.report(s.tidy(ctx))
		s.vols.closeRemoved()
	}
}

// keeper merges tables and removes what nobody needs, when it is woken.
func (s *Store) keeper(ctx context.Context) {
	defer s.wg.Done()
	for {
		select {
		case <-s.kick:
		case <-ctx.Done():
			return
		}
		for !s.opt.ManualMerge {
			more, err := s.merge(ctx, dueMerge)
			s.report(err)
			if !more || err != nil {
				break
			}
			signal(s.dirty) // what it made old goes when the new is durable
		}
		if n := s.trashed(); s.opt.Sync == Always && n > 0 || s.opt.Sync == Never && n >= fewTrash {
			s.report(s.makeDurable(ctx))
			s.report(s.tidy(ctx))
			s.vols.closeRemoved()
		}
	}
}

// report keeps the first error of the background for Close.
func (s *Store) report(err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bgErr == nil {
		s.bgErr = err
	}
}

// Close implements backend.Store. Except with sync=never everything committed is durable when it returns nil. The
// error may be one that the background met earlier.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.stop()
		s.wg.Wait()
		if !s.opt.ReadOnly && (s.count.commits.Load() > 0 || s.removed.Load()) {
			s.lastWork()
		}
		if s.lock != nil {
			s.lock.Close()
		}
		s.life.Lock()
		defer s.life.Unlock()
		s.mu.Lock()
		s.closed = true
		p, spares := s.cur, s.spareFiles
		s.cur, s.spareFiles = nil, nil
		s.mu.Unlock()
		if p != nil {
			s.unpin(p)
		}
		for _, sp := range spares {
			sp.f.Close()
		}
		s.vols.close()
		s.dirf.Close()
		s.durMap.unmap()
		if s.durf != nil {
			s.durf.Close()
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bgErr
}

// lastWork does what the background had no time for, so that a process that lives for one commit leaves the store as small as
// any other.
func (s *Store) lastWork() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for !s.opt.ManualMerge {
		more, err := s.merge(ctx, func(tabs []tabInfo) (int, int) {
			from, to := dueMerge(tabs)
			n := uint64(0)
			for _, t := range tabs[from:to] {
				n += t.length
			}
			if n > closeMerge {
				return 0, 0
			}
			return from, to
		})
		s.report(err)
		if !more || err != nil {
			break
		}
	}
	if s.opt.Sync != Never || s.trashed() >= fewTrash {
		s.report(s.makeDurable(ctx))
	}
	s.report(s.tidy(ctx))
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
