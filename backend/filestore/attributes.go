package filestore

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/storefs/storefs/backend"
)

const (
	attrFixed = 8 + 2 + 8          // ino, mode, mtime
	attrRoom  = attrFixed + 5 + 12 // that, and what usually follows; more is no error
)

// appendAttributes appends what the record of e says of it besides its value.
func appendAttributes(b []byte, e *backend.Entry) []byte {
	b = le.AppendUint64(b, uint64(e.Ino))
	b = le.AppendUint16(b, uint16(e.Mode))
	b = le.AppendUint64(b, uint64(e.Mtime))
	b = binary.AppendUvarint(b, uint64(e.UID))
	b = binary.AppendUvarint(b, uint64(e.GID))
	b = binary.AppendVarint(b, e.Atime-e.Mtime)
	b = binary.AppendVarint(b, e.Ctime-e.Mtime)
	b = binary.AppendUvarint(b, uint64(len(e.Xattrs)))
	if len(e.Xattrs) == 0 {
		return b
	}
	for _, k := range slices.Sorted(maps.Keys(e.Xattrs)) {
		b = le.AppendUint16(b, uint16(len(k)))
		b = append(b, k...)
		b = le.AppendUint32(b, uint32(len(e.Xattrs[k])))
		b = append(b, e.Xattrs[k]...)
	}
	return b
}

// cutAttributes sets in e what appendAttributes has appended, and returns what follows it.
func cutAttributes(e *backend.Entry, b []byte) ([]byte, error) {
	if len(b) < attrFixed {
		return nil, errRecord
	}
	e.Ino, e.Mode, e.Mtime = backend.Ino(le.Uint64(b)), uint32(le.Uint16(b[8:])), int64(le.Uint64(b[10:]))
	n := numbers{b: b[attrFixed:]}
	uid, gid := n.next(), n.next()
	e.UID, e.GID = uint32(uid), uint32(gid)
	e.Atime, e.Ctime = e.Mtime+n.signed(), e.Mtime+n.signed()
	xattrs := n.next()
	if n.bad || uid > math.MaxUint32 || gid > math.MaxUint32 {
		return nil, errRecord
	}
	if xattrs == 0 {
		return n.b, nil
	}
	return cutXattrs(e, n.b, xattrs)
}

func cutXattrs(e *backend.Entry, b []byte, n uint64) ([]byte, error) {
	e.Xattrs = map[string]string{}
	last := ""
	for i := range n {
		if len(b) < 2 || len(b) < 6+int(le.Uint16(b)) {
			return nil, errRecord
		}
		n := int(le.Uint16(b))
		k := string(b[2 : 2+n])
		v := int64(le.Uint32(b[2+n:]))
		b = b[6+n:]
		if v > int64(len(b)) || i > 0 && k <= last {
			return nil, errRecord
		}
		e.Xattrs[k], last = string(b[:v]), k
		b = b[v:]
	}
	return b, nil
}

// numbers takes numbers of variable length off b: 7 bits a byte, the lowest first, with the upper bit in all bytes but the last. A number
// that is longer than it need be is bad.
type numbers struct {
	b   []byte
	bad bool
}

func (n *numbers) next() uint64 {
	v, k := binary.Uvarint(n.b)
	if k <= 0 || k > 1 && n.b[k-1] == 0 {
		n.bad = true
		return 0
	}
	n.b = n.b[k:]
	return v
}

// signed takes a number of which the lowest bit says whether the others are to be inverted.
func (n *numbers) signed() int64 {
	v := n.next()
	return int64(v>>1) ^ -int64(v&1)
}
