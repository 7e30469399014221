package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

// findings returns what Check finds.
func findings(t testing.TB, dir string) []Finding {
	t.Helper()
	var all []Finding
	r, err := Check(bg, dir, &CheckOptions{Report: func(f Finding) { all = append(all, f) }})
	if err != nil {
		t.Fatal("check:", err)
	}
	if r.Problems != len(all) {
		t.Errorf("%d findings, counted as %d", len(all), r.Problems)
	}
	return all
}

// wantFinding fails the test unless one finding has the path, and its text the words.
func wantFinding(t testing.TB, all []Finding, path string, words ...string) Finding {
	t.Helper()
	for _, f := range all {
		if f.Path == path && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(f.String(), w) }) {
			return f
		}
	}
	t.Fatalf("nothing about %s with %q in %v", path, words, all)
	return Finding{}
}

// deepDir makes the directories a, a/b and a/b/c and returns the number of the last.
func deepDir(t testing.TB, s *Store) backend.Ino {
	t.Helper()
	var b backend.Batch
	at := backend.RootIno
	for _, n := range []string{"a", "b", "c"} {
		at = b.Mkdir(backend.Ref{Dir: at, Name: n}, backend.Attr{Mode: 0o755})
	}
	commit(t, s, &b)
	n := snap(t, s)
	defer n.Close()
	e, err := backend.Walk(n, "a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	return e.Ino
}

func putIn(t testing.TB, s *Store, r backend.Ref, data []byte) {
	t.Helper()
	var b backend.Batch
	b.Put(r, stageOf(t, s, data), newFile, backend.AttrChange{})
	commit(t, s, &b)
}

// closed runs fill on a new store, which it closes then, and returns its directory. Tables are merged only by Compact.
func closed(t testing.TB, fill func(s *Store)) string {
	t.Helper()
	dir := filepath.Join(memoryDir(t), "s")
	s, err := Open(dir, &Options{Create: true, ManualMerge: true})
	if err != nil {
		t.Fatal(err)
	}
	fill(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkStore(t, dir)
	return dir
}

func TestCheckNamesKeysAsPaths(t *testing.T) {
	dir := closed(t, func(s *Store) {
		c := deepDir(t, s)
		putIn(t, s, backend.Ref{Dir: c, Name: "long"}, pattern(3*blockSize, 1))
	})
	flip(t, filepath.Join(dir, "data/0000000000000001"), blockSize+5)
	f := wantFinding(t, findings(t, dir), "data/0000000000000001", "checksum mismatch")
	if f.Offset != blockSize || !slices.Equal(f.Keys, []Key{{Path: "a/b/c/long"}}) {
		t.Errorf("%+v", f)
	}
}

func TestCheckNamesTheKeysOfADamagedBlock(t *testing.T) {
	dir := closed(t, func(s *Store) {
		c := deepDir(t, s)
		for i := range 400 {
			putIn(t, s, backend.Ref{Dir: c, Name: fmt.Sprintf("k%03d", i)}, pattern(100, uint64(i)))
		}
		if err := s.Compact(bg); err != nil {
			t.Fatal(err)
		}
	})
	ids, err := (&Store{dir: dir}).tableFiles()
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	path := fmt.Sprintf("index/%016x", ids[0])
	flip(t, filepath.Join(dir, path), 3*tableBlock)
	f := wantFinding(t, findings(t, dir), path, "checksum mismatch", "keys from")
	if f.From == nil || f.Before == nil || !strings.HasPrefix(f.From.Path, "a/b/c/k") || !strings.HasPrefix(f.Before.Path, "a/b/c/k") || f.From.Path >= f.Before.Path {
		t.Errorf("%v", f)
	}
}

// What is damaged in one place keeps nobody from looking at the others.
func TestCheckGoesOn(t *testing.T) {
	dir := closed(t, func(s *Store) {
		for i := range 400 {
			put(t, s, fmt.Sprintf("k%03d", i), pattern(100, uint64(i)))
		}
		if err := s.Compact(bg); err != nil {
			t.Fatal(err)
		}
		put(t, s, "long", pattern(2000, 1))
		keep(t, s, "monday")
		keep(t, s, "tuesday")
	})
	s := &Store{dir: dir}
	ids, _ := s.tableFiles()
	vols, _ := readNames(filepath.Join(dir, "data"))
	table, volume := s.relative(s.tablePath(ids[0])), "data/"+vols[0]
	for _, d := range []string{table, volume, "snapshots/monday"} {
		flip(t, filepath.Join(dir, d), 100)
	}
	all := findings(t, dir)
	wantFinding(t, all, table, "checksum mismatch")
	wantFinding(t, all, volume, `key "long"`)
	wantFinding(t, all, "snapshots/monday", `snapshot "monday"`)
	flip(t, filepath.Join(dir, "HEAD"), 200)
	all = findings(t, dir)
	wantFinding(t, all, "HEAD", "checksum mismatch")
	wantFinding(t, all, table, "checksum mismatch")
	wantFinding(t, all, volume, `snapshot "tuesday"`, `key "long"`)
	wantFinding(t, all, "snapshots/monday")
}

func TestCheckMissesNothingThatEveryStoreHas(t *testing.T) {
	for _, name := range []string{"lock", "durable", "index", "data", "tmp", "HEAD"} {
		t.Run(name, func(t *testing.T) {
			dir := closed(t, func(s *Store) { put(t, s, "k", []byte("v")) })
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if all := findings(t, dir); len(all) != 1 || all[0].Path != name {
				t.Error(all)
			}
		})
	}
}

// An older copy of HEAD is no damage that a checksum shows; what else is in the store may show it.
func TestOlderHEADIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name   string
		knows  string
		mode   SyncMode
		commit func(t *testing.T, s *Store)
		clear  []string // what is taken away so that nothing else knows
	}{
		{"synced", "durable", Interval, func(t *testing.T, s *Store) { put(t, s, "k", []byte("new")) }, nil},
		{"two commits", "HEAD.", Never, func(t *testing.T, s *Store) {
			for range 4 {
				put(t, s, "k", []byte("new"))
			}
		}, nil},
		{"snapshot", "snapshots/new", Never, func(t *testing.T, s *Store) {
			put(t, s, "k", []byte("new"))
			keep(t, s, "new")
		}, []string{"durable", "HEAD.*"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(memoryDir(t), "s")
			s, err := Open(dir, &Options{Create: true, Sync: c.mode})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			put(t, s, "k", []byte("old"))
			old, err := os.ReadFile(filepath.Join(dir, "HEAD"))
			if err != nil {
				t.Fatal(err)
			}
			c.commit(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, p := range c.clear {
				files, _ := filepath.Glob(filepath.Join(dir, p))
				for _, f := range files {
					os.Remove(f)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "HEAD"), old, 0o666); err != nil {
				t.Fatal(err)
			}
			wantFinding(t, findings(t, dir), "HEAD", "an older copy", c.knows)
		})
	}
}

// A store that is open notices an older HEAD in the place of its own, and does not open one that is known to be older.
func TestOlderHEADIsNotServed(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s, err := Open(dir, &Options{Create: true, Sync: Always})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "k", []byte("old"))
	head := filepath.Join(dir, "HEAD")
	old, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", []byte("new"))
	if err := os.WriteFile(head+"-", old, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(head+"-", head); err != nil {
		t.Fatal(err)
	}
	var d *backend.CorruptError
	if _, err := s.Snapshot(bg); !errors.As(err, &d) || d.Path != head || !strings.Contains(d.Reason, "older copy") {
		t.Error("snapshot:", err)
	}
	if _, err := Open(dir, nil); !errors.As(err, &d) || d.Path != head {
		t.Error("open:", err)
	}
}

// What another process has found to be durable may be newer than a HEAD that somebody has put back. It is waited for no longer than for a
// second look.
func TestOlderHEADIsNotSynced(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s, err := Open(dir, &Options{Create: true, Sync: Never})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "k", []byte("old"))
	p, err := s.pinNewest()
	if err != nil {
		t.Fatal(err)
	}
	newer := *p.h
	s.unpin(p)
	newer.seq++
	if err := s.writeDurableLocked(&newer); err != nil {
		t.Fatal(err)
	}
	var d *backend.CorruptError
	if err := s.Sync(bg); !errors.As(err, &d) || d.Path != filepath.Join(dir, "HEAD") {
		t.Error("sync:", err)
	}
}

// The same HEAD in another file is the same store.
func TestCopiedHEADIsServed(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := openTest(t, dir, Options{})
	put(t, s, "k", []byte("v"))
	head := filepath.Join(dir, "HEAD")
	b, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(head+"-", b, 0o666), os.Rename(head+"-", head)); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "k", []byte("v"))
	put(t, s, "k", []byte("w"))
	wantValue(t, s, "k", []byte("w"))
}

// While commits, merges and snapshots go on, Check finds nothing.
func TestCheckOfALiveStore(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := openTest(t, dir, Options{Interval: 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 600 {
			put(t, s, fmt.Sprint("k", i%90), pattern(i*7%3000, uint64(i)))
			if i%50 == 0 {
				keep(t, s, fmt.Sprint(i))
			}
			if i%100 == 99 {
				s.RemoveSnapshot(bg, fmt.Sprint(i-99))
			}
		}
	}()
	for n := 0; ; n++ {
		checkStore(t, dir)
		select {
		case <-done:
			t.Log(n, "checks")
			return
		default:
		}
	}
}
