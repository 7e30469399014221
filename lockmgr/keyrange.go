package lockmgr

import (
	"io"

	"golang.org/x/sys/unix"
)

// Range is a range of bytes: from Start on, Len of them, or to the end if Len is 0. The last two bytes that a file could have
// cannot be told apart: the very last one is waitByte.
type Range struct{ Start, Len int64 }

// end returns the byte after the last one.
func (r Range) end() int64 {
	if r.Len == 0 || r.Len > waitByte-r.Start {
		return waitByte
	}
	return r.Start + r.Len
}

func (r Range) start() int64 { return min(r.Start, waitByte-1) }

// overlaps says whether two ranges have a byte in common.
func (r Range) overlaps(s Range) bool { return r.start() < s.end() && s.start() < r.end() }

// within says whether all of r is in s.
func (r Range) within(s Range) bool { return s.start() <= r.start() && r.end() <= s.end() }

func (r Range) flock(kind int16) unix.Flock_t {
	return unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: r.start(), Len: r.end() - r.start()}
}

func rangeOf(lk *unix.Flock_t) Range {
	r := Range{lk.Start, lk.Len}
	if r.end() == waitByte {
		r.Len = 0
	}
	return r
}
