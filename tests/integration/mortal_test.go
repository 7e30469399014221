package integration

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// Programs and daemons are killed at random moments and when their first change is seen, again and again. After each death the folder of who died is as its last
// acknowledged deed left it, or as the one after that would have; the next commit and the next flock get their locks; and after each
// round the store is sound, nothing is left in tmp/, and no process or mount goes on.
func TestNothingAcknowledgedDies(t *testing.T) {
	kills := 250
	if testing.Short() {
		kills = 60
	}
	if long {
		kills = 10_000
	}
	if n, err := strconv.Atoi(os.Getenv("STOREFS_KILLS")); err == nil {
		kills = n
	}
	m := newMortality(t)
	begun := time.Now()
	for n := uint64(0); m.deaths() < kills && !t.Failed(); n++ {
		m.round(n, min(500, kills-m.deaths()))
		took := time.Since(begun)
		t.Logf("%d kills in %v, %.0f a minute", m.deaths(), took.Round(time.Second), float64(m.deaths())/took.Minutes())
	}
	t.Logf("killed: %v", m.killed)
}

// mortality is a store in use by mortals, who share two mounts. The daemon of the first is killed now and then.
type mortality struct {
	w       *world
	dirs    [2]string
	epoch   atomic.Int64     // of the first mount: odd while it is dead
	store   *filestore.Store // the test's own view
	mortals []*mortal

	mu     sync.Mutex
	killed map[string]int           // by the name of what was killed
	span   map[string]time.Duration // within which it is killed, so that some come to their end before
}

var mortalOptions = []string{"sync=never", "locktimeout=10s"}

func newMortality(t *testing.T) *mortality {
	w := newWorld(t)
	m := &mortality{w: w, killed: map[string]int{}, span: map[string]time.Duration{}}
	w.env = append(w.env, "TMPDIR="+w.dir)
	m.dirs = [2]string{w.mount(mortalOptions...), w.mount(mortalOptions...)}
	must(t, os.Mkdir(m.dirs[0]+"/locked", 0o755))
	for i := range 4 {
		p := place{store: w.store, folder: fmt.Sprintf("p%d", i), spare: fmt.Sprintf("%s/spare%d", w.dir, i)}
		must(t, os.MkdirAll(m.dirs[0]+"/"+p.folder+"/e", 0o755))
		must(t, os.Mkdir(p.spare, 0o755))
		write(t, m.dirs[0]+"/locked/"+p.folder, "")
		m.mortals = append(m.mortals, &mortal{m: m, place: p, state: state{files{}, map[string]files{}}})
	}
	return m
}

// round kills n times, and then looks at everything.
func (m *mortality) round(seed uint64, n int) {
	st, err := filestore.Open(m.w.store, &filestore.Options{LockTimeout: 10 * time.Second, Sync: filestore.Never})
	must(m.w.t, err)
	m.store = st
	enough := m.deaths() + n
	var wg sync.WaitGroup
	for i, k := range m.mortals {
		wg.Go(func() {
			for r := seeded(1000*seed + uint64(i)); m.deaths() < enough && !m.w.t.Failed(); {
				k.live(r)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		wg.Wait()
		close(over)
	}()
	m.killDaemons(seeded(seed), over)
	must(m.w.t, st.Close())
	m.lookAround()
}

// killDaemons kills the daemon of the first mount and mounts again, until it is over.
func (m *mortality) killDaemons(r *rand.Rand, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(r.IntN(400)) * time.Millisecond):
		}
		m.epoch.Add(1)
		m.w.mounts[0].kill(unix.SIGKILL)
		m.died("daemon of a mount")
		m.w.mountAgain(0, mortalOptions...)
		m.epoch.Add(1)
	}
}

