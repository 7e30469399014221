package filestore

import (
	"encoding/binary"
	"errors"

	"github.com/storefs/storefs/backend"
)

var le = binary.LittleEndian

// rec is one encoded record, its length field included; see doc.go. A rec is never changed once made.
type rec []byte

// The types of records.
const (
	recTomb    = 0 // nothing at the place
	recInline  = 1 // a file whose value is in the record
	recExtents = 2 // a file whose value is in volumes
	recDir     = 3
	recSymlink = 4
	recParent  = 5 // where a directory stands; its name is empty
	recVolume  = 6 // a volume that holds one value; stands in directory 0
)

const (
	recFixed  = 4 + 8 + 2 // before the name
	bodyFixed = 1 + 8     // type and revision
	extSize   = 8 + 8 + 8 + 4
	maxRecord = 16 << 20
)

var errRecord = errors.New("malformed record")

func (r rec) dir() uint64 { return le.Uint64(r[4:]) }
func (r rec) name() []byte {
	return r[recFixed : recFixed+int(le.Uint16(r[12:]))]
}
func (r rec) body() []byte { return r[recFixed+int(le.Uint16(r[12:])):] }
func (r rec) kind() byte   { return r.body()[0] }
func (r rec) rev() uint64  { return le.Uint64(r.body()[1:]) }

// cmp compares the key of r with another.
func (r rec) cmp(dir uint64, name string) int {
	switch d := r.dir(); {
	case d < dir:
		return -1
	case d > dir:
		return 1
	case string(r.name()) < name:
		return -1
	case string(r.name()) == name:
		return 0
	}
	return 1
}

func (r rec) less(o rec) bool {
	if a, b := r.dir(), o.dir(); a != b {
		return a < b
	}
	return string(r.name()) < string(o.name())
}

func (r rec) sameKey(o rec) bool { return r.dir() == o.dir() && string(r.name()) == string(o.name()) }

// cutRec takes the first record off b. It checks that the fixed parts are there, not what is in the body.
func cutRec(b []byte) (rec, []byte, error) {
	if len(b) < recFixed+bodyFixed {
		return nil, nil, errRecord
	}
	n := int64(le.Uint32(b)) + 4
	if n > int64(len(b)) || n > maxRecord || n < int64(recFixed+bodyFixed)+int64(le.Uint16(b[12:])) {
		return nil, nil, errRecord
	}
	return rec(b[:n:n]), b[n:], nil
}

// extent is where a piece of a value lies: n bytes at off of a volume, followed by the table of their block checksums.
type extent struct {
	vol, off, n uint64
	crc         uint32 // of the table
}

// span is what the extent takes in its volume, its table included.
func (x extent) span() uint64 { return x.n + 4*blocksOf(x.n) }

func blocksOf(n uint64) uint64 { return (n + blockSize - 1) / blockSize }

// locator is what stands in backend.Entry.Locator: the value itself or its extents.
type locator struct {
	inline []byte
	exts   []extent
}

// nowhere is the locator of what has no value. Never changed.
var nowhere = &locator{}

func locatorOf(e *backend.Entry) *locator {
	if l, ok := e.Locator.(*locator); ok && l != nil {
		return l
	}
	return nowhere
}

func newRec(dir uint64, name string, typ byte, rev uint64, room int) []byte {
	b := make([]byte, 0, recFixed+len(name)+bodyFixed+room)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, dir)
	b = le.AppendUint16(b, uint16(len(name)))
	b = append(b, name...)
	b = append(b, typ)
	return le.AppendUint64(b, rev)
}

func sealRec(b []byte) rec {
	le.PutUint32(b, uint32(len(b)-4))
	return b
}

func tombRec(dir uint64, name string, rev uint64) rec {
	return sealRec(newRec(dir, name, recTomb, rev, 0))
}

func parentRec(dir uint64, at backend.Ref, rev uint64) rec {
	b := newRec(dir, "", recParent, rev, 8+len(at.Name))
	b = le.AppendUint64(b, uint64(at.Dir))
	return sealRec(append(b, at.Name...))
}

func volumeName(id uint64) string { return string(binary.BigEndian.AppendUint64([]byte("v"), id)) }

