package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// readyEnv tells a process that it is the daemon, and on which descriptor its parent waits.
const readyEnv = "STOREFS_READY_FD"

// readyWord is what the daemon writes there when the mount answers.
const readyWord = "ready\n"

// statusError ends the command with a status; whatever there was to say has been said.
type statusError int

func (e statusError) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// startDaemon runs a command line as a daemon: a session of its own, no terminal, none of our descriptors but
// readyEnv's 3 and, if given, 4. It returns when the daemon's mount answers. If it does not come to that, the daemon has
// written why to the standard error that we pass through, and its exit status becomes ours.
func startDaemon(args, env []string, fd4 ...*os.File) (*os.Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ready, readyW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	said, saidW, err := os.Pipe()
	if err != nil {
		readyW.Close()
		return nil, err
	}
	defer said.Close()
	// Whatever else the caller has open, a pipe or a lock, is not to be held for as long as the mount lasts.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS && err != unix.EINVAL {
		return nil, fmt.Errorf("close_range: %w", err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(append(os.Environ(), readyEnv+"=3"), env...)
	cmd.Stderr = saidW
	cmd.ExtraFiles = append([]*os.File{readyW}, fd4...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = cmd.Start()
	readyW.Close()
	saidW.Close()
	if err != nil {
		return nil, err
	}
	passed := make(chan struct{})
	go func() {
		io.Copy(os.Stderr, said)
		close(passed)
	}()
	word, _ := io.ReadAll(ready)
	if string(word) == readyWord {
		select {
		case <-passed:
		case <-time.After(time.Second): // a helper of the daemon holds the pipe
		}
		return cmd.Process, nil
	}
	err = cmd.Wait()
	<-passed
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return nil, statusError(exit.ExitCode())
	}
	return nil, fmt.Errorf("the daemon ended before the mount answered: %w", err)
}

// parentLink is the daemon's end of the pipe. nil in a process that is no daemon.
type parentLink struct{ w *os.File }

func openParent() *parentLink {
	fd, err := strconv.Atoi(os.Getenv(readyEnv))
	os.Unsetenv(readyEnv)
	if err != nil {
		return nil
	}
	unix.CloseOnExec(fd)
	return &parentLink{os.NewFile(uintptr(fd), "ready")}
}

// ready lets the parent go: standard error becomes /dev/null, so that whoever reads it sees its end. An error means that the
// parent is gone, and that nobody wants the mount.
func (p *parentLink) ready() error {
	if p == nil {
		return nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), 2, 0); err != nil {
		return err
	}
	_, err = p.w.WriteString(readyWord)
	if cerr := p.w.Close(); err == nil {
		err = cerr
	}
	return err
}
