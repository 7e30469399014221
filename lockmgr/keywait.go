package lockmgr

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

// errTimeUp means that somebody else holds the lock, and that the time to wait for it is over.
var errTimeUp = errors.New("time is up")

// keyWait is one call of Lock that has to wait.
type keyWait struct {
	k     *Keys
	file  *keyFile
	want  KeyHolder
	fresh *os.File   // kept from try to try: closing it would wake others
	done  chan error // of capacity 1
}

// ask takes a lock, or returns a wait for it.
func (k *Keys) ask(path string, want KeyHolder, wait bool) (*keyWait, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, ErrClosed
	}
	f := k.fileLocked(path)
	defer k.tidyLocked(f)
	w := &keyWait{k: k, file: f, want: want, done: make(chan error, 1)}
	if !wait || f.resting.IsZero() && !f.mustQueue(want) {
		ok, err := k.tryLocked(w)
		if !ok && err == nil && !wait {
			err = errTimeUp
		}
		if ok || err != nil {
			w.free()
			return nil, err
		}
	}
	f.waiting = append(f.waiting, w)
	k.attendLocked(f)
	return w, nil
}

// mustQueue says whether one that holds nothing waits for the same: what is in its way is in the way of want.
func (f *keyFile) mustQueue(want KeyHolder) bool {
	return f.owners[want.ID] == nil && slices.ContainsFunc(f.waiting, func(w *keyWait) bool {
		return f.owners[w.want.ID] == nil && w.want.Range == want.Range && w.want.Exclusive == want.Exclusive
	})
}

// tryLocked takes the lock if nothing is in the way.
func (k *Keys) tryLocked(w *keyWait) (ok bool, err error) {
	f := w.file
	if d := f.owners[w.want.ID]; d != nil {
		if ok, err = f.lock(d.f, w.want); ok {
			f.got(d, w.want)
			f.changed(d.f) // it may be less than what was held before
		}
		return ok, err
	}
	for {
		if w.fresh == nil {
			if w.fresh, err = k.open(f.path); err != nil {
				return false, err
			}
		}
		if ok, err = f.lock(w.fresh, w.want); !ok || err != nil {
			return false, err
		}
		if named(w.fresh, f.path) {
			break
		}
		w.free() // removed by the one who held it last
	}
	d := &description{f: w.fresh}
	w.fresh = nil
	f.owners[w.want.ID] = d
	f.got(d, w.want)
	return true, nil
}

// until returns when the lock is there: nil; or why the waiting is over without it.
func (w *keyWait) until(ctx context.Context, timeout time.Duration) (err error) {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-limit.C:
		err = errTimeUp
	}
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	if slices.Contains(w.file.waiting, w) {
		w.end(err)
		w.file.call()
	}
	return <-w.done // it may have come in the same moment
}

func (w *keyWait) end(err error) {
	w.file.waiting = slices.DeleteFunc(w.file.waiting, func(o *keyWait) bool { return o == w })
	w.free()
	w.done <- err
}

func (w *keyWait) free() {
	if w.fresh != nil {
		w.fresh.Close()
		w.fresh = nil
	}
}
