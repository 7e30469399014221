package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/storefs/storefs/backend"
)

// salvage is what can be read of a store, however damaged.
type salvage struct {
	s     *Store
	tabs  map[uint64]*layer // every table there is, by the number that it says it has
	heads []candidate       // HEAD, spares and snapshots, the newest first; without those that cannot be read
	head  error             // what is wrong with HEAD; nil if it is whole, and nothing knows of a newer one
	names []kept            // snapshots, the oldest first
	pins  []*pin
}

// kept is a named snapshot.
type kept struct {
	name string // that it was made with, if there is a file of that name; else that of its file
	file string
	made int64
	h    *head
	err  error // why there is no h
}

// view is one generation as far as it can be put together.
type view struct {
	name  string   // of the snapshot; "" for the newest
	base  *head    // nil if there are only tables
	main  []*layer // what has its records, newest first
	rest  []*layer // what may have older ones
	limit uint64   // the highest revision of its records
}

// salvageOf reads everything in the store but the values. The caller closes it.
func salvageOf(ctx context.Context, s *Store) (*salvage, error) {
	v := &salvage{s: s, tabs: map[uint64]*layer{}}
	err := v.findHeads()
	if err == nil {
		err = v.findSnapshots(ctx)
	}
	if err == nil {
		err = v.findTables(ctx)
	}
	if err != nil {
		v.close()
		return nil, err
	}
	slices.SortStableFunc(v.heads, func(a, b candidate) int { return cmp.Compare(b.h.seq, a.h.seq) })
	return v, nil
}

func (v *salvage) close() {
	for _, t := range v.tabs {
		t.close()
	}
	for _, p := range v.pins {
		v.s.unpin(p)
	}
}

// findHeads reads HEAD and the spares.
func (v *salvage) findHeads() error {
	if p, err := v.s.pinNewest(); err == nil {
		v.pins = append(v.pins, p)
	}
	cs, err := v.s.candidates()
	if err != nil {
		return err
	}
	for _, c := range cs {
		switch {
		case errors.Is(c.err, backend.ErrFormat):
			return c.err
		case c.err == nil:
			v.heads = append(v.heads, c)
		case c.name == "HEAD":
			v.head = v.s.headGone(c.err)
			fallthrough
		default:
			if err := v.s.headGone(c.err); !isDamage(err) {
				return err
			}
		}
	}
	return nil
}

func (v *salvage) findSnapshots(ctx context.Context) error {
	names, _, err := v.s.snapshotNames()
	if err != nil {
		return err
	}
	called := map[uint32]string{}
	for _, name := range names {
		called[checksum([]byte(name))] = name
	}
	for _, name := range names {
		k := kept{name: name, file: name}
		n, p, err := v.s.pinSnapshot(ctx, name)
		switch {
		case errors.Is(err, backend.ErrNotFound): // removed meanwhile
			continue
		case err != nil && !isDamage(err):
			return err
		case err != nil:
			k.err = err
		default:
			v.pins = append(v.pins, p)
			k.h, k.made = p.h, n.made
			if right, ok := called[n.name]; ok {
				k.name = right
				delete(called, n.name)
			}
			v.heads = append(v.heads, candidate{name: v.s.relative(p.f.Name()), h: k.h})
		}
		v.names = append(v.names, k)
	}
	slices.SortStableFunc(v.names, func(a, b kept) int {
		if a.h == nil || b.h == nil {
			return cmp.Compare(btoi(a.h == nil), btoi(b.h == nil))
		}
		return cmp.Compare(a.h.seq, b.h.seq)
	})
	return nil
}

// findTables reads all tables. A table is the one that it says it is, wherever it lies; only one that cannot say is that of its name.
func (v *salvage) findTables(ctx context.Context) error {
	ids, err := v.s.tableFiles()
	if err != nil {
		return err
	}
	for _, id := range ids {
		t, err := v.s.survey(ctx, id)
		if err != nil {
			return err
		}
		if t.whole && t.info.id != id {
			t.flaw(t.info.length-footerSize, fmt.Sprintf("says that it is table %d", t.info.id))
			id = t.info.id
		}
		if old := v.tabs[id]; old != nil {
			if old.whole {
				t, old = old, t
			}
			old.close()
		}
		v.tabs[id] = t
	}
	return nil
}

// newest returns the newest generation; nil if there is nothing of any.
func (v *salvage) newest() (*view, error) {
	base, sure, err := v.base()
	if err != nil || base == nil && len(v.tabs) == 0 {
		return nil, err
	}
	w := &view{}
	if base != nil {
		w.base, w.limit = base.h, base.h.gen
		w.main = []*layer{{path: base.name, recs: base.h.recs, info: tabInfo{maxGen: base.h.gen}}}
	}
	if sure {
		v.take(w)
	} else {
		w.limit = noLimit
		v.guess(w)
	}
	v.spread(w)
	return w, nil
}

// snapshot returns the generation of a snapshot.
func (v *salvage) snapshot(k kept) *view {
	path := v.s.relative(v.s.namedPath(k.file))
	w := &view{name: k.name, base: k.h, limit: k.h.gen, main: []*layer{{path: path, recs: k.h.recs}}}
	v.take(w)
	v.spread(w)
	return w
}

