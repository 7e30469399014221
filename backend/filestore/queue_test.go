package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// outcome is what Commit said.
type outcome struct {
	backend.Committed
	err error
}

// together has the batches wait for the commit lock at once, in their order, and returns what becomes of them.
func together(t testing.TB, s *Store, batches ...*backend.Batch) []outcome {
	t.Helper()
	contexts := make([]context.Context, len(batches))
	for i := range contexts {
		contexts[i] = bg
	}
	return togetherUnder(t, s, contexts, batches, func() {})
}

// togetherUnder calls meanwhile when all of them wait.
func togetherUnder(t testing.TB, s *Store, contexts []context.Context, batches []*backend.Batch, meanwhile func()) []outcome {
	t.Helper()
	release, err := s.acquire(bg)
	if err != nil {
		t.Fatal(err)
	}
	done := make([]chan outcome, len(batches))
	for i, b := range batches {
		done[i] = make(chan outcome, 1)
		go func() {
			c, err := s.Commit(contexts[i], b)
			done[i] <- outcome{c, err}
		}()
		awaitQueue(s, i+1)
	}
	meanwhile()
	release()
	out := make([]outcome, len(batches))
	for i := range done {
		out[i] = <-done[i]
	}
	return out
}

// awaitQueue waits until n commits are in the queue.
func awaitQueue(s *Store, n int) {
	for {
		s.queue.mu.Lock()
		have := len(s.queue.waiting)
		s.queue.mu.Unlock()
		if have == n {
			return
		}
		runtime.Gosched()
	}
}

func putBatch(t testing.TB, s *Store, name string, data []byte) *backend.Batch {
	var b backend.Batch
	b.Put(ref(name), stageOf(t, s, data), newFile, backend.AttrChange{})
	return &b
}

func sequenceNow(t testing.TB, s *Store) uint64 {
	p, err := s.pinNewest()
	if err != nil {
		t.Fatal(err)
	}
	defer s.unpin(p)
	return p.h.seq
}

// TestWaitingCommitsShareOneHead: each is a generation, in the order in which they came, and fails by itself.
func TestWaitingCommitsShareOneHead(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Never})
	put(t, s, "there", []byte("x"))
	var batches []*backend.Batch
	for i := range 10 {
		batches = append(batches, putBatch(t, s, fmt.Sprint("k", i%7), pattern(900*i, uint64(i))))
	}
	again := putBatch(t, s, "k0", nil) // made by the first of them
	again.Expect(ref("k0"), 0)
	made := putBatch(t, s, "new", []byte("new"))
	made.Expect(ref("new"), 0)
	missing := &backend.Batch{}
	missing.Remove(ref("nothing"))
	moved := &backend.Batch{}
	moved.Rename(ref("new"), ref("moved"), 0)
	batches = append(batches, again, made, missing, moved, &backend.Batch{})
	wantErr := []error{10: backend.ErrConflict, 12: backend.ErrNotFound, 14: nil}
	seq, from := sequenceNow(t, s), snap(t, s)
	defer from.Close()
	gen := from.Generation()
	for i, o := range together(t, s, batches...) {
		if !errors.Is(o.err, wantErr[i]) {
			t.Fatalf("batch %d: %v, want %v", i, o.err, wantErr[i])
		}
		if o.err != nil {
			continue
		}
		if i < 14 {
			gen++
		}
		if o.Generation != gen {
			t.Errorf("batch %d: generation %d, want %d", i, o.Generation, gen)
		}
		for _, c := range o.Changes {
			if c.Generation != gen || !c.Own || c.New != nil && c.New.Revision != gen {
				t.Errorf("batch %d: %+v", i, c)
			}
		}
	}
	if got := sequenceNow(t, s); got != seq+1 {
		t.Errorf("%d HEAD files for one group", got-seq)
	}
	if n := s.Counters().Commits; n != uint64(gen) {
		t.Errorf("%d commits counted, want %d", n, gen)
	}
	for i := 3; i < 10; i++ {
		wantValue(t, s, fmt.Sprint("k", i%7), pattern(900*i, uint64(i)))
	}
	wantValue(t, s, "moved", []byte("new"))
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	last := from.Generation()
	for c, err := range s.Watch(ctx, last) {
		if err != nil || c.Generation < last || !c.Own {
			t.Fatalf("watch: %+v, %v", c, err)
		}
		if last = c.Generation; last == gen {
			break
		}
	}
}

