package backend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/storefs/storefs/backend"
)

// shell does steps on paths of a store, for tests that are read rather than generated.
type shell struct {
	testing.TB
	s backend.Store
}

func (sh shell) commit(fill func(b *backend.Batch, at func(string) backend.Ref)) {
	sh.Helper()
	snap, err := sh.s.Snapshot(sh.Context())
	if err != nil {
		sh.Fatal(err)
	}
	defer snap.Close()
	b := &backend.Batch{}
	fill(b, func(path string) backend.Ref {
		r, err := refAt(snap, path)
		if err != nil {
			sh.Fatal(err)
		}
		return r
	})
	if _, err := sh.s.Commit(sh.Context(), b); err != nil {
		sh.Fatal(err)
	}
}

var fresh = backend.Attr{Mode: 0o644}

var same backend.AttrChange

func (sh shell) stage(content string) backend.Stage {
	sh.Helper()
	st, err := sh.s.NewStage()
	if err == nil {
		_, err = st.WriteAt([]byte(content), 0)
	}
	if err != nil {
		sh.Fatal(err)
	}
	sh.Cleanup(func() { st.Close() })
	return st
}

func (sh shell) put(path, content string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Put(at(path), sh.stage(content), &fresh, same) })
}

func (sh shell) append(path, content string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) {
		b.Append(at(path), sh.stage(content), &fresh, same)
	})
}

func (sh shell) mkdir(path string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Mkdir(at(path), fresh) })
}

func (sh shell) rm(path string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Remove(at(path)) })
}

func (sh shell) rmdir(path string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Rmdir(at(path)) })
}

func (sh shell) mv(from, to string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Rename(at(from), at(to), 0) })
}

func (sh shell) swap(x, y string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Rename(at(x), at(y), backend.Exchange) })
}

func (sh shell) symlink(path, target string) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Symlink(at(path), target, fresh) })
}

func (sh shell) chmod(path string, mode uint32) {
	sh.Helper()
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) {
		b.SetAttr(at(path), backend.AttrChange{Mode: &mode})
	})
}

func (sh shell) utime(path string) {
	sh.Helper()
	at0 := int64(7)
	sh.commit(func(b *backend.Batch, at func(string) backend.Ref) {
		b.SetAttr(at(path), backend.AttrChange{Mtime: &at0, Atime: &at0})
	})
}

// look returns the content at path, a link's target, the names in a directory, or "none".
func (sh shell) look(path string) string {
	sh.Helper()
	snap, err := sh.s.Snapshot(sh.Context())
	if err != nil {
		sh.Fatal(err)
	}
	defer snap.Close()
	e, err := backend.Walk(snap, path)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return "none"
	case err != nil:
		sh.Fatal(err)
	case e.Kind == backend.File:
		return content(sh, snap, e)
	case e.Kind == backend.Symlink:
		return e.Target
	}
	var names []string
	for c, err := range snap.List(e.Ino, "") {
		if err != nil {
			sh.Fatal(err)
		}
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// stat looks up path without reading it.
func (sh shell) stat(path string) backend.Entry {
	sh.Helper()
	snap, err := sh.s.Snapshot(sh.Context())
	if err != nil {
		sh.Fatal(err)
	}
	defer snap.Close()
	e, err := backend.Walk(snap, path)
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		sh.Fatal(err)
	}
	return e
}

// meeting is what a transaction does, what another does before it is published, and whether they conflict.
type meeting struct {
	name     string
	txn      func(t shell)
	outside  func(s shell)
	conflict bool
}

