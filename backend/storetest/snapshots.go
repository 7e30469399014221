package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/storefs/storefs/backend"
)

var snapshots = []rule{
	{"a snapshot stands still", func(f *fixture) {
		f.mkdir("d")
		f.put("a", "small")
		f.put("d/big", pattern(300_000, 1))
		f.put("d/gone", "x")
		s := f.snap()
		before, err := dump(s, numbers)
		if err != nil {
			f.Fatal(err)
		}
		for i := range 30 {
			f.put("a", fmt.Sprint("new ", i))
			f.put("d/big", pattern(200_000, uint64(i)))
			f.append("d/log", "line\n")
		}
		gone := f.ref("d/gone")
		f.do(func(b *backend.Batch) { b.Remove(gone) })
		f.rename("d", "e", 0)
		if after, err := dump(s, numbers); after != before || err != nil {
			f.Errorf("became %s, %v\nwas %s", after, err, before)
		}
		if g := f.snap().Generation(); g <= s.Generation() {
			f.Errorf("generation %d after %d", g, s.Generation())
		}
	}},
	{"a value outlives its snapshot", func(f *fixture) {
		for _, n := range []int{5, 3000, 300_000} {
			f.put("a", pattern(n, 7))
			s := f.snap()
			v, err := s.Open(f.entry("a"))
			if err != nil {
				f.Fatal(err)
			}
			s.Close()
			for i := range 5 {
				f.put("a", pattern(n, uint64(i)))
			}
			a := f.ref("a")
			f.do(func(b *backend.Batch) { b.Remove(a) })
			if got, err := readValue(v); got != pattern(n, 7) || err != nil {
				f.Errorf("%d bytes: %s, %v", n, short(got), err)
			}
			if err := v.Close(); err != nil {
				f.Error(err)
			}
		}
	}},
	{"a commit is in the snapshot taken after it", func(f *fixture) {
		for i := range 50 {
			c := f.put("a", fmt.Sprint(i))
			if g := f.snap().Generation(); g < c.Generation {
				f.Fatalf("generation %d after commit %d", g, c.Generation)
			}
			f.holds("a", fmt.Sprint(i))
		}
	}},
	{"each version has an ino of its own, attributes and place do not change it", func(f *fixture) {
		seen := map[backend.Ino]string{backend.RootIno: "root"}
		isNew := func(what, path string) {
			f.Helper()
			ino := f.entry(path).Ino
			if was, ok := seen[ino]; ok {
				f.Errorf("%s has ino %d, which was %s", what, ino, was)
			}
			seen[ino] = what
		}
		f.put("a", "1")
		isNew("first", "a")
		f.put("a", "2")
		isNew("second", "a")
		f.append("a", "3")
		isNew("appended", "a")
		f.append("a", "")
		isNew("appended nothing", "a")
		f.mkdir("d")
		isNew("directory", "d")
		f.symlink("l", "t")
		isNew("link", "l")
		a, d, l := f.entry("a"), f.entry("d"), f.entry("l")
		for _, ref := range []backend.Ref{a.Ref, d.Ref, l.Ref} {
			f.do(func(b *backend.Batch) { b.SetAttr(ref, backend.AttrChange{Mode: ptr(uint32(0o700))}) })
		}
		f.put("d/x", "")
		isNew("in the directory", "d/x")
		f.rename("l", "d/l", 0)
		f.rename("a", "d/a", 0)
		f.rename("d", "e", 0)
		for p, e := range map[string]backend.Entry{"e/a": a, "e": d, "e/l": l} {
			if ino := f.entry(p).Ino; ino != e.Ino {
				f.Errorf("%q became ino %d, was %d", p, ino, e.Ino)
			}
		}
		for i := range 10 { // numbers of what is gone are not used again
			x := f.ref("e/x")
			f.do(func(b *backend.Batch) { b.Remove(x) })
			f.put("e/x", "")
			isNew(fmt.Sprint("made again ", i), "e/x")
		}
		before := f.snap()
		f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Put(f.ref("n"), f.stage(""), &fresh, none); b.Remove(f.ref("none")) })
		before.Close()
		f.put("n", "")
		isNew("after a failed commit", "n")
	}},
	{"the revision is the generation of the last change", func(f *fixture) {
		f.mkdir("d")
		a := f.put("d/a", "1")
		z := f.put("d/b", "1")
		if e := f.entry("d/a"); e.Revision != a.Generation {
			f.Errorf("revision %d, want %d", e.Revision, a.Generation)
		}
		if e := f.entry("d"); e.Revision != z.Generation {
			f.Errorf("revision of the directory %d, want %d", e.Revision, z.Generation)
		}
		ref := f.ref("d/a")
		c := f.do(func(b *backend.Batch) { b.SetAttr(ref, backend.AttrChange{Mode: ptr(uint32(0))}) })
		if e := f.entry("d/a"); e.Revision != c.Generation {
			f.Errorf("revision %d, want %d", e.Revision, c.Generation)
		}
	}},
	{"a closed store", func(f *fixture) {
		f.put("small", "small value")
		f.put("big", pattern(300_000, 1))
		s := f.snap()
		v, err := s.Open(f.entry("big"))
		if err != nil {
			f.Fatal(err)
		}
		g := s.Generation()
		if err := f.s.Close(); err != nil {
			f.Fatal(err)
		}
		ctx := f.Context()
		if _, err := f.s.Snapshot(ctx); !errors.Is(err, backend.ErrClosed) {
			f.Errorf("snapshot: %v", err)
		}
		b := &backend.Batch{}
		b.Mkdir(backend.Ref{Dir: backend.RootIno, Name: "d"}, fresh)
		if _, err := f.s.Commit(ctx, b); !errors.Is(err, backend.ErrClosed) {
			f.Errorf("commit: %v", err)
		}
		if err := f.s.Sync(ctx); !errors.Is(err, backend.ErrClosed) {
			f.Errorf("sync: %v", err)
		}
		if _, err := f.s.NewStage(); !errors.Is(err, backend.ErrClosed) {
			f.Errorf("stage: %v", err)
		}
		n := 0
		for _, err := range f.s.Watch(ctx, g) {
			if n++; !errors.Is(err, backend.ErrClosed) {
				f.Errorf("watch: %v", err)
			}
		}
		if n != 1 {
			f.Errorf("watch yielded %d times", n)
		}
		if got, err := readValue(v); got != pattern(300_000, 1) || err != nil {
			f.Errorf("open value: %s, %v", short(got), err)
		}
		v.Close()
		e, err := s.Lookup(backend.Ref{Dir: backend.RootIno, Name: "small"})
		if err != nil {
			f.Fatalf("open snapshot: %v", err)
		}
		if got, err := readEntry(s, e); got != "small value" || err != nil {
			f.Errorf("open snapshot: %q, %v", got, err)
		}
		if err := s.Close(); err != nil {
			f.Errorf("close of the snapshot: %v", err)
		}
	}},
}