// lookAround says whether everything is there, and nothing else is left.
func (m *mortality) lookAround() {
	w := m.w
	for _, k := range m.mortals {
		for _, dir := range m.dirs {
			got, err := filesIn(os.DirFS(dir + "/" + k.place.folder))
			if s := got.differs(k.state.files); err != nil || s != "" {
				w.t.Errorf("%s/%s: %s %v", dir, k.place.folder, s, err)
			}
		}
		until(w.t, "mount at "+k.place.spare, func() bool {
			w.run(binary, "umount", k.place.spare)
			return w.run(binary, "mount", k.place.store, k.place.spare).status == 0
		})
		write(w.t, k.place.spare+"/alive", "yes")
		until(w.t, "umount of "+k.place.spare, func() bool { return w.run(binary, "umount", k.place.spare).status == 0 })
	}
	for _, dir := range m.dirs {
		w.must("umount", w.run(binary, "umount", dir))
	}
	until(w.t, "the processes of the dead end", func() bool { return w.processes() == 0 })
	st, err := filestore.Open(w.store, nil)
	must(w.t, err)
	must(w.t, st.Close())
	if left, _ := os.ReadDir(w.store + "/tmp"); len(left) > 0 {
		w.t.Errorf("left in tmp/: %v", left)
	}
	if r := w.run(binary, "check", w.store); r.status != 0 {
		w.t.Errorf("check: status %d: %s%s", r.status, r.out, r.err)
	}
	for i := range m.dirs {
		w.mountAgain(i, mortalOptions...)
	}
}

// processes counts the processes of storefs that have to do with the world's store.
func (w *world) processes() (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if s := string(bytes.ReplaceAll(b, []byte{0}, []byte(" "))); strings.HasPrefix(s, binary+" ") && strings.Contains(s, w.store) {
			n++
		}
	}
	return n
}

func (m *mortality) deaths() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.killed {
		n += k
	}
	return n
}

// died counts a death.
func (m *mortality) died(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killed[name]++
}

// learn makes the lives of a program so long that some come to their end before: this one did, after the time that it took, or was too short.
func (m *mortality) learn(name string, ended bool, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ended {
		m.span[name] = (9*m.span[name] + took) / 10
	} else {
		m.span[name] = min(m.span[name]*31/30, longestLife)
	}
}

// longestLife is for how long anything may live.
const longestLife = 300 * time.Millisecond

// life is for how long something may live.
func (m *mortality) life(name string, r *rand.Rand) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.span[name] == 0 {
		m.span[name] = 30 * time.Millisecond
	}
	return time.Duration(r.Int64N(int64(m.span[name])))
}

// mortal is who does deeds in a folder of its own, one after another, and is killed in many of them. What the test knows of the folder is
// the outside record of what was acknowledged.
type mortal struct {
	m     *mortality
	place place
	state state
}

// attempt is a process that is to do deeds.
type attempt struct {
	name    string
	cmd     *exec.Cmd
	deeds   []deed
	mayFail bool

	out, errs bytes.Buffer
}

// live attempts a deed, and looks at what came of it.
func (k *mortal) live(r *rand.Rand) {
	t := k.m.w.t
	mount := r.IntN(len(k.m.dirs))
	k.place.mount = k.m.dirs[mount]
	epoch := k.m.epoch.Load()
	a := k.attempt(r)
	acked, err := k.run(a, r)
	if err != nil && !a.mayFail && (mount != 0 || epoch%2 == 0 && epoch == k.m.epoch.Load()) {
		t.Errorf("%s: %v: %s", a.name, err, &a.errs)
	}
	if err := k.settle(a.deeds, acked); err != nil {
		t.Errorf("%s, of %d deeds %d acknowledged: %v", a.name, len(a.deeds), acked, err)
	}
	if err := k.takeLocks(); err != nil {
		t.Errorf("after %s: %v", a.name, err)
	}
}

// attempt chooses what to do.
func (k *mortal) attempt(r *rand.Rand) *attempt {
	a := &attempt{}
	switch n := r.IntN(10); {
	case n == 0:
		p := holders[r.IntN(len(holders))]
		argv, _ := p.command(k.place, deed{})
		a.name, a.mayFail = p.name, true
		a.cmd = exec.Command(argv[0], argv[1:]...)
	case n < 4:
		seed := r.Uint64()
		a.name, a.deeds = "deeds", k.state.chain(seed)
		a.cmd = exec.Command(os.Args[0], k.place.path(""), strconv.FormatUint(seed, 10))
		a.cmd.Env = []string{"STOREFS_TEST_ROLE=deeds"}
	default:
		p := programs[r.IntN(len(programs))]
		d := k.state.next(r, p.verbs...)
		if d.verb == nothing && p.verbs[0] != nothing {
			return k.attempt(r)
		}
		argv, stdin := p.command(k.place, d)
		a.name, a.deeds = p.name, []deed{d}
		a.cmd = exec.Command(argv[0], argv[1:]...)
		a.cmd.Stdin = strings.NewReader(stdin)
	}
	return a
}

