package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/daemon"
)

// limit is how long a command that touches a mount may take. No test comes near it unless something hangs.
const limit = 3 * time.Minute

// world is a store with its mounts, below a temporary folder of the test. When the test ends the mounts go, and the store
// is checked.
type world struct {
	t      *testing.T
	dir    string
	store  string
	env    []string
	mounts []*mounted
}

type mounted struct {
	dir    string
	pid    int // of the daemon
	daemon *daemon.Daemon
}

// newWorld returns a world whose store does not exist yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	if noFuse != "" {
		t.Skip("cannot mount: " + noFuse)
	}
	w := &world{t: t, dir: t.TempDir()}
	w.store = filepath.Join(w.dir, "kv")
	w.env = append(os.Environ(), "S="+w.store, "W="+w.dir, "BIN="+binary)
	t.Cleanup(w.end)
	return w
}

// one returns a world with a mount, and its directory.
func one(t *testing.T, opts ...string) (w *world, m string) {
	t.Helper()
	w = newWorld(t)
	return w, w.mount(opts...)
}

// two returns a world with two mounts of the store.
func two(t *testing.T, opts ...string) (w *world, m, n string) {
	t.Helper()
	w = newWorld(t)
	return w, w.mount(opts...), w.mount(opts...)
}

// in returns the same world for a subtest.
func (w *world) in(t *testing.T) *world {
	return &world{t: t, dir: w.dir, store: w.store, env: w.env, mounts: w.mounts}
}

