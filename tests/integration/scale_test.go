package integration

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
)

// peak returns the largest resident size of a process so far, in bytes.
func peak(t *testing.T, pid int) int {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kb), " kB"))
			must(t, err)
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// A large value goes in and out, over another one and by the command line, and the daemon's memory stays small.
func TestLargeValue(t *testing.T) {
	size := 200 << 20
	if testing.Short() {
		size = 50 << 20
	}
	if long {
		size = 1 << 30
	}
	w, m, n := two(t)
	block := proof(1<<20, seeded(1))
	for round := range 2 {
		f, err := os.Create(m + "/k")
		must(t, err)
		sum := crc32.NewIEEE()
		for i := 0; i < size; i += len(block) {
			copy(block[100:], fmt.Sprintf("%d %d", round, i))
			sum.Write(block)
			_, err := f.Write(block)
			must(t, err)
		}
		must(t, f.Close())
		got := crc32.NewIEEE()
		r := open(t, n+"/k")
		k, err := io.Copy(got, r)
		must(t, err)
		must(t, r.Close())
		if k != int64(size) || got.Sum32() != sum.Sum32() {
			t.Errorf("round %d: %d bytes of %d, checksums %x and %x", round, k, size, got.Sum32(), sum.Sum32())
		}
	}
	w.sh(`$BIN get $S k | cmp - k; printf X | dd of=k bs=1 seek=12345 conv=notrunc status=none; printf Y >> k`)
	if st := statIn(t, m+"/k"); st.Size() != int64(size)+1 {
		t.Errorf("size %d after a change in place and an append", st.Size())
	}
	for _, d := range w.mounts {
		if p := peak(t, d.pid); p > 100<<20 && !raced {
			t.Errorf("daemon of %s: %d MB resident", d.dir, p>>20)
		}
	}
}

// Many keys in one directory: made, listed, read, found through another mount, removed.
func TestManyKeys(t *testing.T) {
	count := 20_000
	if testing.Short() {
		count = 3_000
	}
	if long {
		count = 100_000
	}
	w, m, n := two(t)
	must(t, os.Mkdir(m+"/d", 0o755))
	for i := range count {
		if err := os.WriteFile(fmt.Sprintf("%s/d/key-%d", m, i), []byte(itoa(i)), 0o644); err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
	}
	if got := w.sh(`ls -f $N/d | grep -c key-; find d -type f | wc -l; $BIN ls $S d | wc -l`); got != strings.TrimSpace(strings.Repeat(itoa(count)+"\n", 3)) {
		t.Fatalf("listings: %s", got)
	}
	f := open(t, n+"/d")
	seen := map[string]bool{}
	for {
		names, err := f.Readdirnames(100)
		for _, name := range names {
			if seen[name] {
				t.Errorf("%s is listed twice", name)
			}
			seen[name] = true
		}
		if err == io.EOF {
			break
		}
		must(t, err)
	}
	if len(seen) != count {
		t.Errorf("%d names", len(seen))
	}
	r := seeded(2)
	for range count / 10 {
		i := r.IntN(count)
		want(t, "value", read(t, fmt.Sprintf("%s/d/key-%d", n, i)), itoa(i))
	}
	w.sh(`rm -rf d`)
	wantListing(t, n)
	for _, d := range w.mounts {
		t.Logf("daemon of %s: %d MB resident at most", d.dir, peak(t, d.pid)>>20)
	}
}
