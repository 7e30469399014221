package storetest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/storefs/storefs/backend"
)

var values = []rule{
	{"values of all sizes", func(f *fixture) {
		var sizes []int
		for _, n := range []int{1, 512, 1024, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			sizes = append(sizes, n-1, n, n+1)
		}
		sizes = append(sizes, 3<<20)
		for i, n := range sizes {
			f.put(fmt.Sprint("size", n), pattern(n, uint64(i)))
		}
		for i, n := range sizes {
			f.holds(fmt.Sprint("size", n), pattern(n, uint64(i)))
		}
		for i, n := range sizes { // and as appended to
			f.append(fmt.Sprint("size", n), "+")
			f.holds(fmt.Sprint("size", n), pattern(n, uint64(i))+"+")
		}
	}},
	{"an empty value", func(f *fixture) {
		f.put("a", "")
		f.holds("a", "")
		f.put("a", "x")
		f.put("a", "")
		f.holds("a", "")
		if e := f.entry("a"); e.Size != 0 {
			f.Errorf("size %d", e.Size)
		}
	}},
	{"reads are clamped at both ends", func(f *fixture) {
		for _, n := range []int{0, 10, 2000, 300_000} {
			content := pattern(n, 9)
			f.put("a", content)
			v, err := f.snap().Open(f.entry("a"))
			if err != nil {
				f.Fatal(err)
			}
			if v.Size() != int64(n) {
				f.Errorf("size %d, want %d", v.Size(), n)
			}
			checkReads(f, fmt.Sprintf("value of %d bytes", n), v, content)
			v.Close()
		}
	}},
	{"concurrent reads of one value", func(f *fixture) {
		content := pattern(200_000, 4)
		f.put("a", content)
		v, err := f.snap().Open(f.entry("a"))
		if err != nil {
			f.Fatal(err)
		}
		defer v.Close()
		done := make(chan error)
		for range 4 {
			go func() {
				got, err := readValue(v)
				if err == nil && got != content {
					err = errors.New("another content")
				}
				done <- err
			}()
		}
		for range 4 {
			if err := <-done; err != nil {
				f.Error(err)
			}
		}
	}},
	{"a stage is written at any offset, with holes, and cut", func(f *fixture) {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := f.stage("")
			model := []byte{}
			limit := []int64{100, 3000, 100_000, 600_000}[seed%4]
			for range 40 {
				if r.IntN(6) == 0 {
					size := r.Int64N(limit)
					if err := s.Truncate(size); err != nil {
						f.Fatal(err)
					}
					model = resize(model, size)
				} else {
					off := r.Int64N(limit)
					p := pattern(r.IntN(int(limit/4)), r.Uint64())
					if n, err := s.WriteAt([]byte(p), off); n != len(p) || err != nil {
						f.Fatalf("write: %d, %v", n, err)
					}
					if end := off + int64(len(p)); len(p) > 0 && end > int64(len(model)) {
						model = resize(model, end)
					}
					if len(p) > 0 {
						copy(model[off:], p)
					}
				}
				if s.Size() != int64(len(model)) {
					f.Fatalf("size %d, want %d", s.Size(), len(model))
				}
			}
			checkReads(f, fmt.Sprintf("stage %d", seed), s, string(model))
			ref := f.ref("a")
			f.do(func(b *backend.Batch) { b.Put(ref, s, &fresh, none) })
			f.holds("a", string(model))
		}
	}},
	{"a stage of holes only", func(f *fixture) {
		s := f.stage("")
		if err := s.Truncate(400_000); err != nil {
			f.Fatal(err)
		}
		ref := f.ref("a")
		f.do(func(b *backend.Batch) { b.Put(ref, s, &fresh, none) })
		f.holds("a", strings.Repeat("\x00", 400_000))
	}},
	{"what was cut off does not come back", func(f *fixture) {
		s := f.stage(pattern(5000, 1))
		for _, size := range []int64{10, 6000} {
			if err := s.Truncate(size); err != nil {
				f.Fatal(err)
			}
		}
		checkReads(f, "stage", s, pattern(5000, 1)[:10]+strings.Repeat("\x00", 5990))
	}},
	{"a stage is private, and closing it changes nothing", func(f *fixture) {
		f.put("a", "old")
		s := f.stage("new")
		f.holds("a", "old")
		for range 2 {
			if err := s.Close(); err != nil {
				f.Errorf("close: %v", err)
			}
		}
		f.holds("a", "old")
	}},
	{"a stage of a failed commit can be committed again", func(f *fixture) {
		for _, n := range []int{3, 2000, 300_000} {
			a, nowhere := f.ref("a"), backend.Ref{Dir: 1 << 40, Name: "x"}
			s := f.stage(pattern(n, 2))
			f.fails(backend.ErrNotFound, func(b *backend.Batch) { b.Put(a, s, &fresh, none); b.Remove(nowhere) })
			checkReads(f, "stage", s, pattern(n, 2))
			f.do(func(b *backend.Batch) { b.Put(a, s, &fresh, none) })
			if err := s.Close(); err != nil {
				f.Error(err)
			}
			f.holds("a", pattern(n, 2))
		}
	}},
	{"values longer than MaxValue are refused", func(f *fixture) {
		a := f.ref("a")
		max := func(n int64, fill func(b *backend.Batch)) func(b *backend.Batch) {
			return func(b *backend.Batch) { b.MaxValue = n; fill(b) }
		}
		f.fails(backend.ErrTooLarge, max(4, func(b *backend.Batch) { b.Put(a, f.stage("12345"), &fresh, none) }))
		f.do(max(5, func(b *backend.Batch) { b.Put(a, f.stage("12345"), &fresh, none) }))
		f.fails(backend.ErrTooLarge, max(7, func(b *backend.Batch) { b.Append(a, f.stage("678"), nil, none) }))
		f.fails(backend.ErrTooLarge, max(7, func(b *backend.Batch) {
			b.Put(a, f.stage("1234"), nil, none)
			b.Append(a, f.stage("5678"), nil, none)
		}))
		f.do(max(8, func(b *backend.Batch) { b.Append(a, f.stage("678"), nil, none) }))
		f.holds("a", "12345678")
	}},
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// checkReads reads r, which must have the content, at and around its ends and in the middle.
func checkReads(f *fixture, what string, r io.ReaderAt, content string) {
	f.Helper()
	size := int64(len(content))
	for _, off := range []int64{0, 1, size / 2, size - 1, size, size + 1, size + 1<<40} {
		if off < 0 {
			continue
		}
		for _, n := range []int64{1, 7, size, size + 10} {
			p := make([]byte, n)
			want := content[min(off, size):min(off+n, size)]
			got, err := r.ReadAt(p, off)
			if string(p[:got]) != want {
				f.Errorf("%s: %d bytes at %d are %s, want %s", what, n, off, short(string(p[:got])), short(want))
			}
			if short := int64(len(want)) < n; short && err != io.EOF || !short && err != nil && err != io.EOF {
				f.Errorf("%s: %d bytes at %d: error %v", what, n, off, err)
			}
		}
	}
	if _, err := r.ReadAt(make([]byte, 1), -1); err == nil || err == io.EOF {
		f.Errorf("%s: a negative offset: %v", what, err)
	}
}
