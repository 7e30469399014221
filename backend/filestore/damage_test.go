package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

// Damage of every kind to every file of a small store with all kinds of content. Whatever is done,
//
//   - reading gives what was written, or a *backend.CorruptError that names a file;
//   - Check names the file, or what was damaged is in no use: then it finds nothing, and everything is as it was;
//   - Repair makes a store in which every value is one that was once written under that name, and that differs from what was written last only in
//     what the damage touches, and says so.
//
// STOREFS_LONG=1 does it to every byte; else to some.
var longDamage = os.Getenv("STOREFS_LONG") == "1"

// victim is a store to be damaged, and what is known of it.
type victim struct {
	dir   string
	files []string // all of them, relative
	want  map[string]map[string]string
	ever  map[string]map[string]bool // descriptions that there were, by the last name of the path
	older map[string][][]byte        // contents that files had before
	parts []part
}

// part is a run of bytes of a file and what depends on it: keys of generations, by path.
type part struct {
	file     string
	from, to int64
	keys     map[string]map[string]bool // by generation, as in want; nil for all of it
}

// use adds a part.
func (v *victim) use(file string, from, to uint64, gen string, keys ...string) {
	for i := range v.parts {
		p := &v.parts[i]
		if p.file == file && p.from == int64(from) && p.to == int64(to) {
			p.add(gen, keys)
			return
		}
	}
	p := part{file: file, from: int64(from), to: int64(to), keys: map[string]map[string]bool{}}
	p.add(gen, keys)
	v.parts = append(v.parts, p)
}

func (p *part) add(gen string, keys []string) {
	if p.keys[gen] == nil {
		p.keys[gen] = map[string]bool{}
	}
	for _, k := range keys {
		p.keys[gen][k] = true
	}
}

// touched returns what depends on bytes of a file; used is false if nothing does.
func (v *victim) touched(file string, from, to int64) (keys map[string]map[string]bool, used bool) {
	keys = map[string]map[string]bool{}
	for _, p := range v.parts {
		if p.file != file || p.to <= from || to <= p.from {
			continue
		}
		used = true
		for gen, ks := range p.keys {
			if keys[gen] == nil {
				keys[gen] = map[string]bool{}
			}
			maps.Copy(keys[gen], ks)
		}
	}
	return keys, used
}

