package main

import (
	"context"
	"fmt"
	"os"
)

// w3 measures each system with more and more keys. What was loaded in the first round stays for the others.
func (w *world) w3() (contests []contest) {
	sizes := []int{100, 1000, 10000, 100000, 1000000, 10000000}
	alone := 10000000 // from here storefs grows alone
	if w.quick {
		sizes, alone = []int{1000, 10000, 100000}, 100000
	}
	for _, n := range sizes {
		entries := []entry{w.grownStore(n), w.grownMount(n)}
		if n < alone {
			for _, s := range []struct{ system, as string }{
				{"GDBM_File, held open", "gdbm"}, {"DB_File, held open", "dbfile"}, {"SQLite, held open", "sqlite"}, {plainFile, "files"},
			} {
				entries = append(entries, w.grownPeer(s.system, s.as, n))
			}
		}
		contests = append(contests, contest{fmt.Sprintf("keys=%d", n), entries})
	}
	return contests
}

func (w *world) grownPeer(system, as string, n int) entry {
	return entry{system, func(ctx context.Context) (map[string]float64, error) {
		dir := w.in(fmt.Sprintf("plain/%s-%d", as, n))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		return w.peer(ctx, "w3.pl", as, dir, fmt.Sprint(n), w.seconds(0.5, 0.2))
	}}
}

// grownStore measures a store of n keys through the Go package, after making it.
func (w *world) grownStore(n int) entry {
	return entry{goPackage, func(ctx context.Context) (map[string]float64, error) {
		store := fmt.Sprintf("grown-%d", n)
		if _, err := os.Stat(w.in(store)); err != nil {
			if err := w.newStore(store); err != nil {
				return nil, err
			}
		}
		e := w.benchOf(goPackage, "--workloads", "w3", "--keep", "--growth", fmt.Sprint(n), "--time", w.seconds(0.5, 0.2)+"s", w.in(store))
		return e.measure(ctx)
	}}
}

// grownMount measures the same store through a mount, from Perl as its peers.
func (w *world) grownMount(n int) entry {
	return entry{throughRW, func(ctx context.Context) (_ map[string]float64, err error) {
		if err := w.mount(fmt.Sprintf("grown-%d", n), "grown", "sync=never"); err != nil {
			return nil, err
		}
		defer func() {
			if uerr := w.umount(); err == nil {
				err = uerr
			}
		}()
		return w.peer(ctx, "w3.pl", "storefs", w.in(fmt.Sprintf("grown/storefs-bench-w3-%d", n)), fmt.Sprint(n), w.seconds(0.5, 0.2))
	}}
}
