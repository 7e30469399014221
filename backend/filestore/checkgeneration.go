package filestore

import (
	"context"
	"fmt"

	"github.com/storefs/storefs/backend"
)

// generationCheck checks one generation.
type generationCheck struct {
	*checker
	p      *pin
	name   string   // of the snapshot; "" for the newest
	layers []*layer // newest first
	files  uint64
	bytes  uint64
	used   map[uint64]uint64      // bytes that live extents take, by volume
	solo   map[uint64]uint64      // volumes for one value and their lengths
	dirs   map[uint64]backend.Ref // where directory entries stand
	at     map[uint64]backend.Ref // where parent records say that directories stand
	inside map[uint64]string      // the first entry in each directory that has any
	broken bool                   // some records could not be read
}

func newGenerationCheck(c *checker, p *pin, name string) *generationCheck {
	return &generationCheck{checker: c, p: p, name: name, used: map[uint64]uint64{}, solo: map[uint64]uint64{},
		dirs: map[uint64]backend.Ref{}, at: map[uint64]backend.Ref{}, inside: map[uint64]string{}}
}

func (g *generationCheck) all(ctx context.Context) error {
	if err := g.tables(ctx); err != nil {
		return err
	}
	g.head()
	if err := g.records(ctx); err != nil {
		return err
	}
	if err := g.volumes(); err != nil {
		return err
	}
	if !g.broken { // or it would be false alarm
		g.tree()
		g.counts()
	}
	return nil
}

// sum makes the counts those of the result.
func (g *generationCheck) sum() {
	g.r.Generation = backend.Generation(g.p.h.gen)
	g.r.Files, g.r.Dirs, g.r.Bytes = g.files, uint64(len(g.dirs)), g.bytes
	g.r.Tables, g.r.Volumes = len(g.p.h.tabs), len(g.p.h.vols)+len(g.solo)
}

func (g *generationCheck) bad(f Finding) {
	f.Snapshot = g.name
	g.report(f)
}

// headf reports what the file of the generation says at the byte off of a HEAD.
func (g *generationCheck) headf(off int64, format string, a ...any) {
	path := "HEAD"
	if g.name != "" {
		path, off = g.s.relative(g.s.namedPath(g.name)), off+namedFixed
	}
	g.bad(Finding{Path: path, Offset: off, Reason: fmt.Sprintf(format, a...)})
}

func (g *generationCheck) place(k key) Key { return placeOf(g.layers, k) }

// tables reads every block of every table.
func (g *generationCheck) tables(ctx context.Context) error {
	g.layers = []*layer{{path: "HEAD", recs: g.p.h.recs}}
	var all []flaw // reported when it is known where directories stand
	for i := len(g.p.h.tabs) - 1; i >= 0; i-- {
		info := g.p.h.tabs[i]
		t, news, err := g.table(ctx, info.id)
		if err != nil {
			return err
		}
		if all = append(all, news...); t.whole && t.info != info {
			t = lost(t.path, t.info.length-footerSize, notThatTable, info.maxGen)
			all = append(all, t.flaws...)
		}
		g.broken = g.broken || len(t.holes) > 0
		g.layers = append(g.layers, t)
	}
	for _, f := range all {
		if f.hole != nil {
			f.Finding = f.hole.finding(g.place)
		}
		g.bad(f.Finding)
	}
	return nil
}

// head looks at what the numbers in HEAD say of each other.
func (g *generationCheck) head() {
	h := g.p.h
	last := uint64(0)
	for _, t := range h.tabs {
		if t.id >= h.nextID || t.maxGen > h.gen {
			g.headf(headFixed, "table %d of generation %d: the next is %d, this generation %d", t.id, t.maxGen, h.nextID, h.gen)
		}
	}
	for _, v := range h.vols {
		if v.id <= last || v.id >= h.nextID || v.garbage > v.length {
			g.headf(headFixed, "volume %d of %d bytes, %d of them garbage: the one before is %d, the next %d", v.id, v.length, v.garbage, last, h.nextID)
		}
		last = v.id
	}
	if h.history > h.gen {
		g.headf(80, "a removal of generation %d is forgotten, this is generation %d", h.history, h.gen)
	}
}

// records looks at the newest record of each key.
func (g *generationCheck) records(ctx context.Context) error {
	for recs, err := range groups(g.layers) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		r := recs[0]
		for _, old := range recs[1:] {
			if old.rev() > r.rev() {
				g.record(old, fmt.Errorf("of generation %d, and of %d in the newer %s", old.rev(), r.rev(), g.layers[r.from].path))
			}
		}
		if g.doubtful(r) {
			continue
		}
		if r.rev() > g.p.h.gen {
			g.record(r, fmt.Errorf("of generation %d, the store of %d", r.rev(), g.p.h.gen))
		}
		if err := g.newest(r); err != nil {
			return err
		}
	}
	return nil
}

// doubtful says whether a newer record of the key may be among those that cannot be read.
func (g *generationCheck) doubtful(r found) bool {
	for _, t := range g.layers[:r.from] {
		if h, _ := t.doubt(keyOf(r.rec)); h != nil {
			return true
		}
	}
	return false
}

// record reports what is wrong with a record.
func (g *generationCheck) record(r found, err error) {
	g.bad(Finding{Path: g.layers[r.from].path, Reason: "record " + err.Error(), Keys: []Key{g.place(keyOf(r.rec))}})
}

