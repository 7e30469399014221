package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holder is a process that has a lock, or waits for one.
type holder struct {
	cmd *exec.Cmd
	out *bufio.Reader
	in  io.WriteCloser
}

func init() { roles["hold"] = holdLock }

// holdLock opens a file, says "asking", locks it, says "locked", and keeps the lock until standard input ends.
func holdLock(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Println("asking")
	if err := lock(f, args[1], args[2], true); err != nil {
		return err
	}
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// lock locks all of a file. kind is flock or lockf, mode LOCK_EX or LOCK_SH.
func lock(f *os.File, kind, mode string, wait bool) error {
	how, typ, cmd := unix.LOCK_EX, unix.F_WRLCK, unix.F_SETLKW
	if mode == "LOCK_SH" {
		how, typ = unix.LOCK_SH, unix.F_RDLCK
	}
	if !wait {
		how, cmd = how|unix.LOCK_NB, unix.F_SETLK
	}
	for {
		var err error
		if kind == "flock" {
			err = unix.Flock(int(f.Fd()), how)
		} else {
			err = unix.FcntlFlock(f.Fd(), cmd, &unix.Flock_t{Type: int16(typ)})
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// hold starts a process that plays holdLock.
func (w *world) hold(path, kind, mode string) *holder {
	w.t.Helper()
	cmd, cancel := w.command(w.dir, os.Args[0], path, kind, mode)
	cmd.Env = append(cmd.Env, "STOREFS_TEST_ROLE=hold")
	h := &holder{cmd: cmd}
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	h.in, err = cmd.StdinPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	w.t.Cleanup(func() {
		h.in.Close()
		cmd.Process.Kill()
		cmd.Wait()
		cancel()
	})
	h.out = bufio.NewReader(out)
	h.expect(w.t, "asking")
	return h
}

func (h *holder) expect(t *testing.T, word string) {
	t.Helper()
	line, err := h.out.ReadString('\n')
	if strings.TrimSpace(line) != word {
		t.Fatalf("process that locks: %q, %v", line, err)
	}
}

func (h *holder) letGo() { h.in.Close() }

var lockKinds = []string{"flock", "lockf"}

// free says whether this process, which holds no other, could have a lock at once.
func (w *world) free(path, kind, mode string) bool {
	w.t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(w.t, err)
	defer f.Close()
	err = lock(f, kind, mode, false)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		w.t.Fatalf("%s: %v", kind, err)
	}
	return err == nil
}

// Shared locks go together, exclusive ones exclude, on one mount and across two; the key keeps its lock when its value changes.
func TestLocksAcrossMounts(t *testing.T) {
	w, m, n := two(t)
	for _, kind := range lockKinds {
		for _, to := range []string{m, n} {
			write(t, m+"/k", "v")
			write(t, m+"/other", "v")
			ex := w.hold(m+"/k", kind, "LOCK_EX")
			ex.expect(t, "locked")
			if w.free(to+"/k", kind, "LOCK_EX") || w.free(to+"/k", kind, "LOCK_SH") {
				t.Errorf("%s: granted beside an exclusive one", kind)
			}
			if !w.free(to+"/k", map[string]string{"flock": "lockf", "lockf": "flock"}[kind], "LOCK_EX") {
				t.Errorf("%s: excludes the other kind", kind)
			}
			w.sh(`echo next > k; echo x > x; mv -f x k; echo y > $N/k`)
			if w.free(to+"/k", kind, "LOCK_EX") {
				t.Errorf("%s: lost when the value was replaced", kind)
			}
			if !w.free(to+"/other", kind, "LOCK_EX") {
				t.Error("another key is locked")
			}
			ex.letGo()
			ex.cmd.Wait()
			until(t, "lock is free", func() bool { return w.free(to+"/k", kind, "LOCK_EX") })

			a, b := w.hold(m+"/k", kind, "LOCK_SH"), w.hold(to+"/k", kind, "LOCK_SH")
			a.expect(t, "locked")
			b.expect(t, "locked")
			if w.free(n+"/k", kind, "LOCK_EX") {
				t.Errorf("%s: exclusive beside shared", kind)
			}
			a.letGo()
			a.cmd.Wait()
			if w.free(n+"/k", kind, "LOCK_EX") {
				t.Errorf("%s: exclusive beside the other shared", kind)
			}
			b.letGo()
			b.cmd.Wait()
		}
	}
}

// Who waits is woken when the holder lets go, is killed, or its daemon is.
func TestWaiterIsWoken(t *testing.T) {
	for _, kind := range lockKinds {
		for name, release := range map[string]func(w *world, h *holder){
			"let go":        func(_ *world, h *holder) { h.letGo() },
			"killed":        func(_ *world, h *holder) { h.cmd.Process.Kill() },
			"daemon killed": func(w *world, _ *holder) { w.mounts[0].kill(unix.SIGKILL) },
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				w, m, n := two(t)
				write(t, m+"/k", "v")
				h := w.hold(m+"/k", kind, "LOCK_EX")
				h.expect(t, "locked")
				waiters := []*holder{w.hold(n+"/k", kind, "LOCK_EX")}
				if name != "daemon killed" {
					waiters = append(waiters, w.hold(m+"/k", kind, "LOCK_EX"))
				}
				// Both are blocked, or about to be; others are served meanwhile.
				for i := range 20 {
					write(t, n+"/other", itoa(i))
				}
				release(w, h)
				done := make(chan int)
				for i, waiter := range waiters {
					go func() {
						line, _ := waiter.out.ReadString('\n')
						if line != "locked\n" {
							t.Errorf("waiter %d: %q", i, line)
						}
						waiter.letGo()
						done <- i
					}()
				}
				for range waiters {
					<-done
				}
				for _, h := range append(waiters, h) {
					h.letGo()
					h.cmd.Wait()
				}
			})
		}
	}
}

// A blocked lock can be interrupted, and occupies nothing that others need.
func TestBlockedLockIsInterrupted(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "v")
	h := w.hold(m+"/k", "flock", "LOCK_EX")
	h.expect(t, "locked")
	var waiting []*holder
	for i := range 24 {
		waiting = append(waiting, w.hold([]string{m, n}[i%2]+"/k", lockKinds[0], "LOCK_EX"))
	}
	for i := range 30 {
		write(t, m+"/x", itoa(i))
		want(t, "read", read(t, n+"/x"), itoa(i))
	}
	for i, p := range waiting {
		must(t, p.cmd.Process.Signal([]os.Signal{unix.SIGTERM, unix.SIGKILL}[i%2]))
	}
	for _, p := range waiting {
		p.cmd.Wait()
	}
	h.letGo()
	h.cmd.Wait()
	until(t, "lock is free", func() bool { return w.free(n+"/k", "flock", "LOCK_EX") })
}

