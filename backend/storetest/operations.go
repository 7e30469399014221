package storetest

import (
	"strings"

	"github.com/storefs/storefs/backend"
)

var operations = []rule{
	{"a new store has an empty root", func(f *fixture) {
		r := f.entry("")
		if r.Kind != backend.Dir || r.Ino != backend.RootIno || r.Ref != backend.RootRef {
			f.Errorf("root is %+v", r)
		}
		if g := f.snap().Generation(); g != 0 {
			f.Errorf("generation %d", g)
		}
		f.lists("", "")
	}},
	{"put makes a file", func(f *fixture) {
		c := f.put("a", "value")
		e := f.entry("a")
		if e.Kind != backend.File || e.Size != 5 || e.Mode != fresh.Mode || e.UID != fresh.UID || e.GID != fresh.GID ||
			e.Atime != fresh.Atime || e.Mtime != fresh.Mtime || e.Ctime != now || e.Revision != c.Generation || e.Ino == 0 {
			f.Errorf("entry %+v", e)
		}
		f.holds("a", "value")
		got, ok := c.Entry(e.Ref)
		if !ok || got.Ino != e.Ino || got.Size != 5 || got.Revision != c.Generation {
			f.Errorf("commit said %+v, %v", got, ok)
		}
	}},
	{"put sets times not given to the time of the commit", func(f *fixture) {
		a := f.ref("a")
		f.do(func(b *backend.Batch) { b.Put(a, f.stage("x"), &backend.Attr{Mode: 0o177777}, none) })
		if e := f.entry("a"); e.Atime != now || e.Mtime != now || e.Mode != 0o7777 {
			f.Errorf("entry %+v", e)
		}
	}},
	{"put replaces the value and keeps the attributes but for mtime", func(f *fixture) {
		f.put("a", "long old value")
		ref := f.ref("a")
		f.do(func(b *backend.Batch) {
			b.Put(ref, f.stage("new"), &backend.Attr{Mode: 0o777, UID: 99}, none)
			b.Time = now + 7
		})
		f.holds("a", "new")
		if e := f.entry("a"); e.Mode != fresh.Mode || e.UID != fresh.UID || e.Atime != fresh.Atime || e.Mtime != now+7 || e.Ctime != now+7 {
			f.Errorf("entry %+v", e)
		}
	}},
	{"put and append make the attribute change on top", func(f *fixture) {
		mode, mtime := uint32(0o600), int64(5)
		set := backend.AttrChange{Mode: &mode, Mtime: &mtime, SetXattr: map[string]string{"user.k": "v"}}
		a, z := f.ref("a"), f.ref("b")
		for range 2 {
			f.do(func(b *backend.Batch) {
				b.Put(a, f.stage("x"), &fresh, set)
				b.Append(z, f.stage("x"), &fresh, set)
			})
			for _, p := range []string{"a", "b"} {
				if e := f.entry(p); e.Mode != mode || e.Mtime != mtime || e.Xattrs["user.k"] != "v" {
					f.Errorf("%s: %+v", p, e)
				}
			}
		}
	}},
	{"put of an absent file without attributes", func(f *fixture) {
		a := f.ref("a")
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Put(a, f.stage("x"), nil, none) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Append(a, f.stage("x"), nil, none) })
		f.put("a", "")
		f.do(func(b *backend.Batch) { b.Put(a, f.stage("x"), nil, none) })
		f.holds("a", "x")
	}},
	{"put in a directory that does not exist", func(f *fixture) {
		f.put("file", "")
		for _, dir := range []backend.Ino{0, 1 << 40, f.entry("file").Ino} {
			f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Put(backend.Ref{Dir: dir, Name: "x"}, f.stage("x"), &fresh, none) })
			f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Mkdir(backend.Ref{Dir: dir, Name: "x"}, fresh) })
		}
	}},
	{"put and append over a directory", func(f *fixture) {
		f.mkdir("d")
		for _, ref := range []backend.Ref{f.ref("d"), backend.RootRef} {
			f.fails(backend.ErrIsDir, func(b *backend.Batch) { b.Put(ref, f.stage("x"), &fresh, none) })
			f.fails(backend.ErrIsDir, func(b *backend.Batch) { b.Append(ref, f.stage("x"), &fresh, none) })
		}
	}},
	{"append adds to the value as it is at the commit", func(f *fixture) {
		f.append("a", "one")
		f.append("a", "")
		f.append("a", "two")
		f.holds("a", "onetwo")
		big := pattern(300_000, 1)
		f.append("a", big)
		f.append("a", "end")
		f.holds("a", "onetwo"+big+"end")
	}},
	{"operations of a batch see those before them", func(f *fixture) {
		a, z := f.ref("a"), f.ref("b")
		f.do(func(b *backend.Batch) {
			b.Put(a, f.stage("1"), &fresh, none)
			b.Append(a, f.stage("2"), nil, none)
			b.Rename(a, z, 0)
			b.Append(z, f.stage("3"), nil, none)
			b.Put(a, f.stage("x"), &fresh, none)
			b.Append(a, f.stage("y"), nil, none)
			b.Rename(a, z, backend.Exchange)
			b.Append(a, f.stage("4"), nil, none)
			mode := uint32(0o700)
			b.SetAttr(a, backend.AttrChange{Mode: &mode})
		})
		f.holds("a", "1234")
		f.holds("b", "xy")
		if e := f.entry("a"); e.Mode != 0o700 {
			f.Errorf("mode %o", e.Mode)
		}
		f.put("c", "c")
		c := f.ref("c")
		f.do(func(b *backend.Batch) { // of stored values
			b.Append(a, f.stage("5"), nil, none)
			b.Rename(c, z, 0)
			b.Append(z, f.stage("d"), nil, none)
			b.Remove(a)
			b.Append(a, f.stage("anew"), &fresh, none)
		})
		f.holds("a", "anew")
		f.holds("b", "cd")
		f.absent("c")
	}},
	{"mkdir", func(f *fixture) {
		f.mkdir("d", "d/e", "d/e/f")
		if e := f.entry("d/e/f"); e.Kind != backend.Dir || e.Mode != fresh.Mode || e.Size != 0 {
			f.Errorf("entry %+v", e)
		}
		f.put("d/x", "")
		for _, p := range []string{"d", "d/e", "d/x"} {
			ref := f.ref(p)
			f.fails(backend.ErrExists, func(b *backend.Batch) { b.Mkdir(ref, fresh) })
		}
		f.fails(backend.ErrExists, func(b *backend.Batch) { b.Mkdir(backend.RootRef, fresh) })
	}},
	{"remove", func(f *fixture) {
		f.mkdir("d")
		f.put("a", "x")
		f.symlink("l", "a")
		for _, p := range []string{"a", "l"} {
			ref := f.ref(p)
			f.do(func(b *backend.Batch) { b.Remove(ref) })
			f.absent(p)
			f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Remove(ref) })
		}
		d := f.ref("d")
		f.fails(backend.ErrIsDir, func(b *backend.Batch) { b.Remove(d) })
		f.fails(backend.ErrInvalid, func(b *backend.Batch) { b.Remove(backend.RootRef) })
		f.lists("", "", "d")
	}},
	{"rmdir", func(f *fixture) {
		f.mkdir("d", "d/e")
		f.put("a", "x")
		f.symlink("l", "d")
		d, e, a, l := f.ref("d"), f.ref("d/e"), f.ref("a"), f.ref("l")
		f.fails(backend.ErrNotEmpty, func(b *backend.Batch) { b.Rmdir(d) })
		f.fails(backend.ErrNotDir, func(b *backend.Batch) { b.Rmdir(a) })
		f.fails(backend.ErrNotDir, func(b *backend.Batch) { b.Rmdir(l) })
		f.fails(backend.ErrInvalid, func(b *backend.Batch) { b.Rmdir(backend.RootRef) })
		f.do(func(b *backend.Batch) { b.Rmdir(e) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rmdir(e) })
		f.do(func(b *backend.Batch) { b.Rmdir(d) })
		f.lists("", "", "a", "l")
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Put(e, f.stage("x"), &fresh, none) })
	}},
	{"rmdir of what the batch itself empties or fills", func(f *fixture) {
		f.mkdir("d")
		f.put("d/x", "x")
		d, x := f.ref("d"), f.ref("d/x")
		y := backend.Ref{Dir: x.Dir, Name: "y"}
		f.fails(backend.ErrNotEmpty, func(b *backend.Batch) { b.Put(y, f.stage("y"), &fresh, none); b.Remove(x); b.Rmdir(d) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Remove(x); b.Rmdir(d); b.Put(y, f.stage("y"), &fresh, none) })
		f.do(func(b *backend.Batch) { b.Remove(x); b.Rmdir(d) })
		f.lists("", "")
	}},
	{"a removed directory stays removed when another takes its place", func(f *fixture) {
		f.mkdir("d", "e")
		d, e, n := f.ref("d"), f.ref("e"), f.ref("n")
		x := backend.Ref{Dir: f.entry("d").Ino, Name: "x"}
		put := func(b *backend.Batch) { b.Put(x, f.stage("x"), &fresh, none) }
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rmdir(d); put(b) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rmdir(d); b.Mkdir(d, fresh); put(b) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { put(b); b.Remove(x); b.Rmdir(d); b.Mkdir(d, fresh); put(b) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rename(e, d, 0); put(b) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rename(d, n, 0); b.Rename(e, n, 0); put(b) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rename(d, n, 0); b.Rmdir(n); b.Symlink(n, "t", fresh); put(b) })
		f.do(func(b *backend.Batch) { b.Rename(d, n, 0); b.Mkdir(d, fresh); put(b) })
		f.holds("n/x", "x")
		f.lists("d", "")
	}},
	{"rename moves a file", func(f *fixture) {
		f.mkdir("d")
		f.put("a", "x")
		ino := f.entry("a").Ino
		f.rename("a", "b", 0)
		from, to := f.ref("b"), f.ref("d/c")
		f.do(func(b *backend.Batch) { b.Rename(from, to, 0); b.Time = now + 9 })
		f.holds("d/c", "x")
		f.absent("a")
		f.absent("b")
		if e := f.entry("d/c"); e.Ino != ino || e.Mtime != fresh.Mtime || e.Ctime != now+9 {
			f.Errorf("entry %+v", e)
		}
		f.renameFails(backend.ErrNotFound, "a", "b", 0)
		gone := backend.Ref{Dir: 1 << 40, Name: "x"}
		c := f.ref("d/c")
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rename(c, gone, 0) })
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Rename(gone, c, 0) })
	}},
	{"rename replaces", func(f *fixture) {
		f.mkdir("empty", "full", "full/sub", "dir")
		f.put("a", "a")
		f.put("b", "b")
		f.put("dir/x", "x")
		f.symlink("l", "t")
		f.rename("a", "b", 0)
		f.holds("b", "a")
		f.renameFails(backend.ErrNotDir, "dir", "b", 0)
		f.renameFails(backend.ErrNotDir, "dir", "l", 0)
		f.renameFails(backend.ErrIsDir, "b", "empty", 0)
		f.renameFails(backend.ErrNotEmpty, "dir", "full", 0)
		f.rename("dir", "empty", 0)
		f.holds("empty/x", "x")
		f.rename("b", "l", 0)
		f.holds("l", "a")
		f.lists("", "", "empty", "full", "l")
	}},
	{"rename onto itself changes nothing", func(f *fixture) {
		f.put("a", "a")
		f.mkdir("d")
		before := f.dump()
		g := f.snap().Generation()
		a, d := f.ref("a"), f.ref("d")
		if c := f.do(func(b *backend.Batch) { b.Rename(a, a, 0); b.Rename(d, d, backend.Exchange) }); c.Generation != g || len(c.Changes) != 0 {
			f.Errorf("commit %+v at generation %d", c, g)
		}
		f.renameFails(backend.ErrExists, "a", "a", backend.NoReplace)
		if f.dump() != before {
			f.Error("changed")
		}
	}},
	{"rename without replacing", func(f *fixture) {
		f.put("a", "a")
		f.put("b", "b")
		f.mkdir("d", "e")
		f.renameFails(backend.ErrExists, "a", "b", backend.NoReplace)
		f.renameFails(backend.ErrExists, "d", "e", backend.NoReplace)
		f.rename("a", "c", backend.NoReplace)
		f.holds("c", "a")
	}},
	{"exchange", func(f *fixture) {
		f.mkdir("d", "d/sub")
		f.put("d/sub/x", "x")
		f.put("a", "a")
		f.put("b", "b")
		a, z := f.ref("a"), f.ref("b")
		f.do(func(b *backend.Batch) { b.Rename(a, z, backend.Exchange); b.Time = now + 9 })
		f.holds("a", "b")
		f.holds("b", "a")
		for _, p := range []string{"a", "b"} {
			if e := f.entry(p); e.Ctime != now+9 || e.Mtime != fresh.Mtime {
				f.Errorf("entry %+v", e)
			}
		}
		f.rename("a", "d/sub", backend.Exchange)
		f.holds("d/sub", "b")
		f.holds("a/x", "x")
		f.renameFails(backend.ErrNotFound, "a", "none", backend.Exchange)
		f.renameFails(backend.ErrNotFound, "none", "a", backend.Exchange)
	}},
	{"a directory is not moved into itself", func(f *fixture) {
		f.mkdir("d", "d/e", "d/e/f", "g")
		f.put("d/e/x", "x")
		for _, to := range []string{"d/new", "d/e/new", "d/e/f"} {
			f.renameFails(backend.ErrInvalid, "d", to, 0)
		}
		f.renameFails(backend.ErrNotEmpty, "d/e", "d", 0)
		f.renameFails(backend.ErrIsDir, "d/e/x", "d", 0)
		f.renameFails(backend.ErrInvalid, "d/e/f", "d", backend.Exchange)
		f.renameFails(backend.ErrInvalid, "d", "d/e/x", backend.Exchange)
		f.renameFails(backend.ErrInvalid, "d/e/x", "d", backend.Exchange)
		root := backend.RootRef
		to := f.ref("g/new")
		f.fails(backend.ErrInvalid, func(b *backend.Batch) { b.Rename(root, to, 0) })
		f.fails(backend.ErrName, func(b *backend.Batch) { b.Rename(f.ref("g"), root, 0) })
		d, g := f.ref("d"), f.ref("g")
		in := backend.Ref{Dir: f.entry("d/e").Ino, Name: "new"}
		f.fails(backend.ErrInvalid, func(b *backend.Batch) { // the loop is made by the batch itself
			b.Rename(d, to, 0)
			b.Rename(g, in, 0)
		})
	}},
	{"a moved directory keeps what is below it", func(f *fixture) {
		f.mkdir("d", "d/e", "g")
		f.put("d/e/x", "x")
		ino := f.entry("d").Ino
		f.rename("d", "g/moved", 0)
		f.holds("g/moved/e/x", "x")
		f.absent("d")
		if e := f.entry("g/moved"); e.Ino != ino {
			f.Errorf("directory %d became %d", ino, e.Ino)
		}
		s := f.snap()
		x := f.ref("g/moved/e/x")
		if p, err := backend.Path(s, x); p != "g/moved/e/x" || err != nil {
			f.Errorf("path %q, %v", p, err)
		}
		f.put("g/moved/e/y", "y")
		f.lists("g/moved/e", "", "x", "y")
	}},
	{"two moves of a directory in one batch", func(f *fixture) {
		f.mkdir("d", "g", "h")
		f.put("d/x", "x")
		d, a, z, x := f.ref("d"), f.ref("g/d"), f.ref("h/d"), f.ref("d/x")
		f.do(func(b *backend.Batch) {
			b.Rename(d, a, 0)
			b.Rename(a, z, 0)
			b.Append(x, f.stage("y"), nil, none)
			b.Mkdir(d, fresh)
		})
		f.holds("h/d/x", "xy")
		f.lists("d", "")
		f.lists("g", "")
	}},
	{"times of the directory follow its entries", func(f *fixture) {
		f.mkdir("d", "e")
		at := now
		touched := func(what string, paths ...string) {
			f.Helper()
			for _, p := range paths {
				if e := f.entry(p); e.Mtime != at || e.Ctime != at {
					f.Errorf("%s: %q has mtime %d, ctime %d, want %d", what, p, e.Mtime, e.Ctime, at)
				}
			}
		}
		step := func(what string, fill func(b *backend.Batch), paths ...string) {
			f.Helper()
			at++
			f.do(func(b *backend.Batch) { b.Time = at; fill(b) })
			touched(what, paths...)
		}
		x, y, sub, link := f.ref("d/x"), f.ref("e/y"), f.ref("d/sub"), f.ref("d/link")
		step("create", func(b *backend.Batch) { b.Put(x, f.stage(""), &fresh, none) }, "d")
		step("mkdir", func(b *backend.Batch) { b.Mkdir(sub, fresh) }, "d")
		step("symlink", func(b *backend.Batch) { b.Symlink(link, "t", fresh) }, "d")
		step("rename", func(b *backend.Batch) { b.Rename(x, y, 0) }, "d", "e")
		step("remove", func(b *backend.Batch) { b.Remove(y) }, "e")
		step("rmdir", func(b *backend.Batch) { b.Rmdir(sub) }, "d")
		step("in the root", func(b *backend.Batch) { b.Mkdir(backend.Ref{Dir: backend.RootIno, Name: "n"}, fresh) }, "")
		step("create again", func(b *backend.Batch) { b.Put(x, f.stage(""), &fresh, none) }, "d")
		last := at
		step("replace", func(b *backend.Batch) { b.Put(x, f.stage("v"), &fresh, none) })
		mode := uint32(0)
		step("chmod", func(b *backend.Batch) { b.SetAttr(x, backend.AttrChange{Mode: &mode}) })
		at = last // neither of the two is a change of the directory
		touched("replace and chmod", "d")
	}},
	{"symbolic links", func(f *fixture) {
		long := strings.Repeat("t", backend.MaxTarget)
		f.symlink("l", "to/nowhere")
		f.symlink("long", long)
		if e := f.entry("l"); e.Kind != backend.Symlink || e.Target != "to/nowhere" || e.Size != 10 || e.Ctime != now {
			f.Errorf("entry %+v", e)
		}
		if e := f.entry("long"); e.Target != long {
			f.Errorf("target of %d bytes", len(e.Target))
		}
		l, n := f.ref("l"), f.ref("n")
		f.fails(backend.ErrExists, func(b *backend.Batch) { b.Symlink(l, "x", fresh) })
		f.fails(backend.ErrExists, func(b *backend.Batch) { b.Put(l, f.stage("x"), &fresh, none) })
		f.fails(backend.ErrInvalid, func(b *backend.Batch) { b.Symlink(n, "", fresh) })
		f.fails(backend.ErrInvalid, func(b *backend.Batch) { b.Symlink(n, long+"t", fresh) })
		f.rename("l", "m", 0)
		if e := f.entry("m"); e.Target != "to/nowhere" {
			f.Errorf("entry %+v", e)
		}
		if v, err := f.snap().Open(f.entry("m")); err == nil {
			v.Close()
			f.Error("opened a symbolic link")
		}
	}},
}
