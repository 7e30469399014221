package filestore

import (
	"iter"
	"sort"
)

// cursor steps through records in the order of keys. rec is nil at the end.
type cursor struct {
	rec    rec
	recs   []rec // those after rec that are in memory
	t      *table
	m      *tableMeta
	next   int    // block to read when recs is empty
	once   bool   // blocks are not kept in memory
	minRev uint64 // blocks with nothing newer are passed over
}

func (c *cursor) step() error {
	for len(c.recs) == 0 {
		if c.t == nil || c.next >= len(c.m.index) {
			c.rec = nil
			return nil
		}
		i := c.next
		c.next++
		if c.m.index[i].maxRev <= c.minRev && c.minRev > 0 {
			continue
		}
		var err error
		if c.recs, err = c.t.records(c.m, i, !c.once); err != nil {
			return err
		}
	}
	c.rec, c.recs = c.recs[0], c.recs[1:]
	return nil
}

// seek puts the cursor on the first record at or after the key.
func (c *cursor) seek(dir uint64, name string) error {
	if c.t != nil {
		c.next = max(0, c.m.find(dir, name))
	} else {
		i := sort.Search(len(c.recs), func(i int) bool { return c.recs[i].cmp(dir, name) >= 0 })
		c.recs = c.recs[i:]
	}
	for {
		if err := c.step(); err != nil || c.rec == nil || c.rec.cmp(dir, name) >= 0 {
			return err
		}
	}
}

// tableCursor returns a cursor before the first record of t.
func tableCursor(t *table) (*cursor, error) {
	m, err := t.open()
	if err != nil {
		return nil, err
	}
	return &cursor{t: t, m: m}, nil
}

// mergeFrom yields from the cursors, newest first, the newest record of each key at or after the key given; removals too.
func mergeFrom(cs []*cursor, dir uint64, name string) iter.Seq2[rec, error] {
	return func(yield func(rec, error) bool) {
		for _, c := range cs {
			if err := c.seek(dir, name); err != nil {
				yield(nil, err)
				return
			}
		}
		for {
			var first rec
			for _, c := range cs {
				if c.rec != nil && (first == nil || c.rec.less(first)) {
					first = c.rec
				}
			}
			if first == nil || !yield(first, nil) {
				return
			}
			for _, c := range cs {
				if c.rec != nil && c.rec.sameKey(first) {
					if err := c.step(); err != nil {
						yield(nil, err)
						return
					}
				}
			}
		}
	}
}
