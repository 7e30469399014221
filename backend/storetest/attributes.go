package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storefs/storefs/backend"
)

func ptr[T any](v T) *T { return &v }

var attributes = []rule{
	{"attributes are set one by one, and the version stays", func(f *fixture) {
		f.put("a", "x")
		f.mkdir("d")
		f.symlink("l", "t")
		for _, p := range []string{"a", "d", "l", ""} {
			ref, before := f.ref(p), f.entry(p)
			change := func(c backend.AttrChange, want func(e *backend.Entry)) {
				f.Helper()
				expected := f.entry(p)
				got := f.do(func(b *backend.Batch) { b.SetAttr(ref, c); b.Time = now + 3 })
				expected.Ctime, expected.Revision = now+3, got.Generation
				want(&expected)
				e := f.entry(p)
				if text(e) != text(expected) {
					f.Errorf("%q: got  %s\nwant %s", p, text(e), text(expected))
				}
			}
			change(backend.AttrChange{Mode: ptr(uint32(0o107123))}, func(e *backend.Entry) { e.Mode = 0o7123 })
			change(backend.AttrChange{UID: ptr(uint32(1 << 31))}, func(e *backend.Entry) { e.UID = 1 << 31 })
			change(backend.AttrChange{GID: ptr(uint32(0))}, func(e *backend.Entry) { e.GID = 0 })
			change(backend.AttrChange{Atime: ptr(int64(-5))}, func(e *backend.Entry) { e.Atime = -5 })
			change(backend.AttrChange{Mtime: ptr(int64(1<<62 + 1))}, func(e *backend.Entry) { e.Mtime = 1<<62 + 1 })
			change(backend.AttrChange{Mtime: ptr(int64(0)), Mode: ptr(uint32(0))}, func(e *backend.Entry) { e.Mtime, e.Mode = 0, 0 })
			if e := f.entry(p); e.Ino != before.Ino || e.Size != before.Size || e.Target != before.Target {
				f.Errorf("%q: before %+v, after %+v", p, before, e)
			}
		}
		f.holds("a", "x")
	}},
	{"extended attributes", func(f *fixture) {
		f.put("a", "x")
		ref := f.ref("a")
		long := pattern(60_000, 3)
		set := func(set map[string]string, remove ...string) {
			f.Helper()
			f.do(func(b *backend.Batch) { b.SetAttr(ref, backend.AttrChange{SetXattr: set, RemoveXattr: remove}) })
		}
		want := func(want map[string]string) {
			f.Helper()
			if e := f.entry("a"); !maps.Equal(e.Xattrs, want) || want == nil && e.Xattrs != nil {
				f.Errorf("got %d, want %d xattrs: %s", len(e.Xattrs), len(want), short(fmt.Sprint(e.Xattrs)))
			}
		}
		want(nil)
		old := f.snap()
		set(map[string]string{"user.a": "1", "user.empty": "", "user.\xff": "\x00\xfe", "user.long": long})
		want(map[string]string{"user.a": "1", "user.empty": "", "user.\xff": "\x00\xfe", "user.long": long})
		set(map[string]string{"user.a": "2"}, "user.long", "user.none")
		want(map[string]string{"user.a": "2", "user.empty": "", "user.\xff": "\x00\xfe"})
		f.put("a", "new value")
		f.rename("a", "b", 0)
		f.rename("b", "a", 0)
		want(map[string]string{"user.a": "2", "user.empty": "", "user.\xff": "\x00\xfe"})
		set(nil, "user.a", "user.empty", "user.\xff")
		want(nil)
		if e, err := old.Lookup(ref); err != nil || e.Xattrs != nil {
			f.Errorf("old snapshot: %+v, %v", e, err)
		}
	}},
	{"attributes of what does not exist", func(f *fixture) {
		ref := f.ref("a")
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.SetAttr(ref, backend.AttrChange{Mode: ptr(uint32(0))}) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.SetAttr(ref, none) })
	}},
	{"an attribute change that sets nothing changes nothing", func(f *fixture) {
		c := f.put("a", "x")
		ref := f.ref("a")
		if d := f.do(func(b *backend.Batch) { b.SetAttr(ref, none) }); d.Generation != c.Generation || len(d.Changes) != 0 {
			f.Errorf("commit %+v", d)
		}
	}},
}

// text is e without what only the store understands.
func text(e backend.Entry) string {
	e.Locator = nil
	return fmt.Sprintf("%+v", e)
}

// oddNames are names that a directory can hold, in order.
var oddNames = []string{
	"\x01", "\n", " ", "\"", "%2f", "*", "-rf", "...", ".storefs", "A", "\\", "a", "a\x01", "a ", "a.b", "aa",
	strings.Repeat("n", backend.MaxName), "\x7f", "ä", "\xff", "\xff\xfe", strings.Repeat("\xff", backend.MaxName),
}

