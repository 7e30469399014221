package lockmgr

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const childEnv = "LOCKMGR_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := child(role, os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is what the test binary does when it plays another process.
func child(role, path string, args []string) error {
	l, err := New(path, &Options{Command: "child " + role})
	if err != nil {
		return err
	}
	switch role {
	case "hold": // until standard input ends
		release, err := l.Acquire(context.Background())
		if err != nil {
			return err
		}
		defer release()
	case "range":
		off, _ := strconv.ParseInt(args[0], 10, 64)
		release, ok, err := l.TryRange(off)
		if err != nil || !ok {
			return fmt.Errorf("range: %v %v", ok, err)
		}
		defer release()
	case "key":
		if err := NewKeys(args[0], 0).Lock(context.Background(), "k", owner(99), Range{}, true, true); err != nil {
			return err
		}
	case "count":
		n, _ := strconv.Atoi(args[1])
		return count(l, args[0], n)
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// count adds 1 to the number in file n times.
func count(l *Lock, file string, n int) error {
	for range n {
		release, err := l.Acquire(context.Background())
		if err != nil {
			return err
		}
		b, err := os.ReadFile(file)
		if err == nil {
			v, _ := strconv.Atoi(string(b))
			err = os.WriteFile(file, []byte(strconv.Itoa(v+1)), 0o666)
		}
		release()
		if err != nil {
			return err
		}
	}
	return nil
}

type process struct {
	*exec.Cmd
	in  io.WriteCloser
	err bytes.Buffer
}

// start runs a child, and returns when it is ready.
func start(t *testing.T, role, path string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], append([]string{path}, args...)...)}
	p.Env = append(os.Environ(), childEnv+"="+role)
	p.Stderr = &p.err
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	if role != "count" {
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("child said %q, %v: %s", line, err, p.err.String())
		}
	}
	return p
}

// finish lets the child go on to its end.
func (p *process) finish(t *testing.T) {
	t.Helper()
	p.in.Close()
	if err := p.Wait(); err != nil {
		t.Fatalf("child: %v: %s", err, p.err.String())
	}
}

func newLock(t *testing.T, path string, o *Options) *Lock {
	t.Helper()
	l, err := New(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func lockPath(t *testing.T) string { return filepath.Join(t.TempDir(), "lock") }

func acquire(t *testing.T, l *Lock) func() {
	t.Helper()
	release, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// eventually waits until cond holds; that it does not is found out after a minute.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (l *Lock) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// pending is an Acquire in a goroutine of its own.
type pending struct {
	release func()
	err     error
	done    chan struct{}
}

func acquireLater(ctx context.Context, l *Lock) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.release, p.err = l.Acquire(ctx)
	}()
	return p
}

func (p *pending) mustBlock(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		t.Fatalf("did not block: %v", p.err)
	case <-time.After(20 * time.Millisecond):
	}
}

func (p *pending) mustWake(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("still blocked")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func TestExcludesGoroutines(t *testing.T) {
	l := newLock(t, lockPath(t), nil)
	n := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				release, err := l.Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				n++
				release()
			}
		})
	}
	wg.Wait()
	if n != 1600 {
		t.Errorf("counted %d of 1600", n)
	}
}

func TestExcludesTwoLocksOfOneProcess(t *testing.T) {
	path := lockPath(t)
	a, b := newLock(t, path, nil), newLock(t, path, nil)
	release := acquire(t, a)
	p := acquireLater(t.Context(), b)
	p.mustBlock(t)
	release()
	p.mustWake(t)
	p.release()
	if n, d := b.Waits(); n != 1 || d < 20*time.Millisecond {
		t.Errorf("waits %d, %v", n, d)
	}
	if n, _ := a.Waits(); n != 0 {
		t.Errorf("waits of the first %d", n)
	}
}

func TestExcludesProcesses(t *testing.T) {
	path := lockPath(t)
	file := filepath.Join(t.TempDir(), "n")
	if err := os.WriteFile(file, []byte("0"), 0o666); err != nil {
		t.Fatal(err)
	}
	var ps []*process
	for range 3 {
		ps = append(ps, start(t, "count", path, file, "300"))
	}
	l := newLock(t, path, nil)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := count(l, file, 150); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range ps {
		p.finish(t)
	}
	if b, _ := os.ReadFile(file); string(b) != "1200" {
		t.Errorf("counted %s of 1200", b)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	l := newLock(t, lockPath(t), nil)
	release := acquire(t, l)
	var order []int
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			release, err := l.Acquire(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, i)
			release()
		})
		eventually(t, "in the queue", func() bool { return l.queued() == i+1 })
	}
	release()
	wg.Wait()
	for i, got := range order {
		if i != got {
			t.Fatalf("order %v", order)
		}
	}
}

