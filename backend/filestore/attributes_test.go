package filestore

import (
	"math"
	"reflect"
	"testing"

	"github.com/storefs/storefs/backend"
)

// TestAttributes are the same after they were a record: those at the edges, and with times in every order.
func TestAttributes(t *testing.T) {
	for _, times := range [][3]int64{{}, {5, 5, 5}, {1, 2, 3}, {3, 2, 1}, {math.MinInt64, math.MaxInt64, 0}, {math.MaxInt64, math.MinInt64, -1}} {
		for _, id := range []uint32{0, 127, 128, 65534, math.MaxUint32} {
			e := backend.Entry{Ref: ref("n"), Kind: backend.Dir, Ino: math.MaxUint64, Revision: 3, Ctime: times[2], Attr: backend.Attr{
				Mode: 0o7777, UID: id, GID: id / 2, Atime: times[0], Mtime: times[1]}}
			if id == 127 {
				e.Xattrs = map[string]string{"user.a": "", "user.b": "x"}
			}
			got, err := entryRec(&e, nowhere).entry()
			if err != nil || !reflect.DeepEqual(got, e) {
				t.Errorf("%+v became %+v, %v", e, got, err)
			}
		}
	}
}

// TestBadAttributes: numbers that are cut, too large, or longer than they need be.
func TestBadAttributes(t *testing.T) {
	e := backend.Entry{Ref: ref("n"), Kind: backend.Dir, Ino: 2, Revision: 3}
	whole := entryRec(&e, nowhere)
	for name, tail := range map[string][]byte{
		"cut":            {0, 0, 0, 0},
		"cut in one":     {0, 0, 0, 0, 0x80},
		"long":           {0x80, 0, 0, 0, 0, 0},
		"too large":      {0xff, 0xff, 0xff, 0xff, 0x1f, 0, 0, 0, 0},
		"no xattr there": {0, 0, 0, 0, 1},
		"more than all":  {0, 0, 0, 0, 0, 0},
	} {
		r := sealRec(append(append([]byte(nil), whole[:len(whole)-5]...), tail...))
		if got, err := r.entry(); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
