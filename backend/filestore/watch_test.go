package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/storefs/storefs/backend"
)

// TestWatchFollowsAnotherStore makes the same tree from what is watched, through spills, merges and removals.
func TestWatchFollowsAnotherStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	w, s := openTest(t, dir, Options{Sync: Never}), openTest(t, dir, Options{Sync: Never})
	const rounds = 1500
	done := make(chan error, 1)
	have := map[string]backend.Ino{}
	go func() {
		last := backend.Generation(0)
		for c, err := range w.Watch(bg, 0) {
			if err != nil {
				done <- err
				return
			}
			if c.Generation < last || c.Own {
				done <- fmt.Errorf("change of %v after %d, own %v", c.Generation, last, c.Own)
				return
			}
			last = c.Generation
			if c.New == nil {
				delete(have, c.Ref.Name)
			} else {
				have[c.Ref.Name] = c.New.Ino
			}
			if c.Ref.Name == "last" {
				break
			}
		}
		done <- nil
	}()
	st := stageOf(t, s, pattern(100, 1))
	for i := range rounds {
		var b backend.Batch
		if i%3 == 2 {
			b.Remove(ref(fmt.Sprint("k", i-1)))
		} else {
			b.Put(ref(fmt.Sprint("k", i)), st, newFile, backend.AttrChange{})
		}
		commit(t, s, &b)
	}
	put(t, s, "last", nil)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n := snap(t, s)
	defer n.Close()
	count := 0
	for e, err := range n.List(backend.RootIno, "") {
		if err != nil || have[e.Name] != e.Ino {
			t.Fatal(e.Name, have[e.Name], e.Ino, err)
		}
		count++
	}
	if count != len(have)-1 { // the root was seen too
		t.Errorf("%d entries, %d seen", count, len(have))
	}
}

func TestWatchSaysWhenHistoryIsGone(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Never})
	st := stageOf(t, s, nil)
	for i := range keepRemovals + 200 {
		var b backend.Batch
		if i == 1 {
			b.Remove(ref("k0"))
		} else {
			b.Put(ref(fmt.Sprint("k", i)), st, newFile, backend.AttrChange{})
		}
		commit(t, s, &b)
	}
	if err := s.Compact(bg); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Watch(bg, 1) {
		if !errors.Is(err, backend.ErrHistoryGone) {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	for c, err := range s.Watch(ctx, 2) {
		if err != nil || !c.Own {
			t.Error(c, err)
		}
		cancel()
	}
}
