package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/storefs/storefs/backend"
)

// patience is how long a watch may take to say what was committed.
const patience = 10 * time.Second

// watch starts to watch s, and returns a channel of what it yields, which is closed when it stops.
func (f *fixture) watch(ctx context.Context, s backend.Store, from backend.Generation) <-chan backend.Change {
	out := make(chan backend.Change, 1000)
	go func() {
		defer close(out)
		for c, err := range s.Watch(ctx, from) {
			if err != nil {
				if !errors.Is(err, backend.ErrClosed) {
					f.Errorf("watch: %v", err)
				}
				return
			}
			out <- c
		}
	}()
	return out
}

// follow takes changes until it has one of generation last or later at ref, checks their order, and returns what each place has.
func (f *fixture) follow(in <-chan backend.Change, from, last backend.Generation, ref backend.Ref) map[backend.Ref]*backend.Entry {
	f.Helper()
	got := map[backend.Ref]*backend.Entry{}
	timeout := time.After(patience)
	for g := from; ; {
		select {
		case c, ok := <-in:
			if !ok {
				f.Fatal("watch stopped")
			}
			if c.Generation < g || c.Generation <= from {
				f.Fatalf("generation %d after %d, watched from %d", c.Generation, g, from)
			}
			g = c.Generation
			if c.New != nil && c.New.Ref != c.Ref {
				f.Errorf("change at %+v with entry at %+v", c.Ref, c.New.Ref)
			}
			got[c.Ref] = c.New
			if c.Generation >= last && c.Ref == ref {
				return got
			}
		case <-timeout:
			f.Fatalf("nothing at %+v of generation %d", ref, last)
		}
	}
}

var watching = []rule{
	{"watch yields what was committed before and while it runs", func(f *fixture) {
		f.put("before", "x")
		from := f.snap().Generation()
		a := f.put("a", "1")
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		ch := f.watch(ctx, f.s, from)
		ref := f.ref("a")
		got := f.follow(ch, from, a.Generation, ref)
		if e := got[ref]; e == nil || e.Ino != f.entry("a").Ino {
			f.Errorf("got %+v", got)
		}
		if _, ok := got[f.ref("before")]; ok {
			f.Error("got what was committed before from")
		}
		last := f.do(func(b *backend.Batch) { b.Remove(ref) })
		got = f.follow(ch, from, last.Generation, ref)
		if got[ref] != nil {
			f.Errorf("got %+v for what was removed", got[ref])
		}
		cancel()
		for range ch {
		}
	}},
	{"watch leads from any snapshot to the newest", func(f *fixture) {
		f.mkdir("d", "e")
		f.put("d/a", "1")
		old := f.snap()
		known := map[backend.Ref]backend.Ino{}
		collect(old, backend.RootIno, known)
		x := f.ref("d/x")
		for i := range 40 {
			f.put(fmt.Sprint("d/", i%7), fmt.Sprint(i))
			if i%5 == 4 {
				f.rename(fmt.Sprint("d/", i%7), "e/moved", 0)
			}
		}
		f.put("d/x", "")
		f.do(func(b *backend.Batch) { b.Remove(x) })
		f.rename("e", "f", 0)
		f.put("end", "")
		want := map[backend.Ref]backend.Ino{}
		collect(f.snap(), backend.RootIno, want)
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		ch := f.watch(ctx, f.s, old.Generation())
		timeout := time.After(patience)
		for g := old.Generation(); !maps.Equal(known, want); {
			select {
			case c := <-ch:
				if c.Generation < g || c.Generation <= old.Generation() {
					f.Fatalf("generation %d after %d", c.Generation, g)
				}
				g = c.Generation
				delete(known, c.Ref)
				if c.New != nil && c.Ref != backend.RootRef {
					known[c.Ref] = c.New.Ino
				}
			case <-timeout:
				f.Fatalf("led to %v, want %v", known, want)
			}
		}
		cancel()
		for range ch {
		}
	}},
	{"watch tells own commits, and stops when the consumer does", func(f *fixture) {
		from := f.snap().Generation()
		f.put("a", "1")
		n := 0
		for c, err := range f.s.Watch(f.Context(), from) {
			if n++; err != nil || !c.Own {
				f.Errorf("change %+v, %v", c, err)
			}
			break
		}
		if n != 1 {
			f.Errorf("%d changes", n)
		}
	}},
	{"watch stops without an error when its context ends", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		ch := f.watch(ctx, f.s, f.snap().Generation())
		select {
		case c, ok := <-ch:
			f.Fatalf("got %+v, %v", c, ok)
		case <-time.After(5 * time.Millisecond):
		}
		cancel()
		f.stops(ch)
	}},
	{"watch stops when the store is closed", func(f *fixture) {
		f.put("a", "x")
		ch := f.watch(f.Context(), f.s, f.snap().Generation()-1)
		<-ch // it runs
		if err := f.s.Close(); err != nil {
			f.Fatal(err)
		}
		f.stops(ch)
	}},
}

func (f *fixture) stops(ch <-chan backend.Change) {
	f.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-timeout:
			f.Fatal("still watching")
		}
	}
}

// collect puts the ino of each entry below dir into m.
func collect(s backend.Snapshot, dir backend.Ino, m map[backend.Ref]backend.Ino) {
	for e := range s.List(dir, "") {
		m[e.Ref] = e.Ino
		if e.Kind == backend.Dir {
			collect(s, e.Ino, m)
		}
	}
}
