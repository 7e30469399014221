package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

func TestFileSystemWithoutExchange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	a, b := openTest(t, dir, Options{noExchange: true}), openTest(t, dir, Options{noExchange: true})
	old := snap(t, b)
	defer old.Close()
	for i := range 300 {
		put(t, a, fmt.Sprint("k", i), pattern(i*9, 1))
		wantValue(t, b, fmt.Sprint("k", i), pattern(i*9, 1))
		put(t, b, fmt.Sprint("k", i), pattern(i*8, 1))
		wantValue(t, a, fmt.Sprint("k", i), pattern(i*8, 1))
	}
	if old.Generation() != 0 {
		t.Error("pinned generation", old.Generation())
	}
	if n, _ := a.listSpares(); len(n) > 8 {
		t.Error("spares:", n)
	}
}

// TestFullDisk fills a small file system: what was there stays readable, removing works, and gives room again.
func TestFullDisk(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("none", root, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("mounting a small file system:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := openTest(t, filepath.Join(root, "s"), Options{Sync: Always})
	tryPut := func(name string, data []byte) error {
		st, err := s.NewStage()
		if err != nil {
			return err
		}
		defer st.Close()
		if _, err := st.WriteAt(data, 0); err != nil {
			return err
		}
		var b backend.Batch
		b.Put(ref(name), st, newFile, backend.AttrChange{})
		_, err = s.Commit(bg, &b)
		return err
	}
	sizes := []int{100 << 10, 1 << 20, 5000, 300}
	var keys []int
	for full, i := 0, 0; full < 4*len(sizes); i++ {
		n := sizes[i%len(sizes)]
		err := tryPut(fmt.Sprint("k", i), pattern(n, uint64(i)))
		switch {
		case err == nil:
			keys = append(keys, i)
			full = 0
		case errors.Is(err, syscall.ENOSPC):
			full++
		default:
			t.Fatal(err)
		}
		if i > 100000 {
			t.Fatal("never full")
		}
	}
	n := snap(t, s)
	for _, i := range keys {
		if b, err := read(n, ref(fmt.Sprint("k", i))); err != nil || !bytes.Equal(b, pattern(sizes[i%len(sizes)], uint64(i))) {
			t.Fatal(i, len(b), err)
		}
	}
	n.Close()
	for _, i := range keys {
		var b backend.Batch
		b.Remove(ref(fmt.Sprint("k", i)))
		if _, err := s.Commit(bg, &b); err != nil {
			t.Fatalf("remove key %d of %d: %v", i, len(keys), err)
		}
	}
	if err := errors.Join(s.makeDurable(bg), s.tidy(bg)); err != nil {
		t.Fatal(err)
	}
	s.vols.closeRemoved()
	if err := tryPut("again", pattern(1<<20, 1)); err != nil {
		t.Error(err)
	}
}
