package filestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/storefs/storefs/backend"
)

// lostFound is the name, in the root, of the directory of those whose place is lost.
const lostFound = "lost+found"

// tree is where the directories of a view stand, and what must be added to its records so that each stands where they say that it does.
type tree struct {
	w      *view
	fresh  func() backend.Ino // a number for something new
	like   backend.Entry      // what directories of which only the number is known get as attributes and revision
	facts  map[uint64]*dirFacts
	places map[uint64]backend.Ref // of all directories that stay
	gone   map[uint64]bool        // those that were removed, with what is in them
	made   []rec                  // in the order of keys
	taken  map[backend.Ref]bool   // by what is in made
	bare   []uint64               // directories that come back without their attributes
	moved  []uint64               // and those that have lost their place
	lost   uint64                 // the number of lost+found; 0 if there is none
}

// dirFacts are what the records say of a directory.
type dirFacts struct {
	at      []placed // where it has an entry
	parent  *placed  // where its own record says that it stands
	removed bool     // that record says that it does not
	since   uint64   // the revision of that record
	inside  bool     // something is in it
}

type placed struct {
	ref backend.Ref
	rev uint64
}

// treeOf finds out where all directories of w stand.
func treeOf(ctx context.Context, w *view, like backend.Entry, fresh func() backend.Ino) (*tree, error) {
	t := &tree{w: w, fresh: fresh, like: like, facts: map[uint64]*dirFacts{}, places: map[uint64]backend.Ref{}, gone: map[uint64]bool{}, taken: map[backend.Ref]bool{}}
	for g, err := range groups(w.layers()) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if all, _, _ := w.versions(g); len(all) > 0 {
			t.note(all[0].rec)
		}
	}
	t.root()
	for again := true; again; {
		again = false
		for _, d := range slices.Sorted(maps.Keys(t.facts)) {
			if _, ok := t.places[d]; !ok && !t.gone[d] {
				t.settle(d)
				again = true
			}
		}
		for d, at := range t.places {
			switch {
			case d == uint64(backend.RootIno):
			case t.gone[uint64(at.Dir)]: // it was removed before that
				delete(t.places, d)
				t.gone[d] = true
				again = true
			case !t.has(uint64(at.Dir)):
				t.fact(uint64(at.Dir)).inside = true
				again = true
			}
		}
	}
	for _, d := range circles(t.places) {
		t.homeless(d)
	}
	slices.SortFunc(t.made, func(a, b rec) int { return a.cmp(b.dir(), string(b.name())) })
	return t, nil
}

func (t *tree) has(d uint64) bool {
	_, ok := t.places[d]
	return ok
}

func (t *tree) fact(d uint64) *dirFacts {
	f := t.facts[d]
	if f == nil {
		f = &dirFacts{}
		t.facts[d] = f
	}
	return f
}

// note takes in what the newest record of a key says.
func (t *tree) note(r rec) {
	switch {
	case r.dir() == 0 && len(r.name()) > 0: // a volume
	case r.dir() != 0 && len(r.name()) == 0:
		f := t.fact(r.dir())
		f.since = r.rev()
		if ref, err := r.parent(); err == nil {
			f.parent = &placed{ref, r.rev()}
		} else {
			f.removed = true
		}
	case r.isEntry():
		e, err := r.entry()
		if err != nil {
			return
		}
		if e.Ref != backend.RootRef {
			t.fact(uint64(e.Dir)).inside = true
		}
		if e.Kind == backend.Dir {
			f := t.fact(uint64(e.Ino))
			f.at = append(f.at, placed{e.Ref, r.rev()})
		}
	}
}

// add adds a record.
func (t *tree) add(r rec, at backend.Ref) {
	t.made = append(t.made, r)
	t.taken[at] = true
}

// root sees to it that there is one.
func (t *tree) root() {
	d := uint64(backend.RootIno)
	f := t.fact(d)
	t.places[d] = backend.RootRef
	if !slices.ContainsFunc(f.at, func(p placed) bool { return p.ref == backend.RootRef }) {
		t.enter(d, backend.RootRef)
		t.bare = append(t.bare, d)
	}
	if f.parent == nil || f.parent.ref != backend.RootRef {
		t.made = append(t.made, parentRec(d, backend.RootRef, uint64(t.like.Revision)))
	}
}

// settle finds the place of directory d: where its entry is, where it says itself that it was, or lost+found.
func (t *tree) settle(d uint64) {
	f := t.facts[d]
	var best *placed
	for i, p := range f.at {
		if f.parent != nil && f.parent.ref == p.ref {
			best = &f.at[i]
			break
		}
		if best == nil || p.rev > best.rev {
			best = &f.at[i]
		}
	}
	switch {
	case best != nil && !(f.removed && f.since > best.rev):
		t.places[d] = best.ref
		if f.parent == nil || f.parent.ref != best.ref {
			t.made = append(t.made, parentRec(d, best.ref, uint64(t.like.Revision)))
		}
	case f.removed:
		t.gone[d] = true
	case f.parent != nil && t.free(f.parent):
		t.places[d] = f.parent.ref
		t.enter(d, f.parent.ref)
		t.bare = append(t.bare, d)
	default:
		t.homeless(d)
	}
}

// free says whether nothing else stands at a place, and nothing was taken away from it since.
func (t *tree) free(p *placed) bool {
	if t.taken[p.ref] {
		return false
	}
	g := t.w.find(key{uint64(p.ref.Dir), p.ref.Name})
	if len(g) == 0 {
		return true
	}
	all, _, _ := t.w.versions(g)
	return len(all) == 0 || all[0].kind() == recTomb && all[0].rev() < p.rev
}

// enter makes an entry for directory d.
func (t *tree) enter(d uint64, at backend.Ref) {
	e := t.like
	e.Ref, e.Ino = at, backend.Ino(d)
	t.add(entryRec(&e, nowhere), at)
}

// homeless puts directory d into lost+found.
func (t *tree) homeless(d uint64) {
	if t.lost == 0 {
		at := backend.Ref{Dir: backend.RootIno, Name: lostFound}
		for n := 2; !t.free(&placed{at, ^uint64(0)}); n++ {
			at.Name = fmt.Sprintf("%s-%d", lostFound, n)
		}
		t.lost = uint64(t.fresh())
		t.stand(t.lost, at)
	}
	t.stand(d, backend.Ref{Dir: backend.Ino(t.lost), Name: strconv.FormatUint(d, 10)})
	t.moved = append(t.moved, d)
}

// stand makes both records that say where directory d stands.
func (t *tree) stand(d uint64, at backend.Ref) {
	t.places[d] = at
	t.enter(d, at)
	t.made = append(t.made, parentRec(d, at, uint64(t.like.Revision)))
}

// key returns a place as a path.
func (t *tree) key(k key) Key {
	path, dir := k.name, k.dir
	for dir != uint64(backend.RootIno) {
		at, ok := t.places[dir]
		if !ok || dir == 0 {
			return Key{Path: path, Dir: backend.Ino(dir)}
		}
		path, dir = at.Name+"/"+path, uint64(at.Dir)
	}
	if path == "" {
		path = "/"
	}
	return Key{Path: path}
}
