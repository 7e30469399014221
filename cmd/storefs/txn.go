package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// txnEnv tells the command of a transaction where its directory is.
const txnEnv = "STOREFS_TXN"

// txnOptions are the flags of txn.
type txnOptions struct {
	retry    int
	noWait   bool
	readOnly bool
	timeout  time.Duration
}

func newTxn() *cobra.Command {
	var o txnOptions
	cmd := &cobra.Command{
		Use:   "txn [--retry N] [--no-wait] [--read-only] [--timeout TIME] STORE|MOUNTPOINT -- COMMAND...",
		Short: "Run a command whose changes are published together or not at all",
		Long: `Run COMMAND in a directory that shows the whole store at one generation. What it changes there nobody else sees. When it exits
with status 0 all of it is published in one commit; otherwise nothing is, and its exit status becomes that of txn: 128+N when signal N
killed it, 127 when there is no such command. When someone else has changed meanwhile what it read or wrote nothing is
published, and the status is 75, or COMMAND is run again up to N times (--retry). STOREFS_TXN is the directory's path.

Transactions of one store wait for each other, up to --timeout, so that a conflict can come from other writers only.
Nobody else waits for them. A STORE is mounted for the command alone, in a temporary directory. A COMMAND with a slash in it is
looked for from where txn was called.`,
		Args: argCount(2, -1),
		RunE: operation(func(_ *cobra.Command, args []string) error {
			target, argv := args[0], args[1:]
			if argv[0] == "--" {
				argv = argv[1:]
			}
			switch {
			case len(argv) == 0:
				return usagef("no command given after --")
			case o.retry < 0:
				return usagef("--retry: not a number of times")
			case o.timeout <= 0:
				return usagef("--timeout: not a time such as 30s, 500ms, 2m")
			}
			return txn(target, argv, o)
		}),
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the flags of COMMAND are its own
	f.IntVar(&o.retry, "retry", 0, "run the command again up to `N` times after a conflict")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait for other transactions, at the risk of conflicts")
	f.BoolVar(&o.readOnly, "read-only", false, "show one generation, and let nothing be changed; waits for nobody")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "longest wait for other transactions")
	return cmd
}

func txn(target string, argv []string, o txnOptions) (err error) {
	r, err := newRunner(argv)
	if err != nil {
		return err
	}
	defer signal.Stop(r.sigs)
	defer func() {
		if err != nil && !errors.As(err, new(statusError)) && !errors.As(err, new(*opError)) {
			err = fmt.Errorf("%s: %w", target, err)
		}
	}()
	point, private, err := txnMount(target, o.readOnly)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := private.end(); err == nil {
			err = cerr
		}
	}()
	switch {
	case o.readOnly && private != nil: // it shows one generation, and nothing else
		return r.run(point)
	case o.readOnly:
		err := readOnlyTxn(r, point)
		if m, ok := mountAt(point); ok && errors.Is(err, unix.EROFS) {
			err = hinted(err, "of a read-only mount only the store can be used: storefs txn --read-only %s", shellWord(m.source))
		}
		return err
	}
	if !o.noWait {
		lock, err := lockTxn(point, o.timeout, r.sigs)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	for try := 0; ; try++ {
		if err := oneTxn(r, point); !errors.Is(err, backend.ErrConflict) || try >= o.retry {
			if errors.Is(err, backend.ErrConflict) && o.retry == 0 {
				err = hinted(err, "--retry N runs the command again")
			}
			return err
		}
	}
}

// oneTxn runs the command in a new transaction of the mount at point, and publishes what it did if it succeeds.
func oneTxn(r *runner, point string) error {
	dir, err := makeDir(filepath.Join(point, reserved, "txn"))
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err = r.run(dir)
	if err == nil {
		to := filepath.Join(point, reserved, "commit", filepath.Base(dir))
		// An interrupted commit has changed nothing, and the transaction is still there.
		if err = again(func() error { return unix.Rename(dir, to) }); err == nil {
			return nil
		}
		if errors.Is(err, unix.ESTALE) {
			err = backend.ErrConflict
		}
		err = fmt.Errorf("nothing published: %w", err)
	}
	// What fails here is dropped by the daemon, in time.
	again(func() error { return unix.Rmdir(dir) })
	return err
}

// readOnlyTxn runs the command in a snapshot that is made for it.
func readOnlyTxn(r *runner, point string) error {
	dir, err := makeDir(filepath.Join(point, reserved, "snapshots"))
	if err != nil {
		return fmt.Errorf("make a snapshot: %w", err)
	}
	err = r.run(dir)
	if rerr := again(func() error { return unix.Rmdir(dir) }); err == nil && rerr != nil && !errors.Is(rerr, unix.ENOENT) {
		err = fmt.Errorf("remove snapshot %s: %w", filepath.Base(dir), rerr)
	}
	return err
}

// makeDir makes a directory that nobody else has made in the folder at dir, and returns its path.
func makeDir(dir string) (string, error) {
	for {
		path := filepath.Join(dir, fmt.Sprintf("txn-%d-%d", os.Getpid(), time.Now().UnixNano()))
		err := again(func() error { return unix.Mkdir(path, 0o777) })
		if !errors.Is(err, unix.EEXIST) {
			return path, err
		}
	}
}

// again calls fn until no signal interrupts it.
func again(fn func() error) error {
	for {
		if err := fn(); err != unix.EINTR {
			return err
		}
	}
}

// txnMount returns where the store is mounted that target, a mountpoint or a store, leads to. private is nil unless it was mounted for us.
func txnMount(target string, readOnly bool) (point string, private *privateMount, err error) {
	point, err = resolve(target)
	if err != nil {
		return "", nil, pathError(err)
	}
	if m, ok := mountAt(point); ok && m.fsType == fsType {
		if err := probe(point); isDead(err) {
			return "", nil, hinted(errors.New("is a mount whose daemon is dead"), "storefs mount takes it over")
		} else if err != nil {
			return "", nil, err
		}
		return point, nil, nil
	}
	if m, ok := mountOf(point); ok {
		if _, err := os.Lstat(point); errors.Is(err, fs.ErrNotExist) {
			return "", nil, fs.ErrNotExist
		}
		return "", nil, hinted(errors.New("is inside a mount"), "the mountpoint is %s", shellWord(m.point))
	}
	private, err = mountPrivately(target, point, readOnly)
	if err != nil {
		return "", nil, err
	}
	return private.point, private, nil
}