// .storefs/locks names who holds what, in every mount.
func TestLocksNamesHolders(t *testing.T) {
	w, m, n := two(t)
	must(t, os.Mkdir(m+"/d", 0o755))
	write(t, m+"/d/k", "v")
	h := w.hold(m+"/d/k", "flock", "LOCK_EX")
	h.expect(t, "locked")
	for _, dir := range []string{m, n} {
		text := read(t, dir+"/.storefs/locks")
		f := strings.Split(strings.TrimSpace(text), "\t")
		if len(f) != 5 || f[0] != `"d/k"` || f[2] != "exclusive" || f[3] != itoa(h.cmd.Process.Pid) || !strings.Contains(f[4], "integration") {
			t.Errorf("%s: %q", dir, text)
		}
	}
	h.letGo()
	h.cmd.Wait()
	until(t, "locks is empty", func() bool { return read(t, n+"/.storefs/locks") == "" })
}

// A wait for a lock ends after locktimeout, and .storefs/errors names the holder (P3).
func TestLockWaitIsBounded(t *testing.T) {
	w, m := one(t, "locktimeout=300ms")
	write(t, m+"/k", "v")
	h := w.hold(m+"/k", "flock", "LOCK_EX")
	h.expect(t, "locked")
	r := w.try(`flock k true; echo $?`)
	if strings.TrimSpace(r.out) == "0" {
		t.Errorf("granted: %q %q", r.out, r.err)
	}
	if errs := read(t, m+"/.storefs/errors"); !strings.Contains(errs, itoa(h.cmd.Process.Pid)) {
		t.Errorf("errors does not name the holder %d: %q", h.cmd.Process.Pid, errs)
	}
	h.letGo()
	h.cmd.Wait()
}

// The commit lock too: a stopped holder fails the write with an error that names it, and the old value stays.
func TestCommitLockWaitIsBounded(t *testing.T) {
	w, m := one(t, "locktimeout=300ms")
	write(t, m+"/k", "old")
	f, err := os.OpenFile(w.store+"/lock", os.O_RDWR, 0)
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	if err := os.WriteFile(m+"/k", []byte("new"), 0o644); err == nil {
		t.Error("written without the lock")
	}
	want(t, "value", read(t, m+"/k"), "old")
	if errs := read(t, m+"/.storefs/errors"); !strings.Contains(errs, `"k"`) {
		t.Errorf("errors: %q", errs)
	}
	must(t, f.Close())
	write(t, m+"/k", "new")
}