// A process that takes the lock again and again must let others in.
func TestBusyHolderLetsOthersIn(t *testing.T) {
	path := lockPath(t)
	a, b := newLock(t, path, nil), newLock(t, path, nil)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				release, err := a.Acquire(ctx)
				if err != nil {
					return
				}
				release()
			}
		})
	}
	for range 20 {
		acquire(t, b)()
	}
	stop()
	wg.Wait()
}

func TestCancel(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		l := newLock(t, lockPath(t), nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Acquire(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("in the queue", func(t *testing.T) {
		l := newLock(t, lockPath(t), nil)
		release := acquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		p, q := acquireLater(ctx, l), (*pending)(nil)
		eventually(t, "in the queue", func() bool { return l.queued() == 1 })
		q = acquireLater(t.Context(), l)
		eventually(t, "in the queue", func() bool { return l.queued() == 2 })
		cancel()
		p.mustWake(t)
		if !errors.Is(p.err, context.Canceled) {
			t.Errorf("error %v", p.err)
		}
		q.mustBlock(t)
		release()
		q.mustWake(t)
		q.release()
	})
	t.Run("held by a process", func(t *testing.T) {
		path := lockPath(t)
		l := newLock(t, path, nil)
		c := start(t, "hold", path)
		before := descriptors(t)
		ctx, cancel := context.WithCancel(t.Context())
		p := acquireLater(ctx, l)
		p.mustBlock(t)
		cancel()
		p.mustWake(t)
		if !errors.Is(p.err, context.Canceled) {
			t.Errorf("error %v", p.err)
		}
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors, before %d", n, before)
		}
		c.finish(t)
		acquire(t, l)()
	})
	t.Run("the turn and the end in one moment", func(t *testing.T) {
		l := newLock(t, lockPath(t), nil)
		for range 300 {
			release := acquire(t, l)
			ctx, cancel := context.WithCancel(t.Context())
			p := acquireLater(ctx, l)
			eventually(t, "in the queue", func() bool { return l.queued() == 1 })
			go cancel()
			release()
			p.mustWake(t)
			if p.err == nil {
				p.release()
			}
			acquire(t, l)()
		}
	})
}

func TestTimeoutNamesHolder(t *testing.T) {
	check := func(t *testing.T, err error, path string, pid int, command string) {
		t.Helper()
		var e *TimeoutError
		if !errors.Is(err, ErrLocked) || !errors.As(err, &e) {
			t.Fatalf("error %v", err)
		}
		if e.Path != path || e.PID != pid || e.Command != command || e.Waited < 30*time.Millisecond {
			t.Errorf("detail %+v", e)
		}
		if s := err.Error(); !strings.Contains(s, strconv.Itoa(pid)) || !strings.Contains(s, command) {
			t.Errorf("text %q", s)
		}
	}
	t.Run("a process", func(t *testing.T) {
		path := lockPath(t)
		l := newLock(t, path, &Options{Timeout: 30 * time.Millisecond})
		c := start(t, "hold", path)
		before := descriptors(t)
		_, err := l.Acquire(t.Context())
		check(t, err, path, c.Process.Pid, "child hold")
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors, before %d", n, before)
		}
		c.finish(t)
		acquire(t, l)()
	})
	t.Run("a goroutine", func(t *testing.T) {
		path := lockPath(t)
		l := newLock(t, path, &Options{Timeout: 30 * time.Millisecond, Command: "me"})
		release := acquire(t, l)
		_, err := l.Acquire(t.Context())
		check(t, err, path, os.Getpid(), "me")
		release()
		acquire(t, l)()
	})
}

func TestKilledHolderFreesAtOnce(t *testing.T) {
	path := lockPath(t)
	l := newLock(t, path, nil)
	c := start(t, "hold", path)
	p := acquireLater(t.Context(), l)
	p.mustBlock(t)
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.mustWake(t)
	if p.err != nil {
		t.Fatal(p.err)
	}
	p.release()
}