var commits = []rule{
	{"a batch is committed whole or not at all", func(f *fixture) {
		f.mkdir("d")
		f.put("a", "a")
		f.put("d/x", "x")
		a, d, x, n := f.ref("a"), f.ref("d"), f.ref("d/x"), f.ref("n")
		f.fails(backend.ErrNotEmpty, func(b *backend.Batch) {
			b.Put(a, f.stage("new"), nil, none)
			b.Append(x, f.stage(pattern(100_000, 1)), nil, none)
			b.Mkdir(n, fresh)
			b.SetAttr(d, backend.AttrChange{Mode: ptr(uint32(0))})
			b.Rename(x, backend.Ref{Dir: backend.RootIno, Name: "y"}, 0)
			b.Rename(backend.Ref{Dir: backend.RootIno, Name: "y"}, x, 0)
			b.Rmdir(d)
		})
		before := f.snap().Generation()
		c := f.do(func(b *backend.Batch) {
			b.Put(a, f.stage("new"), nil, none)
			b.Mkdir(n, fresh)
			b.Remove(x)
			b.Rmdir(d)
		})
		if g := f.snap().Generation(); c.Generation <= before || g < c.Generation {
			f.Errorf("generation %d, then commit %d, then %d", before, c.Generation, g)
		}
		f.holds("a", "new")
		f.lists("", "", "a", "n")
	}},
	{"changes name each place once, with what was and what is there", func(f *fixture) {
		f.put("a", "1")
		f.put("b", "2")
		a, z, n := f.entry("a"), f.entry("b"), f.ref("n")
		c := f.do(func(b *backend.Batch) {
			b.Append(a.Ref, f.stage("x"), nil, none)
			b.Append(a.Ref, f.stage("y"), nil, none)
			b.Remove(z.Ref)
			b.Mkdir(n, fresh)
			b.Rmdir(n)
		})
		byRef := map[backend.Ref]backend.Change{}
		for _, ch := range c.Changes {
			if _, twice := byRef[ch.Ref]; twice {
				f.Errorf("%+v named twice", ch.Ref)
			}
			if ch.Parts != nil || !ch.Own || ch.Generation != c.Generation {
				f.Errorf("change %+v", ch)
			}
			byRef[ch.Ref] = ch
		}
		if ch := byRef[a.Ref]; ch.Old == nil || ch.Old.Ino != a.Ino || ch.New == nil || ch.New.Ino != f.entry("a").Ino || ch.New.Size != 3 {
			f.Errorf("of the appended: %+v", ch)
		}
		if ch := byRef[z.Ref]; ch.Old == nil || ch.Old.Ino != z.Ino || ch.New != nil {
			f.Errorf("of the removed: %+v", ch)
		}
		if _, ok := byRef[n]; ok || len(byRef) != 3 {
			f.Errorf("changes %+v", byRef)
		}
		if _, ok := byRef[backend.RootRef]; !ok {
			f.Error("the root is not named")
		}
		if _, ok := c.Entry(z.Ref); ok {
			f.Error("an entry of the removed")
		}
	}},
	{"expectations", func(f *fixture) {
		f.mkdir("d")
		f.put("a", "1")
		a, n, d := f.entry("a"), f.ref("n"), f.entry("d")
		change := func(b *backend.Batch) { b.Append(a.Ref, f.stage("+"), nil, none) }
		with := func(ref backend.Ref, ino backend.Ino) func(b *backend.Batch) {
			return func(b *backend.Batch) { b.Expect(ref, ino); change(b) }
		}
		f.fails(backend.ErrConflict, with(a.Ref, 0))
		f.fails(backend.ErrConflict, with(a.Ref, a.Ino+1000))
		f.fails(backend.ErrConflict, with(n, 7))
		f.fails(backend.ErrConflict, with(d.Ref, 0))
		f.fails(backend.ErrConflict, with(backend.Ref{Dir: 1 << 40, Name: "x"}, 7))
		f.fails(backend.ErrConflict, func(b *backend.Batch) { b.Expect(n, 0); b.Expect(a.Ref, 0) })
		f.holds("a", "1")
		f.do(with(d.Ref, d.Ino))
		f.do(with(n, 0))
		f.do(with(backend.Ref{Dir: 1 << 40, Name: "x"}, 0))
		f.fails(backend.ErrConflict, with(a.Ref, a.Ino))
		f.do(with(a.Ref, f.entry("a").Ino))
		f.holds("a", "1++++")
		// Of what was before the first operation, wherever it stands in the batch.
		f.do(func(b *backend.Batch) { b.Put(n, f.stage("n"), &fresh, none); b.Expect(n, 0) })
		ino := f.entry("n").Ino
		f.do(func(b *backend.Batch) { b.SetAttr(n, backend.AttrChange{Mode: ptr(uint32(0))}); b.Expect(n, ino) })
		f.rename("n", "m", 0)
		f.fails(backend.ErrConflict, with(n, ino))
		f.do(with(f.ref("m"), ino))
	}},
	{"an empty batch commits nothing, and still checks", func(f *fixture) {
		c := f.put("a", "1")
		if got := f.do(func(b *backend.Batch) {}); got.Generation != c.Generation || len(got.Changes) != 0 {
			f.Errorf("commit %+v", got)
		}
		a := f.entry("a")
		f.do(func(b *backend.Batch) { b.Expect(a.Ref, a.Ino) })
		f.fails(backend.ErrConflict, func(b *backend.Batch) { b.Expect(a.Ref, 0) })
		if g := f.snap().Generation(); g != c.Generation {
			f.Errorf("generation %d, want %d", g, c.Generation)
		}
	}},
	{"times are those of the commit unless given", func(f *fixture) {
		before := time.Now().Add(-time.Second).UnixNano()
		a := f.ref("a")
		f.do(func(b *backend.Batch) { b.Time = 0; b.Put(a, f.stage("x"), &backend.Attr{}, none) })
		after := time.Now().Add(time.Second).UnixNano()
		for _, at := range []int64{f.entry("a").Mtime, f.entry("a").Ctime, f.entry("").Mtime} {
			if at < before || at > after {
				f.Errorf("time %d, not between %d and %d", at, before, after)
			}
		}
	}},
	{"a context that has ended", func(f *fixture) {
		f.put("a", "1")
		before := f.dump()
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		b := &backend.Batch{}
		b.Put(f.ref("a"), f.stage("2"), nil, none)
		if _, err := f.s.Commit(ctx, b); !errors.Is(err, context.Canceled) {
			f.Errorf("commit: %v", err)
		}
		if f.dump() != before {
			f.Error("changed")
		}
		for c, err := range f.s.Watch(ctx, f.snap().Generation()) {
			f.Errorf("watch: %+v, %v", c, err)
		}
		f.put("a", "3")
		f.holds("a", "3")
	}},
	{"concurrent commits lose nothing", func(f *fixture) {
		const workers, each = 6, 25
		f.put("log", "")
		f.put("n", "0")
		log := f.ref("log")
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					if err := increment(f, f.s, "n"); err != nil {
						f.Error(err)
						return
					}
					s, err := f.s.NewStage()
					if err != nil {
						f.Error(err)
						return
					}
					fmt.Fprintf(&stageWriter{s: s}, "%d %d\n", w, i)
					b := &backend.Batch{}
					b.Append(log, s, nil, none)
					if _, err := f.s.Commit(f.Context(), b); err != nil {
						f.Error(err)
					}
					s.Close()
				}
			})
		}
		wg.Wait()
		f.holds("n", fmt.Sprint(workers*each))
		checkLog(f, f.read("log"), workers, each)
	}},
	{"sync", func(f *fixture) {
		f.put("a", "x")
		if err := f.s.Sync(f.Context()); err != nil {
			f.Error(err)
		}
	}},
	{"reservations", func(f *fixture) {
		r, ok := f.s.(backend.Reserver)
		if !ok {
			f.Skip("does not reserve")
		}
		f.put("there", "")
		a, there := f.ref("a"), f.ref("there")
		release, err := r.Reserve(a)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := r.Reserve(a); !errors.Is(err, backend.ErrExists) {
			f.Errorf("second: %v", err)
		}
		other, err := r.Reserve(there)
		if err != nil {
			f.Errorf("of what exists: %v", err)
		} else {
			other()
		}
		f.put("a", "does not stop a commit")
		release()
		again, err := r.Reserve(a)
		if err != nil {
			f.Fatalf("after release: %v", err)
		}
		again()
	}},
	{"commits are counted", func(f *fixture) {
		c, ok := f.s.(backend.Counter)
		if !ok {
			f.Skip("does not count")
		}
		f.put("a", "")
		f.put("a", "x")
		f.do(func(b *backend.Batch) {})
		if n := c.Counters().Commits; n != 2 {
			f.Errorf("%d commits, want 2", n)
		}
	}},
}
