package lockmgr

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// TryShared takes a shared flock(2) on f without waiting; false when another description holds an exclusive one. An
// exclusive lock that f holds becomes shared, but not atomically: another may get in between (flock(2)).
func TryShared(f *os.File) (bool, error) { return flockFile(f, unix.LOCK_SH|unix.LOCK_NB) }

// TryExclusive takes an exclusive flock(2) on f without waiting; false when another description holds any. A shared lock
// that f holds becomes exclusive; when that fails the shared one may be lost (flock(2)).
func TryExclusive(f *os.File) (bool, error) { return flockFile(f, unix.LOCK_EX|unix.LOCK_NB) }

// Unlock gives up the flock(2) that f holds; no error if it holds none. Closing f does the same.
func Unlock(f *os.File) error {
	_, err := flockFile(f, unix.LOCK_UN)
	return err
}

// flockFile goes through SyscallConn so that a concurrent Close of f cannot make it lock a file that got the same number.
func flockFile(f *os.File, how int) (ok bool, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	if c.Control(func(fd uintptr) { ok, err = tryFlock(int(fd), how) }) != nil {
		ok, err = false, os.ErrClosed // what Control fails for, with an error of its own
	}
	if err != nil {
		err = &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return ok, err
}

func tryFlock(fd, how int) (bool, error) {
	for {
		switch err := unix.Flock(fd, how); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}