// TestGroupIsASequence replays groups of random commits in the order of their generations.
func TestGroupIsASequence(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		s := openTest(t, filepath.Join(root, fmt.Sprint(n)), Options{Sync: SyncMode(n % 3)})
		defer s.Close()
		model := map[string][]byte{}
		for range rapid.IntRange(1, 4).Draw(rt, "groups") {
			kinds := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 12).Draw(rt, "kinds")
			batches, names, data := make([]*backend.Batch, len(kinds)), make([]string, len(kinds)), make([][]byte, len(kinds))
			for i, kind := range kinds {
				names[i] = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name")
				data[i] = pattern(rapid.SampledFrom([]int{0, 10, 1025, 70000, soloMin}).Draw(rt, "size"), uint64(i))
				b := &backend.Batch{}
				switch st := stageOf(t, s, data[i]); kind {
				case 0, 1:
					b.Put(ref(names[i]), st, newFile, backend.AttrChange{})
				case 2, 3:
					b.Append(ref(names[i]), st, newFile, backend.AttrChange{})
				case 4:
					b.Remove(ref(names[i]))
				case 5:
					b.Rename(ref(names[i]), ref("a"), 0)
				}
				batches[i] = b
			}
			order, at := make([]int, 0, len(kinds)), make(map[int]backend.Generation)
			for i, o := range together(t, s, batches...) {
				if at[i] = o.Generation; o.err == nil && len(o.Changes) > 0 {
					order = append(order, i)
				} else if o.err != nil && !errors.Is(o.err, backend.ErrNotFound) {
					rt.Fatal(o.err)
				}
			}
			slices.SortFunc(order, func(i, j int) int { return int(at[i]) - int(at[j]) })
			for _, i := range order {
				switch have := model[names[i]]; kinds[i] {
				case 0, 1:
					model[names[i]] = data[i]
				case 2, 3:
					model[names[i]] = slices.Concat(have, data[i])
				case 4:
					delete(model, names[i])
				case 5:
					delete(model, names[i])
					model["a"] = have
				}
			}
			seen, sn := 0, snap(t, s)
			for e, err := range sn.List(backend.RootIno, "") {
				b, rerr := read(sn, e.Ref)
				if want, ok := model[e.Name]; !ok || err != nil || rerr != nil || !bytes.Equal(b, want) {
					rt.Fatalf("%s: %d bytes, want %d, %v", e.Name, len(b), len(want), errors.Join(err, rerr))
				}
				seen++
			}
			sn.Close()
			if seen != len(model) {
				rt.Fatalf("%d keys, want %d", seen, len(model))
			}
		}
	})
}

// TestWaitingCommitsShareOneSync counts the syncs of a group.
func TestWaitingCommitsShareOneSync(t *testing.T) {
	var syncs atomic.Int32
	d := disk.New(func(c *disk.Call) error {
		if c.Op == disk.Datasync || c.Op == disk.Sync {
			syncs.Add(1)
		}
		return c.Do()
	})
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Always, Disk: d})
	for _, size := range []int{100, 5000} {
		var batches []*backend.Batch
		for i := range 8 {
			batches = append(batches, putBatch(t, s, fmt.Sprint("k", i), pattern(size, 1)))
		}
		put(t, s, "warm", pattern(size, 1)) // the volume is there
		syncs.Store(0)
		for _, o := range together(t, s, batches...) {
			if o.err != nil {
				t.Fatal(o.err)
			}
		}
		want := int32(1) // of HEAD
		if size > inlineMax {
			want++ // of the volume
		}
		if n := syncs.Load(); n != want {
			t.Errorf("values of %d bytes: %d syncs for 8 commits, want %d", size, n, want)
		}
	}
}

// TestOneOfAGroupFails: what the disk has no room for fails, and nothing else.
func TestOneOfAGroupFails(t *testing.T) {
	fails := map[string]func(c *disk.Call) bool{
		"writing its value": func(c *disk.Call) bool { return strings.Contains(c.File.Name(), "data/") && len(c.Data) > 50000 },
		"writing the HEAD of all": func(c *disk.Call) bool {
			return strings.Contains(c.File.Name(), "HEAD") && bytes.Contains(c.Data, []byte("guilty"))
		},
	}
	for name, fail := range fails {
		t.Run(name, func(t *testing.T) {
			d := disk.New(func(c *disk.Call) error {
				if c.Op == disk.Write && fail(c) {
					return syscall.ENOSPC
				}
				return c.Do()
			})
			s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Always, Disk: d})
			value := func(i int) []byte { return pattern([]int{100, 3000, soloMin}[i%3], uint64(i)) }
			var batches []*backend.Batch
			for i := range 9 {
				batches = append(batches, putBatch(t, s, fmt.Sprint("k", i), value(i)))
			}
			batches[4] = putBatch(t, s, "guilty", pattern(60000, 1))
			got := together(t, s, batches...)
			for i, o := range got {
				if i == 4 {
					if !errors.Is(o.err, syscall.ENOSPC) || o.Generation != 0 || o.Changes != nil {
						t.Errorf("the guilty one: %+v", o)
					}
					continue
				}
				if o.err != nil {
					t.Fatal(i, o.err)
				}
				wantValue(t, s, fmt.Sprint("k", i), value(i))
			}
			n := snap(t, s)
			defer n.Close()
			if n.Generation() != 8 || got[8].Generation != 8 {
				t.Errorf("generation %d, the last commit's %d", n.Generation(), got[8].Generation)
			}
			if _, err := n.Lookup(ref("guilty")); !errors.Is(err, backend.ErrNotFound) {
				t.Error(err)
			}
		})
	}
}

