package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
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

// newRunner finds the program. From now on signals wait in sigs.
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
	// The command is told (SIGTERM) when the thread that starts it ends, as ours all do with the process and no sooner.
	pid, err := syscall.ForkExec(r.path, r.argv, &syscall.ProcAttr{
		Dir: dir, Files: []uintptr{0, 1, 2},
		Env: append(os.Environ(), txnEnv+"="+dir, "PWD="+dir),
		Sys: &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM},
	})
	if err != nil {
		printError(os.Stderr, "", fmt.Errorf("%s: %w", r.argv[0], err))
		return statusError(statusNotExecutable)
	}
	ended := make(chan struct{})
	told := make(chan unix.Signal)
	go func() { told <- r.passOn(pid, ended) }()
	again(func() error { return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) })
	close(ended)
	asked := <-told // its number was the command's until now
	var w unix.WaitStatus
	if err := again(func() error { _, err := unix.Wait4(pid, &w, 0, nil); return err }); err != nil {
		return fmt.Errorf("wait for the command: %w", err)
	}
	return commandStatus(w, asked)
}

// passOn passes signals on to the command until it has ended. It returns the last that has asked us to end, 0 if none did.
func (r *runner) passOn(pid int, ended <-chan struct{}) (asked unix.Signal) {
	for {
		select {
		case s := <-r.sigs:
			s1 := s.(unix.Signal)
			if (s1 == unix.SIGINT || s1 == unix.SIGQUIT) && inForeground() {
				continue // from the terminal: the command has it too, and it decides
			}
			_ = unix.Kill(pid, s1)
			if s1 != unix.SIGUSR1 && s1 != unix.SIGUSR2 {
				asked = s1
			}
		case <-ended:
			return asked
		}
	}
}

// commandStatus is what the end of a command means; asked is a signal that has asked us to end, 0 for none.
func commandStatus(w unix.WaitStatus, asked unix.Signal) error {
	switch {
	case w.Signaled():
		return statusError(128 + int(w.Signal()))
	case w.ExitStatus() != 0:
		return statusError(w.ExitStatus())
	case asked != 0:
		return statusError(128 + int(asked))
	}
	return nil
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
