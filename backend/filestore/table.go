package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

const (
	tableMagic  = "storefsT"
	footerSize  = 104
	tableBlock  = 4096 // payload at which a block is closed
	maxTableSec = 1 << 31
)

// table is one immutable index table. It is opened when first looked into.
type table struct {
	s    *Store
	id   uint64
	path string
	want tabInfo // what HEAD says of it
	refs int     // table sets that name it; guarded by Store.mu

	mu   sync.Mutex // held while opening
	meta atomic.Pointer[tableMeta]
}

const notThatTable = "not the table that HEAD names"

// tableMeta is what is kept in memory of an open table.
type tableMeta struct {
	f     *disk.File
	info  tabInfo
	index []blockInfo
	bloom []byte
}

type blockInfo struct {
	off    uint64
	n      uint32 // with its checksum
	maxRev uint64
	dir    uint64 // first key
	name   string
}

func (t *table) open() (*tableMeta, error) {
	if m := t.meta.Load(); m != nil {
		return m, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.meta.Load(); m != nil {
		return m, nil
	}
	f, err := t.s.disk.Open(t.path, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &backend.CorruptError{Path: t.path, Reason: "the table is missing"}
	}
	if err != nil {
		return nil, err
	}
	m, err := readTable(f, t.path)
	if err == nil && m.info != t.want {
		err = t.damaged(int64(m.info.length-footerSize), notThatTable)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	t.meta.Store(m)
	return m, nil
}

func (t *table) close() {
	if m := t.meta.Swap(nil); m != nil {
		m.f.Close()
	}
	t.s.blocks.drop(t.id)
}

// readTable reads footer, index and filter.
func readTable(f *disk.File, path string) (*tableMeta, error) {
	fi, err := f.Info()
	if err != nil {
		return nil, err
	}
	bad := func(off int64, reason string) error {
		return &backend.CorruptError{Path: path, Offset: off, Reason: reason}
	}
	end := fi.Size - footerSize
	if end < 0 {
		return nil, bad(fi.Size, "the table ends too early")
	}
	foot := make([]byte, footerSize)
	if _, err := f.ReadAt(foot, end); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m, ix, err := decodeFooter(foot, uint64(end))
	if err != nil {
		return nil, bad(end, err.Error())
	}
	m.f, m.info.length = f, uint64(fi.Size)
	sec := make([]byte, ix.indexLen+ix.bloomLen)
	if _, err := f.ReadAt(sec, int64(ix.indexOff)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if checksum(sec[:ix.indexLen]) != ix.indexCRC {
		return nil, bad(int64(ix.indexOff), "checksum mismatch of the index")
	}
	m.bloom = sec[ix.indexLen:]
	if checksum(m.bloom) != ix.bloomCRC {
		return nil, bad(int64(ix.indexOff+ix.indexLen), "checksum mismatch of the filter")
	}
	if m.index, err = decodeIndex(sec[:ix.indexLen], ix.blocks, ix.indexOff); err != nil {
		return nil, bad(int64(ix.indexOff), err.Error())
	}
	return m, nil
}

// footer is where index and filter lie: the filter follows the index, the footer follows the filter.
type footer struct {
	blocks, indexOff, indexLen, bloomLen uint64
	indexCRC, bloomCRC                   uint32
}

func encodeFooter(i tabInfo, x footer) []byte {
	b := []byte(tableMagic)
	b = le.AppendUint32(b, formatVer)
	b = le.AppendUint32(b, 0)
	for _, v := range []uint64{i.id, i.count, i.minGen, i.maxGen, x.blocks, x.indexOff, x.indexLen, x.bloomLen} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, x.indexCRC)
	b = le.AppendUint32(b, x.bloomCRC)
	b = append(b, make([]byte, footerSize-4-len(b))...)
	return le.AppendUint32(b, checksum(b))
}

// decodeFooter decodes the footer that stands at offset end.
func decodeFooter(b []byte, end uint64) (*tableMeta, footer, error) {
	u := func(off int) uint64 { return le.Uint64(b[off:]) }
	var x footer
	switch {
	case len(b) != footerSize || string(b[:8]) != tableMagic:
		return nil, x, errors.New("no table magic")
	case checksum(b[:footerSize-4]) != le.Uint32(b[footerSize-4:]):
		return nil, x, errors.New("checksum mismatch of the footer")
	case le.Uint32(b[8:]) != formatVer:
		return nil, x, errors.New("unknown table version")
	}
	m := &tableMeta{info: tabInfo{id: u(16), count: u(24), minGen: u(32), maxGen: u(40)}}
	x = footer{u(48), u(56), u(64), u(72), le.Uint32(b[80:]), le.Uint32(b[84:])}
	if x.indexLen > maxTableSec || x.bloomLen > maxTableSec || x.indexOff > end || x.indexOff+x.indexLen+x.bloomLen != end {
		return nil, x, errors.New("impossible section lengths")
	}
	return m, x, nil
}

const blockInfoFixed = 8 + 4 + 8 + 8 + 2

func encodeIndex(index []blockInfo) []byte {
	var b []byte
	for _, x := range index {
		b = le.AppendUint64(b, x.off)
		b = le.AppendUint32(b, x.n)
		b = le.AppendUint64(b, x.maxRev)
		b = le.AppendUint64(b, x.dir)
		b = le.AppendUint16(b, uint16(len(x.name)))
		b = append(b, x.name...)
	}
	return b
}

// decodeIndex decodes n block descriptions; the blocks lie side by side from 0 to end.
func decodeIndex(b []byte, n, end uint64) ([]blockInfo, error) {
	if n > uint64(len(b))/blockInfoFixed {
		return nil, errors.New("impossible number of blocks")
	}
	index := make([]blockInfo, 0, n)
	off := uint64(0)
	for range n {
		if len(b) < blockInfoFixed || len(b) < blockInfoFixed+int(le.Uint16(b[28:])) {
			return nil, errors.New("the index ends too early")
		}
		k := blockInfoFixed + int(le.Uint16(b[28:]))
		x := blockInfo{le.Uint64(b), le.Uint32(b[8:]), le.Uint64(b[12:]), le.Uint64(b[20:]), string(b[blockInfoFixed:k])}
		if x.off != off || x.n < 4 || uint64(x.n) > maxRecord+tableBlock+8 {
			return nil, errors.New("impossible place of a block")
		}
		off += uint64(x.n)
		index, b = append(index, x), b[k:]
	}
	if off != end || len(b) != 0 {
		return nil, errors.New("index and blocks disagree")
	}
	return index, nil
}

// find returns the block in which the key would be; -1 if it is before the first.
func (m *tableMeta) find(dir uint64, name string) int {
	return sort.Search(len(m.index), func(i int) bool {
		x := &m.index[i]
		return x.dir > dir || x.dir == dir && x.name > name
	}) - 1
}

// block returns the bytes of the records of block i, checked. They must not be changed.
func (t *table) block(m *tableMeta, i int, keep bool) ([]byte, error) {
	if b, ok := t.s.blocks.get(t.id, i); ok {
		return b, nil
	}
	b, err := t.read(m, i)
	if err == nil && keep {
		t.s.blocks.put(t.id, i, b, true)
	}
	return b, err
}

// read reads block i into a buffer.
func (t *table) read(m *tableMeta, i int) ([]byte, error) {
	x := m.index[i]
	b := t.s.blocks.buffer(int(x.n))
	n, err := readFull(m.f, b, int64(x.off))
	switch {
	case err != nil:
		return nil, err
	case n < len(b):
		return nil, t.damaged(int64(x.off)+int64(n), "the table ends too early")
	case checksum(b[:n-4]) != le.Uint32(b[n-4:]):
		return nil, t.damaged(int64(x.off), "checksum mismatch")
	}
	return b[:n-4], nil
}

func (t *table) damaged(off int64, reason string) error {
	return &backend.CorruptError{Path: t.path, Offset: off, Reason: reason}
}

// records returns the records of block i. Those of a block that is not to be kept in memory are read for this call.
func (t *table) records(m *tableMeta, i int, keep bool) ([]rec, error) {
	b, err := t.block(m, i, keep)
	if err != nil {
		return nil, err
	}
	x := m.index[i]
	recs, err := decodeBlock(b)
	if err == nil && (len(recs) == 0 || recs[0].cmp(x.dir, x.name) != 0) {
		err = errors.New("block and index disagree")
	}
	if err != nil {
		return nil, t.damaged(int64(x.off), err.Error())
	}
	return recs, nil
}

func decodeBlock(b []byte) ([]rec, error) {
	recs := make([]rec, 0, len(b)/128+1)
	for len(b) > 0 {
		r, rest, err := cutRec(b)
		if err != nil {
			return nil, err
		}
		if n := len(recs); n > 0 && !recs[n-1].less(r) {
			return nil, errors.New("records out of order")
		}
		recs, b = append(recs, r), rest
	}
	return recs, nil
}

// get returns the record of the key; nil if the table has none.
func (t *table) get(dir uint64, name string, hash uint64) (rec, error) {
	m, err := t.open()
	if err != nil {
		return nil, err
	}
	if !bloomHas(m.bloom, hash) {
		return nil, nil
	}
	i := m.find(dir, name)
	if i < 0 {
		return nil, nil
	}
	b, cached := t.s.blocks.get(t.id, i)
	if !cached {
		if b, err = t.read(m, i); err != nil {
			return nil, err
		}
	}
	r, err := findRec(b, dir, name)
	if err != nil {
		return nil, t.damaged(int64(m.index[i].off), err.Error())
	}
	if !cached { // only the record stays, so that the buffer can be used again
		r = bytes.Clone(r)
		t.s.blocks.put(t.id, i, b, false)
	}
	return r, nil
}

// findRec returns the record of the key in a block; nil if there is none.
func findRec(b []byte, dir uint64, name string) (r rec, err error) {
	for len(b) > 0 {
		if r, b, err = cutRec(b); err != nil {
			return nil, err
		}
		if c := r.cmp(dir, name); c == 0 {
			return r, nil
		} else if c > 0 {
			break
		}
	}
	return nil, nil
}