// TestWaitingCommitIsCancelled: it changes nothing, and those that wait with it are made.
func TestWaitingCommitIsCancelled(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Never})
	ctx, cancel := context.WithCancel(bg)
	batches := []*backend.Batch{putBatch(t, s, "a", nil), putBatch(t, s, "b", nil), putBatch(t, s, "c", nil)}
	got := togetherUnder(t, s, []context.Context{bg, ctx, bg}, batches, func() {
		cancel()
		awaitQueue(s, 2)
	})
	if got[0].err != nil || got[2].err != nil || !errors.Is(got[1].err, context.Canceled) {
		t.Error(got)
	}
	n := snap(t, s)
	defer n.Close()
	if _, err := n.Lookup(ref("b")); !errors.Is(err, backend.ErrNotFound) {
		t.Error(err)
	}
}

// panicking is a stage that cannot be read.
type panicking struct{ backend.Stage }

func (panicking) Size() int64                       { return 10 }
func (panicking) ReadAt([]byte, int64) (int, error) { panic("the stage") }

// TestPanicLeavesNobodyWaiting: those who were answered together have an answer, and the store goes on.
func TestPanicLeavesNobodyWaiting(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Never})
	bad := &backend.Batch{}
	bad.Put(ref("bad"), panicking{stageOf(t, s, nil)}, newFile, backend.AttrChange{})
	release, err := s.acquire(bg)
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		panicked any
		err      error
	}
	ends := make([]chan end, 3)
	for i, b := range []*backend.Batch{putBatch(t, s, "before", nil), bad, putBatch(t, s, "after", nil)} {
		ends[i] = make(chan end, 1)
		go func() {
			var e end
			defer func() {
				e.panicked = recover()
				ends[i] <- e
			}()
			_, e.err = s.Commit(bg, b)
		}()
		awaitQueue(s, i+1)
	}
	release()
	panics, made := 0, 0
	n := snap(t, s)
	defer func() { n.Close() }()
	for i, name := range []string{"before", "bad", "after"} {
		e := <-ends[i]
		if e.panicked != nil {
			if panics++; e.panicked != "the stage" {
				t.Errorf("%s: the panic says %v", name, e.panicked)
			}
		} else if e.err == nil {
			made++
		}
		n.Close()
		n = snap(t, s)
		if _, err := n.Lookup(ref(name)); (err == nil) != (e.panicked == nil && e.err == nil) {
			t.Errorf("%s: %+v, but the key: %v", name, e, err)
		}
	}
	if panics != 1 || n.Generation() != backend.Generation(made) || made > 1 {
		t.Errorf("%d panics, %d commits, generation %d", panics, made, n.Generation())
	}
	if len(s.queue.waiting) > 0 {
		t.Error("somebody is left in the queue")
	}
	put(t, s, "later", nil)
}

// TestCommitsInParallel counts up one key, expecting its version, from goroutines on two Store values.
func TestCommitsInParallel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	stores := []*Store{openTest(t, dir, Options{Sync: Never}), openTest(t, dir, Options{Sync: Never})}
	put(t, stores[0], "n", []byte{0, 0})
	const each = 50
	done := make(chan error)
	for g := range 8 {
		go func() {
			s := stores[g%2]
			done <- func() error {
				for i := 0; i < each; {
					err := countUp(s)
					if err == nil {
						i++
					} else if !errors.Is(err, backend.ErrConflict) {
						return err
					}
					for range rand.IntN(3) {
						runtime.Gosched()
					}
				}
				return nil
			}()
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	wantValue(t, stores[0], "n", le.AppendUint16(nil, 8*each))
	n := snap(t, stores[1])
	defer n.Close()
	if n.Generation() != 8*each+1 {
		t.Errorf("generation %d", n.Generation())
	}
}

func countUp(s *Store) error {
	n, err := s.Snapshot(bg)
	if err != nil {
		return err
	}
	defer n.Close()
	e, err := n.Lookup(ref("n"))
	if err != nil {
		return err
	}
	b, err := read(n, ref("n"))
	if err != nil {
		return err
	}
	st, err := s.NewStage()
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := st.WriteAt(le.AppendUint16(nil, le.Uint16(b)+1), 0); err != nil {
		return err
	}
	var bt backend.Batch
	bt.Expect(ref("n"), e.Ino)
	bt.Put(ref("n"), st, nil, backend.AttrChange{})
	_, err = s.Commit(bg, &bt)
	return err
}
