package filestore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

var bg = context.Background()

// openTest opens a store; the cleanup closes it and checks all of it.
func openTest(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	o.Create = true
	s, err := Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		checkStore(t, dir)
	})
	return s
}

func checkStore(t testing.TB, dir string) CheckResult {
	t.Helper()
	r, err := Check(bg, dir, &CheckOptions{Report: func(f Finding) { t.Error("check:", f) }})
	if err != nil {
		t.Error("check:", err)
	}
	return r
}

func stageOf(t testing.TB, s *Store, data []byte) backend.Stage {
	t.Helper()
	st, err := s.NewStage()
	if err == nil {
		_, err = st.WriteAt(data, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func ref(name string) backend.Ref { return backend.Ref{Dir: backend.RootIno, Name: name} }

var newFile = &backend.Attr{Mode: 0o644}

func commit(t testing.TB, s *Store, b *backend.Batch) backend.Committed {
	t.Helper()
	c, err := s.Commit(bg, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func put(t testing.TB, s *Store, name string, data []byte) backend.Committed {
	t.Helper()
	st := stageOf(t, s, data)
	defer st.Close()
	var b backend.Batch
	b.Put(ref(name), st, newFile, backend.AttrChange{})
	return commit(t, s, &b)
}

func appendTo(t testing.TB, s *Store, name string, data []byte) backend.Committed {
	t.Helper()
	st := stageOf(t, s, data)
	defer st.Close()
	var b backend.Batch
	b.Append(ref(name), st, newFile, backend.AttrChange{})
	return commit(t, s, &b)
}

func snap(t testing.TB, s *Store) backend.Snapshot {
	t.Helper()
	n, err := s.Snapshot(bg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func read(n backend.Snapshot, r backend.Ref) ([]byte, error) {
	e, err := n.Lookup(r)
	if err != nil {
		return nil, err
	}
	v, err := n.Open(e)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	b := make([]byte, v.Size())
	if k, err := v.ReadAt(b, 0); k < len(b) {
		return nil, err
	}
	return b, nil
}

func wantValue(t testing.TB, s *Store, name string, want []byte) {
	t.Helper()
	n := snap(t, s)
	defer n.Close()
	b, err := read(n, ref(name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Fatalf("%s: %d bytes, want %d", name, len(b), len(want))
	}
}

func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

func TestValuesOfAllSizes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{})
	sizes := []int{0, 1, 1024, 1025, blockSize, blockSize + 1, stageMemory, stageMemory + 1, soloMin - 1, soloMin, soloMin + 12345, 5 << 20}
	for round := range 2 {
		for i, n := range sizes {
			put(t, s, fmt.Sprint("k", n), pattern(n, uint64(100*round+i)))
		}
	}
	look := func(s *Store) {
		for i, n := range sizes {
			want := pattern(n, uint64(100+i))
			wantValue(t, s, fmt.Sprint("k", n), want)
			sn := snap(t, s)
			e, _ := sn.Lookup(ref(fmt.Sprint("k", n)))
			v, _ := sn.Open(e)
			sn.Close()
			for range 20 {
				off, k := rand.IntN(n+1), rand.IntN(200000)
				b := make([]byte, k)
				m, _ := v.ReadAt(b, int64(off))
				if m != min(k, n-off) || !bytes.Equal(b[:m], want[off:off+m]) {
					t.Fatalf("size %d: read %d at %d: %d", n, k, off, m)
				}
			}
			v.Close()
		}
	}
	look(s)
	other := openTest(t, dir, Options{})
	look(other)
	ro, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	look(ro)
	ro.Close()
	i, err := s.Info()
	t.Logf("%+v %v", i, err)
}

func TestManyKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{})
	const n = 3000
	for i := range n {
		put(t, s, fmt.Sprintf("key%05d", i*7919%n), []byte(fmt.Sprint("value ", i)))
	}
	for i := 0; i < n; i += 3 {
		var b backend.Batch
		b.Remove(ref(fmt.Sprintf("key%05d", i)))
		commit(t, s, &b)
	}
	for pass := range 3 {
		o := s
		if pass == 1 {
			if err := s.Compact(bg); err != nil {
				t.Fatal(err)
			}
		}
		if pass == 2 {
			o = openTest(t, dir, Options{})
		}
		sn := snap(t, o)
		want := 1
		for e, err := range sn.List(backend.RootIno, "") {
			if err != nil {
				t.Fatal(err)
			}
			if e.Name != fmt.Sprintf("key%05d", want) {
				t.Fatalf("pass %d: got %s, want key %d", pass, e.Name, want)
			}
			if want++; want%3 == 0 {
				want++
			}
		}
		if want < n {
			t.Fatal("list ended at", want)
		}
		for i := range n {
			_, err := sn.Lookup(ref(fmt.Sprintf("key%05d", i)))
			if (err == nil) != (i%3 != 0) {
				t.Fatalf("key %d: %v", i, err)
			}
		}
		sn.Close()
	}
	i, err := s.Info()
	t.Logf("%+v %v %+v", i, err, s.Counters())
}

func TestBigRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{})
	x := map[string]string{"user.a": strings.Repeat("x", 65000), "user.b": ""}
	for i := range 10 {
		var b backend.Batch
		b.Put(backend.Ref{Dir: 1, Name: strings.Repeat("n", 254) + fmt.Sprint(i)}, stageOf(t, s, pattern(1024, 1)), &backend.Attr{Mode: 0o600, Xattrs: x}, backend.AttrChange{})
		commit(t, s, &b)
	}
	sn := snap(t, s)
	defer sn.Close()
	for i := range 10 {
		e, err := sn.Lookup(backend.Ref{Dir: 1, Name: strings.Repeat("n", 254) + fmt.Sprint(i)})
		if err != nil || e.Xattrs["user.a"] != x["user.a"] || len(e.Xattrs) != 2 || e.Size != 1024 {
			t.Fatal(err, len(e.Xattrs), e.Size)
		}
	}
}

func TestAppend(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{})
	var want []byte
	for i := range 300 {
		p := pattern(1+i*37%900, uint64(i))
		if i%50 == 49 {
			p = pattern(300<<10, uint64(i))
		}
		want = append(want, p...)
		appendTo(t, s, "log", p)
	}
	wantValue(t, s, "log", want)
	sn := snap(t, s)
	e, _ := sn.Lookup(ref("log"))
	sn.Close()
	if n := len(locatorOf(&e).exts); n > 24 {
		t.Errorf("%d extents", n)
	}
	big := pattern(soloMin, 77)
	for range 3 {
		appendTo(t, s, "log", big)
		want = append(want, big...)
	}
	wantValue(t, s, "log", want)
	var b backend.Batch
	b.Remove(ref("log"))
	commit(t, s, &b)
}

func TestDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir, Options{Sync: Always})
	var b backend.Batch
	b.Mkdir(ref("d"), backend.Attr{Mode: 0o755})
	c := commit(t, s, &b)
	d, _ := c.Entry(ref("d"))
	for i := range 20 {
		var b backend.Batch
		b.Put(backend.Ref{Dir: d.Ino, Name: fmt.Sprint(i)}, stageOf(t, s, pattern(2000, 3)), newFile, backend.AttrChange{})
		commit(t, s, &b)
	}
	var r backend.Batch
	r.Rename(ref("d"), ref("e"), 0)
	commit(t, s, &r)
	sn := snap(t, s)
	defer sn.Close()
	if at, err := sn.Parent(d.Ino); err != nil || at != ref("e") {
		t.Fatal(at, err)
	}
	if e, err := backend.Walk(sn, "e/7"); err != nil || e.Size != 2000 {
		t.Fatal(e, err)
	}
}

// readNames returns the names in a directory.
func readNames(dir string) ([]string, error) {
	var d *disk.Disk
	return d.List(dir)
}