// run runs an attempt and kills it with all its process group: after a while, or when something changes in the folder, which is in the middle of
// what should be one commit. It returns how many of its deeds were acknowledged. A death is no error.
func (k *mortal) run(a *attempt, r *rand.Rand) (acked int, err error) {
	m := k.m
	life := m.life(a.name, r)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var seen <-chan struct{}
	if r.IntN(2) == 0 {
		if seen, err = k.firstChange(ctx); err != nil {
			return 0, err
		}
		life = longestLife
	}
	a.cmd.Dir, a.cmd.Env = m.w.dir, append(a.cmd.Env, m.w.env...)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	a.cmd.Stdout, a.cmd.Stderr = &a.out, &a.errs
	begun := time.Now()
	if err := a.cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.cmd.Wait() }()
	select {
	case err = <-ended:
	case <-seen:
		syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
		err = <-ended
	case <-time.After(life):
		syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
		err = <-ended
	}
	killed := a.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if life < longestLife {
		m.learn(a.name, !killed, time.Since(begun))
	}
	if killed {
		m.died(a.name)
		err = nil
	}
	if a.name == "deeds" {
		return a.out.Len(), err
	}
	if err == nil && !killed {
		acked = 1
	}
	return acked, err
}

// firstChange returns what is closed when something in the folder changes from now on.
func (k *mortal) firstChange(ctx context.Context) (<-chan struct{}, error) {
	now, err := k.m.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer now.Close()
	mine := map[backend.Ino]bool{}
	for _, dir := range []string{k.place.folder, k.place.folder + "/e"} {
		e, err := backend.Walk(now, dir)
		if err != nil {
			return nil, err
		}
		mine[e.Ino] = true
	}
	seen, from := make(chan struct{}), now.Generation()
	go func() {
		for c, err := range k.m.store.Watch(ctx, from) {
			if err != nil {
				return
			}
			if mine[c.Ref.Dir] {
				close(seen)
				return
			}
		}
	}()
	return seen, nil
}

// settle compares the folder with what the record says: the deeds that were acknowledged are done, and no other but maybe the next.
func (k *mortal) settle(deeds []deed, acked int) error {
	got, err := k.look()
	if err != nil {
		return err
	}
	is := k.state
	for _, d := range deeds[:min(acked, len(deeds))] {
		is = is.after(d)
	}
	diff := got.differs(is)
	if diff != "" && acked < len(deeds) {
		next := is.after(deeds[acked])
		if got.differs(next) == "" {
			is, diff = next, ""
		}
	}
	if diff != "" {
		return fmt.Errorf("it is neither before nor after the next deed: %s", diff)
	}
	k.state = is
	return nil
}

// look reads the folder and its snapshots.
func (k *mortal) look() (state, error) {
	ctx := context.Background()
	now, err := k.m.store.Snapshot(ctx)
	if err != nil {
		return state{}, err
	}
	defer now.Close()
	s := state{kept: map[string]files{}}
	if s.files, err = filesOf(now, k.place.folder); err != nil {
		return s, err
	}
	all, err := k.m.store.Snapshots(ctx)
	for _, n := range all {
		name, mine := strings.CutPrefix(n.Name, k.place.folder+"-")
		if !mine {
			continue
		}
		snap, err := k.m.store.OpenSnapshot(ctx, n.Name)
		if err != nil {
			return s, fmt.Errorf("snapshot %s: %w", n.Name, err)
		}
		s.kept[name], err = filesOf(snap, k.place.folder)
		snap.Close()
		if err != nil {
			return s, fmt.Errorf("snapshot %s: %w", n.Name, err)
		}
	}
	return s, err
}

// takeLocks takes the commit lock and the lock of the mortal's key. Each wait is bounded by the time limits of the store and the mount.
func (k *mortal) takeLocks() error {
	st, err := k.m.store.NewStage()
	if err != nil {
		return err
	}
	defer st.Close()
	var b backend.Batch
	b.Put(backend.Ref{Dir: backend.RootIno, Name: "after " + k.place.folder}, st, &backend.Attr{Mode: 0o644}, backend.AttrChange{})
	if _, err := k.m.store.Commit(context.Background(), &b); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	f, err := os.Open(k.m.dirs[1] + "/locked/" + k.place.folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	return nil
}
