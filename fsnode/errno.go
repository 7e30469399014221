package fsnode

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/lockmgr"
)

// errnos is what each error of the layers below means to a program. The first that matches counts.
var errnos = []struct {
	err   error
	errno syscall.Errno
}{
	{backend.ErrNotFound, syscall.ENOENT},
	{backend.ErrExists, syscall.EEXIST},
	{backend.ErrNotEmpty, syscall.ENOTEMPTY},
	{backend.ErrIsDir, syscall.EISDIR},
	{backend.ErrNotDir, syscall.ENOTDIR},
	{backend.ErrInvalid, syscall.EINVAL},
	{backend.ErrConflict, syscall.ESTALE},
	{backend.ErrTooLarge, syscall.EFBIG},
	{backend.ErrReadOnly, syscall.EROFS},
	{backend.ErrCorrupt, syscall.EIO},
	{backend.ErrIndeterminate, syscall.EIO},
	{backend.ErrClosed, syscall.EIO},
	{lockmgr.ErrLocked, syscall.ETIMEDOUT},
	{context.Canceled, syscall.EINTR},
	{context.DeadlineExceeded, syscall.ETIMEDOUT},
}

// toErrno returns what a program is told of err; known is false if err is in no table, which is EIO and worth a log line.
func toErrno(err error) (errno syscall.Errno, known bool) {
	if err == nil || errors.Is(err, io.EOF) {
		return 0, true
	}
	var name *backend.NameError
	if errors.As(err, &name) {
		if len(name.Name) > backend.MaxName {
			return syscall.ENAMETOOLONG, true
		}
		return syscall.EINVAL, true
	}
	for _, row := range errnos {
		if errors.Is(err, row.err) {
			return row.errno, true
		}
	}
	if errors.As(err, &errno) {
		return errno, true
	}
	return syscall.EIO, false
}

// status is toErrno for go-fuse; what is in no table is logged with what was being done.
func (s *Server) status(what string, err error) fuse.Status {
	errno, known := toErrno(err)
	if !known || errno == syscall.EIO {
		s.o.Log.Printf("%s: %v", what, err)
	}
	return fuse.Status(errno)
}
