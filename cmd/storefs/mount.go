package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
	"github.com/storefs/storefs/fsnode"
	"github.com/storefs/storefs/lockmgr"
)

// busyTime is how long a daemon that is told to end goes on for programs that still have files open. After it their
// calls fail with ENOTCONN.
const busyTime = 2 * time.Second

func newMount() *cobra.Command {
	var foreground, debug bool
	var flags []string
	cmd := &cobra.Command{
		Use:   "mount [-f] [-o OPTION,...] STORE MOUNTPOINT",
		Short: "Show a store as a directory",
		Long: `Show STORE as the directory MOUNTPOINT, which must exist and be empty. Returns when the mount answers; a daemon
serves it until storefs umount. A missing STORE is made.

Options of -o:
  ro                read only
  allow_other       let other users in, with the permissions of the files
  uid=, gid=        show everything as this user's, this group's (number or name)
  umask=            take these permissions (octal) off everything shown
  noxattr           no extended attributes: saves a round trip when a key is overwritten
  sync=always       a change is on stable storage when close returns
  sync=interval:1s  everything older than this is on stable storage (the default)
  sync=never        the system writes when it likes
  locktimeout=30s   longest wait for a lock
  maxvalue=         longest value: bytes, or with K, M, G
  maxstore=         all values together, for writes through this mount
  strict            the kernel caches no names and attributes
  nocreate          fail if STORE does not exist
  fsname=           what mount(8) shows as the source; the store's path if not given
  nosuid, nodev, noexec, noatime, default_permissions and their opposites: as in mount(8)`,
		Args: argCount(2, 2),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			o, err := parseMountOptions(flags)
			if err != nil {
				return err
			}
			if _, isDaemon := os.LookupEnv(readyEnv); !foreground && !debug && !isDaemon {
				d, err := startDaemon(os.Args[1:], nil)
				if err != nil {
					return err
				}
				return d.Release()
			}
			o.notify = foreground || debug
			return serve(args[0], args[1], o, debug)
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&foreground, "foreground", "f", false, "serve in the foreground and log to standard error")
	f.BoolVarP(&debug, "debug", "d", false, "log every request; in the foreground")
	f.StringArrayVarP(&flags, "options", "o", nil, "options, separated by commas")
	return cmd
}

// serve mounts the store and returns when it is unmounted, or after a SIGTERM, SIGINT or SIGHUP has unmounted it.
func serve(storeArg, pointArg string, o mountOptions, debug bool) (err error) {
	signal.Ignore(unix.SIGPIPE) // a log that nobody reads ends no mount
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	parent := openParent()
	_, fixed := os.LookupEnv(fixedEnv)

	dir, err := resolve(storeArg)
	if err != nil {
		return fmt.Errorf("%s: %w", storeArg, pathError(err))
	}
	point, claim, err := claimMountpoint(pointArg, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", pointArg, err)
	}
	defer claim.Close()
	if err := checkPrivileges(point, o); err != nil {
		return fmt.Errorf("%s: %w", pointArg, err)
	}
	st, undo, err := openForMount(storeArg, dir, o)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := st.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("%s: %w", storeArg, cerr)
		}
		undo()
	}()
	locks := lockmgr.NewKeys(filepath.Join(dir, "locks"), o.lockTimeout)
	defer locks.Close()
	shown := backend.Store(st)
	if fixed {
		s, err := st.Snapshot(context.Background())
		if err != nil {
			return fmt.Errorf("%s: %w", storeArg, err)
		}
		defer s.Close()
		shown = backend.Fixed(s)
	}
	defer watchOwner(point, sigs)()
	guard := startGuard(point)
	srv, err := mountNow(shown, point, dir, o, locks, debug)
	if err != nil {
		return fmt.Errorf("%s: %w", pointArg, err)
	}
	if st.Created() {
		fmt.Fprintf(os.Stderr, "storefs: created store %s\n", printable(storeArg))
	}
	undo = func() {}
	guard.watch(point)
	claim.Close()
	if err := errors.Join(os.Chdir("/"), parent.ready()); err != nil {
		return errors.Join(err, srv.Shutdown(point))
	}
	if o.notify {
		notify(daemon.SdNotifyReady)
		defer notify(daemon.SdNotifyStopping)
	}
	return wait(srv, point, sigs)
}

