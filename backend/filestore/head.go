package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/storefs/storefs/backend"
)

const (
	headMagic   = "storefs\x00"
	formatVer   = 2
	headFixed   = 136
	offGen      = 16
	offSeq      = 24
	offTotal    = 32
	tabInfoSize = 40
	volInfoSize = 24
	maxHead     = 1 << 30
	maxVersion  = 1000
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func updateSum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// head is what a HEAD file says. Never changed once it is in a pin.
type head struct {
	gen, seq uint64
	boot     [16]byte
	time     int64
	nextIno  uint64
	nextID   uint64 // of tables and volumes
	history  uint64 // newest revision of a removal that is no longer recorded
	files    uint64 // symbolic links among them
	dirs     uint64
	bytes    uint64    // of values
	solos    uint64    // volumes that hold one value
	tabs     []tabInfo // oldest first
	vols     []volInfo // shared volumes by id; the last one is appended to
	recs     []rec     // sorted
	recBytes int       // sum of their lengths
}

type tabInfo struct{ id, length, count, minGen, maxGen uint64 }

type volInfo struct{ id, length, garbage uint64 }

// encode appends the bytes of the HEAD file to b[:0].
func (h *head) encode(b []byte) []byte {
	b = append(b[:0], headMagic...)
	b = le.AppendUint32(b, formatVer)
	b = le.AppendUint32(b, 0)
	total := headFixed + len(h.tabs)*tabInfoSize + len(h.vols)*volInfoSize + h.recBytes + 4
	for _, v := range []uint64{h.gen, h.seq, uint64(total)} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, h.boot[:]...)
	for _, v := range []uint64{uint64(h.time), h.nextIno, h.nextID, h.history, h.files, h.dirs, h.bytes, h.solos} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range []int{len(h.tabs), len(h.vols), len(h.recs), h.recBytes} {
		b = le.AppendUint32(b, uint32(v))
	}
	for _, t := range h.tabs {
		for _, v := range []uint64{t.id, t.length, t.count, t.minGen, t.maxGen} {
			b = le.AppendUint64(b, v)
		}
	}
	for _, t := range h.vols {
		for _, v := range []uint64{t.id, t.length, t.garbage} {
			b = le.AppendUint64(b, v)
		}
	}
	for _, r := range h.recs {
		b = append(b, r...)
	}
	return le.AppendUint32(b, checksum(b))
}

// headLength returns the length that the fixed part of a HEAD file claims; with ErrFormat too, if that can be one. path is for the errors.
func headLength(b []byte, path string) (int, error) {
	if len(b) < headFixed {
		return 0, &backend.CorruptError{Path: path, Offset: int64(len(b)), Reason: "the file ends too early"}
	}
	if string(b[:8]) != headMagic {
		return 0, &backend.CorruptError{Path: path, Offset: 0, Reason: "no storefs magic"}
	}
	n := le.Uint64(b[offTotal:])
	possible := n >= headFixed+4 && n <= maxHead
	switch v := le.Uint32(b[8:]); {
	case v > maxVersion:
		return 0, &backend.CorruptError{Path: path, Offset: 8, Reason: damagedVersion}
	case v != formatVer && possible:
		return int(n), unknownVersion(v, path)
	case v != formatVer:
		return 0, unknownVersion(v, path)
	case !possible:
		return 0, &backend.CorruptError{Path: path, Offset: offTotal, Reason: "impossible length"}
	}
	return int(n), nil
}

func unknownVersion(v uint32, path string) error {
	return fmt.Errorf("%s: format version %d, this program knows version %d: %w", path, v, formatVer, backend.ErrFormat)
}

const damagedVersion = "the format version is not what was written"

// otherVersion tells damage of the version, which stands at byte 8, from another version: one that there will never be is damage, and if everything else in
// b has the checksum that it has in this version, then it is of this version.
func otherVersion(b []byte, sum uint32, path string) error {
	v := le.Uint32(b[8:])
	asKnown := le.AppendUint32(bytes.Clone(b[:8]), formatVer)
	if v > maxVersion || updateSum(checksum(asKnown), b[12:]) == sum {
		return &backend.CorruptError{Path: path, Offset: 8, Reason: damagedVersion}
	}
	return unknownVersion(v, path)
}

