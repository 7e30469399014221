package filestore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/storefs/storefs/backend"
)

// A faultCase is one operation that meets faults. A new one is one more row in faultCases.
type faultCase struct {
	name string
	o    Options
	// before is done to a copy of sampleStore, without faults.
	before func(t *testing.T, s *Store)
	// do is the operation. What it reads and finds wrong though there was no error it reports with t.Error.
	do func(t *testing.T, s *Store) error
	// open says that the operation opens and closes a store itself; s is nil then.
	open func(t *testing.T, dir string, o Options) error
	// partly says that an error may come though all is done: what was done comes first, then what may fail.
	partly bool
	// then looks at what the operation has left besides the store.
	then func(t *testing.T, dir string) error
}

// smallSizes make all kinds of values and tables in a small store.
var smallSizes = sizes{spare: 9 << 10, head: 4 << 10, stage: 8 << 10, solo: 80 << 10, volume: 400 << 10, dead: 64 << 10}

const (
	largeValue = 70 << 10 // two blocks
	hugeValue  = 90 << 10
)

// batch makes an operation of one commit.
func batch(fill func(s *Store, b *backend.Batch) error) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		var b backend.Batch
		if err := fill(s, &b); err != nil {
			return err
		}
		_, err := s.Commit(bg, &b)
		return err
	}
}

// staged makes an operation that puts or appends values.
func staged(fill func(b *backend.Batch, st backend.Stage), sizes ...int) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		var b backend.Batch
		var stages []backend.Stage
		defer func() {
			for _, st := range stages {
				st.Close() // tells of a file that cannot be removed, which is swept
			}
		}()
		for _, n := range sizes {
			st, err := s.NewStage()
			if err == nil {
				stages = append(stages, st)
				_, err = st.WriteAt(pattern(n, uint64(n)), 0)
			}
			if err != nil {
				return err
			}
			fill(&b, st)
		}
		_, err := s.Commit(bg, &b)
		return err
	}
}

func putAs(name string) func(*backend.Batch, backend.Stage) {
	return func(b *backend.Batch, st backend.Stage) { b.Put(ref(name), st, newFile, backend.AttrChange{}) }
}

func appendAs(name string) func(*backend.Batch, backend.Stage) {
	return func(b *backend.Batch, st backend.Stage) { b.Append(ref(name), st, newFile, backend.AttrChange{}) }
}

// ops makes an operation of one commit without values.
func ops(fill func(b *backend.Batch)) func(*testing.T, *Store) error {
	return batch(func(s *Store, b *backend.Batch) error { fill(b); return nil })
}

// sampleStore is where faultCases begin: two tables, records in HEAD, values of every kind, directories, a snapshot.
func sampleStore(t *testing.T, dir string) {
	s, err := Open(dir, &Options{Create: true, Sync: Never, ManualMerge: true, sizes: &smallSizes})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		var b backend.Batch
		for k := range 5 {
			b.Put(ref(fmt.Sprint("k", i, " ", k)), stageOf(t, s, pattern(1000, uint64(k))), newFile, backend.AttrChange{})
		}
		commit(t, s, &b)
	}
	var b backend.Batch
	d := b.Mkdir(ref("d"), backend.Attr{Mode: 0o755})
	b.Mkdir(ref("empty"), backend.Attr{Mode: 0o700})
	b.Symlink(ref("link"), "small", backend.Attr{})
	b.Put(backend.Ref{Dir: d, Name: "x"}, stageOf(t, s, []byte("in d")), newFile, backend.AttrChange{SetXattr: map[string]string{"user.a": "1"}})
	b.Put(ref("small"), stageOf(t, s, []byte("small")), newFile, backend.AttrChange{})
	b.Put(ref("large"), stageOf(t, s, pattern(largeValue, 1)), newFile, backend.AttrChange{})
	commit(t, s, &b)
	put(t, s, "huge", pattern(hugeValue, 2))
	if _, err := s.CreateSnapshot(bg, "sample"); err != nil {
		t.Fatal(err)
	}
	put(t, s, "later", pattern(5000, 3))
	put(t, s, "gone", pattern(hugeValue, 4))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// fillHead leaves room for hardly a record in HEAD.
func fillHead(t *testing.T, s *Store) {
	p, err := s.pinNewest()
	if err != nil {
		t.Fatal(err)
	}
	defer s.unpin(p)
	var b backend.Batch
	for i := range (s.sizes.head - p.h.recBytes) / 300 {
		b.Put(ref(fmt.Sprint("fill", i)), stageOf(t, s, pattern(180, uint64(i))), newFile, backend.AttrChange{})
	}
	commit(t, s, &b)
}

// trash leaves files that nobody needs once what is newest is durable.
func makeTrash(t *testing.T, s *Store) {
	commitOps(t, s, func(b *backend.Batch) { b.Remove(ref("gone")) })
	put(t, s, "later", nil)
	if err := s.Compact(bg); err != nil {
		t.Fatal(err)
	}
	if s.trashed() == 0 {
		t.Fatal("nothing to remove")
	}
}

