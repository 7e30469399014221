package lockmgr

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenFile is open(2) with O_CLOEXEC, of a path without symbolic links: ELOOP if there is one in it. So what others have put into a folder
// that they may change leads nowhere else; nor does it wait for who opens the other end of a pipe. Before Linux 5.6 only the
// last name is looked at.
func OpenFile(path string, flags int, mode os.FileMode) (*os.File, error) {
	fd, err := open(path, flags, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func open(path string, flags int, mode os.FileMode) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: unix.RESOLVE_NO_SYMLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm())
	}
	waits := flags&(unix.O_PATH|unix.O_DIRECTORY) == 0
	if waits {
		how.Flags |= unix.O_NONBLOCK | unix.O_LARGEFILE
	}
	err = unix.EINTR
	for err == unix.EINTR {
		if fd, err = unix.Openat2(unix.AT_FDCWD, path, &how); err == unix.ENOSYS {
			fd, err = unix.Open(path, int(how.Flags), uint32(how.Mode))
		}
	}
	if err == nil && waits {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
