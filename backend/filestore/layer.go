package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend/filestore/disk"
)

// layer is a sorted run of records, as much of it as can be read: the records of a HEAD, or the blocks of a table that are whole.
type layer struct {
	path   string  // relative to the store
	info   tabInfo // of a table: what its footer says
	whole  bool    // the footer is whole
	bloom  []byte  // its filter; nil if that cannot be read
	recs   []rec   // of a HEAD
	f      *disk.File
	blocks []blockInfo // whole, in order
	count  uint64      // of the records in them
	flaws  []flaw      // what is wrong
	holes  []*hole     // those of flaws, in order
}

// flaw is something wrong with a table.
type flaw struct {
	Finding
	hole *hole // the records that cannot be read because of it; nil if all can
}

// key is that of a record.
type key struct {
	dir  uint64
	name string
}

func (k key) less(o key) bool { return k.dir < o.dir || k.dir == o.dir && k.name < o.name }

func keyOf(r rec) key { return key{r.dir(), string(r.name())} }

const noLimit = ^uint64(0)

// hole is a run of records that cannot be read, from one key on.
type hole struct {
	from  key
	known bool   // there was a record of just that key
	to    *key   // the first one after it; nil if there is none
	rev   uint64 // that none of the records exceeds
	why   Finding
}

// finding returns what is wrong there, with the run of keys if it is known.
func (h *hole) finding(place func(key) Key) Finding {
	f := h.why
	if h.known {
		from := place(h.from)
		f.From = &from
		if h.to != nil {
			to := place(*h.to)
			f.Before = &to
		}
	}
	return f
}

func (h *hole) covers(k key) bool { return !k.less(h.from) && (h.to == nil || k.less(*h.to)) }

func (t *layer) flaw(off uint64, reason string) {
	t.flaws = append(t.flaws, flaw{Finding{Path: t.path, Offset: int64(off), Reason: reason}, nil})
}

// lose notes that the records from one key on up to before another cannot be read.
func (t *layer) lose(off uint64, reason string, rev uint64, from key, known bool, to *key) {
	h := &hole{from, known, to, rev, Finding{Path: t.path, Offset: int64(off), Reason: reason}}
	t.flaws = append(t.flaws, flaw{h.why, h})
	t.holes = append(t.holes, h)
}

func (t *layer) close() {
	if t.f != nil {
		t.f.Close()
	}
}

// lost returns a layer that says of a table only that it is lost, with all records up to revision rev.
func lost(path string, off uint64, reason string, rev uint64) *layer {
	t := &layer{path: path}
	t.lose(off, reason, rev, key{}, false, nil)
	return t
}

