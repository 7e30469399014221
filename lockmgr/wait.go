package lockmgr

import (
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// waiting is one call of Acquire. Its clock starts when it first has to wait.
type waiting struct {
	l     *Lock
	ctx   context.Context
	start time.Time
	limit *time.Timer
}

func (w *waiting) begin() {
	if w.limit == nil {
		w.start = time.Now()
		w.limit = time.NewTimer(w.l.timeout)
	}
}

// end stops the clock and adds it up.
func (w *waiting) end() {
	if w.limit == nil {
		return
	}
	w.limit.Stop()
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.l.waits++
	w.l.waited += time.Since(w.start)
}

// turn waits until it is this goroutine's turn.
func (w *waiting) turn() error {
	l := w.l
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	l.queue = append(l.queue, mine)
	l.mu.Unlock()

	w.begin()
	err := w.until(mine)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, mine); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	} else {
		l.passLocked() // the turn came in the same moment
	}
	return err
}

// until waits for c, or returns why waiting is over.
func (w *waiting) until(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-w.l.done:
		return ErrClosed
	case <-w.limit.C:
		return w.timeout()
	}
}

func (w *waiting) timeout() error {
	e := &TimeoutError{Path: w.l.path, Waited: time.Since(w.start)}
	// Not through l.fd, which belongs to the one that has the turn.
	if f, err := OpenFile(w.l.path, os.O_RDONLY, 0); err == nil {
		defer f.Close()
		e.PID, e.Command = readHolder(int(f.Fd()))
	}
	return e
}

// lock takes the flock. The caller has the turn.
func (w *waiting) lock() error {
	l := w.l
	if l.isClosed() {
		return ErrClosed
	}
	now := time.Now()
	if now.Sub(l.released) > pollMax {
		l.since = now // others had their chance
	}
	if now.Sub(l.since) > slice && now.Sub(l.looked) > lookAgain {
		l.looked = now
		if rangeTaken(l.fd, waitByte) {
			if err := w.standBack(); err != nil {
				return err
			}
		}
	}
	ok, err := tryFlock(l.fd, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return os.NewSyscallError("flock", err)
	}
	if ok {
		return nil
	}
	return w.poll()
}

// standBack leaves the free lock to those that wait for it: without, the one that had it last would take it again
// before the others wake.
func (w *waiting) standBack() error {
	w.begin()
	for begin := time.Now(); time.Since(begin) < standBack && rangeTaken(w.l.fd, waitByte); {
		if err := w.sleep(pollMin); err != nil {
			return err
		}
	}
	w.l.since = time.Now()
	return nil
}

// poll tries until the other process gives up the lock. flock(2) could wait in the kernel, but nothing
// ends that wait when ctx ends: the thread, and the place in the kernel's queue, would stay.
func (w *waiting) poll() error {
	l := w.l
	w.begin()
	// Only asks the holder to stand back, so it may fail.
	_, _ = setRange(l.fd, unix.F_RDLCK, waitByte)
	defer func() { _, _ = setRange(l.fd, unix.F_UNLCK, waitByte) }()
	for interval := pollMin; ; interval = min(interval+interval/8, pollMax) {
		ok, err := l.slow.TryLock()
		if err != nil {
			return err
		}
		if ok {
			l.viaSlow, l.since = true, time.Now()
			return nil
		}
		if err := w.sleep(interval); err != nil {
			return err
		}
	}
}

func (w *waiting) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-w.l.done:
		return ErrClosed
	case <-w.limit.C:
		return w.timeout()
	}
}
