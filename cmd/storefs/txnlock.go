package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// txnLock is the file of a mount whose exclusive lock is the turn of transactions: flock(2) on it holds across all mounts of
// the store, and ends with the process.
const txnLock = "generation"

// lockTxn waits for the turn, for as long as timeout at most and until a signal. Closing the file that it returns ends the turn.
func lockTxn(point string, timeout time.Duration, sigs <-chan os.Signal) (*os.File, error) {
	f, err := os.Open(filepath.Join(point, reserved, txnLock))
	if err != nil {
		return nil, pathError(err)
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return f, nil
	}
	end := time.After(timeout)
	locked := make(chan error, 1)
	go func() { locked <- waitFlock(int(f.Fd())) }() // a wait that is given up ends with the process, soon after
	select {
	case err = <-locked:
		if err == nil {
			return f, nil
		}
		err = fmt.Errorf("lock transactions: %w", err)
		f.Close()
	case s := <-sigs:
		err = statusError(128 + int(s.(unix.Signal)))
	case <-end:
		err = fmt.Errorf("another transaction has not ended within %v: %s", timeout, txnHolder(point))
	}
	return nil, err
}

// waitFlock locks fd. The mount's own limit for waits, whatever it is, starts it again.
func waitFlock(fd int) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ETIMEDOUT) {
			return err
		}
	}
}

// txnHolder says whose turn it is.
func txnHolder(point string) string {
	f, err := os.Open(filepath.Join(point, reserved, "locks"))
	if err != nil {
		return "its process is not known"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		// key, kind, shared or exclusive, pid, command
		w := strings.Split(s.Text(), "\t")
		if len(w) < 5 {
			continue
		}
		if key, err := strconv.Unquote(w[0]); err == nil && key == reserved+"/"+txnLock {
			return fmt.Sprintf("process %s, %s", w[3], w[4])
		}
	}
	return "its process is not known"
}