// base returns the newest HEAD; nil if none is whole. It is sure if what that names is what there is to be. In the run of the machine in which it was
// written HEAD is right, unless something knows of a newer one; after that, as in recovery, the newest of which all is there or was synced.
// Otherwise it is the newest of those that can be read.
func (v *salvage) base() (c *candidate, sure bool, err error) {
	if len(v.heads) == 0 {
		return nil, false, nil
	}
	i := slices.IndexFunc(v.heads, func(c candidate) bool { return c.name == "HEAD" })
	if i >= 0 && v.heads[i].h.boot == v.s.boot {
		if v.head, err = v.olderHead(); v.head == nil {
			return &v.heads[i], true, err
		}
		return &v.heads[0], false, err
	}
	if !slices.ContainsFunc(v.heads, func(c candidate) bool { return c.h.boot == v.s.boot }) {
		d := v.s.readDurable()
		for k := range v.heads {
			c := &v.heads[k]
			if c.h.seq != d.seq && v.s.whole(c.h) != nil {
				continue
			}
			if v.head == nil && k != i {
				v.head = &backend.CorruptError{Path: v.s.dir + "/HEAD", Reason: fmt.Sprintf("%s is newer, or not all that it names is whole", v.heads[0].name)}
			}
			return c, true, nil
		}
	}
	return &v.heads[0], false, nil
}

// olderHead returns an error if HEAD, which can be read, is older than something that stands beside it.
func (v *salvage) olderHead() (older, err error) {
	found, err := v.s.besideHEAD()
	for _, f := range found {
		if f.Path == "HEAD" {
			older = &backend.CorruptError{Path: v.s.dir + "/HEAD", Offset: f.Offset, Reason: f.Reason}
		}
	}
	return older, err
}

// take makes the tables that base names those of w.
func (v *salvage) take(w *view) {
	for i := len(w.base.tabs) - 1; i >= 0; i-- {
		w.main = append(w.main, v.table(w.base.tabs[i]))
	}
}

// table returns the table that a HEAD describes.
func (v *salvage) table(info tabInfo) *layer {
	path := v.s.relative(v.s.tablePath(info.id))
	t := v.tabs[info.id]
	switch {
	case t == nil:
		return lost(path, 0, "the table is missing", info.maxGen)
	case t.whole && t.info != info:
		return lost(path, t.info.length-footerSize, notThatTable, info.maxGen)
	case t.count == info.count:
		t.holes = nil // there were no others
	case !t.whole: // so it does not say itself what its newest record is
		for _, h := range t.holes {
			h.rev = info.maxGen
		}
	}
	return t
}

// guess makes those tables the ones of w that are most likely to be: the records in them tell which is newer. Without a HEAD nothing tells of a table whether it is
// in use, or was merged into another one that has a higher number and tells of the same generations. What the HEAD that there is does not name had gone
// before, or came later.
func (v *salvage) guess(w *view) {
	named := map[uint64]tabInfo{}
	next := uint64(0)
	if w.base != nil {
		next = w.base.nextID
		for _, t := range w.base.tabs {
			named[t.id] = t
		}
	}
	ids := slices.Collect(maps.Keys(v.tabs))
	for id := range named {
		if v.tabs[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint64) int { return cmp.Compare(b, a) })
	var tabs []*layer
	for _, id := range ids {
		info, isNamed := named[id]
		t := v.tabs[id]
		if isNamed {
			t = v.table(info)
		} else if id < next {
			continue
		}
		if !isNamed && t.whole {
			info = t.info
		}
		merged := slices.ContainsFunc(tabs, func(o *layer) bool { return o.whole && info.minGen <= o.info.maxGen && o.info.minGen <= info.maxGen })
		if !merged || info == (tabInfo{}) {
			tabs = append(tabs, t)
		}
	}
	w.main = append(w.main, tabs...)
	slices.SortStableFunc(w.main, func(a, b *layer) int { return cmp.Compare(b.info.maxGen, a.info.maxGen) })
}

// spread makes everything else that can be read what may have older versions.
func (v *salvage) spread(w *view) {
	for _, id := range slices.Sorted(maps.Keys(v.tabs)) {
		if t := v.tabs[id]; !slices.Contains(w.main, t) {
			w.rest = append(w.rest, t)
		}
	}
	for _, c := range v.heads {
		if w.base != nil && c.h.seq < w.base.seq {
			w.rest = append(w.rest, &layer{path: c.name, recs: c.h.recs})
		}
	}
}

// layers returns main and rest.
func (w *view) layers() []*layer { return slices.Concat(w.main, w.rest) }

// versions returns the records of a key that may be taken, the newest first. hole is where a newer one may have been, nil if there was none; sure
// says that there was, but for one key in a hundred. Records of rest that are newer than those of main are taken where main has a hole.
func (w *view) versions(g []found) (all []found, hole *hole, sure bool) {
	top, best := -1, uint64(0)
	for i, r := range g {
		if r.rev() > w.limit {
			continue
		}
		best = max(best, r.rev())
		if r.from < len(w.main) && (top < 0 || r.rev() > g[top].rev()) {
			top = i
		}
	}
	newer := w.main
	if top >= 0 {
		newer = w.main[:g[top].from]
	}
	holed := false
	for _, t := range newer {
		h, s := t.doubt(keyOf(g[0].rec))
		if h == nil {
			continue
		}
		holed = true
		if h.rev > best && (hole == nil || s && !sure) {
			hole, sure = h, s
		}
	}
	for _, r := range g {
		if r.rev() <= w.limit && (r.from < len(w.main) || holed || top >= 0 && r.rev() < g[top].rev()) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.rev(), a.rev()) })
	return slices.CompactFunc(all, func(a, b found) bool { return a.rev() == b.rev() }), hole, sure
}

// find returns what the layers have of a key.
func (w *view) find(k key) []found {
	var g []found
	for i, t := range w.layers() {
		if r := t.get(k); r != nil {
			g = append(g, found{r, i})
		}
	}
	return g
}
