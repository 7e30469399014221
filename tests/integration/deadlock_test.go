package integration

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel holds a file's lock for some calls and the directory's for others, and unlink takes both; telling it of a commit takes the
// directory's. All of them at once, on one key, come to an end.
func TestCallsOnOneKeyDoNotWaitForEachOther(t *testing.T) {
	_, m, n := two(t)
	must(t, os.Mkdir(m+"/d", 0o755))
	write1 := func(k string, flags int, sync bool) error {
		f, err := os.OpenFile(k, flags, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteString("fifty bytes of no importance whatever, and so on..")
		if sync && err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	calls := []func(k string) error{
		func(k string) error { return os.Truncate(k, 100) },
		os.Remove,
		func(k string) error { return write1(k, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, false) },
		func(k string) error { return write1(k, os.O_WRONLY|os.O_TRUNC, true) },
		func(k string) error { return write1(k, os.O_WRONLY|os.O_APPEND, false) },
		func(k string) error { return os.Chmod(k, 0o600) },
		func(k string) error { return unix.Setxattr(k, "user.x", []byte("y"), 0) },
		func(k string) error { return os.Rename(k, k+"2") },
		func(k string) error { return os.Rename(k+"2", k) },
	}
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	for _, dir := range []string{m, n} {
		for i, call := range calls {
			wg.Go(func() {
				for range rounds {
					switch err := call(dir + "/d/k"); {
					case err == nil:
						done.Add(1)
					case errors.Is(err, unix.ESTALE) && strings.Contains(err.Error(), "close"):
						// Appending, while the same process truncates: then it writes in place, and someone else has replaced the value.
					case !errors.Is(err, unix.ENOENT):
						t.Errorf("call %d: %v", i, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if done.Load() < int64(rounds) {
		t.Errorf("only %d calls did anything", done.Load())
	}
}
