package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/storefs/storefs/backend"
)

const (
	bootA = "00000000-0000-0000-0000-00000000000a"
	bootB = "00000000-0000-0000-0000-00000000000b"
)

// made returns the directory of a store with 400 keys, closed.
func made(t *testing.T, o Options) string {
	t.Helper()
	dir := filepath.Join(memoryDir(t), "s")
	o.Create = true
	s, err := Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		put(t, s, fmt.Sprint("k", i), pattern(10*i, uint64(i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if off < 0 {
		off += int64(len(b))
	}
	b[off] ^= 1
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// asNewerFormat makes a HEAD file one of the next format version, as far as this one can know what that is.
func asNewerFormat(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := le.Uint64(b[offTotal:])
	b[8] = formatVer + 1
	le.PutUint32(b[n-4:], checksum(b[:n-4]))
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestNewBootKeepsTheNewest(t *testing.T) {
	dir := made(t, Options{bootID: bootA, Sync: Never})
	s := openTest(t, dir, Options{bootID: bootB})
	n := snap(t, s)
	defer n.Close()
	if g := n.Generation(); g != 400 {
		t.Fatal("generation", g)
	}
	put(t, s, "k1", []byte("after"))
	wantValue(t, s, "k1", []byte("after"))
}

func TestPowerFailureFallsBackToAWholeGeneration(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Open(dir, &Options{Create: true, bootID: bootA, Sync: Never})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		put(t, s, fmt.Sprint("k", i), pattern(4000, uint64(i)))
	}
	if err := s.Sync(bg); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		put(t, s, fmt.Sprint("k", i), pattern(2000, uint64(i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, "HEAD"), 200) // as if its blocks had not come to the disk
	ds, _ := filepath.Glob(filepath.Join(dir, "index", "*"))
	os.Truncate(ds[len(ds)-1], 4096)
	r := openTest(t, dir, Options{bootID: bootB})
	n := snap(t, r)
	defer n.Close()
	if g := n.Generation(); g != 400 {
		t.Fatal("generation", g)
	}
	for i := range 400 {
		if b, err := read(n, ref(fmt.Sprint("k", i))); err != nil || !bytes.Equal(b, pattern(4000, uint64(i))) {
			t.Fatal(i, len(b), err)
		}
	}
}

func TestValueLostInPowerFailureIsNoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Open(dir, &Options{Create: true, bootID: bootA, Sync: Never})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", pattern(3000, 1))
	if err := s.Sync(bg); err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", pattern(3000, 2))
	s.Close()
	flip(t, s.volumePath(1), -100)
	r := openTest(t, dir, Options{bootID: bootB})
	wantValue(t, r, "k", pattern(3000, 1))
}

func TestDamageIsNamed(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, dir string)
		path string
	}{
		{"HEAD cut", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, "HEAD"), 100) }, "HEAD"},
		{"HEAD empty", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, "HEAD"), 0) }, "HEAD"},
		{"HEAD flipped", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "HEAD"), 3000) }, "HEAD"},
		{"HEAD boot id flipped", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "HEAD"), 41) }, "HEAD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := made(t, Options{})
			c.do(t, dir)
			_, err := Open(dir, &Options{Create: true})
			var d *backend.CorruptError
			if !errors.As(err, &d) || filepath.Base(d.Path) != c.path {
				t.Fatal(err)
			}
			found := 0
			if _, err := Check(bg, dir, &CheckOptions{Report: func(Finding) { found++ }}); err != nil || found == 0 {
				t.Error("check:", found, err)
			}
		})
	}
}

