package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/storetest"
)

func TestTxnModel(t *testing.T) {
	if testing.Short() {
		t.Skip("as over memory, in backend")
	}
	storetest.RunModel(t, func(t *testing.T) backend.Store { return beginTest(t, fresh(t)) })
}

func beginTest(t testing.TB, s backend.Store) *backend.Txn {
	t.Helper()
	txn, err := backend.Begin(bg, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { txn.Close() })
	return txn
}

// TestTxnLargeValues publishes what is staged in files: as it is, appended to what is stored, and moved; none of it is left in tmp.
func TestTxnLargeValues(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{Sync: Never})
	old, big, more := pattern(2<<20, 1), pattern(soloMin+soloMin/2, 2), pattern(300_000, 3)
	put(t, s, "old", old)
	txn := beginTest(t, s)
	stage := func(data []byte) backend.Stage {
		st, err := txn.NewStage()
		if err == nil {
			_, err = st.WriteAt(data, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	in := &backend.Batch{}
	st, st2 := stage(big), stage(more)
	d := in.Mkdir(ref("d"), backend.Attr{Mode: 0o755})
	in.Put(backend.Ref{Dir: d, Name: "big"}, st, newFile, backend.AttrChange{})
	in.Append(ref("old"), st2, nil, backend.AttrChange{})
	in.Rename(ref("old"), ref("moved"), 0)
	made, err := txn.Commit(bg, in)
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	st2.Close()
	e, _ := made.Entry(ref("d"))
	snapshot, err := txn.Snapshot(bg)
	if err != nil {
		t.Fatal(err)
	}
	check := func(n backend.Snapshot, dir backend.Ino, name string, want []byte) {
		t.Helper()
		if got, err := read(n, backend.Ref{Dir: dir, Name: name}); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
	}
	check(snapshot, e.Ino, "big", big)
	check(snapshot, backend.RootIno, "moved", append(bytes.Clone(old), more...))
	before := snap(t, s).Generation()
	put(t, s, "other", old) // someone else, meanwhile
	if err := s.Compact(bg); err != nil {
		t.Fatal(err)
	}
	done, err := txn.Publish(bg)
	if err != nil {
		t.Fatal(err)
	}
	if done.Generation <= before {
		t.Errorf("generation %d after %d", done.Generation, before)
	}
	check(snapshot, e.Ino, "big", big) // still open
	check(snapshot, backend.RootIno, "moved", append(bytes.Clone(old), more...))
	snapshot.Close()
	n := snap(t, s)
	defer n.Close()
	at, err := backend.Walk(n, "d")
	if err != nil || at.Ino >= 1<<62 {
		t.Fatal(at, err)
	}
	check(n, at.Ino, "big", big)
	check(n, backend.RootIno, "moved", append(bytes.Clone(old), more...))
	if _, err := n.Lookup(ref("old")); !errors.Is(err, backend.ErrNotFound) {
		t.Error(err)
	}
	noTemp(t, dir)
}

func noTemp(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in tmp: %v, %v", left, err)
	}
}

// TestTxnAbandoned leaves nothing of what was staged on disk, in conflict and out of it.
func TestTxnAbandoned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{Sync: Never})
	put(t, s, "k", []byte("old"))
	for _, conflict := range []bool{true, false} {
		txn := beginTest(t, s)
		if err := txn.WriteFile("k", pattern(2<<20, 1)); err != nil {
			t.Fatal(err)
		}
		if conflict {
			put(t, s, "k", []byte("new"))
			if _, err := txn.Publish(bg); !errors.Is(err, backend.ErrConflict) {
				t.Fatal(err)
			}
		}
		if err := txn.Close(); err != nil {
			t.Fatal(err)
		}
		noTemp(t, dir)
		wantValue(t, s, "k", []byte("new"))
	}
}

// TestTxnBank transfers between accounts through two Store values, and compacts meanwhile: no sum is wrong, no value moved elsewhere is a conflict for ever.
func TestTxnBank(t *testing.T) {
	const accounts, workers, each = 5, 4, 25
	dir := filepath.Join(t.TempDir(), "s")
	stores := []*Store{openTest(t, dir, Options{Sync: Never}), openTest(t, dir, Options{Sync: Never})}
	pad := bytes.Repeat([]byte(" "), 2*inlineMax) // so that they lie in volumes
	account := func(i int) string { return fmt.Sprint("a", i%accounts) }
	add := func(txn *backend.Txn, i, amount int) error {
		b, err := txn.ReadFile(account(i))
		n := 100
		if err == nil {
			n, err = strconv.Atoi(string(bytes.TrimSpace(b)))
		} else if errors.Is(err, backend.ErrNotFound) {
			err = nil
		}
		if err != nil {
			return err
		}
		return txn.WriteFile(account(i), append(strconv.AppendInt(nil, int64(n+amount), 10), pad...))
	}
	if err := backend.Update(bg, stores[0], func(txn *backend.Txn) (err error) {
		for i := range accounts {
			err = errors.Join(err, add(txn, i, 0))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	sum := func(s *Store) {
		n := snap(t, s)
		defer n.Close()
		got := 0
		for i := range accounts {
			b, err := backend.ReadFile(n, account(i))
			k, err2 := strconv.Atoi(string(bytes.TrimSpace(b)))
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
			}
			got += k
		}
		if got != 100*accounts {
			t.Errorf("sum %d", got)
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			s := stores[w%2]
			for i := range each {
				if err := backend.Update(bg, s, func(txn *backend.Txn) error {
					return errors.Join(add(txn, i+w, -1), add(txn, i*w+1, 1))
				}); err != nil {
					t.Error(err)
					return
				}
				sum(s)
				if i%8 == 0 {
					if err := s.Compact(bg); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestBatchMakesDirectoriesAndFillsThem uses what Mkdir returns in later operations of the batch.
func TestBatchMakesDirectoriesAndFillsThem(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Never})
	put(t, s, "k", []byte("v"))
	b := &backend.Batch{}
	d := b.Mkdir(ref("d"), backend.Attr{Mode: 0o755})
	e := b.Mkdir(backend.Ref{Dir: d, Name: "e"}, backend.Attr{Mode: 0o755})
	b.Rename(ref("k"), backend.Ref{Dir: e, Name: "k"}, 0)
	b.Rename(ref("d"), ref("f"), 0)
	b.Put(backend.Ref{Dir: d, Name: "x"}, stageOf(t, s, []byte("x")), newFile, backend.AttrChange{})
	c := commit(t, s, b)
	n := snap(t, s)
	defer n.Close()
	for path, want := range map[string]string{"f/e/k": "v", "f/x": "x"} {
		if got, err := backend.ReadFile(n, path); string(got) != want || err != nil {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
	made, ok := c.Entry(ref("f"))
	if at, err := n.Parent(made.Ino); !ok || err != nil || at != ref("f") {
		t.Error(made, at, err)
	}
	again := &backend.Batch{} // the number means nothing in another batch
	again.Put(backend.Ref{Dir: d, Name: "y"}, stageOf(t, s, nil), newFile, backend.AttrChange{})
	if _, err := s.Commit(bg, again); !errors.Is(err, backend.ErrNotFound) {
		t.Error(err)
	}
}