// spill moves the records of HEAD into a table, which otherwise happens when there are many.
func spill(t testing.TB, s *Store) {
	t.Helper()
	release, err := s.acquire(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	p, err := s.pinNewest()
	if err != nil {
		t.Fatal(err)
	}
	defer s.unpin(p)
	h := *p.h
	h.seq++
	nt, err := s.spillLocked(&h)
	if err == nil {
		err = s.installLocked(p, &h, nt)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newVictim(t testing.TB) *victim {
	t.Helper()
	v := &victim{ever: map[string]map[string]bool{}, older: map[string][][]byte{}}
	v.dir = closed(t, func(s *Store) {
		s.sizes.stage, s.sizes.solo = blockSize, 2*blockSize
		note := func() { v.note(t, s) }
		c := deepDir(t, s)
		note()
		in := func(name string) backend.Ref { return backend.Ref{Dir: c, Name: name} }
		var b backend.Batch
		b.Put(in("attributes"), stageOf(t, s, pattern(500, 1)), &backend.Attr{Mode: 0o4751, UID: 7, GID: 8, Atime: 1, Mtime: 2,
			Xattrs: map[string]string{"user.a": "x", "user.b": strings.Repeat("y", 300)}}, backend.AttrChange{})
		b.Symlink(ref("link"), "a/b/c", backend.Attr{Mode: 0o777})
		b.Mkdir(ref("empty"), backend.Attr{Mode: 0o2770, GID: 9})
		b.Put(ref("solo"), stageOf(t, s, pattern(2*blockSize+7000, 2)), newFile, backend.AttrChange{})
		for i := range 12 {
			b.Put(in(fmt.Sprint("inline", i)), stageOf(t, s, pattern(i*80, uint64(i))), newFile, backend.AttrChange{})
		}
		for i := range 4 {
			b.Put(in(fmt.Sprint("long", i)), stageOf(t, s, pattern(1025+i*700, uint64(i))), newFile, backend.AttrChange{})
		}
		commit(t, s, &b)
		note()
		for i := range 3 {
			appendTo(t, s, "pieces", pattern(4000>>i, uint64(i)))
			note()
		}
		spill(t, s)
		keep(t, s, "first")
		note()
		var r backend.Batch
		r.Remove(in("inline7"))
		r.Remove(in("long2"))
		r.Rename(in("inline8"), ref("moved"), 0)
		r.Rename(ref("a"), ref("z"), 0)
		r.Put(in("inline3"), stageOf(t, s, pattern(300, 77)), nil, backend.AttrChange{})
		r.Put(in("long3"), stageOf(t, s, pattern(2500, 78)), nil, backend.AttrChange{})
		for i := range 12 {
			r.Put(ref(fmt.Sprint("later", i)), stageOf(t, s, pattern(i*90, uint64(i))), newFile, backend.AttrChange{})
		}
		commit(t, s, &r)
		note()
		spill(t, s)
		note()
		var q backend.Batch
		q.Put(ref("later1"), stageOf(t, s, pattern(40, 9)), nil, backend.AttrChange{})
		q.Put(ref("newest"), stageOf(t, s, pattern(1500, 9)), newFile, backend.AttrChange{})
		q.Remove(ref("later2"))
		commit(t, s, &q)
		note()
		keep(t, s, "second")
		put(t, s, "newest", pattern(1600, 10))
		put(t, s, "last", pattern(100, 10))
		note()
	})
	v.want = contentsOf(t, v.dir)
	v.look(t)
	return v
}

// note remembers what is in the store now.
func (v *victim) note(t testing.TB, s *Store) {
	t.Helper()
	n := snap(t, s)
	defer n.Close()
	all, err := describe(n)
	if err != nil {
		t.Fatal(err)
	}
	for p, d := range all {
		if v.ever[path.Base(p)] == nil {
			v.ever[path.Base(p)] = map[string]bool{}
		}
		v.ever[path.Base(p)][d] = true
	}
	if err := s.Sync(bg); err != nil {
		t.Fatal(err)
	}
	for _, f := range relativeFiles(t, s.dir) {
		b, err := os.ReadFile(filepath.Join(s.dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if had := v.older[f]; len(had) == 0 || !bytes.Equal(had[len(had)-1], b) {
			v.older[f] = append(had, b)
		}
	}
}

func relativeFiles(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	for p, what := range filesOf(t, dir) {
		if len(what) == 64 {
			all = append(all, strings.TrimPrefix(p, dir+"/"))
		}
	}
	slices.Sort(all)
	return all
}

// look finds out which bytes of which files matter, and to which keys.
func (v *victim) look(t testing.TB) {
	t.Helper()
	v.files = relativeFiles(t, v.dir)
	s, err := inspect(v.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.pinNewest()
	if err != nil {
		t.Fatal(err)
	}
	v.generation(t, s, p, "", "HEAD", 0)
	s.unpin(p)
	for gen := range v.want {
		if gen == "" {
			continue
		}
		p, err := s.pinNamed(bg, gen)
		if err != nil {
			t.Fatal(err)
		}
		v.generation(t, s, p, gen, "snapshots/"+gen, namedFixed)
		s.unpin(p)
	}
	v.use("durable", 0, durableSize, "-")
}

// generation notes what one generation uses. all is what depends on its own file: every key of it.
func (v *victim) generation(t testing.TB, s *Store, p *pin, gen, file string, fixed int) {
	t.Helper()
	layers := []*layer{{path: file, recs: p.h.recs}}
	for i := len(p.h.tabs) - 1; i >= 0; i-- {
		l, err := s.survey(bg, p.h.tabs[i].id)
		if err != nil || len(l.flaws) > 0 {
			t.Fatal(err, l.flaws)
		}
		defer l.close()
		layers = append(layers, l)
	}
	all := slices.Collect(maps.Keys(v.want[gen]))
	if gen == "" { // the others are in the tables, which say themselves what is newer
		all = nil
		for _, r := range p.h.recs {
			all = append(all, v.under(gen, placeOf(layers, keyOf(r)).Path)...)
		}
	}
	v.use(file, 0, uint64(fixed+len(p.h.encode(nil))), gen, all...)
	for _, l := range layers[1:] {
		size := uint64(0)
		for _, x := range l.blocks {
			recs, err := readBlock(l.f, x, nil)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, r := range recs {
				keys = append(keys, v.under(gen, placeOf(layers, keyOf(r)).Path)...)
			}
			v.use(l.path, x.off, x.off+uint64(x.n), gen, keys...)
			size = x.off + uint64(x.n)
		}
		v.use(l.path, size, l.info.length, "-") // index, filter, footer: nothing is lost with them
	}
	for g, err := range groups(layers) {
		if err != nil {
			t.Fatal(err)
		}
		if g[0].kind() != recExtents {
			continue
		}
		e, err := g[0].entry()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range locatorOf(&e).exts {
			v.use(s.relative(s.volumePath(x.vol)), x.off, x.off+x.span(), gen, placeOf(layers, keyOf(g[0].rec)).Path)
		}
	}
}

// under returns a path, and those below it if it is that of a directory.
func (v *victim) under(gen, p string) []string {
	p = strings.TrimSuffix(p, "/")
	keys := []string{p}
	for k := range v.want[gen] {
		if strings.HasPrefix(k, p+"/") || p == "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// hurt writes b in the place of a file for as long as fn runs; nil takes the file away.
func (v *victim) hurt(t testing.TB, file string, b []byte, fn func()) {
	t.Helper()
	p := filepath.Join(v.dir, file)
	old, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		err = os.Remove(p)
	} else {
		err = os.WriteFile(p, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(p, old, 0o666); err != nil {
			t.Fatal(err)
		}
	}()
	fn()
}

// harm is one thing that was done to the store.
type harm struct {
	what  string
	files []string                   // what was changed
	keys  map[string]map[string]bool // what it touches
	used  bool                       // anything matters of what was changed
	may   bool                       // it may also be a state that the store once had: then Check may find nothing
}

// try looks at the store while it is damaged.
func (v *victim) try(t testing.TB, h harm, repair bool) {
	t.Helper()
	served := v.read(t, h)
	found := findings(t, v.dir)
	named := slices.ContainsFunc(found, func(f Finding) bool { return slices.Contains(h.files, f.Path) })
	switch {
	case h.used && !named && !h.may:
		t.Errorf("%s: check does not name the file: %v", h.what, found)
	case !h.used && len(found) > 0:
		t.Errorf("%s: check finds %v", h.what, found)
	case len(found) == 0 && !served:
		t.Errorf("%s: check finds nothing, but not everything can be read", h.what)
	}
	if repair {
		v.repair(t, h)
	}
}

// read reads everything, and returns whether it could.
func (v *victim) read(t testing.TB, h harm) (all bool) {
	t.Helper()
	bad := func(gen, k string, err error) {
		t.Helper()
		all = false
		var c *backend.CorruptError
		if !errors.As(err, &c) || c.Path == "" {
			t.Errorf("%s: %q of %q: %v", h.what, k, gen, err)
		}
	}
	s, err := Open(v.dir, &Options{ReadOnly: true})
	if err != nil {
		bad("", "", err)
		return false
	}
	defer s.Close()
	all = true
	for gen, want := range v.want {
		var n backend.Snapshot
		if gen == "" {
			n, err = s.Snapshot(bg)
		} else {
			n, err = s.OpenSnapshot(bg, gen)
		}
		if err != nil && !(errors.Is(err, backend.ErrNotFound) && slices.Contains(h.files, "snapshots/"+gen)) {
			bad(gen, "", err)
		}
		if err != nil {
			continue
		}
		got, err := describe(n)
		switch {
		case err != nil:
			bad(gen, "listing", err)
		case !h.may && len(got) != len(want):
			t.Errorf("%s: %d entries in %q, not %d", h.what, len(got), gen, len(want))
		}
		for k, w := range want {
			e, err := backend.Walk(n, k)
			d, listed := got[k]
			switch {
			case err == nil && !listed:
				d, err = describeEntry(n, e)
			case err == nil && !strings.HasPrefix(d, describeAttributes(e)):
				t.Errorf("%s: %q of %q is another when it is looked up", h.what, k, gen)
			}
			switch {
			case err != nil:
				bad(gen, k, err)
			case d != w && !(h.may && v.ever[path.Base(k)][d]):
				t.Errorf("%s: %q of %q is %s, not %s", h.what, k, gen, d, w)
			}
		}
		n.Close()
	}
	return all
}

// repair repairs the store and looks at the new one.
func (v *victim) repair(t testing.TB, h harm) {
	t.Helper()
	dst, err := os.MkdirTemp(filepath.Dir(v.dir), "repaired-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dst)
	said := map[string]map[string]bool{} // what was said to be lost or older
	damaged := 0
	_, err = Repair(bg, v.dir, dst, &RepairOptions{Report: func(l Loss) {
		if l.Kind == Damaged {
			damaged++
		}
		for _, k := range l.Keys {
			if said[l.Snapshot] == nil {
				said[l.Snapshot] = map[string]bool{}
			}
			said[l.Snapshot][strings.TrimSuffix(k.Path, "/")] = true
		}
	}})
	if err != nil {
		t.Errorf("%s: %v", h.what, err)
		return
	}
	checkStore(t, dst)
	got := contentsOf(t, dst)
	for gen, want := range v.want {
		if got[gen] == nil {
			if !h.may && damaged == 0 || !slices.Contains(h.files, "snapshots/"+gen) {
				t.Errorf("%s: snapshot %q is gone", h.what, gen)
			}
			continue
		}
		for k, w := range want {
			d, ok := got[gen][k]
			if d == w {
				continue
			}
			if !h.keys[gen][k] {
				t.Errorf("%s: %q of %q, which is not touched, is %q, not %s", h.what, k, gen, d, w)
			}
			if !said[gen][k] && damaged == 0 {
				t.Errorf("%s: nothing is said of %q of %q (there: %v)", h.what, k, gen, ok)
			}
		}
		for k, d := range got[gen] {
			if _, ok := want[k]; !ok && len(h.keys[gen]) == 0 {
				t.Errorf("%s: %q of %q came from nowhere", h.what, k, gen)
			}
			if !v.ever[path.Base(k)][d] && !strings.HasPrefix(d, "kind 2 ") {
				t.Errorf("%s: %q of %q was never %s", h.what, k, gen, d)
			}
		}
	}
}

// offsets returns those of a file at which a byte is changed.
func offsets(size int64) []int64 {
	var all []int64
	step := int64(1)
	if !longDamage {
		step = max(1, size/12)
	}
	for off := int64(0); off < size; off += step {
		all = append(all, off)
	}
	return append(all, size-1)
}

func TestFlippedBytes(t *testing.T) {
	v := newVictim(t)
	for _, file := range v.files {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(v.dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if len(b) == 0 {
				return
			}
			for _, off := range offsets(int64(len(b))) {
				keys, used := v.touched(file, off, off+1)
				changed := bytes.Clone(b)
				changed[off] ^= 1 << (off % 8)
				h := harm{fmt.Sprintf("%s at %d", file, off), []string{file}, keys, used, false}
				v.hurt(t, file, changed, func() { v.try(t, h, true) })
				if t.Failed() {
					return
				}
			}
		})
	}
}

func TestCutFiles(t *testing.T) {
	v := newVictim(t)
	for _, file := range v.files {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(v.dir, file))
			if err != nil {
				t.Fatal(err)
			}
			size := int64(len(b))
			at := map[int64]bool{0: true, 1: true, 7: true, size / 2: true, size - 1: true, size - 3: true, size - footerSize: true}
			for _, p := range v.parts {
				if p.file == file {
					at[p.from], at[p.from+1], at[p.to], at[p.to-1] = true, true, true, true
				}
			}
			for off := int64(0); off < size; off += tableBlock {
				at[off] = true
			}
			for off := range at {
				if off < 0 || off >= size {
					continue
				}
				keys, used := v.touched(file, off, size)
				h := harm{fmt.Sprintf("%s cut at %d", file, off), []string{file}, keys, used, false}
				v.hurt(t, file, b[:off], func() { v.try(t, h, true) })
			}
		})
	}
}

// A block of the disk that reads as zeros.
func TestZeroedBlocks(t *testing.T) {
	v := newVictim(t)
	for _, file := range v.files {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(v.dir, file))
			if err != nil {
				t.Fatal(err)
			}
			step := int64(tableBlock)
			if !longDamage {
				step = max(step, int64(len(b))/20/tableBlock*tableBlock)
			}
			for off := int64(0); off < int64(len(b)); off += step {
				end := min(off+tableBlock, int64(len(b)))
				keys, used := v.touched(file, off, end)
				changed := bytes.Clone(b)
				clear(changed[off:end])
				h := harm{fmt.Sprintf("%s zeroed at %d", file, off), []string{file}, keys, used && !bytes.Equal(changed, b), false}
				v.hurt(t, file, changed, func() { v.try(t, h, true) })
			}
		})
	}
}

func TestMissingFiles(t *testing.T) {
	v := newVictim(t)
	for _, file := range v.files {
		t.Run(file, func(t *testing.T) {
			keys, used := v.touched(file, 0, 1<<62)
			h := harm{file + " removed", []string{file}, keys, used || file == "lock", strings.HasPrefix(file, "snapshots/")} // anybody may remove a snapshot
			v.hurt(t, file, nil, func() { v.try(t, h, true) })
		})
	}
}

// Each file in the place of each other one.
func TestExchangedFiles(t *testing.T) {
	v := newVictim(t)
	for i, a := range v.files {
		for _, b := range v.files[i+1:] {
			t.Run(strings.ReplaceAll(a+"+"+b, "/", "-"), func(t *testing.T) {
				x, err := os.ReadFile(filepath.Join(v.dir, a))
				if err != nil {
					t.Fatal(err)
				}
				y, err := os.ReadFile(filepath.Join(v.dir, b))
				if err != nil {
					t.Fatal(err)
				}
				keys, used := v.touched(a, 0, 1<<62)
				more, usedToo := v.touched(b, 0, 1<<62)
				for gen, ks := range more {
					if keys[gen] == nil {
						keys[gen] = map[string]bool{}
					}
					maps.Copy(keys[gen], ks)
				}
				h := harm{a + " and " + b + " exchanged", []string{a, b}, keys, (used || usedToo) && !bytes.Equal(x, y), false}
				v.hurt(t, a, y, func() { v.hurt(t, b, x, func() { v.try(t, h, true) }) })
			})
		}
	}
}

func TestOlderCopies(t *testing.T) {
	v := newVictim(t)
	for _, file := range v.files {
		t.Run(file, func(t *testing.T) {
			now, err := os.ReadFile(filepath.Join(v.dir, file))
			if err != nil {
				t.Fatal(err)
			}
			tried := 0
			for i, b := range v.older[file] {
				if bytes.HasPrefix(b, now) {
					continue
				}
				keys, used := v.touched(file, 0, 1<<62)
				if bytes.HasPrefix(now, b) { // of a volume
					keys, used = v.touched(file, int64(len(b)), 1<<62)
				}
				h := harm{fmt.Sprintf("%s, copy %d of %d", file, i, len(v.older[file])), []string{file}, keys, used, file == "durable"}
				v.hurt(t, file, b, func() { v.try(t, h, true) })
				tried++
			}
			if file == "HEAD" && tried < 5 {
				t.Errorf("%d copies", tried)
			}
		})
	}
}

// Several files at once: those that tell of each other among them.
func TestDamageOfSeveralFiles(t *testing.T) {
	v := newVictim(t)
	rounds := 40
	if longDamage {
		rounds = 20000
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 1))
		v.hurtSome(t, r, harm{what: fmt.Sprint("seed ", seed), keys: map[string]map[string]bool{}}, 2+r.IntN(4))
		if t.Failed() {
			return
		}
	}
}