// notify tells systemd, if that has started us and wants to know (Type=notify).
func notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Printf("storefs: notify systemd: %v", err)
	}
}

// wait returns when the mount is gone and nothing of it is still being published.
func wait(srv *fsnode.Server, point string, sigs <-chan os.Signal) error {
	gone := make(chan struct{})
	go func() {
		srv.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-sigs:
	}
	if err := srv.Shutdown(point); err != nil {
		return fmt.Errorf("%s: unmount: %w", point, err)
	}
	select {
	case <-gone:
	case <-sigs: // asked twice
	case <-time.After(busyTime):
	}
	return nil
}

// openForMount opens the store, which it makes if it may. undo, to be called after Close, removes a store that was made
// and never written to.
func openForMount(arg, dir string, o mountOptions) (st *filestore.Store, undo func(), err error) {
	if m, ok := mountOf(dir); ok && m.point == dir {
		return nil, nil, hinted(fmt.Errorf("%s: is a mountpoint", arg), "its store is %s", shellWord(m.source))
	} else if ok {
		return nil, nil, fmt.Errorf("%s: is inside the storefs mount %s, which cannot hold a store", arg, m.point)
	}
	_, statErr := os.Lstat(dir)
	missing := errors.Is(statErr, fs.ErrNotExist)
	if missing && (o.noCreate || o.readOnly) {
		return nil, nil, fmt.Errorf("%s: no such store, and with -o ro or nocreate none is made", arg)
	}
	st, err = filestore.Open(dir, &filestore.Options{
		Create: !o.noCreate && !o.readOnly, ReadOnly: o.readOnly, Sync: o.sync, Interval: o.interval,
		LockTimeout: o.lockTimeout, Command: "storefs mount",
	})
	if err != nil {
		return nil, nil, openError(arg, err)
	}
	undo = func() {}
	if st.Created() {
		undo = func() { removePristine(st, dir, missing) }
	}
	return st, undo, nil
}

// mountNow mounts. What fusermount3 says becomes part of the error: go-fuse lets it write to our standard error.
func mountNow(st backend.Store, point, dir string, o mountOptions, locks *lockmgr.Keys, debug bool) (*fsnode.Server, error) {
	stderr := os.Stderr
	fo := &fsnode.Options{
		ReadOnly: o.readOnly, AllowOther: o.allowOther, NoXattr: o.noXattr, Strict: o.strict,
		UID: o.uid, GID: o.gid, Umask: o.umask, MaxValue: o.maxValue, MaxStore: o.maxStore, LockTimeout: o.lockTimeout, Locks: locks,
		FsName: o.fsName, Extra: o.extra, Log: log.New(printableWriter{stderr}, "storefs: ", log.LstdFlags), Debug: debug,
	}
	if fo.FsName == "" {
		fo.FsName = dir
	}
	said, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()
	os.Stderr = w
	srv, err := fsnode.Mount(st, point, fo)
	os.Stderr = stderr
	w.Close()
	if err == nil {
		return srv, nil
	}
	if m, ok := mountAt(point); ok && m.fsType == fsType && m.source == fo.FsName { // mounted, but it did not answer
		err = errors.Join(err, detach(point))
	}
	if text, _ := io.ReadAll(io.LimitReader(said, 4096)); len(text) > 0 {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return nil, err
}

// removePristine removes the files of a store that this process made and nobody wrote to.
func removePristine(st *filestore.Store, dir string, all bool) {
	again, err := filestore.Open(dir, &filestore.Options{ReadOnly: true})
	if err != nil {
		return
	}
	s, err := again.Snapshot(context.Background())
	if err != nil || s.Generation() != 0 {
		again.Close()
		return
	}
	s.Close()
	again.Close()
	if all {
		os.RemoveAll(dir)
		return
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		os.RemoveAll(filepath.Join(dir, e.Name()))
	}
}
