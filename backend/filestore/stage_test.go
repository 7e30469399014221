package filestore

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/storefs/storefs/backend"
)

// TestStageAtRandomOffsets compares a stage with a byte slice, in memory and in a file, and commits it.
func TestStageAtRandomOffsets(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{Sync: Never})
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := 1 << (10 + r.IntN(12))
		st, err := s.NewStage()
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for range 40 {
			off := r.IntN(limit)
			switch r.IntN(4) {
			case 0:
				off = len(want)
				fallthrough
			case 1:
				p := pattern(1+r.IntN(limit/2), r.Uint64())
				if end := off + len(p); end > len(want) {
					want = append(want, make([]byte, end-len(want))...)
				}
				copy(want[off:], p)
				if n, err := st.WriteAt(p, int64(off)); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
			case 2:
				if off < len(want) {
					want = want[:off:off]
				} else {
					want = append(want, make([]byte, off-len(want))...)
				}
				if err := st.Truncate(int64(off)); err != nil {
					t.Fatal(err)
				}
			case 3:
				b := make([]byte, r.IntN(limit))
				n, err := st.ReadAt(b, int64(off))
				have := want[min(off, len(want)):]
				have = have[:min(len(have), len(b))]
				if !bytes.Equal(b[:n], have) || (n < len(b)) != errors.Is(err, io.EOF) {
					t.Fatal(seed, n, err)
				}
			}
			if st.Size() != int64(len(want)) {
				t.Fatal(st.Size(), len(want))
			}
		}
		var b backend.Batch
		b.Put(ref("k"), st, newFile, backend.AttrChange{})
		b.Put(ref("twice"), st, newFile, backend.AttrChange{})
		commit(t, s, &b)
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		wantValue(t, s, "k", want)
		wantValue(t, s, "twice", want)
	}
}

// TestStageOutlivesARefusedCommit commits the same stage again after an expectation did not hold.
func TestStageOutlivesARefusedCommit(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "s"), Options{})
	want := pattern(soloMin+100, 1)
	st := stageOf(t, s, want)
	var b backend.Batch
	b.Put(ref("k"), st, newFile, backend.AttrChange{})
	b.Expect(ref("k"), 99)
	if _, err := s.Commit(bg, &b); !errors.Is(err, backend.ErrConflict) {
		t.Fatal(err)
	}
	var again backend.Batch
	again.Put(ref("k"), st, newFile, backend.AttrChange{})
	commit(t, s, &again)
	wantValue(t, s, "k", want)
}