func volumeRec(id, length, rev uint64) rec {
	return sealRec(le.AppendUint64(newRec(0, volumeName(id), recVolume, rev, 8), length))
}

// volume returns what a record of type recVolume says.
func (r rec) volume() (id, length uint64, err error) {
	n, b := r.name(), r.body()
	if r.kind() != recVolume || r.dir() != 0 || len(n) != 9 || n[0] != 'v' || len(b) != bodyFixed+8 {
		return 0, 0, errRecord
	}
	return binary.BigEndian.Uint64(n[1:]), le.Uint64(b[bodyFixed:]), nil
}

// parent returns what a record of type recParent says.
func (r rec) parent() (backend.Ref, error) {
	b := r.body()
	if r.kind() != recParent || len(b) < bodyFixed+8 || len(r.name()) != 0 {
		return backend.Ref{}, errRecord
	}
	return backend.Ref{Dir: backend.Ino(le.Uint64(b[bodyFixed:])), Name: string(b[bodyFixed+8:])}, nil
}

// entryRec encodes e with the content l.
func entryRec(e *backend.Entry, l *locator) rec {
	typ, room := byte(recDir), attrRoom
	switch e.Kind {
	case backend.Symlink:
		typ, room = recSymlink, room+len(e.Target)
	case backend.File:
		typ, room = recInline, room+len(l.inline)
		if len(l.exts) > 0 {
			typ, room = recExtents, room+12+len(l.exts)*extSize
		}
	}
	b := newRec(uint64(e.Dir), e.Name, typ, uint64(e.Revision), room)
	b = appendAttributes(b, e)
	switch typ {
	case recSymlink:
		b = append(b, e.Target...)
	case recInline:
		b = append(b, l.inline...)
	case recExtents:
		b = le.AppendUint64(b, uint64(e.Size))
		b = le.AppendUint32(b, uint32(len(l.exts)))
		for _, x := range l.exts {
			b = le.AppendUint64(b, x.vol)
			b = le.AppendUint64(b, x.off)
			b = le.AppendUint64(b, x.n)
			b = le.AppendUint32(b, x.crc)
		}
	}
	return sealRec(b)
}

// isEntry says whether r is something that stands at a place.
func (r rec) isEntry() bool { k := r.kind(); return k >= recInline && k <= recSymlink }

// entry decodes a record for which isEntry holds. Inline bytes stay in r.
func (r rec) entry() (backend.Entry, error) {
	e := backend.Entry{Ref: backend.Ref{Dir: backend.Ino(r.dir()), Name: string(r.name())}, Revision: backend.Generation(r.rev())}
	err := r.decode(&e)
	return e, err
}

func (r rec) decode(e *backend.Entry) error {
	b := r.body()[bodyFixed:]
	if !r.isEntry() {
		return errRecord
	}
	b, err := cutAttributes(e, b)
	if err != nil {
		return err
	}
	switch r.kind() {
	case recDir:
		e.Kind = backend.Dir
		if len(b) != 0 {
			return errRecord
		}
	case recSymlink:
		e.Kind, e.Target, e.Size = backend.Symlink, string(b), int64(len(b))
	case recInline:
		e.Kind, e.Size, e.Locator = backend.File, int64(len(b)), &locator{inline: b}
	case recExtents:
		e.Kind = backend.File
		return decodeExtents(e, b)
	}
	return nil
}

func decodeExtents(e *backend.Entry, b []byte) error {
	if len(b) < 12 {
		return errRecord
	}
	size, n := le.Uint64(b), int64(le.Uint32(b[8:]))
	b = b[12:]
	if n == 0 || int64(len(b)) != n*extSize || size > 1<<62 {
		return errRecord
	}
	l := &locator{exts: make([]extent, n)}
	var sum uint64
	for i := range l.exts {
		x := extent{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint32(b[24:])}
		if x.n == 0 || x.n > size || x.off > 1<<62 {
			return errRecord
		}
		sum += x.n
		l.exts[i], b = x, b[extSize:]
		if sum > size {
			return errRecord
		}
	}
	if sum != size {
		return errRecord
	}
	e.Size, e.Locator = int64(size), l
	return nil
}