var names = []rule{
	{"any other byte may be in a name", func(f *fixture) {
		f.mkdir("d")
		for _, n := range oddNames {
			f.put("d/"+n, "in "+n)
		}
		want := slices.Sorted(slices.Values(oddNames))
		f.lists("d", "", want...)
		for i, n := range want {
			f.holds("d/"+n, "in "+n)
			f.lists("d", n, want[i+1:]...)
			f.lists("d", n+"\x00", want[i+1:]...)
		}
	}},
	{"names that no directory can hold", func(f *fixture) {
		f.put("a", "x")
		a := f.ref("a")
		for _, n := range []string{"", ".", "..", "x/y", "/", "nul\x00", strings.Repeat("n", backend.MaxName+1)} {
			ref := backend.Ref{Dir: backend.RootIno, Name: n}
			f.fails(backend.ErrName, func(b *backend.Batch) { b.Put(ref, f.stage("x"), &fresh, none) })
			f.fails(backend.ErrName, func(b *backend.Batch) { b.Append(ref, f.stage("x"), &fresh, none) })
			f.fails(backend.ErrName, func(b *backend.Batch) { b.Mkdir(ref, fresh) })
			f.fails(backend.ErrName, func(b *backend.Batch) { b.Symlink(ref, "t", fresh) })
			f.fails(backend.ErrName, func(b *backend.Batch) { b.Rename(a, ref, 0) })
			if e, err := f.snap().Lookup(ref); !errors.Is(err, backend.ErrNotFound) {
				f.Errorf("look up %q: %+v, %v", n, e, err)
			}
		}
	}},
	{"names of a directory are its own", func(f *fixture) {
		f.mkdir("a", "b", "a/b", "a/b/a")
		f.put("a/x", "1")
		f.put("b/x", "2")
		f.put("a/b/x", "3")
		f.put("a/b/a/x", "4")
		f.put("x", "5")
		f.lists("", "", "a", "b", "x")
		f.lists("a", "", "b", "x")
		f.lists("a/b", "", "a", "x")
		f.lists("a", "b", "x")
		f.holds("a/x", "1")
		f.holds("b/x", "2")
		f.holds("a/b/a/x", "4")
		f.holds("x", "5")
	}},
	{"list of a directory that does not exist", func(f *fixture) {
		f.put("a", "x")
		s := f.snap()
		for _, dir := range []backend.Ino{0, f.entry("a").Ino, 1 << 50} {
			for e, err := range s.List(dir, "") {
				f.Errorf("directory %d: %+v, %v", dir, e, err)
			}
			if ref, err := s.Parent(dir); !errors.Is(err, backend.ErrNotFound) {
				f.Errorf("parent of %d: %+v, %v", dir, ref, err)
			}
		}
		if ref, err := s.Parent(backend.RootIno); ref != backend.RootRef || err != nil {
			f.Errorf("parent of the root: %+v, %v", ref, err)
		}
	}},
	{"a directory of 2000 is listed in order", func(f *fixture) {
		const n = 2000
		f.mkdir("d", "d/sub")
		dir := f.entry("d").Ino
		name := func(i int) string { return fmt.Sprintf("key%05d", i) }
		for part := range 8 { // interleaved, so that the parts must be merged
			f.do(func(b *backend.Batch) {
				for i := part; i < n; i += 8 {
					b.Put(backend.Ref{Dir: dir, Name: name(i)}, f.stage(fmt.Sprint("value ", i)), &fresh, none)
				}
			})
		}
		f.do(func(b *backend.Batch) {
			for i := 0; i < n; i += 3 {
				b.Remove(backend.Ref{Dir: dir, Name: name(i)})
			}
		})
		want := []string{}
		for i := range n {
			if i%3 != 0 {
				want = append(want, name(i))
			}
		}
		f.lists("d", "", append(slices.Clone(want), "sub")...)
		f.lists("d", want[700], append(slices.Clone(want[701:]), "sub")...)
		f.lists("d", name(999), append(slices.Clone(want[666:]), "sub")...) // a removed one
		s := f.snap()
		for _, i := range []int{1, 2, 1000, 1999} {
			e, err := s.Lookup(backend.Ref{Dir: dir, Name: name(i)})
			if err != nil {
				f.Fatal(err)
			}
			if v, err := readEntry(s, e); v != fmt.Sprint("value ", i) || err != nil {
				f.Errorf("%s holds %q, %v", name(i), v, err)
			}
		}
		f.absent("d/" + name(3))
		for range s.List(dir, "") {
			break // leaving a listing early is allowed
		}
	}},
}