// survey reads all of a table, and notes what is wrong with it. An error is about what kept it from reading.
func (s *Store) survey(ctx context.Context, id uint64) (*layer, error) {
	path := s.tablePath(id)
	f, err := s.openRegular(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return lost(s.relative(path), 0, "the table is missing", noLimit), nil
	case err != nil && isDamage(err):
		return lost(s.relative(path), 0, s.finding(err).Reason, noLimit), nil
	case err != nil:
		return nil, err
	}
	t := &layer{path: s.relative(path), f: f}
	i, err := f.Info()
	if err == nil {
		err = t.read(ctx, uint64(i.Size))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

func (t *layer) read(ctx context.Context, size uint64) error {
	index, end, hints := t.sections(size)
	if index == nil {
		return t.scan(ctx, end, hints)
	}
	var last rec
	info := tabInfo{id: t.info.id, length: size, minGen: ^uint64(0)}
	for i, x := range index {
		if err := ctx.Err(); err != nil {
			return err
		}
		recs, err := readBlock(t.f, x, last)
		if err != nil {
			var to *key
			if i+1 < len(index) {
				to = &key{index[i+1].dir, index[i+1].name}
			}
			t.lose(x.off, err.Error(), x.maxRev, key{x.dir, x.name}, true, to)
			continue
		}
		t.inspect(x, recs, &info)
		t.blocks, t.count = append(t.blocks, x), t.count+uint64(len(recs))
		last = recs[len(recs)-1]
	}
	if info.count == 0 {
		info.minGen = 0
	}
	if len(t.holes) == 0 && info != t.info {
		t.flaw(size-footerSize, fmt.Sprintf("says %d records of generations %d to %d; there are %d of %d to %d",
			t.info.count, t.info.minGen, t.info.maxGen, info.count, info.minGen, info.maxGen))
	}
	return nil
}

// sections reads footer, filter and index. Without an index it returns where the blocks end at the latest, and where it seems to
// say that some begin.
func (t *layer) sections(size uint64) (index []blockInfo, end uint64, hints []uint64) {
	t.info = tabInfo{length: size}
	if size < footerSize {
		t.flaw(size, "the table ends too early")
		return nil, size, nil
	}
	end = size - footerSize
	foot := make([]byte, footerSize)
	if err := readExactly(t.f, foot, end); err != nil {
		t.flaw(end, err.Error())
		return nil, size, nil
	}
	m, x, err := decodeFooter(foot, end)
	if err != nil {
		t.flaw(end, err.Error())
		return nil, size, nil
	}
	t.info, t.whole = m.info, true
	t.info.length = size
	bloom := make([]byte, x.bloomLen)
	if err = readExactly(t.f, bloom, x.indexOff+x.indexLen); err == nil && checksum(bloom) != x.bloomCRC {
		err = errors.New("checksum mismatch of the filter")
	}
	if err != nil {
		t.flaw(x.indexOff+x.indexLen, err.Error())
	} else {
		t.bloom = bloom
	}
	b := make([]byte, x.indexLen)
	if err = readExactly(t.f, b, x.indexOff); err == nil && checksum(b) != x.indexCRC {
		hints, err = looseIndex(b), errors.New("checksum mismatch of the index")
	}
	if err == nil {
		index, err = decodeIndex(b, x.blocks, x.indexOff)
	}
	if err != nil {
		t.flaw(x.indexOff, err.Error())
	}
	return index, x.indexOff, hints
}

func readExactly(f *disk.File, b []byte, off uint64) error {
	n, err := readFull(f, b, int64(off))
	if err == nil && n < len(b) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readBlock reads a block of which the index says where it is. Its records must come after last.
func readBlock(f *disk.File, x blockInfo, last rec) ([]rec, error) {
	b := make([]byte, x.n)
	if err := readExactly(f, b, x.off); err != nil {
		return nil, err
	}
	n := len(b) - 4
	if checksum(b[:n]) != le.Uint32(b[n:]) {
		return nil, errors.New("checksum mismatch")
	}
	recs, err := decodeBlock(b[:n])
	switch {
	case err != nil:
		return nil, err
	case len(recs) == 0 || recs[0].cmp(x.dir, x.name) != 0:
		return nil, errors.New("block and index disagree")
	case last != nil && !last.less(recs[0]):
		return nil, errors.New("blocks out of order")
	}
	return recs, nil
}

// inspect compares the records of a block with what index, filter and footer say of them, and adds them to info.
func (t *layer) inspect(x blockInfo, recs []rec, info *tabInfo) {
	newest := uint64(0)
	for _, r := range recs {
		rev := r.rev()
		newest = max(newest, rev)
		info.minGen, info.maxGen = min(info.minGen, rev), max(info.maxGen, rev)
		info.count++
		if t.bloom != nil && !bloomHas(t.bloom, keyHash(r.dir(), string(r.name()))) {
			t.flaw(x.off, "a key that the filter does not know")
		}
	}
	if newest != x.maxRev {
		t.flaw(x.off, fmt.Sprintf("newest record of generation %d, the index says %d", newest, x.maxRev))
	}
}

// tableFiles returns the numbers of the tables that there are in index/, whoever names them.
func (s *Store) tableFiles() ([]uint64, error) {
	names, err := s.disk.List(filepath.Join(s.dir, "index"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	var ids []uint64
	for _, n := range names {
		if id, ok := fileID(n); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, err
}
