package filestore

import (
	"io"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/storefs/storefs/backend"
)

// blockSize is the piece of a value that has a checksum of its own.
const blockSize = 64 << 10

// inlineValue is a value that stands in its record.
type inlineValue []byte

func (v inlineValue) Size() int64  { return int64(len(v)) }
func (v inlineValue) Close() error { return nil }
func (v inlineValue) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegative
	}
	n := 0
	if off < int64(len(v)) {
		n = copy(b, v[off:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// value is one that lies in volumes. It holds its pin.
type value struct {
	p      *pin
	exts   []extent
	ends   []int64 // of the extents, in the value
	closed atomic.Bool

	mu     sync.Mutex // guards below
	tables [][]byte   // of the extents; nil where not yet read
	block  []byte     // the block read last, for reads of parts
	ext    int        // where block is from
	at     uint64
}

// open returns the value at l with a reference to p, which the caller has too.
func (p *pin) open(l *locator) backend.Value {
	if len(l.exts) == 0 {
		return inlineValue(l.inline)
	}
	p.s.addRef(p)
	return p.value(l)
}

func (p *pin) value(l *locator) *value {
	v := &value{p: p, exts: l.exts, ends: make([]int64, len(l.exts)), tables: make([][]byte, len(l.exts))}
	end := int64(0)
	for i, x := range l.exts {
		end += int64(x.n)
		v.ends[i] = end
	}
	return v
}

func (v *value) Size() int64 { return v.ends[len(v.ends)-1] }

func (v *value) Close() error {
	if !v.closed.Swap(true) {
		v.p.s.unpin(v.p)
	}
	return nil
}

// ReadAt reads and checks every block it touches.
func (v *value) ReadAt(b []byte, off int64) (int, error) {
	switch {
	case v.closed.Load():
		return 0, backend.ErrClosed
	case off < 0:
		return 0, errNegative
	}
	want := len(b)
	if rest := v.Size() - off; rest < int64(len(b)) {
		b = b[:max(0, rest)]
	}
	done := 0
	for i := sort.Search(len(v.ends), func(i int) bool { return v.ends[i] > off }); done < len(b); i++ {
		in := uint64(off + int64(done) - (v.ends[i] - int64(v.exts[i].n)))
		n := min(uint64(len(b)-done), v.exts[i].n-in)
		if err := v.readExtent(i, b[done:done+int(n)], in); err != nil {
			return done, err
		}
		done += int(n)
	}
	if done < want {
		return done, io.EOF
	}
	return done, nil
}

func (v *value) table(i int) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tableLocked(i)
}

func (v *value) tableLocked(i int) ([]byte, error) {
	if v.tables[i] == nil {
		t, err := v.p.s.vols.table(v.exts[i])
		if err != nil {
			return nil, err
		}
		v.tables[i] = t
	}
	return v.tables[i], nil
}

// readExtent fills b from offset in of extent i: whole blocks in place, others by way of the kept block.
func (v *value) readExtent(i int, b []byte, in uint64) error {
	x := v.exts[i]
	for len(b) > 0 {
		start := in / blockSize * blockSize
		whole := uint64(0)
		if in == start {
			if whole = uint64(len(b)); in+whole < x.n {
				whole = whole / blockSize * blockSize
			}
		}
		if whole == 0 {
			n, err := v.readPart(i, b, in)
			if err != nil {
				return err
			}
			b, in = b[n:], in+uint64(n)
			continue
		}
		t, err := v.table(i)
		if err != nil {
			return err
		}
		if err := v.p.s.vols.read(x.vol, b[:whole], int64(x.off+in)); err != nil {
			return err
		}
		for k := uint64(0); k < whole; k += blockSize {
			if checksum(b[k:min(whole, k+blockSize)]) != le.Uint32(t[4*((in+k)/blockSize):]) {
				return v.p.s.vols.mismatch(x, in+k)
			}
		}
		b, in = b[whole:], in+whole
	}
	return nil
}

// readPart copies what it can from the one block that holds offset in.
func (v *value) readPart(i int, b []byte, in uint64) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x, start := v.exts[i], in/blockSize*blockSize
	if v.block == nil || v.ext != i || v.at != start {
		n := min(blockSize, x.n-start)
		if uint64(cap(v.block)) < n {
			v.block = make([]byte, n)
		}
		blk := v.block[:n]
		v.block = nil
		t, err := v.tableLocked(i)
		if err != nil {
			return 0, err
		}
		if err := v.p.s.vols.read(x.vol, blk, int64(x.off+start)); err != nil {
			return 0, err
		}
		if checksum(blk) != le.Uint32(t[4*(start/blockSize):]) {
			return 0, v.p.s.vols.mismatch(x, start)
		}
		v.block, v.ext, v.at = blk, i, start
	}
	return copy(b, v.block[in-start:]), nil
}