func TestHolder(t *testing.T) {
	path := lockPath(t)
	if _, _, _, err := Holder(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	check := func(what string, pid int, command string, held bool) {
		t.Helper()
		p, c, h, err := Holder(path)
		if err != nil || p != pid || c != command || h != held {
			t.Errorf("%s: %d %q %v, %v", what, p, c, h, err)
		}
	}
	long := newLock(t, path, &Options{Command: strings.Repeat("long\n", 30)})
	check("never held", 0, "", false)
	release := acquire(t, long)
	if b, _ := os.ReadFile(path); len(b) != lineSize || bytes.IndexByte(b, '\n') != lineSize-1 {
		t.Errorf("content %q", b)
	}
	release()
	release()
	short := newLock(t, path, &Options{Command: "x"})
	release = acquire(t, short)
	check("held", os.Getpid(), "x", true)
	release()
	check("free", os.Getpid(), "x", false)
}

func TestNew(t *testing.T) {
	if _, err := New(filepath.Join(t.TempDir(), "no", "lock"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	path := lockPath(t)
	newLock(t, path, nil)
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	if want := os.FileMode(0o666 &^ mask); fi.Mode() != want {
		t.Errorf("mode %v, want %v", fi.Mode(), want)
	}
}

func TestClose(t *testing.T) {
	path := lockPath(t)
	before := descriptors(t)
	l := newLock(t, path, nil)
	release := acquire(t, l)
	p := acquireLater(t.Context(), l)
	eventually(t, "in the queue", func() bool { return l.queued() == 1 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p.mustWake(t)
	if !errors.Is(p.err, ErrClosed) {
		t.Errorf("waiting: %v", p.err)
	}
	if _, _, held, _ := Holder(path); !held {
		t.Error("Close gave up a held lock")
	}
	release()
	if _, _, held, _ := Holder(path); held {
		t.Error("held after release")
	}
	if _, err := l.Acquire(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("acquire: %v", err)
	}
	if _, _, err := l.TryRange(1); !errors.Is(err, ErrClosed) {
		t.Errorf("range: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, before %d", n, before)
	}
}

func TestCloseWhileAnotherProcessHolds(t *testing.T) {
	path := lockPath(t)
	c := start(t, "hold", path)
	before := descriptors(t)
	l := newLock(t, path, nil)
	p := acquireLater(t.Context(), l)
	p.mustBlock(t)
	l.Close()
	p.mustWake(t)
	if !errors.Is(p.err, ErrClosed) {
		t.Errorf("error %v", p.err)
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, before %d", n, before)
	}
	c.finish(t)
}

func TestTryRange(t *testing.T) {
	path := lockPath(t)
	before := descriptors(t)
	l := newLock(t, path, nil)
	try := func(off int64, want bool) func() {
		t.Helper()
		release, ok, err := l.TryRange(off)
		if ok != want || err != nil {
			t.Errorf("byte %d: %v, %v", off, ok, err)
		}
		return release
	}
	release := try(7, true)
	try(7, false)
	other := try(1<<62+3, true)
	acquire(t, l)() // has nothing to do with it
	c := start(t, "range", path, "9")
	try(9, false)
	c.Process.Kill()
	c.Wait()
	nine := try(9, true)
	release()
	release()
	try(7, true)()
	nine()
	other()
	for _, off := range []int64{-1, waitByte} {
		if _, _, err := l.TryRange(off); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("byte %d: %v", off, err)
		}
	}
	l.Close()
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, before %d", n, before)
	}
}

func TestTryFile(t *testing.T) {
	path := lockPath(t)
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	want := func(what string, ok bool, err error, want bool) {
		t.Helper()
		if ok != want || err != nil {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
	ok, err := TryShared(a)
	want("first shared", ok, err, true)
	ok, err = TryShared(b)
	want("second shared", ok, err, true)
	ok, err = TryExclusive(b)
	want("exclusive beside a shared", ok, err, false)
	if err := Unlock(a); err != nil {
		t.Fatal(err)
	}
	ok, err = TryExclusive(b)
	want("exclusive alone", ok, err, true)
	ok, err = TryShared(a)
	want("shared beside an exclusive", ok, err, false)
	b.Close()
	ok, err = TryShared(a)
	want("after close", ok, err, true)
	if _, err := TryShared(b); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed file: %v", err)
	}
}

func BenchmarkAcquireFree(b *testing.B) {
	l, err := New(filepath.Join(b.TempDir(), "lock"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		release, err := l.Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

// One busy competitor; the figure is a turn of the other, with what it waits.
func BenchmarkAcquireContended(b *testing.B) {
	path := filepath.Join(b.TempDir(), "lock")
	l, _ := New(path, nil)
	o, _ := New(path, nil)
	defer l.Close()
	defer o.Close()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	others := 0
	wg.Go(func() {
		for {
			release, err := o.Acquire(ctx)
			if err != nil {
				return
			}
			for begin := time.Now(); time.Since(begin) < 20*time.Microsecond; {
			}
			others++
			release()
		}
	})
	for b.Loop() {
		release, err := l.Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		for begin := time.Now(); time.Since(begin) < 20*time.Microsecond; {
		}
		release()
	}
	stop()
	wg.Wait()
	b.ReportMetric(float64(others)/float64(b.N), "others/op")
}
