// Package daemon finds, watches and ends the daemons of mounts, for tests.
package daemon

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Daemon is the process that serves a mount, held by a descriptor, so that its number cannot come to mean another process.
type Daemon struct {
	PID int
	fd  int
}

// Of returns the daemon of the mount at dir. It is to be closed.
func Of(dir string) (*Daemon, error) {
	n, err := Stat(dir, "storefs_process_pid")
	if err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(int(n), 0)
	if err != nil {
		return nil, fmt.Errorf("daemon of %s: %w", dir, err)
	}
	return &Daemon{int(n), fd}, nil
}

// Stat reads a number from the file .storefs/stats of the mount at dir.
func Stat(dir, name string) (float64, error) {
	f, err := os.Open(filepath.Join(dir, ".storefs", "stats"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", f.Name(), name)
}

// Signal sends it a signal, if it is still there.
func (d *Daemon) Signal(sig unix.Signal) { unix.PidfdSendSignal(d.fd, sig, nil, 0) }

// Gone says whether it ended within limit.
func (d *Daemon) Gone(limit time.Duration) bool {
	end := time.Now().Add(limit)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}, int(max(0, time.Until(end).Milliseconds())))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// Close lets go of it. It goes on.
func (d *Daemon) Close() { unix.Close(d.fd) }

// Usage returns its resident memory in bytes and the number of its descriptors.
func (d *Daemon) Usage() (resident int64, descriptors int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		if w := strings.Fields(line); len(w) == 3 && w[0] == "VmRSS:" {
			resident, err = strconv.ParseInt(w[1], 10, 64)
		}
	}
	fds, derr := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID))
	if err == nil {
		err = derr
	}
	return resident << 10, len(fds), err
}

// Mounted says whether something is mounted at dir, be its daemon alive or not: it reads the kernel's list.
func Mounted(dir string) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(text), " "+dir+" ")
}
