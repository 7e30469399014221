package lockmgr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// Options are the options of New; nil means the zero Options.
type Options struct {
	// Timeout is how long Acquire waits at most; 0 is 30 seconds.
	Timeout time.Duration
	// Command is what others are told of this holder; empty is the base name of os.Args[0].
	Command string
}

// The times of waiting. While processes compete each keeps the lock for a slice and then stands back; a waiting one looks
// again after pollMin, then ever less often down to pollMax. Standing back for longer than pollMax makes sure that it looks in time.
const (
	slice     = 2 * time.Millisecond
	pollMin   = 50 * time.Microsecond
	pollMax   = time.Millisecond
	standBack = 3 * time.Millisecond
	lookAgain = 500 * time.Microsecond
)

// Lock is an exclusive lock between goroutines and processes. Goroutines get it in the order in which they asked; among
// processes each gets its turn within a few milliseconds for each other one. Safe for concurrent use.
//
// It is free the moment its holder's process ends, however that ends.
type Lock struct {
	path    string
	timeout time.Duration
	line    []byte // what the file says while we hold it
	done    chan struct{}

	mu     sync.Mutex      // guards what follows
	busy   bool            // someone has the turn: it holds the lock or is the one that waits for other processes
	queue  []chan struct{} // who waits for the turn, in order; closed to give it
	closed bool
	waits  uint64
	waited time.Duration

	// GUARDED_BY having the turn. fd is closed by whoever finds closed and not busy.
	fd       int
	slow     *flock.Flock // a description of its own, open only while it holds the lock
	viaSlow  bool
	looked   time.Time // when this process last looked whether others wait
	since    time.Time // when this process began to take it without standing back
	released time.Time // when it gave it up last
}

// New opens the lock file at path, making it, open to everyone the umask allows, if it is absent. It takes no lock.
func New(path string, o *Options) (*Lock, error) {
	if o == nil {
		o = &Options{}
	}
	timeout, command := o.Timeout, o.Command
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	if command == "" {
		command = filepath.Base(os.Args[0])
	}
	fd, err := open(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	return &Lock{
		path: path, timeout: timeout, line: holderLine(os.Getpid(), command), done: make(chan struct{}), fd: fd,
		slow: flock.New(path, flock.SetFlag(os.O_RDWR|unix.O_NOFOLLOW), flock.SetPermissions(0o666)),
	}, nil
}

// Acquire takes the lock, waiting for it no longer than the timeout (*TimeoutError, which is ErrLocked) and than ctx.
// A free lock is taken only if ctx has not ended. release may be called more than once, from any goroutine. The lock does
// not nest: a holder that acquires it again waits for itself until the timeout.
func (l *Lock) Acquire(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", l.path, err)
	}
	w := waiting{l: l, ctx: ctx}
	defer w.end()
	if err := w.turn(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", l.path, err)
	}
	if err := w.lock(); err != nil {
		l.pass()
		if t := (*TimeoutError)(nil); errors.As(err, &t) {
			return nil, err
		}
		return nil, fmt.Errorf("lock %s: %w", l.path, err)
	}
	l.sign()
	return sync.OnceFunc(l.release), nil
}

// release gives up the flock and passes the turn on.
func (l *Lock) release() {
	if l.viaSlow {
		l.viaSlow = false
		// Fails only if the descriptor is not one any more; then the lock is gone as well.
		_ = l.slow.Unlock()
	} else {
		_, _ = tryFlock(l.fd, unix.LOCK_UN)
	}
	l.released = time.Now()
	l.pass()
}

// pass gives the turn to the next in the queue, if there is one.
func (l *Lock) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passLocked()
}

func (l *Lock) passLocked() {
	if len(l.queue) > 0 {
		next := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		close(next)
		return
	}
	l.busy = false
	if l.closed {
		unix.Close(l.fd)
	}
}

// sign writes the holder line unless it stands there already. Its failure, on a full disk say, is no reason
// not to hold the lock.
func (l *Lock) sign() {
	var have [lineSize]byte
	n, err := unix.Pread(l.fd, have[:], 0)
	if err != nil || !bytes.Equal(have[:n], l.line) {
		_, _ = unix.Pwrite(l.fd, l.line, 0)
	}
}

// Waits returns how many calls of Acquire had to wait, for a goroutine or a process, and for how long together.
func (l *Lock) Waits() (n uint64, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waits, l.waited
}

// Close makes waiting and later calls of Acquire return ErrClosed. A lock that is held stays so until it is released.
func (l *Lock) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	if !l.busy {
		return unix.Close(l.fd)
	}
	return nil
}

func (l *Lock) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
