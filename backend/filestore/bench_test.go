package filestore

import (
	"fmt"
	"os"
	"path/filepath"
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
