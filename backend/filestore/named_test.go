package filestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storefs/storefs/backend"
)

func keep(t testing.TB, s *Store, name string) backend.NamedSnapshot {
	t.Helper()
	n, err := s.CreateSnapshot(bg, name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func openNamed(t testing.TB, s *Store, name string) backend.Snapshot {
	t.Helper()
	n, err := s.OpenSnapshot(bg, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func namesOf(t testing.TB, s *Store) []string {
	t.Helper()
	list, err := s.Snapshots(bg)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list {
		names = append(names, n.Name)
	}
	return names
}

// settle makes the store durable and removes what can go.
func settle(t testing.TB, s *Store) {
	t.Helper()
	if err := errors.Join(s.makeDurable(bg), s.tidy(bg)); err != nil {
		t.Fatal(err)
	}
}

// onlyNeeded wants no table or volume that HEAD does not name.
func onlyNeeded(t testing.TB, s *Store) {
	t.Helper()
	p, err := s.pinNewest()
	if err != nil {
		t.Fatal(err)
	}
	defer s.unpin(p)
	files, err := s.files()
	if want := len(p.h.tabs) + len(p.h.vols) + int(p.h.solos); err != nil || len(files) != want {
		t.Errorf("%d tables and volumes, want %d: %v", len(files), want, err)
	}
}

// TestSnapshotter checks the contract of backend.Snapshotter.
func TestSnapshotter(t *testing.T) {
	open := func(t *testing.T) *Store {
		return openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Never})
	}
	t.Run("keeps the newest generation", func(t *testing.T) {
		s := open(t)
		zero := keep(t, s, "zero")
		put(t, s, "k", []byte("1"))
		before := time.Now().UnixNano()
		one := keep(t, s, "one")
		put(t, s, "k", []byte("2"))
		if zero.Generation != 0 || one.Generation != 1 || one.Time < before || one.Time > time.Now().UnixNano() || one.Name != "one" {
			t.Errorf("%+v, %+v", zero, one)
		}
		n := openNamed(t, s, "one")
		if b, err := read(n, ref("k")); n.Generation() != 1 || err != nil || string(b) != "1" {
			t.Error(n.Generation(), string(b), err)
		}
		if _, err := openNamed(t, s, "zero").Lookup(ref("k")); !errors.Is(err, backend.ErrNotFound) {
			t.Error(err)
		}
		wantValue(t, s, "k", []byte("2"))
		if list, err := s.Snapshots(bg); err != nil || !slices.Equal(list, []backend.NamedSnapshot{one, zero}) {
			t.Errorf("%+v, %v", list, err)
		}
	})
	t.Run("a name is taken once", func(t *testing.T) {
		s := open(t)
		keep(t, s, "n")
		put(t, s, "k", nil)
		if _, err := s.CreateSnapshot(bg, "n"); !errors.Is(err, backend.ErrExists) {
			t.Error(err)
		}
		if g := openNamed(t, s, "n").Generation(); g != 0 {
			t.Error("generation", g)
		}
		if err := s.RemoveSnapshot(bg, "n"); err != nil {
			t.Error(err)
		}
		if n := keep(t, s, "n"); n.Generation != 1 {
			t.Errorf("%+v", n)
		}
	})
	t.Run("names", func(t *testing.T) {
		s := open(t)
		good := []string{" ", "...", "HEAD.0", "\xff\n", strings.Repeat("x", 255), "a"}
		for _, name := range good {
			keep(t, s, name)
		}
		slices.Sort(good)
		if got := namesOf(t, s); !slices.Equal(got, good) {
			t.Errorf("%q, want %q", got, good)
		}
		for _, name := range []string{"", ".", "..", "a/b", "a\x00", strings.Repeat("x", 256)} {
			_, cerr := s.CreateSnapshot(bg, name)
			_, oerr := s.OpenSnapshot(bg, name)
			for _, err := range []error{cerr, oerr, s.RemoveSnapshot(bg, name)} {
				if !errors.Is(err, backend.ErrName) {
					t.Errorf("%q: %v", name, err)
				}
			}
		}
	})
	t.Run("what is not there", func(t *testing.T) {
		s := open(t)
		if list, err := s.Snapshots(bg); len(list) != 0 || err != nil {
			t.Error(list, err)
		}
		for _, made := range []bool{false, true} {
			if made {
				keep(t, s, "other")
			}
			if _, err := s.OpenSnapshot(bg, "n"); !errors.Is(err, backend.ErrNotFound) {
				t.Error(err)
			}
			if err := s.RemoveSnapshot(bg, "n"); !errors.Is(err, backend.ErrNotFound) {
				t.Error(err)
			}
		}
	})
	t.Run("a context that has ended", func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		put(t, s, "k", nil)
		if _, err := s.CreateSnapshot(ctx, "n"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if names := namesOf(t, s); len(names) != 0 {
			t.Error(names)
		}
		keep(t, s, "n")
		if err := s.RemoveSnapshot(ctx, "n"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := s.OpenSnapshot(ctx, "n"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := s.Snapshots(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		openNamed(t, s, "n")
	})
	t.Run("closed and read-only stores", func(t *testing.T) {
		s := open(t)
		put(t, s, "k", pattern(5000, 1))
		keep(t, s, "n")
		ro, err := Open(s.dir, &Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ro.CreateSnapshot(bg, "m")
		for _, err := range []error{err, ro.RemoveSnapshot(bg, "n")} {
			if !errors.Is(err, backend.ErrReadOnly) {
				t.Error(err)
			}
		}
		if got := namesOf(t, ro); !slices.Equal(got, []string{"n"}) {
			t.Error(got)
		}
		n := openNamed(t, ro, "n")
		if err := ro.Close(); err != nil {
			t.Error(err)
		}
		if b, err := read(n, ref("k")); err != nil || !bytes.Equal(b, pattern(5000, 1)) {
			t.Error("after Close:", len(b), err)
		}
		n.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_, cerr := s.CreateSnapshot(bg, "m")
		_, oerr := s.OpenSnapshot(bg, "n")
		_, lerr := s.Snapshots(bg)
		for _, err := range []error{cerr, oerr, lerr, s.RemoveSnapshot(bg, "n")} {
			if !errors.Is(err, backend.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// manyKinds commits values of every way of storing, and returns them.
func manyKinds(t *testing.T, s *Store, seed uint64) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for i := range 150 {
		all[fmt.Sprint("k", i)] = pattern(i*20, seed+uint64(i))
	}
	all["solo"], all["solo2"], all["log"] = pattern(soloMin+9, seed), pattern(2*soloMin, seed+1), nil
	for name, b := range all {
		put(t, s, name, b)
	}
	for _, n := range []int{300 << 10, 5000, 10} {
		p := pattern(n, seed)
		appendTo(t, s, "log", p)
		all["log"] = append(all["log"], p...)
	}
	return all
}

func wantAll(t testing.TB, n backend.Snapshot, want map[string][]byte) {
	t.Helper()
	seen := 0
	for e, err := range n.List(backend.RootIno, "") {
		if err != nil {
			t.Fatal(err)
		}
		if b, err := read(n, e.Ref); err != nil || !bytes.Equal(b, want[e.Name]) {
			t.Fatalf("%s: %d bytes, want %d: %v", e.Name, len(b), len(want[e.Name]), err)
		}
		seen++
	}
	if seen != len(want) {
		t.Fatalf("%d keys, want %d", seen, len(want))
	}
}

// removeAll removes every key and every file that no longer matters.
func removeAll(t *testing.T, s *Store) {
	t.Helper()
	n := snap(t, s)
	var b backend.Batch
	for e := range n.List(backend.RootIno, "") {
		b.Remove(e.Ref)
	}
	n.Close()
	commit(t, s, &b)
	put(t, s, "pad", nil)
	for i := range 60 { // out of the newest tables
		put(t, s, fmt.Sprint("pad", i%3), pattern(1000, uint64(i)))
	}
	if err := s.Compact(bg); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
}

func TestNamedSnapshotOutlivesEverything(t *testing.T) {
	for _, mode := range []SyncMode{Interval, Always, Never} {
		t.Run(mode.String(), func(t *testing.T) {
			dir := filepath.Join(memoryDir(t), "s")
			s := openTest(t, dir, Options{Sync: mode})
			first := manyKinds(t, s, 1)
			keep(t, s, "first")
			again := manyKinds(t, s, 1000)
			keep(t, s, "second")
			removeAll(t, s)
			wantAll(t, openNamed(t, s, "first"), first)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openTest(t, dir, Options{Sync: mode})
			removeAll(t, s)
			if r := checkStore(t, dir); r.Snapshots != 2 {
				t.Errorf("%+v", r)
			}
			n := openNamed(t, s, "first")
			wantAll(t, n, first)
			wantAll(t, openNamed(t, s, "second"), again)
			if i, err := s.Info(); err != nil || i.Snapshots != 2 || i.Spares > 8 {
				t.Errorf("%+v, %v", i, err)
			}
			if err := s.RemoveSnapshot(bg, "first"); err != nil {
				t.Fatal(err)
			}
			removeAll(t, s)
			wantAll(t, n, first) // open, so still there
			wantAll(t, openNamed(t, s, "second"), again)
			n.Close()
			if err := s.RemoveSnapshot(bg, "second"); err != nil {
				t.Fatal(err)
			}
			snap(t, s).Close()
		})
	}
}

// TestRemovedSnapshotFreesFiles also when a reader, here or in another process, had it open at first.
func TestRemovedSnapshotFreesFiles(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s, other := openTest(t, dir, Options{Sync: Never}), openTest(t, dir, Options{Sync: Never})
	want := manyKinds(t, s, 1)
	keep(t, s, "n")
	keep(t, other, "m")
	if got := namesOf(t, s); !slices.Equal(got, []string{"m", "n"}) {
		t.Fatal(got)
	}
	removeAll(t, s)
	files, _ := s.files()
	n := openNamed(t, other, "n")
	for _, name := range []string{"n", "m"} {
		if err := s.RemoveSnapshot(bg, name); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s)
	if now, _ := s.files(); len(now) != len(files) {
		t.Errorf("%d files, were %d while the removed snapshot is being read", len(now), len(files))
	}
	wantAll(t, n, want)
	n.Close()
	snap(t, other).Close()
	settle(t, s)
	onlyNeeded(t, s)
	if names, _ := readNames(filepath.Join(dir, "tmp")); len(names) != 0 {
		t.Error("left:", names)
	}
}

func TestSnapshotOfADeadRemoverFreesFilesAtOpen(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := openTest(t, dir, Options{Sync: Never})
	manyKinds(t, s, 1)
	keep(t, s, "n")
	removeAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// As far as it comes that is killed right after it has taken the name away.
	if err := os.Rename(s.namedPath("n"), filepath.Join(dir, "tmp", removedName+"x")); err != nil {
		t.Fatal(err)
	}
	onlyNeeded(t, openTest(t, dir, Options{Sync: Never}))
}

func TestSnapshotCostsWhatChanged(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := openTest(t, dir, Options{Sync: Never})
	manyKinds(t, s, 1)
	before, err := s.Info()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		keep(t, s, fmt.Sprint(i))
	}
	after, err := s.Info()
	if err != nil || after.DiskBytes-before.DiskBytes > 10*(headBound+8<<10) {
		t.Errorf("%d bytes, were %d: %v", after.DiskBytes, before.DiskBytes, err)
	}
}

func TestDamagedSnapshot(t *testing.T) {
	for _, off := range []int64{3, 9, 20, namedFixed + 3, namedFixed + 300, -2} {
		t.Run(fmt.Sprint("byte ", off), func(t *testing.T) {
			dir := filepath.Join(memoryDir(t), "s")
			s := openTest(t, dir, Options{Sync: Never})
			want := manyKinds(t, s, 1)
			keep(t, s, "bad")
			keep(t, s, "good")
			flip(t, s.namedPath("bad"), off)
			_, err := s.OpenSnapshot(bg, "bad")
			if d := (*backend.CorruptError)(nil); !errors.As(err, &d) || d.Path != s.namedPath("bad") {
				t.Error(err)
			}
			if got := namesOf(t, s); !slices.Equal(got, []string{"bad", "good"}) {
				t.Error(got)
			}
			removeAll(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openTest(t, dir, Options{Sync: Never})
			wantAll(t, openNamed(t, s, "good"), want)
			var found []Finding
			r, err := Check(bg, dir, &CheckOptions{Report: func(f Finding) { found = append(found, f) }})
			if err != nil || len(found) != 1 || found[0].Path != "snapshots/bad" || r.Snapshots != 2 {
				t.Errorf("check: %+v %v %v", r, found, err)
			}
			flip(t, s.namedPath("bad"), off) // nothing that it names is gone
			wantAll(t, openNamed(t, s, "bad"), want)
			flip(t, s.namedPath("bad"), off)
			for _, name := range []string{"bad", "good"} {
				if err := s.RemoveSnapshot(bg, name); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestDamageThatOnlyASnapshotNames(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s, err := Open(dir, &Options{Create: true, Sync: Never})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "k", pattern(2*soloMin, 1))
	keep(t, s, "n")
	removeAll(t, s)
	flip(t, s.volumePath(1), 70000)
	var found []Finding
	_, err = Check(bg, dir, &CheckOptions{Report: func(f Finding) { found = append(found, f) }})
	if err != nil || len(found) != 1 || found[0].Snapshot != "n" || !slices.Equal(found[0].Keys, []Key{{Path: "k"}}) || found[0].Offset != blockSize {
		t.Error(found, err)
	}
}

// TestSnapshotsAfterPowerFailures cuts the power at random: a snapshot whose creation had returned is there, whole.
func TestSnapshotsAfterPowerFailures(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 8))
		root := memoryDir(t)
		dir := filepath.Join(root, "s")
		s, err := Open(dir, &Options{Create: true, Sync: []SyncMode{Never, Interval}[seed%2], Interval: time.Hour, bootID: bootA})
		if err != nil {
			t.Fatal(err)
		}
		want := manyKinds(t, s, seed)
		keep(t, s, "n")
		synced := contents(t, dir)
		manyKinds(t, s, seed+5000)
		if r.IntN(2) == 0 {
			if err := s.tidy(bg); err != nil {
				t.Fatal(err)
			}
		}
		s.life.Lock()
		crash := filepath.Join(root, "crash")
		cutPower(t, r, dir, crash, synced)
		s.life.Unlock()
		s.Close()
		after := openTest(t, crash, Options{bootID: bootB, Sync: Never})
		wantAll(t, openNamed(t, after, "n"), want)
		manyKinds(t, after, seed+9000)
		removeAll(t, after)
		wantAll(t, openNamed(t, after, "n"), want)
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
		if checkStore(t, crash); t.Failed() {
			t.Fatal("seed", seed)
		}
	}
}

// snapshotProcess makes and removes snapshots while it counts up, and says what snapshot is there for which count.
func snapshotProcess(dir string) {
	s, err := Open(dir, nil)
	for i := uint64(1); err == nil; i++ {
		var st backend.Stage
		if st, err = s.NewStage(); err != nil {
			break
		}
		st.WriteAt(binary.LittleEndian.AppendUint64(nil, i), 0)
		st.WriteAt(bytes.Repeat([]byte{byte(i)}, int(i%3)*1000), 8)
		var b backend.Batch
		b.Put(ref("count"), st, newFile, backend.AttrChange{})
		if _, err = s.Commit(bg, &b); err == nil {
			_, err = s.CreateSnapshot(bg, fmt.Sprint("n", i))
		}
		st.Close()
		fmt.Println(i)
		if err == nil && i > 3 {
			err = s.RemoveSnapshot(bg, fmt.Sprint("n", i-3))
		}
	}
	fmt.Println("error", err)
}

// TestKilledSnapshotMakers kills processes while they make and remove snapshots: what there is, is whole.
func TestKilledSnapshotMakers(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		dir := filepath.Join(memoryDir(t), "s")
		s := openTest(t, dir, Options{Sync: Never})
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "FILESTORE_TEST_SNAPSHOTS="+dir)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		for in := bufio.NewScanner(out); in.Scan(); {
			if _, err := fmt.Sscan(in.Text(), &last); err != nil {
				t.Error(in.Text())
			}
			if last == 8+5*round {
				c.Process.Kill()
			}
		}
		c.Wait()
		names := namesOf(t, s)
		for i := last; i > last-3; i-- {
			if name := fmt.Sprint("n", i); !slices.Contains(names, name) {
				t.Errorf("%s is not there after %d was said: %q", name, last, names)
			}
		}
		for _, name := range names {
			n := openNamed(t, s, name)
			b, err := read(n, ref("count"))
			if err != nil || fmt.Sprint("n", binary.LittleEndian.Uint64(b)) != name {
				t.Errorf("%s: %v, %v", name, b, err)
			}
			n.Close()
			if err := s.RemoveSnapshot(bg, name); err != nil {
				t.Error(err)
			}
		}
		again := openTest(t, dir, Options{Sync: Never})
		if names, _ := readNames(filepath.Join(dir, "tmp")); len(names) != 0 {
			t.Error("left:", names)
		}
		settle(t, again)
		onlyNeeded(t, again)
	}
}

func TestUnknownFilesAreLeftAlone(t *testing.T) {
	dir := made(t, Options{})
	unknown := []string{"data/notes", "data/00000000000000FF", "index/x", "notes", "HEAD.bak", "snapshots/folder", "own"}
	for _, f := range append([]string{"locks/0.flock"}, unknown...) {
		path := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		if f == "own" || f == "snapshots/folder" {
			err = os.Mkdir(path, 0o777)
		} else {
			err = os.WriteFile(path, nil, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := openTest(t, dir, Options{})
	keep(t, s, "n")
	removeAll(t, s)
	if err := s.RemoveSnapshot(bg, "n"); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	for _, f := range append([]string{"locks/0.flock"}, unknown...) {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
	r := checkStore(t, dir)
	slices.Sort(r.Unknown)
	slices.Sort(unknown)
	if !slices.Equal(r.Unknown, unknown) {
		t.Errorf("unknown: %q, want %q", r.Unknown, unknown)
	}
	if _, err := s.OpenSnapshot(bg, "folder"); !errors.Is(err, backend.ErrNotFound) {
		t.Error(err)
	}
}

// TestSnapshotsAmongCommits makes, reads and removes snapshots while another Store value commits, merges and removes files.
func TestSnapshotsAmongCommits(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s, other := openTest(t, dir, Options{Sync: Interval, Interval: time.Millisecond}), openTest(t, dir, Options{Sync: Never})
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	// Each commit appends a count to one key, and puts it into others that lie in every kind of place.
	done := make(chan struct{})
	committed := make(chan error, 1)
	go func() {
		var err error
		for i := 1; err == nil; i++ {
			select {
			case <-done:
				committed <- nil
				return
			default:
			}
			var st, big backend.Stage
			if st, err = other.NewStage(); err != nil {
				break
			}
			if big, err = other.NewStage(); err != nil {
				break
			}
			st.WriteAt(fmt.Appendf(nil, "%8d", i), 0)
			big.WriteAt(fmt.Appendf(nil, "%8d", i), []int64{100, 3000, 300 << 10, soloMin}[i%4])
			var b backend.Batch
			b.Append(ref("log"), st, newFile, backend.AttrChange{})
			b.Put(ref("big"), big, newFile, backend.AttrChange{})
			b.Put(ref(fmt.Sprint("k", i%50)), st, newFile, backend.AttrChange{})
			_, err = other.Commit(bg, &b)
			st.Close()
			big.Close()
			if err == nil && i%20 == 0 {
				err = other.Compact(bg)
			}
		}
		committed <- err
	}()
	stop := sync.OnceFunc(func() {
		close(done)
		if err := <-committed; err != nil {
			t.Error(err)
		}
	})
	defer stop()
	look := func(n backend.Snapshot) error {
		log, err := read(n, ref("log"))
		if err != nil {
			return err
		}
		big, err := read(n, ref("big"))
		if want := fmt.Appendf(nil, "%8d", n.Generation()); err != nil || !bytes.HasSuffix(log, want) || !bytes.HasSuffix(big, want) ||
			len(log) != 8*int(n.Generation()) {
			return fmt.Errorf("generation %d: log of %d bytes, value of %d: %w", n.Generation(), len(log), len(big), err)
		}
		return nil
	}
	for g := backend.Generation(0); g == 0; {
		n := snap(t, s)
		g = n.Generation()
		n.Close()
	}
	var open []backend.Snapshot
	for i := range rounds {
		keep(t, s, fmt.Sprint(i))
		open = append(open, openNamed(t, []*Store{s, other}[i%2], fmt.Sprint(i)))
		if i < 5 {
			continue
		}
		if err := s.RemoveSnapshot(bg, fmt.Sprint(i-5)); err != nil {
			t.Fatal(err)
		}
		for _, n := range open {
			if err := look(n); err != nil {
				t.Fatal(err)
			}
		}
		open[0].Close()
		open = open[1:]
	}
	stop()
	checkStore(t, dir)
	for i := rounds - 5; i < rounds; i++ {
		if err := s.RemoveSnapshot(bg, fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	for _, n := range open {
		n.Close()
	}
	for _, st := range []*Store{s, other} {
		snap(t, st).Close()
	}
	settle(t, s)
	settle(t, other)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	settle(t, openTest(t, dir, Options{Sync: Never}))
	onlyNeeded(t, s)
}
