package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses of shells for a command that cannot be run.
const (
	statusNotExecutable = 126
	statusNoCommand     = 127
)

// runner runs a command, again and again if need be, and passes on the signals that this process gets.
type runner struct {
	path string
	argv []string
	sigs chan os.Signal
}

// newRunner finds the program. From now on signals wait in sigs. The calling goroutine keeps its thread: a command is told
// (SIGTERM) when the thread that started it ends.
func newRunner(argv []string) (*runner, error) {
	path, err := exec.LookPath(argv[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		status, why := statusNotExecutable, err
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			status, why = statusNoCommand, errors.New("no such command")
		}
		var e *exec.Error
		if errors.As(why, &e) {
			why = e.Err
		}
		printError(os.Stderr, "", fmt.Errorf("%s: %w", argv[0], pathError(why)))
		return nil, statusError(status)
	}
	runtime.LockOSThread()
	r := &runner{path: path, argv: argv, sigs: make(chan os.Signal, 16)}
	signal.Notify(r.sigs, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	return r, nil
}

// run runs the command in dir. nil is status 0, and that no signal has told us to end; else the error is a statusError.
func (r *runner) run(dir string) error {
	select {
	case s := <-r.sigs: // before it began
		return statusError(128 + int(s.(unix.Signal)))
	default:
	}
	cmd := &exec.Cmd{
		Path: r.path, Args: r.argv, Dir: dir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env:         append(os.Environ(), txnEnv+"="+dir, "PWD="+dir),
		SysProcAttr: &unix.SysProcAttr{Pdeathsig: unix.SIGTERM},
	}
	if err := cmd.Start(); err != nil {
		printError(os.Stderr, "", fmt.Errorf("%s: %w", r.argv[0], pathError(err)))
		return statusError(statusNotExecutable)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var told unix.Signal
	for {
		select {
		case s := <-r.sigs:
			s1 := s.(unix.Signal)
			if (s1 == unix.SIGINT || s1 == unix.SIGQUIT) && inForeground() {
				continue // from the terminal: the command has it too, and it decides
			}
			cmd.Process.Signal(s1)
			if s1 != unix.SIGUSR1 && s1 != unix.SIGUSR2 {
				told = s1
			}
		case err := <-ended:
			return commandStatus(err, told)
		}
	}
}

// commandStatus is what the end of a command means; told is a signal that has asked us to end, 0 for none.
func commandStatus(err error, told unix.Signal) error {
	var exit *exec.ExitError
	switch {
	case err == nil && told == 0:
		return nil
	case err == nil:
		return statusError(128 + int(told))
	case !errors.As(err, &exit):
		return err
	}
	if w := exit.Sys().(syscall.WaitStatus); w.Signaled() {
		return statusError(128 + int(w.Signal()))
	}
	return statusError(exit.ExitCode())
}

// inForeground says whether what is typed at the terminal reaches this process and its children alike.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
