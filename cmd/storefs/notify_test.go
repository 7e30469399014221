package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// systemd is told when the mount answers and when it is about to end, and only by the process that it started.
func TestNotify(t *testing.T) {
	needFuse(t)
	dir := t.TempDir()
	point := filepath.Join(dir, "m")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	receive := func(want string) {
		t.Helper()
		b := make([]byte, 100)
		l.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := l.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("told %q, %v; not %q", b[:n], err, want)
		}
	}
	cmd := exec.Command("storefs", "mount", "-f", filepath.Join(dir, "kv"), point)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { noMountsLeft(t, dir) })
	receive("READY=1")
	if _, err := os.Stat(filepath.Join(point, reserved, "stats")); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("storefs", "umount", point).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	receive("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
