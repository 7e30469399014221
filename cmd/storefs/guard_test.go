package main

import (
	"io"
	"os/exec"
	"os/signal"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A guard ends with its daemon even if it was not told of that, because the daemon died while the guard was started.
func TestGuardEndsWithItsDaemon(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer signal.Reset() // a guard ignores some
	_, out := io.Pipe()
	ended := make(chan error)
	go func() { ended <- guard(&process{fd: fd}, strings.NewReader("0:1\n"), out) }()
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