// There is a, b with their names in them, the empty directory empty, and d with a, b, and the directory sub with a; link leads to a.
var meetings = []meeting{
	{"content read, then changed", func(t shell) { t.look("a"); t.put("new", "") }, func(s shell) { s.put("a", "other") }, true},
	{"content read, then appended to", func(t shell) { t.look("a"); t.put("new", "") }, func(s shell) { s.append("a", "") }, true},
	{"content read, then removed", func(t shell) { t.look("a"); t.put("new", "") }, func(s shell) { s.rm("a") }, true},
	{"content read, then replaced by a move", func(t shell) { t.look("a"); t.put("new", "") }, func(s shell) { s.mv("b", "a") }, true},
	{"content read after a move here, then changed", func(t shell) { t.mv("a", "c"); t.look("c") }, func(s shell) { s.put("a", "other") }, true},
	{"link read, then replaced", func(t shell) { t.look("link"); t.put("new", "") }, func(s shell) { s.rm("link"); s.symlink("link", "b") }, true},
	{"absence read, then created", func(t shell) { t.look("n"); t.put("new", "") }, func(s shell) { s.put("n", "") }, true},
	{"presence read, then removed", func(t shell) { t.stat("a"); t.put("new", "") }, func(s shell) { s.rm("a") }, true},
	{"presence read, then a directory", func(t shell) { t.stat("a"); t.put("new", "") }, func(s shell) { s.rm("a"); s.mkdir("a") }, true},
	{"directory found, then another in its place", func(t shell) { t.look("d/a"); t.put("new", "") }, func(s shell) { s.swap("d", "empty") }, true},
	{"names read, then one more", func(t shell) { t.look("d"); t.put("new", "") }, func(s shell) { s.put("d/n", "") }, true},
	{"names read, then one less", func(t shell) { t.look("d"); t.put("new", "") }, func(s shell) { s.rm("d/b") }, true},
	{"names read, then one moved in", func(t shell) { t.look("d"); t.put("new", "") }, func(s shell) { s.mv("b", "d/n") }, true},
	{"both write a key", func(t shell) { t.put("a", "1") }, func(s shell) { s.put("a", "2") }, true},
	{"both make a key", func(t shell) { t.put("n", "1") }, func(s shell) { s.put("n", "2") }, true},
	{"both make a directory", func(t shell) { t.mkdir("n") }, func(s shell) { s.mkdir("n") }, true},
	{"both append to a key", func(t shell) { t.append("a", "1") }, func(s shell) { s.append("a", "2") }, true},
	{"both remove a key", func(t shell) { t.rm("a") }, func(s shell) { s.rm("a") }, true},
	{"both set attributes of a key", func(t shell) { t.chmod("a", 0) }, func(s shell) { s.chmod("a", 1) }, true},
	{"both set attributes of a directory", func(t shell) { t.chmod("d", 0) }, func(s shell) { s.chmod("d", 1) }, true},
	{"written, then attributes set", func(t shell) { t.put("a", "1") }, func(s shell) { s.chmod("a", 0o600) }, true},
	{"attributes set, then written", func(t shell) { t.chmod("a", 0o600) }, func(s shell) { s.put("a", "1") }, true},
	{"directory removed, then something made in it", func(t shell) { t.rmdir("empty") }, func(s shell) { s.put("empty/n", "") }, true},
	{"directory emptied and removed, then something made in it", func(t shell) { t.rm("d/sub/a"); t.rmdir("d/sub") }, func(s shell) { s.put("d/sub/n", "") }, true},
	{"directory replaced, then something made in it", func(t shell) { t.mv("d", "empty") }, func(s shell) { s.put("empty/n", "") }, true},
	{"something made in a directory, then removed", func(t shell) { t.put("empty/n", "") }, func(s shell) { s.rmdir("empty") }, true},
	{"something made in a directory, then moved", func(t shell) { t.put("d/n", "") }, func(s shell) { s.mv("d", "e") }, true},
	{"directories moved into each other", func(t shell) { t.mv("d", "empty/d") }, func(s shell) { s.mv("empty", "d/sub/e") }, true},
	{"directory moved by both", func(t shell) { t.mv("d", "x") }, func(s shell) { s.mv("d", "y") }, true},
	{"key moved, then changed", func(t shell) { t.mv("a", "c") }, func(s shell) { s.put("a", "other") }, true},
	{"key moved in a moved directory, then changed", func(t shell) { t.mv("d", "e"); t.mv("e/a", "c") }, func(s shell) { s.put("d/a", "other") }, true},
	{"key replaced by a move, then changed", func(t shell) { t.mv("a", "b") }, func(s shell) { s.put("b", "other") }, true},
	{"an operation that failed", func(t shell) {
		snap, _ := t.s.Snapshot(t.Context())
		defer snap.Close()
		r, _ := refAt(snap, "n")
		b := &backend.Batch{}
		b.Remove(r)
		if _, err := t.s.Commit(t.Context(), b); !errors.Is(err, backend.ErrNotFound) {
			t.Error(err)
		}
		t.put("new", "")
	}, func(s shell) { s.put("n", "") }, true},
	{"an expectation that held", func(t shell) {
		e := t.stat("a")
		t.commit(func(b *backend.Batch, at func(string) backend.Ref) { b.Expect(e.Ref, e.Ino); b.Mkdir(at("new"), fresh) })
	}, func(s shell) { s.put("a", "other") }, true},

	{"nothing else", func(t shell) { t.put("a", "1"); t.look("d"); t.mv("b", "d/n") }, func(s shell) {}, false},
	{"other keys changed", func(t shell) { t.look("a"); t.put("b", "1") }, func(s shell) { s.put("d/a", "2"); s.append("d/b", "2") }, false},
	{"both make keys in a directory", func(t shell) { t.put("d/n", "1"); t.rm("d/a") }, func(s shell) { s.put("d/m", "2"); s.rm("d/b") }, false},
	{"names read, then a content changed", func(t shell) { t.look("d"); t.put("new", "") }, func(s shell) { s.put("d/a", "other") }, false},
	{"size read, then content changed", func(t shell) { t.stat("a"); t.put("new", "") }, func(s shell) { s.put("a", "other") }, false},
	{"content read, then attributes set", func(t shell) { t.look("a"); t.put("new", "") }, func(s shell) { s.chmod("a", 0) }, false},
	{"something in a directory, then its times set", func(t shell) { t.put("d/n", "") }, func(s shell) { s.utime("d") }, false},
	{"directory moved, then something made in it", func(t shell) { t.mv("d", "e") }, func(s shell) { s.put("d/n", "") }, false},
	{"attributes of a directory, then something made in it", func(t shell) { t.chmod("d", 0) }, func(s shell) { s.put("d/n", "") }, false},
	{"nothing written", func(t shell) { t.look("a"); t.look("d"); t.look("n") }, func(s shell) { s.put("a", "other"); s.put("n", ""); s.put("d/n", "") }, false},
	{"made and removed again", func(t shell) { t.put("d/n", ""); t.rm("d/n") }, func(s shell) { s.put("a", "other") }, false},
	{"listed what it made itself", func(t shell) { t.mkdir("n"); t.put("n/x", ""); t.look("n") }, func(s shell) { s.put("m", "") }, false},
}

