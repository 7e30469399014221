package filestore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/storefs/storefs/backend"
)

// ownPause is how much later than others' commits those that follow own commits may be noticed.
const ownPause = 2 * time.Millisecond

// Watch implements backend.Store. The kernel tells when HEAD is replaced (inotify(7)), by whatever process.
func (s *Store) Watch(ctx context.Context, from backend.Generation) iter.Seq2[backend.Change, error] {
	return func(yield func(backend.Change, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		f, err := s.inotify()
		if err != nil {
			yield(backend.Change{}, err)
			return
		}
		defer f.Close()
		defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
		buf := make([]byte, 64<<10)
		for at := uint64(from); ; {
			if s.isClosed() && ctx.Err() == nil {
				yield(backend.Change{}, backend.ErrClosed)
				return
			}
			changes, gen, err := s.changesSince(at)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(backend.Change{}, err)
				return
			}
			for _, c := range changes {
				if !yield(c, nil) || ctx.Err() != nil {
					return
				}
			}
			if gen > at && !slices.ContainsFunc(changes, func(c backend.Change) bool { return !c.Own }) {
				// While nobody else commits there is no hurry to look at what this Store value has done itself.
				select {
				case <-ctx.Done():
					return
				case <-time.After(ownPause):
				}
			}
			at = max(at, gen)
			// One read takes all events there are; what was missed meanwhile is found by looking.
			if _, err := f.Read(buf); err != nil {
				if ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					yield(backend.Change{}, err)
				}
				return
			}
		}
	}
}

// inotify returns a file that becomes readable when something in the directory of the store got another name.
func (s *Store) inotify() (*os.File, error) {
	if s.isClosed() {
		return nil, backend.ErrClosed
	}
	return s.disk.Watch(s.dir)
}

// changesSince returns what places are different in the newest generation, which is returned too, from what they were in generation from.
func (s *Store) changesSince(from uint64) ([]backend.Change, uint64, error) {
	p, err := s.pinNewest()
	if err != nil {
		return nil, 0, err
	}
	defer s.unpin(p)
	if p.h.gen <= from {
		return nil, p.h.gen, nil
	}
	if from < p.h.history {
		return nil, 0, backend.ErrHistoryGone
	}
	cs := []*cursor{{recs: p.h.recs}}
	for i := len(p.tabs.list) - 1; i >= 0; i-- {
		if p.h.tabs[i].maxGen <= from {
			continue
		}
		c, err := tableCursor(p.tabs.list[i])
		if err != nil {
			return nil, 0, err
		}
		c.minRev = from
		cs = append(cs, c)
	}
	var out []backend.Change
	for r, err := range mergeFrom(cs, 0, "") {
		if err != nil {
			return nil, 0, err
		}
		if r.rev() <= from || r.kind() >= recParent || len(r.name()) == 0 && r.dir() != 0 || r.dir() == 0 && len(r.name()) != 0 {
			continue
		}
		c := backend.Change{Generation: backend.Generation(r.rev())}
		c.Ref = backend.Ref{Dir: backend.Ino(r.dir()), Name: string(r.name())}
		if r.kind() != recTomb {
			e, err := r.entry()
			if err != nil {
				return nil, 0, p.damaged(r, err)
			}
			c.New = &e
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b backend.Change) int { return cmp.Compare(a.Generation, b.Generation) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range out {
		out[i].Own = s.own[uint64(out[i].Generation)]
	}
	return out, p.h.gen, nil
}
