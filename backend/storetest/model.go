package storetest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/storefs/storefs/backend"
	"pgregory.net/rapid"
)

// RunModel makes random commits to a store and to a backend.Memory, and compares all there is to see after each. A
// failure is shrunk by rapid, which prints the commits and the seed.
func RunModel(t *testing.T, open func(t *testing.T) backend.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t, rt, open(t))
		defer m.close()
		rt.Repeat(map[string]func(*rapid.T){"commit": m.commit, "": m.compare})
	})
}

// RunReopen checks that everything survives Close and another open of the same folder: first by a list, then
// by random commits as in RunModel with reopening in between.
func RunReopen(t *testing.T, open func(t *testing.T, dir string) backend.Store) {
	t.Run("all that is stored", func(t *testing.T) {
		dir := t.TempDir()
		f := newFixture(t, open(t, dir))
		f.mkdir("d", "d/e", "gone")
		f.symlink("d/l", "target")
		for _, n := range []int{0, 1, 1023, 1025, 64 << 10, 300_000} {
			f.put(fmt.Sprint("d/e/", n), pattern(n, 1))
			f.append(fmt.Sprint("d/e/", n), "appended")
		}
		x, gone := f.ref("d/e/1"), f.ref("gone")
		f.do(func(b *backend.Batch) {
			b.SetAttr(x, backend.AttrChange{Mode: ptr(uint32(0o4711)), SetXattr: map[string]string{"user.k": "v\x00"}})
			b.Rmdir(gone)
		})
		for i := range 200 {
			f.put(fmt.Sprint("d/many", i%50), fmt.Sprint(i))
		}
		before, g := f.dump(), f.snap().Generation()
		last := f.put("d/last", "").Changes
		after := f.dump()
		for range 2 {
			if err := f.s.Close(); err != nil {
				t.Fatal(err)
			}
			f = newFixture(t, open(t, dir))
			if got := f.dump(); got != after || got == before {
				t.Fatalf("reopened:\n%s\nwas\n%s", got, after)
			}
			if got := f.snap().Generation(); got <= g {
				t.Errorf("generation %d after %d", got, g)
			}
		}
		c := f.put("d/new", "")
		if c.Generation <= g+1 {
			t.Errorf("generation %d after %d", c.Generation, g+1)
		}
		made, _ := c.Entry(f.ref("d/new"))
		for _, ch := range last {
			if ch.New != nil && ch.New.Ino == made.Ino {
				t.Errorf("ino %d used again", made.Ino)
			}
		}
	})
	t.Run("random", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			dir, err := os.MkdirTemp(t.TempDir(), "store")
			if err != nil {
				t.Fatal(err)
			}
			m := newModel(t, rt, open(t, dir))
			defer func() { m.close() }()
			rt.Repeat(map[string]func(*rapid.T){
				"commit":  m.commit,
				"another": m.commit,
				"reopen": func(rt *rapid.T) {
					if err := m.store.Close(); err != nil {
						rt.Fatalf("close: %v", err)
					}
					m.store = open(t, dir)
				},
				"": m.compare,
			})
		})
	})
}

// model is a store beside a Memory to which the same was done.
type model struct {
	t      *testing.T
	store  backend.Store
	memory *backend.Memory
	time   int64

	// Numbers differ between the two, but not what they tell apart.
	inos map[backend.Ino]backend.Ino // of memory to those of the store
	used map[backend.Ino]bool        // values of inos
	gens map[backend.Generation]backend.Generation
	refs []backend.Ref // places, with memory's numbers, that operations are done to
}

// unknownIno is added to numbers that were never handed out, so that they mean nothing in the store either.
const unknownIno = 1 << 60

func newModel(t *testing.T, rt *rapid.T, s backend.Store) *model {
	m := &model{
		t: t, store: s, memory: backend.NewMemory(), time: now,
		inos: map[backend.Ino]backend.Ino{backend.RootIno: backend.RootIno},
		used: map[backend.Ino]bool{backend.RootIno: true},
		gens: map[backend.Generation]backend.Generation{0: 0},
	}
	// The roots were made at different times.
	root := backend.AttrChange{Mode: ptr(uint32(0o755)), UID: ptr(uint32(0)), GID: ptr(uint32(0)), Atime: ptr(now), Mtime: ptr(now)}
	m.both(rt, func(b *backend.Batch, s side) { b.SetAttr(backend.RootRef, root) })
	return m
}

func (m *model) close() {
	if err := errors.Join(m.store.Close(), m.memory.Close()); err != nil {
		m.t.Errorf("close: %v", err)
	}
}

// side is one of the two stores, with the meaning of memory's numbers in it.
type side struct {
	s   backend.Store
	ino func(backend.Ino) backend.Ino
}

func (s side) ref(r backend.Ref) backend.Ref {
	if r == backend.RootRef {
		return r
	}
	return backend.Ref{Dir: s.ino(r.Dir), Name: r.Name}
}

