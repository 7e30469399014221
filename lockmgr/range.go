package lockmgr

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// waitByte is the byte of the lock file on which waiting processes hold a shared range lock, for the holder to see.
const waitByte = math.MaxInt64

// TryRange takes a write lock on the byte at off of the lock file without waiting; ok is false when another call, in this
// process or another, holds it. It has nothing to do with Acquire. off is at least 0 and below math.MaxInt64; the file need not
// be that long. release may be called more than once. The lock outlives Close of l, and ends with the process.
func (l *Lock) TryRange(off int64) (release func(), ok bool, err error) {
	if off < 0 || off == waitByte {
		return nil, false, fmt.Errorf("lock %s: byte %d: %w", l.path, off, unix.EINVAL)
	}
	if l.isClosed() {
		return nil, false, fmt.Errorf("lock %s: %w", l.path, ErrClosed)
	}
	// A description for each lock: range locks of one description do not exclude each other.
	fd, err := open(l.path, os.O_RDWR, 0)
	if err != nil {
		return nil, false, err
	}
	ok, err = setRange(fd, unix.F_WRLCK, off)
	if !ok || err != nil {
		unix.Close(fd)
		if err != nil {
			err = &os.PathError{Op: "lock byte of", Path: l.path, Err: err}
		}
		return nil, false, err
	}
	return sync.OnceFunc(func() { unix.Close(fd) }), true, nil
}

// rangeTaken says whether another description than fd's holds any range lock on the byte at off.
func rangeTaken(fd int, off int64) bool {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: off, Len: 1}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk) == nil && lk.Type != unix.F_UNLCK
}

// setRange takes, changes or (F_UNLCK) gives up the range lock of fd's description on one byte; false if another is in the way.
func setRange(fd int, kind int16, off int64) (bool, error) {
	return setLock(fd, unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: 1})
}

func setLock(fd int, lk unix.Flock_t) (bool, error) {
	for {
		switch err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lk); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}
