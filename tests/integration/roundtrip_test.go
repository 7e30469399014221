package integration

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// blocking are the operations that somebody waits for: all but FORGET and the releases.
func blocking(before, after map[string]float64) (sum float64, what string) {
	for op, n := range after {
		switch op {
		case "forget", "release", "releasedir":
			continue
		}
		if len(op) > 8 && op[:8] == "storefs_" {
			continue
		}
		if d := n - before[op]; d != 0 {
			sum += d
			what += fmt.Sprintf(" %s %v", op, d)
		}
	}
	return sum, what
}

// trips counts what f costs. Reading the counters costs as well: that is measured and taken off.
func trips(t *testing.T, m string, f func()) (float64, string) {
	t.Helper()
	stats(t, m)
	a := stats(t, m)
	b := stats(t, m)
	own := map[string]float64{}
	for op := range b {
		own[op] = b[op] - a[op]
	}
	f()
	c := stats(t, m)
	for op, n := range own {
		c[op] -= n
	}
	return blocking(b, c)
}

func readOnce(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	must(t, err)
	b := make([]byte, 4096)
	if n, err := unix.Read(fd, b); err != nil || n == 0 {
		t.Fatalf("read: %d, %v", n, err)
	}
	must(t, unix.Close(fd))
}

func overwrite(t *testing.T, path string, flags int) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_TRUNC|flags, 0o644)
	must(t, err)
	_, err = unix.Write(fd, []byte("value"))
	must(t, err)
	must(t, unix.Close(fd))
}

// The budgets of DESIGN.md, section 5.
func TestRoundTrips(t *testing.T) {
	for _, opts := range []string{"rw", "noxattr"} {
		w, m := one(t, opts)
		n := w.mount()
		k := m + "/k"
		xattr := map[string]float64{"rw": 1, "noxattr": 0}[opts]
		for _, c := range []struct {
			name            string
			prepare, action func()
			most            float64
		}{
			{"hot read", func() { overwrite(t, k, unix.O_CREAT); readOnce(t, k); readOnce(t, k) }, func() { readOnce(t, k) }, 1},
			{"read after a change by this mount", func() { readOnce(t, k); overwrite(t, k, 0) }, func() { readOnce(t, k) }, 3},
			{"read after a change by another mount", func() { readOnce(t, k); overwrite(t, n+"/k", 0) }, func() { readOnce(t, k) }, 5},
			{"stat, cached", func() { readOnce(t, k); statIn(t, k) }, func() { statIn(t, k) }, 0},
			{"open of a missing key", func() {}, func() { os.Open(m + "/missing") }, 1},
			{"overwrite", func() { overwrite(t, k, 0); overwrite(t, k, 0); w.settle(m) }, func() { overwrite(t, k, 0) }, 3 + xattr},
			{"overwrite of what was read", func() { overwrite(t, k, 0); readOnce(t, k); w.settle(m) }, func() { overwrite(t, k, 0) }, 3 + xattr},
			{"new key", func() { os.Remove(m + "/new") }, func() { overwrite(t, m+"/new", unix.O_CREAT) }, 4},
			{"stat after an overwrite", func() { overwrite(t, k, 0) }, func() { statIn(t, k) }, 1},
			{"chmod", func() { statIn(t, k) }, func() { must(t, os.Chmod(k, 0o600)) }, 1},
			{"rename", func() { statIn(t, k); os.Remove(m + "/r") }, func() { must(t, unix.Rename(k, m+"/r")) }, 2},
			{"unlink", func() { statIn(t, m+"/r") }, func() { must(t, os.Remove(m+"/r")) }, 1},
			{"mkdir", func() {}, func() { must(t, os.Mkdir(m+"/d", 0o755)) }, 2},
			{"storefs txn", func() { w.in(t).sh("$BIN txn $M -- true") }, func() { w.in(t).sh("$BIN txn $M -- true") }, 9},
		} {
			t.Run(opts+" "+c.name, func(t *testing.T) {
				// A notification that is still on its way may cost one try a lookup: the second or third is what counts.
				var got float64
				var what string
				for range 3 {
					os.Remove(m + "/d")
					if _, err := os.Stat(m + "/k"); err != nil && c.name != "unlink" {
						write(t, m+"/k", "value")
					}
					if c.name == "unlink" {
						write(t, m+"/r", "value")
					}
					c.prepare()
					if got, what = trips(t, m, c.action); got <= c.most {
						return
					}
				}
				t.Errorf("%v round trips (%s), not %v", got, what, c.most)
			})
		}
	}
}

// A listing of many keys costs a thirtieth of a round trip a key, and the stats after it are free.
func TestRoundTripsOfAListing(t *testing.T) {
	w, _ := one(t)
	w.sh(`mkdir d; for i in $(seq 300); do echo $i > d/key-$i; done`)
	n := w.mount() // whose kernel knows nothing of them
	var names []os.DirEntry
	got, what := trips(t, n, func() {
		var err error
		names, err = os.ReadDir(n + "/d")
		must(t, err)
	})
	if len(names) != 300 || got > 15 {
		t.Errorf("%d names in %v round trips (%s)", len(names), got, what)
	}
	got, what = trips(t, n, func() {
		for _, e := range names {
			if st := statIn(t, n+"/d/"+e.Name()); st.Size() == 0 {
				t.Error("size 0")
			}
		}
	})
	if got != 0 {
		t.Errorf("stats after the listing: %v round trips (%s)", got, what)
	}
}
