package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A daemon that is killed while it tells the kernel of a changed name may never be gone: its thread waits for the lock of the
// directory, which a program holds that waits for an answer, which nobody gives any more. Both wait for ever, nothing but an end of the
// connection from outside helps (fuse_reverse_inval_entry in the kernel's fs/fuse/dir.c), and even the daemon's descriptors stay open. So each daemon has a
// guard: a process that the kernel tells when a thread of the daemon has ended.

// guardSignal is what the kernel tells the guard with.
const guardSignal = unix.SIGUSR1

// dyingTime is how long the threads of a daemon that ends take at most if nothing holds them.
const dyingTime = time.Second

func newGuard() *cobra.Command {
	return &cobra.Command{
		Use:    "guard MOUNTPOINT",
		Short:  "End what a daemon that was killed leaves; started by storefs mount",
		Hidden: true,
		Args:   argCount(1, 1),
		RunE: operation(func(_ *cobra.Command, args []string) error {
			if err := guard(&process{fd: 3}, os.Stdin, os.Stdout); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		}),
	}
}

// guarding is the guard of this process, which will serve a mount. nil is none: a mount works as well.
type guarding struct {
	in  io.WriteCloser // it is told the device number of the mount here
	out io.ReadCloser  // and closes this when it is awake
}

// startGuard starts a guard for the mount that is to be made at point.
func startGuard(point string) *guarding {
	started := make(chan *guarding)
	go func() {
		runtime.LockOSThread() // the guard is told when the thread that started it ends
		g, cmd, err := runGuard(point)
		started <- g
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			log.Printf("storefs: guard: %v", err)
		}
	}()
	return <-started
}

func runGuard(point string) (*guarding, *exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, nil, fmt.Errorf("pidfd_open: %w", err)
	}
	self := os.NewFile(uintptr(fd), "this process")
	defer self.Close()
	cmd := exec.Command(exe, "guard", "--", point)
	cmd.Args[0] = os.Args[0]
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{self}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: guardSignal}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, err
	}
	return &guarding{in, out}, cmd, nil
}

// watch has the guard care for the mount at point. When it returns the guard is awake, or there is none.
func (g *guarding) watch(point string) {
	m, ok := mountAt(point)
	if g == nil || !ok {
		return
	}
	fmt.Fprintln(g.in, m.device)
	g.out.Read(make([]byte, 1)) // until it is closed
	g.in.Close()
	g.out.Close()
}

// guard waits for the end of the daemon, and ends the connection of its mount if the daemon cannot end by itself.
func guard(daemon *process, in io.Reader, out io.WriteCloser) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, guardSignal)
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT) // these are for the daemon, which may go on for a while
	var device string
	if _, err := fmt.Fscanln(in, &device); err != nil {
		return nil // it never mounted
	}
	out.Close()
	gone := make(chan struct{})
	go func() {
		for !daemon.wait(time.Hour) {
		}
		close(gone)
	}()
	select {
	case <-gone: // maybe before we could be told
		return nil
	case <-told:
	}
	if daemon.wait(dyingTime) {
		return nil
	}
	return abortConnection(device)
}

// abortConnection makes everything that waits for the daemon of a mount fail with ENOTCONN or ECONNABORTED. The owner of the mount may do
// that (Documentation/filesystems/fuse.rst of the kernel).
func abortConnection(device string) error {
	major, minor, ok := strings.Cut(device, ":")
	if _, err := strconv.Atoi(minor); !ok || major != "0" || err != nil {
		return fmt.Errorf("%q is no device number of a FUSE mount", device)
	}
	const dir = "/sys/fs/fuse/connections"
	abort := dir + "/" + minor + "/abort"
	err := writeExisting(abort)
	if !errors.Is(err, os.ErrNotExist) || os.Geteuid() != 0 {
		return err
	}
	// The control file system is not mounted: we do that, where nobody sees it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount("fusectl", dir, "fusectl", 0, ""); err != nil {
		return fmt.Errorf("mount fusectl on %s: %w", dir, err)
	}
	return writeExisting(abort)
}

func writeExisting(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("1")
	return errors.Join(err, f.Close())
}