func TestTxnConflicts(t *testing.T) {
	for _, m := range meetings {
		t.Run(m.name, func(t *testing.T) {
			counted := &countingStore{Store: backend.NewMemory()}
			s := shell{t, counted}
			s.mkdir("empty")
			s.mkdir("d")
			s.mkdir("d/sub")
			for _, p := range []string{"a", "b", "d/a", "d/b", "d/sub/a"} {
				s.put(p, p)
			}
			s.symlink("link", "a")
			txn := begin(t, counted)
			m.txn(shell{t, txn})
			m.outside(s)
			before := tree(t, t, counted, true)
			_, err := txn.Publish(t.Context())
			switch {
			case !m.conflict && err != nil:
				t.Fatal(err)
			case m.conflict && !errors.Is(err, backend.ErrConflict):
				t.Fatalf("published, %v", err)
			case m.conflict:
				if after := tree(t, t, counted, true); after != before {
					t.Errorf("a conflict left\n%sof\n%s", after, before)
				}
				if _, err := txn.Publish(t.Context()); !errors.Is(err, backend.ErrConflict) {
					t.Errorf("again: %v", err)
				}
				if err := txn.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Times that the transaction set itself are published; of a directory in which both made something, the later.
func TestTxnTimes(t *testing.T) {
	s := shell{t, backend.NewMemory()}
	s.mkdir("d")
	s.mkdir("e")
	txn := shell{t, begin(t, s.s)}
	txn.put("d/n", "")
	txn.put("e/n", "")
	txn.utime("e")
	txn.mkdir("f")
	txn.put("f/n", "")
	txn.utime("f")
	inTxn := txn.stat("d").Mtime
	time.Sleep(time.Millisecond)
	s.put("d/m", "")
	outside := s.stat("d").Mtime
	if _, err := txn.s.(*backend.Txn).Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.stat("d").Mtime; got != outside || got <= inTxn {
		t.Errorf("mtime %d, want %d", got, outside)
	}
	for _, p := range []string{"e", "f"} {
		if e := s.stat(p); e.Mtime != 7 || e.Atime != 7 || e.Ctime <= inTxn {
			t.Errorf("%s: %+v", p, e)
		}
	}
	if got := s.look("d"); got != "m n" {
		t.Error(got)
	}
}

// After Publish and Close all is refused but what is open already.
func TestTxnClosed(t *testing.T) {
	for _, publish := range []bool{true, false} {
		t.Run(fmt.Sprint("published ", publish), func(t *testing.T) {
			counted := &countingStore{Store: backend.NewMemory()}
			shell{t, counted.Store}.put("old", "old")
			txn := begin(t, counted)
			sh := shell{t, txn}
			sh.put("a", "content")
			sh.append("a", " and more")
			sh.append("old", "er")
			snap, err := txn.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e, _ := backend.Walk(snap, "a")
			old, _ := backend.Walk(snap, "old")
			v, err := snap.Open(e)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error)
			go func() {
				for _, err := range txn.Watch(t.Context(), 0) {
					ended <- err
				}
			}()
			if publish {
				_, err = txn.Publish(t.Context())
			} else {
				err = txn.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, backend.ErrClosed) {
				t.Error(err)
			}
			b := make([]byte, 16)
			if n, err := v.ReadAt(b, 0); string(b[:n]) != "content and more" || err != nil {
				t.Errorf("%q, %v", b[:n], err)
			}
			if got := content(t, snap, old); got != "older" {
				t.Errorf("%q", got)
			}
			if counted.open() == "" {
				t.Error("closed under a snapshot")
			}
			if err := errors.Join(snap.Close(), snap.Close()); err != nil {
				t.Error(err)
			}
			if n, err := v.ReadAt(b, 8); string(b[:n]) != "and more" {
				t.Errorf("%q, %v", b[:n], err)
			}
			if err := errors.Join(v.Close(), v.Close()); err != nil {
				t.Error(err)
			}
			if s := counted.open(); s != "" {
				t.Error(s)
			}
			_, err1 := snap.Open(e)
			_, err2 := snap.Lookup(e.Ref)
			_, err3 := v.ReadAt(b, 0)
			_, err4 := txn.Publish(t.Context())
			_, err5 := txn.Commit(t.Context(), &backend.Batch{})
			_, err6 := txn.NewStage()
			_, err7 := txn.Snapshot(t.Context())
			for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, txn.Sync(t.Context())} {
				if !errors.Is(err, backend.ErrClosed) {
					t.Errorf("%d: %v", i, err)
				}
			}
			if err := txn.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is written over in a transaction must not stay until its end, except for those who read it.
func TestTxnDropsStages(t *testing.T) {
	counted := &countingStore{Store: backend.NewMemory()}
	txn := begin(t, counted)
	commit := func(fill func(b *backend.Batch, st backend.Stage)) {
		t.Helper()
		st, err := txn.NewStage()
		if err != nil {
			t.Fatal(err)
		}
		st.WriteAt([]byte("line\n"), 0)
		b := &backend.Batch{}
		fill(b, st)
		if _, err := txn.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		st.Close()
	}
	a, log := backend.Ref{Dir: backend.RootIno, Name: "a"}, backend.Ref{Dir: backend.RootIno, Name: "log"}
	for range 1000 {
		commit(func(b *backend.Batch, st backend.Stage) { b.Put(a, st, &fresh, same) })
		commit(func(b *backend.Batch, st backend.Stage) { b.Append(log, st, &fresh, same) })
	}
	if n := counted.most.Load(); n > 20 {
		t.Errorf("%d stages at once", n)
	}
	snap, err := txn.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	commit(func(b *backend.Batch, st backend.Stage) { b.Put(a, st, &fresh, same); b.Remove(log) })
	for _, p := range []string{"a", "log"} {
		e, err := backend.Walk(snap, p)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := content(t, snap, e), strings.Repeat("line\n", int(e.Size)/5); got != want || p == "log" && e.Size != 5000 {
			t.Errorf("%s has %d bytes", p, len(got))
		}
	}
	snap.Close()
	if n := counted.stages.Load(); n != 1 {
		t.Errorf("%d stages left", n)
	}
	txn.Close()
	if s := counted.open(); s != "" {
		t.Error(s)
	}
}

// A stage of another store is copied; one that was refused stays its owner's.
func TestTxnStages(t *testing.T) {
	m := backend.NewMemory()
	txn := begin(t, m)
	st := shell{t, m}.stage("foreign")
	b := &backend.Batch{}
	b.Put(backend.Ref{Dir: backend.RootIno, Name: "a"}, st, &fresh, same)
	b.Append(backend.Ref{Dir: backend.RootIno, Name: "a"}, st, &fresh, same)
	if _, err := txn.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := (shell{t, txn}).look("a"); got != "foreignforeign" {
		t.Error(got)
	}
	own := shell{t, txn}.stage("own")
	b = &backend.Batch{}
	b.Put(backend.Ref{Dir: 99, Name: "a"}, own, &fresh, same)
	if _, err := txn.Commit(t.Context(), b); !errors.Is(err, backend.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := own.WriteAt([]byte("ed"), 3); err != nil {
		t.Fatal(err)
	}
	b = &backend.Batch{}
	b.Append(backend.Ref{Dir: backend.RootIno, Name: "a"}, own, nil, same)
	if _, err := txn.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, err := own.WriteAt([]byte("x"), 0); err == nil {
		t.Error("wrote to a stage that was committed")
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	if _, err := txn.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := (shell{t, m}).look("a"); got != "foreignforeignowned" {
		t.Error(got)
	}
}

// A transaction of many keys takes time in proportion to them.
func TestTxnOfManyKeys(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 4000
	}
	m := backend.NewMemory()
	txn := begin(t, m)
	var dir backend.Ino
	for i := range n {
		b := &backend.Batch{}
		if i%100 == 0 {
			ref := backend.Ref{Dir: backend.RootIno, Name: fmt.Sprint(i)}
			b.Mkdir(ref, fresh)
			c, err := txn.Commit(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			e, _ := c.Entry(ref)
			dir, b = e.Ino, &backend.Batch{}
		}
		b.Symlink(backend.Ref{Dir: dir, Name: fmt.Sprint(i)}, "t", fresh)
		if _, err := txn.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	b := &backend.Batch{} // and a large batch, in which directories are removed
	for i := range n / 4 {
		b.Rmdir(backend.Ref{Dir: dir, Name: fmt.Sprint("d", i)})
		b.Mkdir(backend.Ref{Dir: dir, Name: fmt.Sprint("d", i)}, fresh)
	}
	mk := &backend.Batch{}
	for i := range n / 4 {
		mk.Mkdir(backend.Ref{Dir: dir, Name: fmt.Sprint("d", i)}, fresh)
	}
	for _, b := range []*backend.Batch{mk, b} {
		if _, err := txn.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	done, err := txn.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := n + n/100 + n/4 + 1; len(done.Changes) != want {
		t.Errorf("%d changes, want %d", len(done.Changes), want)
	}
}
