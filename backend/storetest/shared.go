package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/storefs/storefs/backend"
)

// RunShared checks what several Store values on one storage owe each other. open opens the storage in the
// folder dir, which exists and is empty at the first call.
func RunShared(t *testing.T, open func(t *testing.T, dir string) backend.Store) {
	two := func(t *testing.T) (a, b *fixture) {
		dir := t.TempDir()
		return newFixture(t, open(t, dir)), newFixture(t, open(t, dir))
	}
	t.Run("each sees the commits of the other at once", func(t *testing.T) {
		a, b := two(t)
		for i := range 30 {
			a.put("x", fmt.Sprint("a", i))
			b.holds("x", fmt.Sprint("a", i))
			b.put("x", strings.Repeat(fmt.Sprint("b", i), 1000))
			a.holds("x", strings.Repeat(fmt.Sprint("b", i), 1000))
		}
		if a.dump() != b.dump() {
			t.Errorf("one shows %s, the other %s", a.dump(), b.dump())
		}
	})
	t.Run("numbers are not used twice", func(t *testing.T) {
		a, b := two(t)
		seen := map[backend.Ino]bool{}
		for i := range 30 {
			f := []*fixture{a, b}[i%2]
			f.put("x", fmt.Sprint(i))
			ino := f.entry("x").Ino
			if seen[ino] {
				t.Errorf("ino %d twice", ino)
			}
			seen[ino] = true
		}
	})
	t.Run("concurrent commits lose nothing", func(t *testing.T) {
		a, b := two(t)
		const each = 60
		a.put("n", "0")
		a.put("log", "")
		log := a.ref("log")
		var wg sync.WaitGroup
		for w, f := range []*fixture{a, b, a, b} {
			wg.Go(func() {
				for i := range each {
					if err := increment(f, f.s, "n"); err != nil {
						t.Error(err)
						return
					}
					s, err := f.s.NewStage()
					if err != nil {
						t.Error(err)
						return
					}
					fmt.Fprintf(&stageWriter{s: s}, "%d %d\n", w, i)
					batch := &backend.Batch{}
					batch.Append(log, s, nil, none)
					if _, err := f.s.Commit(t.Context(), batch); err != nil {
						t.Error(err)
					}
					s.Close()
				}
			})
		}
		wg.Wait()
		for _, f := range []*fixture{a, b} {
			f.holds("n", fmt.Sprint(4*each))
			checkLog(f, f.read("log"), 4, each)
		}
	})
	t.Run("a snapshot stands still whatever the other does", func(t *testing.T) {
		a, b := two(t)
		a.put("x", "old")
		a.put("big", pattern(300_000, 1))
		s := a.snap()
		before, err := dump(s, numbers)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			b.put("x", fmt.Sprint(i))
			b.put("big", pattern(100_000, uint64(i)))
		}
		if after, err := dump(s, numbers); after != before || err != nil {
			t.Errorf("became %s, %v; was %s", after, err, before)
		}
	})
	t.Run("watch tells the commits of the other", func(t *testing.T) {
		a, b := two(t)
		a.put("x", "0")
		from := a.snap().Generation()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch := make(chan backend.Change, 1000)
		go func() {
			defer close(ch)
			for c, err := range a.s.Watch(ctx, from) {
				if err != nil {
					t.Errorf("watch: %v", err)
					return
				}
				if c.Own {
					t.Errorf("another's change is called own: %+v", c)
				}
				ch <- c
			}
		}()
		for i := range 20 {
			c := b.put("x", fmt.Sprint(i))
			ref := b.ref("x")
			if i%5 == 0 {
				if e := a.follow(ch, from, c.Generation, ref)[ref]; e == nil || e.Ino != b.entry("x").Ino {
					t.Errorf("got %+v", e)
				}
			}
		}
		cancel()
		for range ch {
		}
	})
	t.Run("reservations exclude each other", func(t *testing.T) {
		a, b := two(t)
		ra, ok := a.s.(backend.Reserver)
		rb, _ := b.s.(backend.Reserver)
		if !ok {
			t.Skip("does not reserve")
		}
		ref := backend.Ref{Dir: backend.RootIno, Name: "x"}
		release, err := ra.Reserve(ref)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rb.Reserve(ref); !errors.Is(err, backend.ErrExists) {
			t.Errorf("by the other: %v", err)
		}
		release()
		release, err = rb.Reserve(ref)
		if err != nil {
			t.Fatalf("after release: %v", err)
		}
		release()
	})
	t.Run("closing one leaves the other", func(t *testing.T) {
		a, b := two(t)
		a.put("x", "1")
		if err := a.s.Close(); err != nil {
			t.Fatal(err)
		}
		b.holds("x", "1")
		b.put("x", "2")
		b.holds("x", "2")
	})
}

// increment adds 1 to the number at key, however often others come in between.
func increment(f *fixture, s backend.Store, key string) error {
	ctx := f.Context()
	for {
		snap, err := s.Snapshot(ctx)
		if err != nil {
			return err
		}
		e, err := backend.Walk(snap, key)
		if err != nil {
			return errors.Join(err, snap.Close())
		}
		content, err := readEntry(snap, e)
		if err := errors.Join(err, snap.Close()); err != nil {
			return err
		}
		n, err := strconv.Atoi(content)
		if err != nil {
			return fmt.Errorf("torn number: %w", err)
		}
		stage, err := s.NewStage()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(&stageWriter{s: stage}, n+1); err != nil {
			return err
		}
		b := &backend.Batch{}
		b.Expect(e.Ref, e.Ino)
		b.Put(e.Ref, stage, nil, none)
		_, err = s.Commit(ctx, b)
		stage.Close()
		if !errors.Is(err, backend.ErrConflict) {
			return err
		}
	}
}

// checkLog checks that log holds each worker's lines, all of them, whole and in order.
func checkLog(f *fixture, log string, workers, each int) {
	f.Helper()
	next := make([]int, workers)
	for line := range strings.Lines(log) {
		var w, i int
		if n, err := fmt.Sscanf(line, "%d %d\n", &w, &i); n != 2 || err != nil || w < 0 || w >= workers || i != next[w] {
			f.Fatalf("line %q, next %v, %v", line, next, err)
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			f.Errorf("worker %d has %d of %d lines", w, n, each)
		}
	}
}

// stageWriter writes to the end of a stage.
type stageWriter struct{ s backend.Stage }

func (w *stageWriter) Write(p []byte) (int, error) { return w.s.WriteAt(p, w.s.Size()) }