func (g *generationCheck) newest(r found) error {
	switch r.kind() {
	case recTomb:
	case recParent:
		ref, err := r.parent()
		if err != nil {
			g.record(r, err)
		}
		g.at[r.dir()] = ref
	case recVolume:
		id, n, err := r.volume()
		if err != nil {
			g.record(r, err)
		}
		g.solo[id] = n
	default:
		return g.entry(r)
	}
	return nil
}

func (g *generationCheck) entry(r found) error {
	e, err := r.entry()
	if err != nil {
		g.record(r, err)
		return nil
	}
	if e.Ref != backend.RootRef {
		if _, ok := g.inside[uint64(e.Dir)]; !ok {
			g.inside[uint64(e.Dir)] = e.Name
		}
		if err := backend.ValidName(e.Name); err != nil {
			g.record(r, err)
		}
	}
	if e.Kind == backend.Dir {
		if at, ok := g.dirs[uint64(e.Ino)]; ok {
			g.record(r, fmt.Errorf("of directory %d, which stands at %v too", e.Ino, g.place(key{uint64(at.Dir), at.Name})))
		}
		g.dirs[uint64(e.Ino)] = e.Ref
		return nil
	}
	g.files++
	if e.Kind == backend.File {
		g.bytes += uint64(e.Size)
		if err := g.value(&e); err != nil {
			return err
		}
	}
	if g.o.Progress != nil {
		g.o.Progress(1, e.Size)
	}
	return nil
}

// value reads a value, unless it is known to be sound.
func (g *generationCheck) value(e *backend.Entry) error {
	for _, x := range locatorOf(e).exts {
		g.used[x.vol] += x.span()
		if _, ok := g.exts[x]; ok {
			continue
		}
		err := g.s.vols.verify(x, g.buf)
		switch {
		case err == nil && g.exts != nil:
			g.exts[x] = struct{}{}
		case err != nil && !isDamage(err):
			return err
		case err != nil:
			f := g.s.finding(err)
			f.Keys = []Key{g.place(key{uint64(e.Dir), e.Name})}
			g.bad(f)
		}
	}
	return nil
}

// volumes compares what extents take with what volumes are said to hold.
func (g *generationCheck) volumes() error {
	for _, v := range g.p.h.vols {
		if err := g.volume(v.id, v.length, v.length-v.garbage); err != nil {
			return err
		}
	}
	for id, n := range g.solo {
		if err := g.volume(id, n, n); err != nil {
			return err
		}
	}
	if g.broken {
		return nil
	}
	for id := range g.used {
		g.bad(Finding{Path: g.s.relative(g.s.volumePath(id)), Reason: "in use, but not known to the store"})
	}
	if n := uint64(len(g.solo)); n != g.p.h.solos {
		g.headf(112, "%d volumes of one value, %d said to be", n, g.p.h.solos)
	}
	return nil
}

// volume looks at one volume of a length of which so much should be in use.
func (g *generationCheck) volume(id, length, live uint64) error {
	used := g.used[id]
	delete(g.used, id)
	err := g.s.longEnough(id, length)
	switch {
	case err != nil && !isDamage(err):
		return err
	case err != nil:
		g.bad(g.s.finding(err))
	}
	if used != live && !g.broken {
		g.bad(Finding{Path: g.s.relative(g.s.volumePath(id)), Reason: fmt.Sprintf("%d bytes in use of %d, said to be %d", used, length, live)})
	}
	return nil
}

// tree looks whether every entry is in a directory, and every directory where it thinks that it is.
func (g *generationCheck) tree() {
	for d, name := range g.inside {
		if _, ok := g.dirs[d]; !ok {
			g.headf(headFixed, "%q is in directory %d, which does not exist", name, d)
		}
	}
	for d, ref := range g.dirs {
		if at, ok := g.at[d]; !ok || at != ref {
			g.headf(headFixed, "directory %d stands at %q in %d, but its own record says %q in %d", d, ref.Name, ref.Dir, at.Name, at.Dir)
		}
	}
	for d := range g.at {
		if _, ok := g.dirs[d]; !ok {
			g.headf(headFixed, "a record says where directory %d stands, but it does not exist", d)
		}
	}
	if g.dirs[uint64(backend.RootIno)] != backend.RootRef {
		g.headf(headFixed, "there is no root directory")
	}
	for _, d := range circles(g.dirs) {
		g.headf(headFixed, "directory %d is inside itself", d)
	}
}

// circles returns of each circle of directories that are inside each other one. dirs says where they stand.
func circles(dirs map[uint64]backend.Ref) []uint64 {
	var found []uint64
	done := map[uint64]int{uint64(backend.RootIno): -1} // the number of the walk that came by
	walk := 0
	for d := range dirs {
		walk++
		for done[d] == 0 {
			done[d] = walk
			at, ok := dirs[d]
			if !ok {
				break
			}
			if d = uint64(at.Dir); done[d] == walk {
				found = append(found, d)
			}
		}
	}
	return found
}

func (g *generationCheck) counts() {
	if h := g.p.h; h.files != g.files || h.dirs != uint64(len(g.dirs)) || h.bytes != g.bytes {
		g.headf(88, "counts %d files, %d directories, %d bytes; there are %d, %d, %d", h.files, h.dirs, h.bytes, g.files, len(g.dirs), g.bytes)
	}
}
