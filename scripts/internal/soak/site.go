package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/daemon"
)

// site is where it all happens: a store on a small disk of its own, and its mounts. Nothing bad happens to the daemon of the first mount.
type site struct {
	binary string
	dir    string
	disk   string // what it is, in words
	store  string
	mounts []*mount
	crowd  crowd
}

// mount is a mountpoint and, but for moments, a mount.
type mount struct {
	dir     string
	options string
	daemon  *daemon.Daemon
}

func newSite(binary string, size int64) (s *site, err error) {
	s = &site{binary: binary, disk: "the disk of temporary files"}
	if s.dir, err = os.MkdirTemp("", "storefs-soak-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.remove()
		}
	}()
	disk := filepath.Join(s.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if err := unix.Mount("storefs-soak", disk, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			return nil, fmt.Errorf("mount a tmpfs: %w", err)
		}
		s.disk = fmt.Sprintf("a tmpfs of %d MiB", size>>20)
	}
	s.store = filepath.Join(disk, "kv")
	for i, options := range []string{"sync=interval:200ms", "sync=never", "sync=always,strict"} {
		m := &mount{dir: filepath.Join(s.dir, fmt.Sprintf("m%d", i)), options: options}
		if err := os.Mkdir(m.dir, 0o755); err != nil {
			return nil, err
		}
		if err := s.mountAt(m); err != nil {
			return nil, err
		}
		s.mounts = append(s.mounts, m)
	}
	return s, nil
}

// mountAt mounts. The place of a mount whose daemon is dead is taken over.
func (s *site) mountAt(m *mount) error {
	_, err := s.command(nil, "mount", "-o", m.options, s.store, m.dir)
	if err != nil {
		return err
	}
	if m.daemon != nil {
		m.daemon.Close()
	}
	m.daemon, err = daemon.Of(m.dir)
	return err
}

// commandTime is how long a command may take. None comes near it, unless it hangs.
const commandTime = 2 * time.Minute

// command runs storefs and returns its output.
func (s *site) command(in []byte, args ...string) ([]byte, error) {
	out, _, err := s.mortalCommand(commandTime, in, args...)
	return out, err
}

// mortalCommand runs storefs and kills it after a time, if it is not done before.
func (s *site) mortalCommand(life time.Duration, in []byte, args ...string) (out []byte, killed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Stdin = bytes.NewReader(in)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		killed = cmd.ProcessState != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		err = fmt.Errorf("storefs %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), killed, err
}

// full says whether a command failed because the disk is full.
func full(err error) bool { return err != nil && strings.Contains(err.Error(), unix.ENOSPC.Error()) }

// end unmounts everything, and looks at what is left.
func (s *site) end(r *report) {
	for _, m := range s.mounts {
		if _, err := s.command(nil, "umount", m.dir); err != nil {
			r.violation("at the end: %v", err)
		}
	}
	if _, err := s.command(nil, "sync", s.store); err != nil { // removes what the dead left in tmp/
		r.violation("at the end: %v", err)
	}
	if _, err := s.command(nil, "check", s.store); err != nil {
		r.violation("at the end: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(s.store, "tmp")); err != nil || len(left) > 0 {
		r.violation("at the end, in tmp/: %v %v", left, err)
	}
}

// remove leaves nothing of the site.
func (s *site) remove() {
	for _, m := range s.mounts {
		if daemon.Mounted(m.dir) {
			unix.Unmount(m.dir, unix.MNT_DETACH)
		}
	}
	err := unix.Unmount(filepath.Join(s.dir, "disk"), unix.MNT_DETACH)
	if err == nil || errors.Is(err, unix.EINVAL) || os.Geteuid() != 0 {
		os.RemoveAll(s.dir)
	}
}
