package main

import (
	"context"
	"fmt"
	"os"
)

// scale measures what docs/scaling.md speaks of: more processes, longer values, more mounts.
func (w *world) scale() []contest {
	contests := append(w.processes(), w.lengths()...)
	return append(contests, w.mountCounts()...)
}

func (w *world) processes() (contests []contest) {
	for _, procs := range []int{1, 2, 4, 8, 16} {
		bench := func(system, ratio string, args ...string) entry {
			return w.benchOf(system, append([]string{"--workloads", "w1", "--keys", "1000", "--procs", fmt.Sprint(procs), "--ratios", ratio,
				"--time", w.seconds(0.5, 0.2) + "s"}, args...)...)
		}
		contests = append(contests, contest{fmt.Sprintf("part=processes,processes=%d", procs), []entry{
			bench(goPackage+": reads", "1:0", w.in("engine")),
			bench(goPackage+": increments", "0:1", w.in("engine")),
			bench(throughRW+": reads", "1:0", w.in("rw")),
			bench(throughRO+": reads", "1:0", "--read-from", w.in("ro"), w.in("rw")),
			bench(throughRW+": increments", "0:1", w.in("rw")),
		}})
	}
	return contests
}

func (w *world) lengths() (contests []contest) {
	for _, bytes := range []int{100, 1000, 10000, 100000, 1000000, 10000000} {
		bench := func(system, at string) entry {
			return w.benchOf(system, "--workloads", "w5", "--pairs", "50", "--sizes", fmt.Sprint(bytes), "--time", w.seconds(1, 0.3)+"s", w.in(at))
		}
		contests = append(contests, contest{fmt.Sprintf("part=lengths,bytes=%d", bytes), []entry{
			bench(plainFile, "plain"), bench(throughRW, "rw"), bench(goPackage, "engine"),
		}})
	}
	return contests
}

// mountCounts overwrites through one of several mounts of a store.
func (w *world) mountCounts() (contests []contest) {
	for _, n := range []int{1, 2, 4, 8} {
		contests = append(contests, contest{fmt.Sprintf("part=mounts,mounts=%d", n), []entry{
			{throughRW, func(ctx context.Context) (map[string]float64, error) { return w.amongMounts(ctx, n) }},
		}})
	}
	return contests
}

func (w *world) amongMounts(ctx context.Context, n int) (_ map[string]float64, err error) {
	defer func() {
		os.RemoveAll(w.in("shared"))
		for i := range n {
			os.Remove(w.in(fmt.Sprint("shared.", i)))
		}
	}()
	for i := range n {
		at := fmt.Sprint("shared.", i)
		if err := os.Mkdir(w.in(at), 0o755); err != nil {
			return nil, err
		}
		if err := w.mount("shared", at, "sync=never"); err != nil {
			return nil, err
		}
		defer func() {
			if uerr := w.umount(); err == nil {
				err = uerr
			}
		}()
	}
	return w.benchOf("", "--workloads", "w2", "--time", w.seconds(1, 0.3)+"s", w.in("shared.0")).measure(ctx)
}