// The first script that anybody writes loses nothing, run by 8 processes on 2 mounts. The same on a plain folder runs beside it.
func TestFlockedCounter(t *testing.T) {
	rounds, times := 2, 5
	if long {
		rounds, times = 20, 25
	}
	w, m, _ := two(t)
	w.env = append(w.env, "TIMES="+itoa(times))
	plain := w.dir + "/plain"
	must(t, os.Mkdir(plain, 0o755))
	write(t, plain+"/counter", "0\n")
	write(t, m+"/counter", "0\n")
	count := func(dirs string) time.Duration {
		begin := time.Now()
		w.sh(`for d in ` + dirs + `; do ( cd $d || exit
		for i in $(seq $TIMES); do flock counter sh -c 'n=$(cat counter); echo $((n+1)) > counter' || echo bad; done ) & done; wait`)
		return time.Since(begin)
	}
	var took, beside []time.Duration
	for i := range rounds {
		took = append(took, count("$M $N $M $N $M $N $M $N"))
		if i%4 == 0 {
			beside = append(beside, count(strings.Repeat(" "+plain, 8)))
		}
	}
	w.wantKey("counter", itoa(8*rounds*times)+"\n")
	slices.Sort(took)
	slices.Sort(beside)
	a, b := took[len(took)/2], beside[len(beside)/2]
	t.Logf("%d increments take %v, %.2f of the time on a plain folder", 8*times, a, a.Seconds()/b.Seconds())
}

// Counters under locks that are held through a descriptor, and record locks, lose nothing, on two mounts.
func TestLockedCountersLoseNothing(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	w, m, _ := two(t)
	w.env = append(w.env, "ROUNDS="+itoa(rounds))
	write(t, m+"/python", "0")
	write(t, m+"/descriptor", "0")
	w.sh(`for p in 1 2 3 4; do ( d=$M; [ $((p % 2)) = 0 ] && d=$N; cd $d
	for i in $(seq $((ROUNDS / 2))); do ( flock 9; read n < descriptor; echo $((n+1)) > descriptor ) 9< descriptor; done ) & done; wait`)
	w.wantKey("descriptor", itoa(4*(rounds/2))+"\n")
	w.python(`
import fcntl
R = int(os.environ["ROUNDS"])
for p in range(4):
    if os.fork() == 0:
        try:
            for i in range(R):
                with open((M, N)[p % 2]+"/python", "r+") as f:
                    fcntl.lockf(f, fcntl.LOCK_EX)
                    n = int(f.read()); f.seek(0); f.write(str(n + 1)); f.truncate()
        except BaseException as e: print(repr(e), file=sys.stderr); os._exit(1)
        os._exit(0)
assert all(os.wait()[1] == 0 for p in range(4))
assert open(M+"/python").read() == str(4 * R), open(M+"/python").read()
`)
}

// Record locks of ranges exclude each other only where they meet, across mounts; F_GETLK names the holder.
func TestRecordRanges(t *testing.T) {
	w, m, _ := two(t)
	write(t, m+"/k", strings.Repeat("x", 100))
	w.python(`
import fcntl, struct
a = open(M+"/k", "r+"); fcntl.lockf(a, fcntl.LOCK_EX, 10, 20)
r, w = os.pipe()
if os.fork() == 0:
    try:
        b = open(N+"/k", "r+")
        fcntl.lockf(b, fcntl.LOCK_EX|fcntl.LOCK_NB, 20, 0); fcntl.lockf(b, fcntl.LOCK_EX|fcntl.LOCK_NB, 0, 30)
        for n, at in (1, 29), (5, 18), (0, 0):
            try: fcntl.lockf(b, fcntl.LOCK_EX|fcntl.LOCK_NB, n, at)
            except OSError as e: assert e.errno in (errno.EAGAIN, errno.EACCES), e
            else: raise AssertionError("granted %d at %d" % (n, at))
        l = fcntl.fcntl(b, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 25, 1, 0))
        typ, _, start, length, pid = struct.unpack("hhqqi4x", l)
        assert (typ, start, length, pid) == (fcntl.F_WRLCK, 20, 10, os.getppid()), (typ, start, length, pid)
    except BaseException as e: print(repr(e), file=sys.stderr); os._exit(1)
    os._exit(0)
assert os.wait()[1] == 0
`)
}

// A lock that is not there is an error of its own: EAGAIN at once, EBADF on a closed file.
func TestNonBlockingLockSaysEAGAIN(t *testing.T) {
	_, m, n := two(t)
	write(t, m+"/k", "v")
	a, b := open(t, m+"/k"), open(t, n+"/k")
	must(t, unix.Flock(int(a.Fd()), unix.LOCK_EX))
	if err := unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("LOCK_NB: %v", err)
	}
	must(t, unix.Flock(int(a.Fd()), unix.LOCK_SH)) // downgraded
	must(t, unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB))
	if err := unix.Flock(int(a.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("upgrade beside a shared one: %v", err)
	}
	must(t, unix.Flock(int(b.Fd()), unix.LOCK_UN))
	must(t, unix.Flock(int(a.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	d, err := unix.Dup(int(a.Fd()))
	must(t, err)
	must(t, a.Close()) // the duplicate keeps it
	if err := unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("beside a duplicate: %v", err)
	}
	must(t, unix.Close(d))
	must(t, unix.Flock(int(b.Fd()), unix.LOCK_EX)) // blocks until the release has come
}