// mount mounts the store once more and returns where. The first mount is $M in scripts, the second $N.
func (w *world) mount(opts ...string) string {
	w.t.Helper()
	dir := filepath.Join(w.dir, "m"+strconv.Itoa(len(w.mounts)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.mountAt(dir, opts...)
	if i := len(w.mounts); i <= 2 {
		w.env = append(w.env, "MN"[i-1:i]+"="+dir)
	}
	return dir
}

func (w *world) mountAt(dir string, opts ...string) *mounted {
	w.t.Helper()
	args := []string{"mount"}
	for _, o := range opts {
		args = append(args, "-o", o)
	}
	if r := w.run(binary, append(args, w.store, dir)...); r.status != 0 {
		w.t.Fatalf("mount: status %d: %s%s", r.status, r.out, r.err)
	}
	d, err := daemon.Of(dir)
	must(w.t, err)
	m := &mounted{dir, d.PID, d}
	w.mounts = append(w.mounts, m)
	return m
}

// mountAgain mounts again where mount i was, whose daemon is dead or gone.
func (w *world) mountAgain(i int, opts ...string) {
	w.t.Helper()
	old := w.mounts[i]
	w.mounts[i] = w.mountAt(old.dir, opts...)
	w.mounts = w.mounts[:len(w.mounts)-1]
	old.daemon.Close()
}

// end unmounts everything and checks that nothing but a sound store is left.
func (w *world) end() {
	w.t.Helper()
	for _, m := range w.mounts {
		if daemon.Mounted(m.dir) {
			if r := w.run(binary, "umount", m.dir); r.status != 0 {
				w.t.Errorf("umount: status %d: %s%s", r.status, r.out, r.err)
			}
		}
		for daemon.Mounted(m.dir) {
			if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
				w.t.Errorf("lazy umount of %s: %v", m.dir, err)
				break
			}
		}
		if !m.gone(time.Minute) {
			w.t.Errorf("daemon %d of %s still runs", m.pid, m.dir)
			m.kill(unix.SIGKILL)
			m.gone(5 * time.Second)
		}
		m.daemon.Close()
	}
	if _, err := os.Stat(w.store); err != nil {
		return
	}
	if r := w.run(binary, "check", w.store); r.status != 0 {
		w.t.Errorf("check: status %d: %s%s", r.status, r.out, r.err)
	}
	left, err := os.ReadDir(filepath.Join(w.store, "tmp"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Error(err)
	}
	for _, f := range left {
		w.t.Errorf("left in the store's tmp/: %s", f.Name())
	}
}

// gone says whether the daemon ended within d.
func (m *mounted) gone(d time.Duration) bool { return m.daemon.Gone(d) }

func (m *mounted) kill(sig unix.Signal) { m.daemon.Signal(sig) }

// result is how a command ended.
type result struct {
	status   int // -1: by a signal, or it never ended
	out, err string
}

// run runs a command that gets the time limit, in a process group of its own, in the world's folder.
func (w *world) run(name string, args ...string) result {
	w.t.Helper()
	return w.runIn(w.dir, "", name, args...)
}

func (w *world) runIn(dir, stdin, name string, args ...string) result {
	w.t.Helper()
	cmd, cancel := w.command(dir, name, args...)
	defer cancel()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	if err != nil && cmd.ProcessState == nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return r
}

// command returns a command that is killed, with its process group, when the time limit is over.
func (w *world) command(dir, name string, args ...string) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, w.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd, cancel
}

// sh runs a bash script in the first mount, which must end with status 0, and returns its output without the last newline.
func (w *world) sh(script string) string {
	w.t.Helper()
	return w.must(script, w.runIn(w.top(), "", "bash", "-c", script))
}

// python runs a Python program in the first mount.
func (w *world) python(program string) string {
	w.t.Helper()
	return w.must(program, w.runIn(w.top(), "", "python3", "-c", "import os, sys, errno, time\nM, N = os.environ.get('M'), os.environ.get('N')\n"+program))
}

func (w *world) must(what string, r result) string {
	w.t.Helper()
	if r.status != 0 {
		w.t.Fatalf("status %d of: %s\n%s%s", r.status, what, r.out, r.err)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// try runs a script that may fail.
func (w *world) try(script string) result {
	w.t.Helper()
	return w.runIn(w.top(), "", "bash", "-c", script)
}

// top is the first mount, or the world's folder if there is none any more.
func (w *world) top() string {
	if len(w.mounts) > 0 && daemon.Mounted(w.mounts[0].dir) {
		return w.mounts[0].dir
	}
	return w.dir
}

// get returns the value of a key, by the command line; ok is false if there is no such key.
func (w *world) get(key string) (value string, ok bool) {
	w.t.Helper()
	r := w.run(binary, "get", w.store, key)
	return r.out, r.status == 0
}

func (w *world) put(key, value string) {
	w.t.Helper()
	if r := w.runIn(w.dir, value, binary, "put", w.store, key); r.status != 0 {
		w.t.Fatalf("put %s: status %d: %s", key, r.status, r.err)
	}
}

// wantKey fails the test unless the command line finds value under key.
func (w *world) wantKey(key, value string) {
	w.t.Helper()
	got, ok := w.get(key)
	if !ok || got != value {
		w.t.Fatalf("%s is %s (there: %v), not %s", key, short(got), ok, short(value))
	}
}

// stats reads .storefs/stats of a mount. The round trips of an operation are under its name alone.
func stats(t *testing.T, dir string) map[string]float64 {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, ".storefs", "stats"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := map[string]float64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		if op, ok := strings.CutPrefix(name, `storefs_fuse_requests_total{op="`); ok {
			name = strings.TrimSuffix(op, `"}`)
		}
		if m[name], err = strconv.ParseFloat(value, 64); err != nil {
			t.Fatalf("stats: %q: %v", s.Text(), err)
		}
	}
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func write(t *testing.T, path, value string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(value), 0o644))
}

func want(t *testing.T, what, got, wanted string) {
	t.Helper()
	if got != wanted {
		t.Fatalf("%s: %s, not %s", what, short(got), short(wanted))
	}
}

func wantErr(t *testing.T, what string, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Errorf("%s: %v, not %v", what, err, wanted)
	}
}

// short quotes a value for a message.
func short(s string) string {
	if len(s) > 120 {
		return fmt.Sprintf("%q... (%d bytes)", s[:100], len(s))
	}
	return strconv.Quote(s)
}

// until calls cond until it is true; the test fails if that takes longer than the limit. It is for what has no event to wait for.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit / 2); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
