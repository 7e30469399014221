package filestore

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/storefs/storefs/backend"
)

// contents is the content of every file of a directory by inode.
func contents(t *testing.T, dir string) map[uint64][]byte {
	t.Helper()
	out := map[uint64][]byte{}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[fi.Sys().(*syscall.Stat_t).Ino] = b
		return nil
	})
	return out
}

// cutPower makes what a power failure may leave of dir in to: of each page what was synced or what was written last; of
// files that were not there at the sync anything, or nothing at all.
func cutPower(t *testing.T, r *rand.Rand, dir, to string, synced map[uint64][]byte) {
	t.Helper()
	bias := r.IntN(5)
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(to, strings.TrimPrefix(path, dir))
		if d.IsDir() {
			return os.MkdirAll(dst, 0o777)
		}
		fi, _ := d.Info()
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		old, was := synced[fi.Sys().(*syscall.Stat_t).Ino]
		if !was && bias < 4 && r.IntN(4) == 0 && d.Name() != "HEAD" {
			return nil
		}
		for off := 0; off < len(now); off += 4096 {
			if r.IntN(4) < bias {
				continue
			}
			page := now[off:min(off+4096, len(now))]
			clear(page)
			if off < len(old) {
				copy(page, old[off:])
			}
		}
		if len(old) < len(now) && bias < 4 && r.IntN(2) == 0 {
			now = now[:len(old)+r.IntN(len(now)-len(old))]
		}
		return os.WriteFile(dst, now, 0o666)
	})
}

// memoryDir returns a directory where a sync costs nothing, if there is such.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "storefs-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestPowerFailures cuts the power at random: the store is then exactly what it was after some commit, none older than the last sync.
func TestPowerFailures(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	later := 0
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 7))
		root := memoryDir(t)
		dir := filepath.Join(root, "s")
		o := Options{Create: true, Sync: Interval, Interval: time.Hour, bootID: bootA} // no sync but at Sync and Close
		if seed%2 == 0 {
			o.Sync = Always
		}
		s, err := Open(dir, &o)
		if err != nil {
			t.Fatal(err)
		}
		model := map[string]string{} // what the values begin with
		history := []map[string]string{{}}
		change := func(n int) {
			for range n {
				name := fmt.Sprint("k", r.IntN(60))
				if _, ok := model[name]; ok && r.IntN(4) == 0 {
					var b backend.Batch
					b.Remove(ref(name))
					commit(t, s, &b)
					delete(model, name)
				} else {
					text := fmt.Sprintf("%d of %s;", len(history), name)
					size := []int{20, 900, 1500, 9000}[r.IntN(4)]
					if r.IntN(25) == 0 {
						size = []int{300 << 10, soloMin}[r.IntN(2)]
					}
					put(t, s, name, append([]byte(text), make([]byte, size)...))
					model[name] = text
				}
				history = append(history, maps.Clone(model))
			}
		}
		change(r.IntN(200))
		if o.Sync == Always {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			o.Sync = Interval
			if s, err = Open(dir, &o); err != nil {
				t.Fatal(err)
			}
		} else if err := s.Sync(bg); err != nil {
			t.Fatal(err)
		}
		synced, safe := contents(t, dir), len(history)-1
		change(r.IntN(200))
		if r.IntN(2) == 0 {
			if err := s.tidy(bg); err != nil {
				t.Fatal(err)
			}
		}
		s.life.Lock()
		crash := filepath.Join(root, "crash")
		cutPower(t, r, dir, crash, synced)
		s.life.Unlock()
		s.Close()
		after, err := Open(crash, &Options{bootID: bootB})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		n := snap(t, after)
		g := int(n.Generation())
		if g < safe || g >= len(history) {
			t.Fatalf("seed %d: generation %d, synced was %d, last %d", seed, g, safe, len(history)-1)
		}
		if g > safe {
			later++
		}
		seen := 0
		for e, err := range n.List(backend.RootIno, "") {
			if err != nil {
				t.Fatal(seed, err)
			}
			b, err := read(n, e.Ref)
			if want, ok := history[g][e.Name]; err != nil || !ok || !bytes.HasPrefix(b, []byte(want)) {
				t.Fatalf("seed %d: %s is %.20q, want %q, %v", seed, e.Name, b, want, err)
			}
			seen++
		}
		if seen != len(history[g]) {
			t.Fatalf("seed %d: %d keys, want %d", seed, seen, len(history[g]))
		}
		n.Close()
		put(t, after, "new", pattern(5000, 1))
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d came back later than synced", later, rounds)
}
