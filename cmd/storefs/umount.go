package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// daemonTime is how long umount waits for the daemon to publish and to close the store.
const daemonTime = 10 * time.Second

func newUmount() *cobra.Command {
	return &cobra.Command{
		Use:   "umount MOUNTPOINT",
		Short: "End a mount",
		Long: `End the mount at MOUNTPOINT. Returns when its daemon has published everything, closed the store and gone.
A mount whose daemon was killed is removed too. A mount in use stays: the error says by whom.`,
		Args: argCount(1, 1),
		RunE: operation(func(_ *cobra.Command, args []string) error {
			if err := umount(args[0]); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		}),
	}
}

func umount(arg string) error {
	point, err := resolve(arg)
	if err != nil {
		return pathError(err)
	}
	m, ok := mountAt(point)
	switch {
	case !ok:
		if _, err := os.Lstat(point); errors.Is(err, fs.ErrNotExist) {
			return errors.New("no such directory")
		}
		if m, ok := mountOf(point); ok {
			return hinted(errors.New("not a mountpoint"), "it is inside the mount %s", shellWord(m.point))
		}
		return errors.New("not a mountpoint")
	case m.fsType != fsType:
		return fmt.Errorf("is a mount of type %s, not of storefs", m.fsType)
	}
	err = probe(point)
	if isDead(err) {
		return detach(point)
	}
	var daemon *process
	if err == nil {
		daemon = servedBy(point)
		defer daemon.close()
	}
	switch err := unmount(point, false); {
	case errors.Is(err, unix.EBUSY):
		return busyError(point)
	case errors.Is(err, unix.EINVAL): // someone else was faster
		return errors.New("not a mountpoint any more")
	case err != nil:
		return err
	}
	if !daemon.wait(daemonTime) {
		return fmt.Errorf("unmounted, but after %v process %d that served it still runs", daemonTime, daemon.pid)
	}
	return nil
}

// busyError says who uses the mount.
func busyError(point string) error {
	users := usersOf(point, 2*time.Second)
	if len(users) == 0 {
		return hinted(errors.New("is in use"), "fuser -vm %s shows by whom; umount -l detaches it all the same", shellWord(point))
	}
	const most = 5
	more := ""
	if len(users) > most {
		more = fmt.Sprintf(" and %d more", len(users)-most)
		users = users[:most]
	}
	return hinted(fmt.Errorf("is in use by %s%s", strings.Join(users, ", "), more), "end them or let them leave, then try again")
}

// usersOf returns "COMMAND (pid N)" of processes that have their working directory, their root or an open file at or
// below point. It reads link texts only, which never asks the mount, and stops when the time is up.
func usersOf(point string, limit time.Duration) []string {
	end := time.Now().Add(limit)
	procs, _ := filepath.Glob("/proc/[0-9]*")
	var users []string
	for _, proc := range procs {
		if time.Now().After(end) {
			break
		}
		pid, _ := strconv.Atoi(filepath.Base(proc))
		if pid != os.Getpid() && uses(proc, point) {
			comm, _ := os.ReadFile(proc + "/comm")
			users = append(users, fmt.Sprintf("%s (pid %d)", strings.TrimSpace(string(comm)), pid))
		}
	}
	return users
}

func uses(proc, point string) bool {
	links := []string{proc + "/cwd", proc + "/root"}
	fds, _ := os.ReadDir(proc + "/fd")
	for _, fd := range fds {
		links = append(links, proc+"/fd/"+fd.Name())
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && inside(target, point) {
			return true
		}
	}
	return false
}

// process is another process, held by a descriptor so that its number cannot come to mean a new one. nil is none.
type process struct {
	pid int
	fd  int
}

// servedBy returns the daemon of the mount at point, as the mount itself says; nil if it does not say in time.
func servedBy(point string) *process {
	answer := make(chan int, 1)
	go func() { answer <- statsPid(filepath.Join(point, reserved, "stats")) }()
	select {
	case pid := <-answer:
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return nil
		}
		return &process{pid, fd}
	case <-time.After(probeTime):
		return nil
	}
}

func statsPid(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), "storefs_process_pid "); ok {
			pid, _ := strconv.Atoi(value)
			return pid
		}
	}
	return 0
}

// wait says whether the process ended within the limit.
func (p *process) wait(limit time.Duration) bool {
	if p == nil {
		return true
	}
	end := time.Now().Add(limit)
	for {
		left := max(0, time.Until(end).Milliseconds())
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(left))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

func (p *process) close() {
	if p != nil {
		unix.Close(p.fd)
	}
}