func TestEveryFlippedByteIsNoticed(t *testing.T) {
	dir := made(t, Options{})
	files, _ := filepath.Glob(filepath.Join(dir, "[id]*", "*"))
	if len(files) < 2 {
		t.Fatal(files)
	}
	for _, path := range files {
		fi, _ := os.Stat(path)
		step := fi.Size()/40 + 1
		for off := int64(0); off < fi.Size(); off += step {
			flip(t, path, off)
			found := 0
			if _, err := Check(bg, dir, &CheckOptions{Report: func(f Finding) {
				if filepath.Join(dir, f.Path) == path {
					found++
				}
			}}); err != nil || found == 0 {
				t.Errorf("%s at %d: %d found, %v", path, off, found, err)
			}
			flip(t, path, off)
		}
	}
	checkStore(t, dir)
}

func TestDamagedValueIsNotServed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Open(dir, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := pattern(5*blockSize, 1)
	put(t, s, "k", want)
	flip(t, s.volumePath(1), 2*blockSize+7)
	n := snap(t, s)
	defer n.Close()
	e, _ := n.Lookup(ref("k"))
	v, err := n.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	b := make([]byte, len(want))
	for _, off := range []int64{0, 2 * blockSize, 3*blockSize - 1} {
		k, err := v.ReadAt(b, off)
		var d *backend.CorruptError
		if !errors.As(err, &d) || d.Offset != 2*blockSize || k > 2*blockSize {
			t.Errorf("at %d: %d, %v", off, k, err)
		}
	}
	if k, err := v.ReadAt(b[:blockSize], 3*blockSize); err != nil || !bytes.Equal(b[:k], want[3*blockSize:4*blockSize]) {
		t.Error("undamaged block:", k, err)
	}
}

func TestWhatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o666)
	for name, path := range map[string]string{"file": file, "foreign directory": dir} {
		if _, err := Open(path, &Options{Create: true}); !errors.Is(err, backend.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("made by a mere Open")
	}
	store := made(t, Options{})
	for _, f := range []string{"HEAD", "HEAD.0", "HEAD.1"} {
		asNewerFormat(t, filepath.Join(store, f))
	}
	if _, err := Open(store, nil); !errors.Is(err, backend.ErrFormat) {
		t.Error("newer format:", err)
	}
}

func TestInterruptedCreationIsCompleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	os.MkdirAll(filepath.Join(dir, "index"), 0o777)
	os.WriteFile(filepath.Join(dir, "lock"), nil, 0o666)
	os.WriteFile(filepath.Join(dir, "HEAD.0"), make([]byte, 1000), 0o666)
	s := openTest(t, dir, Options{})
	if !s.Created() {
		t.Error("not said to be created")
	}
	put(t, s, "k", nil)
}

func TestSweep(t *testing.T) {
	dir := made(t, Options{})
	for _, f := range []string{"tmp/1-x", "index/00000000000fffff", "data/00000000000fffff"} {
		os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o666)
	}
	openTest(t, dir, Options{})
	for _, d := range []string{"tmp/*", "*/00000000000fffff"} {
		if m, _ := filepath.Glob(filepath.Join(dir, d)); len(m) > 0 {
			t.Error("left:", m)
		}
	}
}

func TestReadOnlyWithoutPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("root may write anyway")
	}
	dir := made(t, Options{})
	os.Chmod(dir, 0o555)
	defer os.Chmod(dir, 0o755)
	s, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wantValue(t, s, "k7", pattern(70, 7))
	if _, err := s.Commit(bg, &backend.Batch{}); !errors.Is(err, backend.ErrReadOnly) {
		t.Error(err)
	}
}

func TestDurableFileIsCut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{Sync: Never})
	put(t, s, "k", nil)
	for _, n := range []int64{0, 1, durableSize - 1} {
		if err := os.Truncate(filepath.Join(dir, "durable"), n); err != nil {
			t.Fatal(err)
		}
		if d := s.readDurable(); d != (durable{}) {
			t.Errorf("cut to %d: %+v", n, d)
		}
		put(t, s, "k", pattern(int(n)*9, 1))
		if err := s.Sync(bg); err != nil {
			t.Fatal(err)
		}
		if d := s.readDurable(); d.seq != s.cur.h.seq {
			t.Errorf("after a sync: %+v", d)
		}
	}
}