// decodeHead decodes a HEAD file; bytes after its length do not matter. The records alias b.
func decodeHead(b []byte, path string) (*head, error) {
	n, err := headLength(b, path)
	if errors.Is(err, backend.ErrFormat) && n > 0 && n <= len(b) {
		err = otherVersion(b[:n-4], le.Uint32(b[n-4:]), path)
	}
	if err != nil {
		return nil, err
	}
	bad := func(off int, reason string) error {
		return &backend.CorruptError{Path: path, Offset: int64(off), Reason: reason}
	}
	if n > len(b) {
		return nil, bad(len(b), "the file ends too early")
	}
	b = b[:n]
	if checksum(b[:n-4]) != le.Uint32(b[n-4:]) {
		return nil, bad(n-4, "checksum mismatch")
	}
	if le.Uint32(b[12:]) != 0 {
		return nil, bad(12, "unknown flags")
	}
	u := func(off int) uint64 { return le.Uint64(b[off:]) }
	h := &head{gen: u(16), seq: u(24), time: int64(u(56)), nextIno: u(64), nextID: u(72), history: u(80),
		files: u(88), dirs: u(96), bytes: u(104), solos: u(112)}
	copy(h.boot[:], b[40:])
	nt, nv, nr, rb := uint64(le.Uint32(b[120:])), uint64(le.Uint32(b[124:])), uint64(le.Uint32(b[128:])), uint64(le.Uint32(b[132:]))
	if headFixed+nt*tabInfoSize+nv*volInfoSize+rb+4 != uint64(n) || nr > rb {
		return nil, bad(120, "counts and length disagree")
	}
	off := headFixed
	for range nt {
		h.tabs = append(h.tabs, tabInfo{u(off), u(off + 8), u(off + 16), u(off + 24), u(off + 32)})
		off += tabInfoSize
	}
	for range nv {
		h.vols = append(h.vols, volInfo{u(off), u(off + 8), u(off + 16)})
		off += volInfoSize
	}
	h.recBytes = int(rb)
	h.recs = make([]rec, 0, nr)
	rest := b[off : n-4]
	for range nr {
		var r rec
		at := n - 4 - len(rest)
		if r, rest, err = cutRec(rest); err != nil {
			return nil, bad(at, err.Error())
		}
		if k := len(h.recs); k > 0 && !h.recs[k-1].less(r) {
			return nil, bad(at, "records out of order")
		}
		h.recs = append(h.recs, r)
	}
	if len(rest) != 0 {
		return nil, bad(n-4-len(rest), "bytes after the last record")
	}
	return h, nil
}

// find returns where the key is in the records, or would be.
func (h *head) find(dir uint64, name string) (int, bool) {
	i := sort.Search(len(h.recs), func(i int) bool { return h.recs[i].cmp(dir, name) >= 0 })
	return i, i < len(h.recs) && h.recs[i].cmp(dir, name) == 0
}

// merge puts add (sorted, one a key) into the records of h, which must be private to the caller; the slice itself is not changed.
func (h *head) merge(add []rec) {
	out := make([]rec, 0, len(h.recs)+len(add))
	old := h.recs
	for _, r := range add {
		i := sort.Search(len(old), func(i int) bool { return !old[i].less(r) })
		out = append(out, old[:i]...)
		old = old[i:]
		if len(old) > 0 && old[0].sameKey(r) {
			h.recBytes -= len(old[0])
			old = old[1:]
		}
		out = append(out, r)
		h.recBytes += len(r)
	}
	h.recs = append(out, old...)
}

// volume returns the shared volume id.
func (h *head) volume(id uint64) (int, bool) {
	i := sort.Search(len(h.vols), func(i int) bool { return h.vols[i].id >= id })
	return i, i < len(h.vols) && h.vols[i].id == id
}
