package backend_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
	"pgregory.net/rapid"
)

// TestTxnPublishesWhatItShows does random batches to a transaction on one store and directly to another: the transaction must show what the
// other has, and, published, the first must have it too. Between transactions both have the same.
func TestTxnPublishesWhatItShows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { publishes(t, rt, false) })
}

// TestNestedTxnPublishesWhatItShows does it in a transaction of a transaction.
func TestNestedTxnPublishesWhatItShows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { publishes(t, rt, true) })
}

func publishes(t *testing.T, rt *rapid.T, nested bool) {
	a, b := backend.NewMemory(), backend.NewMemory()
	clock := int64(1000)
	set := func(s backend.Store) {
		batch := &backend.Batch{Time: clock}
		at := clock
		batch.SetAttr(backend.RootRef, backend.AttrChange{Atime: &at, Mtime: &at})
		if _, err := s.Commit(t.Context(), batch); err != nil {
			rt.Fatal(err)
		}
	}
	set(a)
	set(b)
	for n := range rapid.IntRange(1, 3).Draw(rt, "transactions") {
		counted := &countingStore{Store: a}
		var over backend.Store = counted
		txn := beginIn(t, rt, over)
		inner := txn
		if nested {
			inner = beginIn(t, rt, txn)
		}
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			clock++
			both(t, rt, inner, b, clock)
			ctime := n == 0 // those of what was published are the times of the publications
			if x, y := tree(t, rt, inner, ctime), tree(t, rt, b, ctime); x != y {
				rt.Fatalf("the transaction shows\n%sinstead of\n%s", x, y)
			}
		}
		for _, x := range slices.Compact([]*backend.Txn{inner, txn}) {
			before := x.Generation()
			done, err := x.Publish(t.Context())
			if err != nil {
				rt.Fatal(err)
			}
			for _, c := range done.Changes {
				for _, i := range []backend.Ino{c.Ref.Dir, inoOf(c.Old), inoOf(c.New)} {
					if i>>63 != 0 && (x == txn || i>>62&1 != 0) {
						rt.Fatalf("number %x in %+v", i, c)
					}
				}
			}
			if done.Generation > before+1 && x == txn {
				rt.Fatalf("generation %d became %d", before, done.Generation)
			}
		}
		if x, y := tree(t, rt, a, false), tree(t, rt, b, false); x != y {
			rt.Fatalf("published is\n%sinstead of\n%s", x, y)
		}
		if s := counted.open(); s != "" {
			rt.Fatal(s)
		}
	}
}

func inoOf(e *backend.Entry) backend.Ino {
	if e == nil {
		return 0
	}
	return e.Ino
}

func beginIn(t *testing.T, rt *rapid.T, s backend.Store) *backend.Txn {
	txn, err := backend.Begin(t.Context(), s)
	if err != nil {
		rt.Fatal(err)
	}
	return txn
}

// both makes the same random batch in both stores: they must say the same.
func both(t *testing.T, rt *rapid.T, x, y backend.Store, clock int64) {
	places := allPlaces(t, rt, y)
	type fill func(b *backend.Batch, at func(string) backend.Ref, stage func(string) backend.Stage)
	var fills []fill
	add := func(f fill) { fills = append(fills, f) }
	path := rapid.SampledFrom(places)
	for range rapid.IntRange(1, 4).Draw(rt, "operations") {
		p := path.Draw(rt, "at")
		attr := backend.Attr{Mode: rapid.Uint32Range(0, 0o777).Draw(rt, "mode"), Mtime: clock, Atime: clock}
		var c backend.AttrChange
		switch rapid.IntRange(0, 5).Draw(rt, "set") {
		case 0:
			c.Mode = &attr.Mode
		case 1:
			c.SetXattr = map[string]string{"user.a": fmt.Sprint(clock)}
		case 2:
			c.RemoveXattr = []string{"user.a"}
			old := clock - 500
			c.Mtime = &old
		}
		content := strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 10, 99}).Draw(rt, "bytes")) + fmt.Sprint(clock)
		switch rapid.SampledFrom([]string{"put", "put", "append", "append", "twice", "mkdir", "mkdir", "fill", "symlink", "remove", "rmdir", "rename", "rename", "rename", "setattr"}).Draw(rt, "op") {
		case "put":
			add(func(b *backend.Batch, at func(string) backend.Ref, stage func(string) backend.Stage) {
				b.Put(at(p), stage(content), &attr, c)
			})
		case "append":
			add(func(b *backend.Batch, at func(string) backend.Ref, stage func(string) backend.Stage) {
				b.Append(at(p), stage(content), &attr, c)
			})
		case "twice":
			q := path.Draw(rt, "and at")
			add(func(b *backend.Batch, at func(string) backend.Ref, stage func(string) backend.Stage) {
				s := stage(content)
				b.Append(at(p), s, &attr, c)
				b.Append(at(p), s, &attr, c)
				b.Put(at(q), s, &attr, c)
			})
		case "mkdir":
			add(func(b *backend.Batch, at func(string) backend.Ref, _ func(string) backend.Stage) {
				b.Mkdir(at(p), attr)
			})
		case "fill":
			add(func(b *backend.Batch, at func(string) backend.Ref, stage func(string) backend.Stage) {
				d := b.Mkdir(at(p), attr)
				e := b.Mkdir(backend.Ref{Dir: d, Name: "b"}, attr)
				b.Put(backend.Ref{Dir: e, Name: "a"}, stage(content), &attr, c)
			})
		case "symlink":
			add(func(b *backend.Batch, at func(string) backend.Ref, _ func(string) backend.Stage) {
				b.Symlink(at(p), content[:1], attr)
			})
		case "remove":
			add(func(b *backend.Batch, at func(string) backend.Ref, _ func(string) backend.Stage) { b.Remove(at(p)) })
		case "rmdir":
			add(func(b *backend.Batch, at func(string) backend.Ref, _ func(string) backend.Stage) { b.Rmdir(at(p)) })
		case "rename":
			q := path.Draw(rt, "to")
			f := rapid.SampledFrom([]backend.RenameFlags{0, 0, backend.NoReplace, backend.Exchange, backend.Exchange}).Draw(rt, "flags")
			add(func(b *backend.Batch, at func(string) backend.Ref, _ func(string) backend.Stage) {
				b.Rename(at(p), at(q), f)
			})
		case "setattr":
			add(func(b *backend.Batch, at func(string) backend.Ref, _ func(string) backend.Stage) { b.SetAttr(at(p), c) })
		}
	}
	var errs [2]error
	for i, s := range []backend.Store{x, y} {
		snap, err := s.Snapshot(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		var stages []backend.Stage
		b := &backend.Batch{Time: clock}
		for _, f := range fills {
			f(b, func(path string) backend.Ref {
				r, err := refAt(snap, path)
				if err != nil {
					rt.Fatal(err)
				}
				return r
			}, func(content string) backend.Stage {
				st, err := s.NewStage()
				if err == nil {
					_, err = st.WriteAt([]byte(content), 0)
				}
				if err != nil {
					rt.Fatal(err)
				}
				stages = append(stages, st)
				return st
			})
		}
		_, errs[i] = s.Commit(t.Context(), b)
		snap.Close()
		for _, st := range stages {
			st.Close()
		}
	}
	for _, s := range []error{backend.ErrNotFound, backend.ErrExists, backend.ErrNotEmpty, backend.ErrIsDir, backend.ErrNotDir, backend.ErrInvalid} {
		if errors.Is(errs[0], s) != errors.Is(errs[1], s) {
			rt.Fatalf("the transaction says %v, the store %v", errs[0], errs[1])
		}
	}
	if (errs[0] == nil) != (errs[1] == nil) {
		rt.Fatalf("the transaction says %v, the store %v", errs[0], errs[1])
	}
}