func (s side) stage(rt *rapid.T, content string) backend.Stage {
	st, err := s.s.NewStage()
	if err != nil {
		rt.Fatalf("stage: %v", err)
	}
	if _, err := st.WriteAt([]byte(content), 0); err != nil {
		rt.Fatalf("write stage: %v", err)
	}
	return st
}

// both commits what fill makes to both stores, and compares what they say.
func (m *model) both(rt *rapid.T, fill func(b *backend.Batch, s side)) {
	m.time++
	var got [2]backend.Committed
	var errs [2]error
	for i, s := range []side{
		{m.memory, func(i backend.Ino) backend.Ino { return i }},
		{m.store, func(i backend.Ino) backend.Ino {
			if j, ok := m.inos[i]; ok || i == 0 {
				return j
			}
			return i + unknownIno
		}},
	} {
		b := &backend.Batch{Time: m.time}
		fill(b, s)
		got[i], errs[i] = s.s.Commit(m.t.Context(), b)
	}
	if a, b := sentinel(errs[0]), sentinel(errs[1]); a != b {
		rt.Fatalf("memory says %v, the store %v", errs[0], errs[1])
	}
	if errs[0] != nil {
		return
	}
	mem, st := got[0], got[1]
	if len(mem.Changes) != len(st.Changes) {
		rt.Fatalf("memory changed %d places, the store %d", len(mem.Changes), len(st.Changes))
	}
	if len(mem.Changes) > 0 {
		m.gens[mem.Generation] = st.Generation
	}
	for i := range mem.Changes {
		a, b := mem.Changes[i], st.Changes[i]
		if a.Ref.Name != b.Ref.Name || (a.Old == nil) != (b.Old == nil) || (a.New == nil) != (b.New == nil) {
			rt.Fatalf("change %d: memory %+v, the store %+v", i, a, b)
		}
		if a.New != nil {
			m.know(rt, a.New.Ino, b.New.Ino)
		}
	}
}

// know notes that ino of memory is other in the store.
func (m *model) know(rt *rapid.T, ino, other backend.Ino) {
	was, known := m.inos[ino]
	switch {
	case known && was != other:
		rt.Fatalf("ino %d became %d", was, other)
	case !known && m.used[other]:
		rt.Fatalf("ino %d used again", other)
	}
	m.inos[ino], m.used[other] = other, true
}

var sentinels = []error{
	backend.ErrNotFound, backend.ErrExists, backend.ErrNotEmpty, backend.ErrIsDir, backend.ErrNotDir, backend.ErrInvalid,
	backend.ErrName, backend.ErrConflict, backend.ErrTooLarge, backend.ErrClosed,
}

