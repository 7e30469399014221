package filestore

import (
	"context"
	"slices"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// scan finds the blocks, which end before end, one after the other without the index.
func (t *layer) scan(ctx context.Context, end uint64, hints []uint64) error {
	var last rec
	pos := uint64(0)
	for !(pos == end && t.whole || !t.whole && t.indexAt(pos)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		recs, n, ends := blockAt(t.f, pos, end)
		if recs == nil || last != nil && !last.less(recs[0]) {
			from := key{}
			if last != nil {
				from = key{last.dir(), string(last.name()) + "\x00"}
			}
			next, first := t.resume(pos, end, last, append(ends, hints...))
			rev := uint64(noLimit)
			if t.whole {
				rev = t.info.maxGen
			}
			t.lose(pos, "no block of records that is whole", rev, from, false, first)
			if first == nil {
				break
			}
			pos = next
			continue
		}
		x := blockInfo{off: pos, n: uint32(n), dir: recs[0].dir(), name: string(recs[0].name())}
		for _, r := range recs {
			x.maxRev = max(x.maxRev, r.rev())
		}
		if !t.whole {
			t.info.maxGen = max(t.info.maxGen, x.maxRev)
		}
		t.blocks, t.count = append(t.blocks, x), t.count+uint64(len(recs))
		pos, last = pos+n, recs[len(recs)-1]
	}
	return nil
}

// resume returns the first whole block after pos, of those that begin at one of the places, and its first key. Nowhere else is looked for
// one: the bytes in a record are its owner's, who could have made them look like a block.
func (t *layer) resume(pos, end uint64, last rec, places []uint64) (uint64, *key) {
	slices.Sort(places)
	for _, p := range slices.Compact(places) {
		if p <= pos || p >= end {
			continue
		}
		if recs, _, _ := blockAt(t.f, p, end); recs != nil && (last == nil || last.less(recs[0])) {
			first := keyOf(recs[0])
			return p, &first
		}
	}
	return 0, nil
}

// indexAt says whether the index of just the blocks that were found stands at pos: then there are no others.
func (t *layer) indexAt(pos uint64) bool {
	want := encodeIndex(t.blocks)
	b := make([]byte, len(want))
	return len(t.holes) == 0 && len(b) > 0 && readExactly(t.f, b, pos) == nil && string(b) == string(want)
}

// blockAt reads the block that begins at pos, of which nothing but its own records and checksum say how long it is: n bytes. recs is nil if none
// that is whole begins there; then ends are the places where another could begin, if nothing but the contents of records is damaged.
func blockAt(f *disk.File, pos, end uint64) (recs []rec, n uint64, ends []uint64) {
	for want := uint64(2 * tableBlock); ; {
		b := make([]byte, min(want, end-pos))
		if readExactly(f, b, pos) != nil {
			return nil, 0, nil
		}
		var ok bool
		if recs, n, ends, ok = cutBlock(b, pos); ok {
			return recs, n, nil
		}
		// A record may go on beyond what was read.
		if n+4 > uint64(len(b)) {
			return nil, 0, ends
		}
		need := n + 4 + uint64(le.Uint32(b[n:])) + 4
		if need <= uint64(len(b)) || need > maxRecord || n >= tableBlock || uint64(len(b)) == end-pos {
			return nil, 0, ends
		}
		want = need
	}
}

// cutBlock takes the block off b, which stands at pos. If there is none n is where the records end that it seems to have.
func cutBlock(b []byte, pos uint64) (recs []rec, n uint64, ends []uint64, ok bool) {
	sum := uint32(0)
	for n <= tableBlock || len(recs) == 0 {
		r, _, err := cutRec(b[n:])
		if err != nil || r.kind() > recVolume || len(r.name()) > backend.MaxName {
			break
		}
		sum = updateSum(sum, r)
		recs, n = append(recs, r), n+uint64(len(r))
		if n+4 > uint64(len(b)) {
			break
		}
		if le.Uint32(b[n:]) == sum {
			k := len(recs)
			return recs, n + 4, nil, k == 1 || slices.IsSortedFunc(recs, func(a, b rec) int { return a.cmp(b.dir(), string(b.name())) })
		}
		ends = append(ends, pos+n+4)
	}
	return nil, n, ends, false
}

// looseIndex returns where an index that is damaged says that blocks are.
func looseIndex(b []byte) []uint64 {
	var at []uint64
	for len(b) >= blockInfoFixed {
		k := blockInfoFixed + int(le.Uint16(b[28:]))
		if k > len(b) {
			break
		}
		at = append(at, le.Uint64(b))
		b = b[k:]
	}
	return at
}
