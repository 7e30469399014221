package filestore

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/storefs/storefs/backend"
)

// doubt returns the hole in which a record of the key may have been; nil if there is none. sure is false if the filter cannot be read: where it
// can, a key that was not there is taken for one that was once in about a hundred times.
func (t *layer) doubt(k key) (h *hole, sure bool) {
	i := sort.Search(len(t.holes), func(i int) bool { return t.holes[i].to == nil || k.less(*t.holes[i].to) })
	if i == len(t.holes) || !t.holes[i].covers(k) || t.bloom != nil && !bloomHas(t.bloom, keyHash(k.dir, k.name)) {
		return nil, false
	}
	return t.holes[i], t.bloom != nil
}

// get returns the record of the key; nil if there is none that can be read.
func (t *layer) get(k key) rec {
	recs := t.recs
	if t.f != nil {
		i := sort.Search(len(t.blocks), func(i int) bool { return k.less(key{t.blocks[i].dir, t.blocks[i].name}) }) - 1
		if i < 0 {
			return nil
		}
		recs, _ = readBlock(t.f, t.blocks[i], nil)
	}
	i, ok := slices.BinarySearchFunc(recs, k, func(r rec, k key) int { return r.cmp(k.dir, k.name) })
	if !ok {
		return nil
	}
	return recs[i]
}

// run is a layer being read from its start on. rec is nil at the end.
type run struct {
	*layer
	rec  rec
	recs []rec
	next int
}

func (t *layer) run() *run { return &run{layer: t, recs: t.recs} }

func (r *run) step() error {
	for len(r.recs) == 0 {
		if r.next == len(r.blocks) {
			r.rec = nil
			return nil
		}
		var err error
		if r.recs, err = readBlock(r.f, r.blocks[r.next], nil); err != nil {
			return fmt.Errorf("%s: block at byte %d, which was whole before: %w", r.path, r.blocks[r.next].off, err)
		}
		r.next++
	}
	r.rec, r.recs = r.recs[0], r.recs[1:]
	return nil
}

// found is a record and the index of its layer.
type found struct {
	rec
	from int
}

// groups yields the keys of all layers in order, with what each has of them. What is yielded is used again.
func groups(layers []*layer) iter.Seq2[[]found, error] {
	return func(yield func([]found, error) bool) {
		var runs []*run
		for _, t := range layers {
			r := t.run()
			if err := r.step(); err != nil {
				yield(nil, err)
				return
			}
			runs = append(runs, r)
		}
		var g []found
		for {
			var first rec
			for _, r := range runs {
				if r.rec != nil && (first == nil || r.rec.less(first)) {
					first = r.rec
				}
			}
			if first == nil {
				return
			}
			g = g[:0]
			for i, r := range runs {
				if r.rec == nil || !r.rec.sameKey(first) {
					continue
				}
				g = append(g, found{r.rec, i})
				if err := r.step(); err != nil {
					yield(nil, err)
					return
				}
			}
			if !yield(g, nil) {
				return
			}
		}
	}
}

// placeOf returns the key of a record as a path, as far as the layers, newest first, know where its directories stand.
func placeOf(layers []*layer, k key) Key {
	if k.dir == 0 {
		return Key{Path: "/"}
	}
	path, dir := k.name, k.dir
	for range 10000 { // or directories are inside themselves
		if dir == uint64(backend.RootIno) {
			return Key{Path: cmp.Or(path, "/")}
		}
		var at backend.Ref
		err := error(errRecord)
		for _, t := range layers {
			if r := t.get(key{dir, ""}); r != nil {
				at, err = r.parent()
				break
			}
		}
		if err != nil {
			break
		}
		path, dir = at.Name+"/"+path, uint64(at.Dir)
	}
	return Key{Path: path, Dir: backend.Ino(dir)}
}
