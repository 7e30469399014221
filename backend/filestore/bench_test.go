package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/storefs/storefs/backend"
)

// BenchmarkCommit100B is to cost at most a sixth of BenchmarkTempRename.
func BenchmarkCommit100B(b *testing.B) {
	for _, n := range []int{1000, 100000} {
		b.Run(fmt.Sprint("keys=", n), func(b *testing.B) { benchCommit(b, n) })
	}
}

func benchCommit(b *testing.B, keys int) {
	s, err := Open(filepath.Join(b.TempDir(), "s"), &Options{Create: true, Sync: Never})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	st := stageOf(b, s, pattern(100, 1))
	names := make([]backend.Ref, keys)
	for i := range names {
		names[i] = ref(fmt.Sprintf("key%07d", i))
	}
	for i := 0; i < keys; i += 500 {
		var bt backend.Batch
		for _, r := range names[i:min(i+500, keys)] {
			bt.Put(r, st, newFile, backend.AttrChange{})
		}
		commit(b, s, &bt)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		var bt backend.Batch
		bt.Put(names[i*7919%keys], st, newFile, backend.AttrChange{})
		if _, err := s.Commit(bg, &bt); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	c := s.Counters()
	b.ReportMetric(float64(c.Merges), "merges")
	b.ReportMetric(float64(c.Spills), "spills")
	b.ReportMetric(float64(c.Spares), "spares")
}

func BenchmarkTempRename(b *testing.B) {
	dir := b.TempDir()
	data := pattern(100, 1)
	names := make([]string, 1000)
	for i := range names {
		names[i] = filepath.Join(dir, fmt.Sprintf("key%07d", i))
		if err := os.WriteFile(names[i], data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := range b.N {
		name := names[i*7919%len(names)]
		tmp := name + ".tmp"
		if err := os.WriteFile(tmp, data, 0o644); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(tmp, name); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "s"), &Options{Create: true, Sync: Never})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		snap(b, s).Close()
	}
}

func BenchmarkLookup(b *testing.B) {
	const keys = 200000
	s, err := Open(filepath.Join(b.TempDir(), "s"), &Options{Create: true, Sync: Never})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	st := stageOf(b, s, pattern(100, 1))
	names := make([]backend.Ref, keys)
	for i := range names {
		names[i] = ref(fmt.Sprintf("key%07d", i))
	}
	for i := 0; i < keys; i += 1000 {
		var bt backend.Batch
		for _, r := range names[i : i+1000] {
			bt.Put(r, st, newFile, backend.AttrChange{})
		}
		commit(b, s, &bt)
	}
	n := snap(b, s)
	defer n.Close()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if _, err := n.Lookup(names[i*7919%keys]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBigValue writes a value of 64 MiB through a stage, commits and reads it.
func BenchmarkBigValue(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "s"), &Options{Create: true, Sync: Never})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const size = 64 << 20
	chunk := pattern(1<<20, 1)
	b.SetBytes(2 * size)
	for b.Loop() {
		st, err := s.NewStage()
		if err != nil {
			b.Fatal(err)
		}
		for off := int64(0); off < size; off += int64(len(chunk)) {
			if _, err := st.WriteAt(chunk, off); err != nil {
				b.Fatal(err)
			}
		}
		var bt backend.Batch
		bt.Put(ref("big"), st, newFile, backend.AttrChange{})
		commit(b, s, &bt)
		st.Close()
		n := snap(b, s)
		e, _ := n.Lookup(ref("big"))
		v, err := n.Open(e)
		if err != nil {
			b.Fatal(err)
		}
		n.Close()
		for off := int64(0); off < size; off += 128 << 10 {
			if _, err := v.ReadAt(chunk[:128<<10], off); err != nil {
				b.Fatal(err)
			}
		}
		v.Close()
	}
}

// BenchmarkOpen opens a store of 100 000 keys, reads one and closes it, as a command does.
func BenchmarkOpen(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "s")
	s, err := Open(dir, &Options{Create: true, Sync: Never})
	if err != nil {
		b.Fatal(err)
	}
	st := stageOf(b, s, pattern(100, 1))
	for i := range 100 {
		var bt backend.Batch
		for k := range 1000 {
			bt.Put(ref(fmt.Sprintf("key%07d", k*100+i)), st, newFile, backend.AttrChange{})
		}
		commit(b, s, &bt)
	}
	if err := s.Compact(bg); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for _, ro := range []bool{true, false} {
		b.Run(fmt.Sprint("readonly=", ro), func(b *testing.B) {
			for b.Loop() {
				s, err := Open(dir, &Options{ReadOnly: ro})
				if err != nil {
					b.Fatal(err)
				}
				n := snap(b, s)
				if _, err := read(n, ref("key0004711")); err != nil {
					b.Fatal(err)
				}
				n.Close()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCommitWaiting has many goroutines commit at once: those that wait together share one write, and one sync.
func BenchmarkCommitWaiting(b *testing.B) {
	for _, mode := range []SyncMode{Never, Always} {
		for _, n := range []int{1, 8} {
			b.Run(fmt.Sprintf("sync=%v/goroutines=%d", mode, n), func(b *testing.B) { benchWaiting(b, mode, n) })
		}
	}
}

func benchWaiting(b *testing.B, mode SyncMode, n int) {
	s, err := Open(filepath.Join(b.TempDir(), "s"), &Options{Create: true, Sync: mode})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var wg sync.WaitGroup
	b.ResetTimer()
	for g := range n {
		st := stageOf(b, s, pattern(100, 1))
		wg.Go(func() {
			for i := g; i < b.N; i += n {
				var bt backend.Batch
				bt.Put(ref(fmt.Sprint("key", i%1000)), st, newFile, backend.AttrChange{})
				if _, err := s.Commit(bg, &bt); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