// sentinel returns which of the contract's errors err is, err itself if none.
func sentinel(err error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// compare fails unless both stores show the same.
func (m *model) compare(rt *rapid.T) {
	var text [2]string
	back := map[backend.Generation]backend.Generation{}
	for mem, st := range m.gens {
		back[st] = mem
	}
	origin := map[backend.Ino]backend.Ino{}
	for mem, st := range m.inos {
		origin[st] = mem
	}
	for i, s := range []backend.Store{m.memory, m.store} {
		snap, err := s.Snapshot(m.t.Context())
		if err != nil {
			rt.Fatalf("snapshot: %v", err)
		}
		text[i], err = dump(snap, func(e backend.Entry) string {
			if i == 1 {
				e.Ino, e.Revision = origin[e.Ino], back[e.Revision]
			}
			return numbers(e)
		})
		if i == 0 {
			m.refs = places(snap)
		}
		if err := errors.Join(err, snap.Close()); err != nil {
			rt.Fatalf("dump: %v", err)
		}
	}
	if text[0] != text[1] {
		rt.Fatalf("memory shows\n%sthe store shows\n%s", text[0], text[1])
	}
}

// places returns where operations are tried: each place in s, and new names in each directory.
func places(s backend.Snapshot) []backend.Ref {
	known := map[backend.Ref]backend.Ino{}
	collect(s, backend.RootIno, known)
	refs := []backend.Ref{backend.RootRef, {Dir: 1 << 40, Name: "a"}}
	var walk func(dir backend.Ino)
	walk = func(dir backend.Ino) {
		for _, n := range []string{"a", "b", "c", "\xff"} {
			refs = append(refs, backend.Ref{Dir: dir, Name: n})
		}
		for e := range s.List(dir, "") {
			if e.Kind == backend.Dir {
				walk(e.Ino)
			} else if e.Name == "a" {
				refs = append(refs, backend.Ref{Dir: e.Ino, Name: "a"})
			}
		}
	}
	walk(backend.RootIno)
	return refs
}

// commit makes a batch of a few random operations.
func (m *model) commit(rt *rapid.T) {
	if m.refs == nil {
		m.compare(rt)
	}
	ref := rapid.SampledFrom(m.refs)
	var fills []func(b *backend.Batch, s side)
	var stages []backend.Stage
	defer func() {
		for _, s := range stages {
			s.Close()
		}
	}()
	stage := func(s side, content string) backend.Stage {
		st := s.stage(rt, content)
		stages = append(stages, st)
		return st
	}
	for range rapid.IntRange(1, 4).Draw(rt, "operations") {
		at := ref.Draw(rt, "at")
		attr := backend.Attr{Mode: rapid.Uint32Range(0, 0o7777).Draw(rt, "mode"), UID: 1, Mtime: m.time}
		var set backend.AttrChange
		if rapid.IntRange(0, 3).Draw(rt, "set") == 0 {
			set = drawChange(rt)
		}
		switch rapid.SampledFrom(opNames).Draw(rt, "op") {
		case "put":
			content := drawContent(rt)
			ifNew := &attr
			if rapid.IntRange(0, 4).Draw(rt, "old only") == 0 {
				ifNew = nil
			}
			fills = append(fills, func(b *backend.Batch, s side) { b.Put(s.ref(at), stage(s, content), ifNew, set) })
		case "append":
			content := drawContent(rt)
			fills = append(fills, func(b *backend.Batch, s side) { b.Append(s.ref(at), stage(s, content), &attr, set) })
		case "mkdir":
			fills = append(fills, func(b *backend.Batch, s side) { b.Mkdir(s.ref(at), attr) })
		case "symlink":
			target := rapid.SampledFrom([]string{"a", "../b", ""}).Draw(rt, "target")
			fills = append(fills, func(b *backend.Batch, s side) { b.Symlink(s.ref(at), target, attr) })
		case "remove":
			fills = append(fills, func(b *backend.Batch, s side) { b.Remove(s.ref(at)) })
		case "rmdir":
			fills = append(fills, func(b *backend.Batch, s side) { b.Rmdir(s.ref(at)) })
		case "rename":
			to := ref.Draw(rt, "to")
			flags := rapid.SampledFrom([]backend.RenameFlags{0, 0, 0, backend.NoReplace, backend.Exchange}).Draw(rt, "flags")
			fills = append(fills, func(b *backend.Batch, s side) { b.Rename(s.ref(at), s.ref(to), flags) })
		case "setattr":
			fills = append(fills, func(b *backend.Batch, s side) { b.SetAttr(s.ref(at), set) })
		case "expect":
			ino := m.inoAt(rt, at)
			if rapid.IntRange(0, 4).Draw(rt, "wrong") == 0 {
				ino++
			}
			fills = append(fills, func(b *backend.Batch, s side) { b.Expect(s.ref(at), s.ino(ino)) })
		case "limit":
			n := rapid.Int64Range(1, 5000).Draw(rt, "limit")
			fills = append(fills, func(b *backend.Batch, s side) { b.MaxValue = n })
		}
	}
	m.both(rt, func(b *backend.Batch, s side) {
		for _, fill := range fills {
			fill(b, s)
		}
	})
}

// opNames has what fills the tree more than once, or it would stay empty.
var opNames = []string{
	"put", "put", "put", "append", "append", "mkdir", "mkdir", "symlink", "remove", "rmdir", "rename", "rename", "setattr", "expect", "limit",
}

// inoAt returns memory's number at ref, 0 if there is nothing.
func (m *model) inoAt(rt *rapid.T, ref backend.Ref) backend.Ino {
	s, err := m.memory.Snapshot(m.t.Context())
	if err != nil {
		rt.Fatalf("snapshot: %v", err)
	}
	defer s.Close()
	e, _ := s.Lookup(ref)
	return e.Ino
}

func drawContent(rt *rapid.T) string {
	n := rapid.SampledFrom([]int{0, 1, 2, 5, 5, 100, 100, 1000, 1024, 1025, 5000, 20_000}).Draw(rt, "bytes")
	return pattern(n, rapid.Uint64Range(0, 9).Draw(rt, "pattern"))
}

func drawChange(rt *rapid.T) backend.AttrChange {
	switch rapid.IntRange(0, 5).Draw(rt, "change") {
	case 0:
		return backend.AttrChange{Mode: ptr(uint32(0o600)), UID: ptr(uint32(7))}
	case 1:
		return backend.AttrChange{GID: ptr(uint32(8)), Atime: ptr(int64(-1))}
	case 2:
		return backend.AttrChange{Mtime: ptr(int64(77))}
	case 3:
		return backend.AttrChange{SetXattr: map[string]string{"user.a": "1", "user.b": "\x00"}}
	case 4:
		return backend.AttrChange{SetXattr: map[string]string{"user.a": "2"}, RemoveXattr: []string{"user.b"}}
	}
	return backend.AttrChange{RemoveXattr: []string{"user.a", "user.b"}}
}