func commitOps(t *testing.T, s *Store, fill func(b *backend.Batch)) {
	t.Helper()
	var b backend.Batch
	fill(&b)
	commit(t, s, &b)
}

func faultCases() []faultCase {
	mode := uint32(0o600)
	cases := []faultCase{
		{name: "put small", do: staged(putAs("new"), 100)},
		{name: "put over", do: staged(putAs("small"), 200)},
		{name: "put large", do: staged(putAs("new"), 7000)},
		{name: "put from a file", do: staged(putAs("new"), 10000)},
		{name: "put huge", do: staged(putAs("huge"), 2*hugeValue)},
		{name: "append small", do: staged(appendAs("small"), 20)},
		{name: "append out of the record", do: staged(appendAs("small"), 5000)},
		{name: "append large", do: staged(appendAs("large"), 3000)},
		{name: "append huge", do: staged(appendAs("huge"), hugeValue)},
		{name: "first large value", before: func(t *testing.T, s *Store) { // a volume of its own
			commitOps(t, s, func(b *backend.Batch) { b.Remove(ref("large")); b.Remove(ref("later")) })
		}, do: staged(putAs("new"), 50<<10)},
		{name: "rename", do: ops(func(b *backend.Batch) { b.Rename(ref("small"), ref("large"), 0) })},
		{name: "rename a directory", do: ops(func(b *backend.Batch) { b.Rename(ref("d"), ref("empty"), 0) })},
		{name: "remove", do: ops(func(b *backend.Batch) { b.Remove(ref("large")) })},
		{name: "remove huge", do: ops(func(b *backend.Batch) { b.Remove(ref("gone")) })},
		{name: "rmdir", do: ops(func(b *backend.Batch) { b.Rmdir(ref("empty")) })},
		{name: "mkdir", do: ops(func(b *backend.Batch) { b.Mkdir(ref("new"), backend.Attr{Mode: 0o755}) })},
		{name: "symlink", do: ops(func(b *backend.Batch) { b.Symlink(ref("new"), "x", backend.Attr{}) })},
		{name: "attributes", do: ops(func(b *backend.Batch) {
			b.SetAttr(ref("huge"), backend.AttrChange{Mode: &mode, SetXattr: map[string]string{"user.b": "2"}})
		})},
		{name: "batch", do: batch(func(s *Store, b *backend.Batch) error {
			d := b.Mkdir(ref("new"), backend.Attr{Mode: 0o755})
			b.Rename(ref("large"), backend.Ref{Dir: d, Name: "moved"}, 0)
			b.Remove(ref("huge"))
			b.Symlink(ref("l"), "moved", backend.Attr{})
			return nil
		})},
		{name: "transaction", do: transaction},
		{name: "spill", before: fillHead, do: staged(putAs("new"), 1000, 1000, 1000)},
		{name: "spill and huge values", before: fillHead, do: func(t *testing.T, s *Store) error {
			n := 0
			return staged(func(b *backend.Batch, st backend.Stage) {
				n++
				b.Put(ref(fmt.Sprint("n", n)), st, newFile, backend.AttrChange{})
			}, 1000, 1000, hugeValue, 300, hugeValue+10, 2000)(t, s)
		}},
		{name: "merge", do: func(t *testing.T, s *Store) error { return s.Compact(bg) }},
		{name: "tidy", before: func(t *testing.T, s *Store) {
			makeTrash(t, s)
			if err := s.makeDurable(bg); err != nil {
				t.Fatal(err)
			}
		}, do: func(t *testing.T, s *Store) error { return s.tidy(bg) }},
		{name: "sweep", before: func(t *testing.T, s *Store) {
			makeTrash(t, s)
			s.mu.Lock()
			s.trash = nil // as if its remover had died
			s.mu.Unlock()
			for _, f := range []string{"tmp/1-x", "tmp/removed-0", "index/00000000000fffff", "data/00000000000fffff"} {
				if err := os.WriteFile(filepath.Join(s.dir, f), []byte("x"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}, do: func(t *testing.T, s *Store) error { return s.sweep(bg) }},
		{name: "sync", before: func(t *testing.T, s *Store) {
			put(t, s, "a", pattern(9000, 1))
			put(t, s, "b", pattern(hugeValue, 1))
			fillHead(t, s)
			put(t, s, "c", pattern(1000, 1))
		}, do: func(t *testing.T, s *Store) error { return s.Sync(bg) }},
		{name: "first snapshot", before: func(t *testing.T, s *Store) {
			if err := s.RemoveSnapshot(bg, "sample"); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(s.dir, "snapshots")); err != nil {
				t.Fatal(err)
			}
		}, do: func(t *testing.T, s *Store) error { _, err := s.CreateSnapshot(bg, "new"); return err }},
		{name: "snapshot", before: func(t *testing.T, s *Store) { put(t, s, "a", pattern(9000, 1)) },
			do: func(t *testing.T, s *Store) error { _, err := s.CreateSnapshot(bg, "new"); return err }},
		{name: "remove a snapshot", before: makeTrash, partly: true,
			do: func(t *testing.T, s *Store) error { return s.RemoveSnapshot(bg, "sample") }},
		{name: "read", do: readSome},
		{name: "read after another's commit", before: func(t *testing.T, s *Store) {
			other, err := Open(s.dir, &Options{Sync: Never, ManualMerge: true})
			if err != nil {
				t.Fatal(err)
			}
			put(t, other, "small", []byte("other"))
			other.Close()
		}, do: readSome},
		{name: "commit after another's", before: func(t *testing.T, s *Store) {
			other, err := Open(s.dir, &Options{Sync: Never, ManualMerge: true})
			if err != nil {
				t.Fatal(err)
			}
			put(t, other, "small", []byte("other"))
			put(t, other, "large", pattern(70000, 8))
			other.Close()
		}, do: staged(appendAs("large"), 5000)},
		{name: "commit without spares", before: func(t *testing.T, s *Store) {
			put(t, s, "a", nil)
			names, _ := s.listSpares()
			for _, n := range names {
				os.Remove(filepath.Join(s.dir, n))
			}
		}, do: staged(putAs("new"), 100)},
		{name: "commit without exchange", o: Options{noExchange: true}, do: staged(putAs("new"), 100)},
		{name: "watch", do: func(t *testing.T, s *Store) error {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			for _, err := range s.Watch(ctx, 0) {
				return err
			}
			return nil
		}},
		{name: "info", do: func(t *testing.T, s *Store) error { _, err := s.Info(); return err }},
		{name: "space", do: func(t *testing.T, s *Store) error { _, err := s.Space(); return err }},
		{name: "open", open: func(t *testing.T, dir string, o Options) error { return openClose(dir, o) }},
		{name: "open for reading", o: Options{ReadOnly: true}, open: func(t *testing.T, dir string, o Options) error { return openClose(dir, o) }},
		{name: "open after a power failure", o: Options{bootID: bootB}, open: func(t *testing.T, dir string, o Options) error { return openClose(dir, o) }},
		{name: "make", open: func(t *testing.T, dir string, o Options) error {
			o.Create = true
			return openClose(filepath.Join(filepath.Dir(dir), "a", "b", "s"), o)
		}, then: func(t *testing.T, dir string) error {
			dir = filepath.Join(filepath.Dir(dir), "a", "b", "s")
			if err := openClose(dir, Options{Create: true}); err != nil {
				return err
			}
			checkStore(t, dir)
			return nil
		}},
		{name: "close", before: func(t *testing.T, s *Store) { put(t, s, "a", pattern(9000, 1)) },
			do: func(t *testing.T, s *Store) error { return s.Close() }},
	}
	return cases
}

// readSome reads a small, a large and a huge value, and lists; what comes without an error must be right.
func readSome(t *testing.T, s *Store) error {
	n, err := s.Snapshot(bg)
	if err != nil {
		return err
	}
	defer n.Close()
	for name, want := range map[string][]byte{"k0 3": pattern(1000, 3), "large": pattern(largeValue, 1), "huge": pattern(hugeValue, 2)} {
		b, err := read(n, ref(name))
		if err != nil {
			return err
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%s is wrong", name)
		}
	}
	count := 0
	for _, err := range n.List(backend.RootIno, "") {
		if err != nil {
			return err
		}
		count++
	}
	if count != 18 {
		t.Errorf("%d entries", count)
	}
	if _, err := s.Snapshots(bg); err != nil {
		return err
	}
	named, err := s.OpenSnapshot(bg, "sample")
	if err != nil {
		return err
	}
	defer named.Close()
	_, err = read(named, ref("huge"))
	return err
}

func transaction(t *testing.T, s *Store) error {
	tx, err := backend.Begin(bg, s)
	if err != nil {
		return err
	}
	defer tx.Close()
	var b backend.Batch
	b.Rename(ref("small"), ref("renamed"), 0)
	b.Remove(ref("link"))
	if _, err := tx.Commit(bg, &b); err != nil {
		return err
	}
	st, err := tx.NewStage()
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := st.WriteAt(pattern(70000, 5), 0); err != nil {
		return err
	}
	b = backend.Batch{}
	b.Append(ref("large"), st, newFile, backend.AttrChange{})
	if _, err := tx.Commit(bg, &b); err != nil {
		return err
	}
	_, err = tx.Publish(bg)
	return err
}

func openClose(dir string, o Options) error {
	s, err := Open(dir, &o)
	if err != nil {
		return err
	}
	return s.Close()
}
