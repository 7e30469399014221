package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/storefs/storefs/backend"
)

func TestSnapshotStaysTheSame(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s, other := openTest(t, dir, Options{Sync: Never}), openTest(t, dir, Options{Sync: Never})
	want := map[string][]byte{}
	for i := range 200 {
		name := fmt.Sprint("k", i)
		want[name] = pattern(i*40, uint64(i))
		put(t, s, name, want[name])
	}
	big := pattern(2<<20, 9)
	put(t, s, "big", big)
	want["big"] = big
	n := snap(t, other)
	e, err := n.Lookup(ref("big"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := n.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	rounds := 10000
	if testing.Short() {
		rounds = 2000
	}
	st := stageOf(t, s, pattern(100, 1))
	for i := range rounds {
		var b backend.Batch
		b.Put(ref(fmt.Sprint("k", i%300)), st, newFile, backend.AttrChange{})
		commit(t, s, &b)
	}
	put(t, s, "big", pattern(3<<20, 10))
	if err := s.Compact(bg); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.makeDurable(bg), s.tidy(bg)); err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		if b, err := read(n, ref(name)); err != nil || !bytes.Equal(b, w) {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	n.Close()
	b := make([]byte, len(big))
	if _, err := v.ReadAt(b, 0); err != nil || !bytes.Equal(b, big) {
		t.Fatal("value changed:", err)
	}
	v.Close()
	if c := s.Counters(); c.Spares > 6 {
		t.Errorf("%d spares made", c.Spares)
	}
	// With the pin gone, so are the files that only it needed.
	snap(t, other).Close()
	if err := errors.Join(s.makeDurable(bg), s.tidy(bg)); err != nil {
		t.Fatal(err)
	}
	if n := s.trashed(); n != 0 {
		t.Errorf("%d files not removed", n)
	}
	names, _ := readNames(filepath.Join(dir, "index"))
	if i, _ := s.Info(); len(names) != i.Tables {
		t.Errorf("%d table files, %d tables", len(names), i.Tables)
	}
}

// increment adds one to a counter with an expectation, as often as it takes.
func increment(s *Store, key backend.Ref) error {
	for {
		n, err := s.Snapshot(bg)
		if err != nil {
			return err
		}
		var count uint64
		e, err := n.Lookup(key)
		if err == nil {
			var b []byte
			if b, err = read(n, key); err == nil {
				count = binary.LittleEndian.Uint64(b)
			}
		} else if errors.Is(err, backend.ErrNotFound) {
			err = nil
		}
		n.Close()
		if err != nil {
			return err
		}
		st, err := s.NewStage()
		if err != nil {
			return err
		}
		st.WriteAt(binary.LittleEndian.AppendUint64(nil, count+1), 0)
		var b backend.Batch
		b.Expect(key, e.Ino)
		b.Put(key, st, newFile, backend.AttrChange{})
		_, err = s.Commit(bg, &b)
		st.Close()
		if !errors.Is(err, backend.ErrConflict) {
			return err
		}
	}
}

func TestNoUpdateIsLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	const writers, rounds = 4, 100
	var wg sync.WaitGroup
	stores := make([]*Store, writers)
	for i := range stores {
		stores[i] = openTest(t, dir, Options{Sync: SyncMode(i % 3)})
	}
	for i, s := range stores {
		wg.Go(func() {
			for k := range rounds {
				if err := increment(s, ref("counter")); err != nil {
					t.Error(err)
					return
				}
				st, _ := s.NewStage()
				st.WriteAt(pattern(500*k, 1), 0)
				var b backend.Batch
				b.Append(ref("log"), st, newFile, backend.AttrChange{})
				b.Put(ref(fmt.Sprint(i, " ", k)), st, newFile, backend.AttrChange{})
				_, err := s.Commit(bg, &b)
				st.Close()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	n := snap(t, stores[0])
	defer n.Close()
	b, err := read(n, ref("counter"))
	if err != nil || binary.LittleEndian.Uint64(b) != writers*rounds {
		t.Fatal(b, err)
	}
	if e, err := n.Lookup(ref("log")); err != nil || e.Size != writers*500*rounds*(rounds-1)/2 {
		t.Fatal(e.Size, err)
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	count := func() int {
		names, err := readNames("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(names)
	}
	before := count()
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Open(dir, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		put(t, s, fmt.Sprint("k", i), pattern(i, 1))
	}
	n := snap(t, s)
	if _, err := read(n, ref("k1400")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := read(n, ref("k1300")); err != nil {
		t.Error("snapshot after Close:", err)
	}
	n.Close()
	if after := count(); after > before {
		t.Errorf("%d descriptors more", after-before)
	}
	if _, err := s.Snapshot(bg); !errors.Is(err, backend.ErrClosed) {
		t.Error(err)
	}
	if names, _ := readNames(filepath.Join(dir, "tmp")); len(names) > 0 {
		t.Error("left in tmp:", names)
	}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		t.Error(err)
	}
}