// hurtSome damages n files and tries the store.
func (v *victim) hurtSome(t testing.TB, r *rand.Rand, h harm, n int) {
	t.Helper()
	if n == 0 {
		v.try(t, h, true)
		return
	}
	file := v.files[r.IntN(len(v.files))]
	b, err := os.ReadFile(filepath.Join(v.dir, file))
	if errors.Is(err, os.ErrNotExist) || len(b) == 0 || slices.Contains(h.files, file) {
		v.hurtSome(t, r, h, n-1)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	from, to := int64(r.IntN(len(b))), int64(len(b))
	var changed []byte
	switch r.IntN(4) {
	case 0:
		from = 0
		h.what += ", " + file + " removed"
		h.may = h.may || strings.HasPrefix(file, "snapshots/")
	case 1:
		changed = b[:from]
		h.what += fmt.Sprintf(", %s cut at %d", file, from)
	case 2:
		changed, to = bytes.Clone(b), min(from+int64(r.IntN(9000)), to)
		for i := from; i < to; i++ {
			changed[i] ^= 0x5a
		}
		h.what += fmt.Sprintf(", %s changed from %d to %d", file, from, to)
	default:
		changed, to = bytes.Clone(b), from+1
		changed[from]++
		h.what += fmt.Sprintf(", %s changed at %d", file, from)
	}
	keys, used := v.touched(file, from, to)
	all := map[string]map[string]bool{}
	for _, m := range []map[string]map[string]bool{h.keys, keys} {
		for gen, ks := range m {
			if all[gen] == nil {
				all[gen] = map[string]bool{}
			}
			maps.Copy(all[gen], ks)
		}
	}
	h.keys, h.used, h.files = all, h.used || used || changed == nil && file == "lock", append(h.files, file)
	v.hurt(t, file, changed, func() { v.hurtSome(t, r, h, n-1) })
}