// refAt returns the place at path, whose directory exists.
func refAt(s backend.Snapshot, path string) (backend.Ref, error) {
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	d, err := backend.Walk(s, dir)
	return backend.Ref{Dir: d.Ino, Name: name}, err
}

// allPlaces returns the paths at which something is, or may be made.
func allPlaces(t *testing.T, rt *rapid.T, s backend.Store) []string {
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	defer snap.Close()
	var paths []string
	var walk func(dir backend.Ino, path string)
	walk = func(dir backend.Ino, path string) {
		for _, n := range []string{"a", "b", "c"} {
			paths = append(paths, path+n)
		}
		for e := range snap.List(dir, "") {
			if e.Kind == backend.Dir {
				walk(e.Ino, path+e.Name+"/")
			}
		}
	}
	walk(backend.RootIno, "")
	return paths
}

// tree returns all there is in s as text, with ctime if asked.
func tree(t testing.TB, rt interface{ Fatal(...any) }, s backend.Store, ctime bool) string {
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	defer snap.Close()
	var out strings.Builder
	root, err := snap.Lookup(backend.RootRef)
	if err != nil {
		rt.Fatal(err)
	}
	inos := map[backend.Ino]string{}
	var show func(e backend.Entry, path string)
	show = func(e backend.Entry, path string) {
		if was, twice := inos[e.Ino]; twice {
			rt.Fatal(fmt.Sprintf("ino %x at %q and %q", e.Ino, was, path))
		}
		inos[e.Ino] = path
		again, err := snap.Lookup(e.Ref)
		if err != nil || again.Ino != e.Ino {
			rt.Fatal(fmt.Sprintf("listed %+v, looked up %+v, %v", e, again, err))
		}
		fmt.Fprintf(&out, "%q %d %o %d %d %v %d %q", path, e.Kind, e.Mode, e.Mtime, e.Atime, e.Xattrs, e.Size, e.Target)
		if ctime {
			fmt.Fprintf(&out, " %d", e.Ctime)
		}
		switch e.Kind {
		case backend.File:
			fmt.Fprintf(&out, " %q\n", content(rt, snap, e))
		case backend.Dir:
			out.WriteByte('\n')
			if at, err := snap.Parent(e.Ino); err != nil || at != e.Ref {
				rt.Fatal(fmt.Sprintf("directory at %+v stands at %+v, %v", e.Ref, at, err))
			}
			for c, err := range snap.List(e.Ino, "") {
				if err != nil {
					rt.Fatal(err)
				}
				show(c, path+"/"+c.Name)
			}
		default:
			out.WriteByte('\n')
		}
	}
	show(root, "")
	return out.String()
}

func content(rt interface{ Fatal(...any) }, s backend.Snapshot, e backend.Entry) string {
	v, err := s.Open(e)
	if err != nil {
		rt.Fatal(err)
	}
	defer v.Close()
	b := make([]byte, v.Size())
	if n, err := v.ReadAt(b, 0); n < len(b) || v.Size() != e.Size {
		rt.Fatal(fmt.Sprintf("%d of %d bytes: %v", n, e.Size, err))
	}
	return string(b)
}
