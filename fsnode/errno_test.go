package fsnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/lockmgr"
)

func TestErrnoOfEveryError(t *testing.T) {
	for _, row := range []struct {
		name  string
		err   error
		errno syscall.Errno
		known bool
	}{
		{"nothing", nil, 0, true},
		{"wrapped", fmt.Errorf("key %q: %w", "k", backend.ErrNotFound), syscall.ENOENT, true},
		{"exists", backend.ErrExists, syscall.EEXIST, true},
		{"conflict", backend.ErrConflict, syscall.ESTALE, true},
		{"too large", backend.ErrTooLarge, syscall.EFBIG, true},
		{"damage", &backend.CorruptError{Path: "HEAD", Reason: "checksum"}, syscall.EIO, true},
		{"lock", lockmgr.ErrLocked, syscall.ETIMEDOUT, true},
		{"interrupted", context.Canceled, syscall.EINTR, true},
		{"disk full", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, syscall.ENOSPC, true},
		{"long name", backend.ValidName(strings.Repeat("x", 256)), syscall.ENAMETOOLONG, true},
		{"bad name", backend.ValidName(".."), syscall.EINVAL, true},
		{"unknown", errors.New("?"), syscall.EIO, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			errno, known := toErrno(row.err)
			if errno != row.errno || known != row.known {
				t.Errorf("toErrno(%v) = %v, %v; want %v, %v", row.err, errno, known, row.errno, row.known)
			}
		})
	}
}
