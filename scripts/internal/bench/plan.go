package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"
)

// contest is what several systems do with the same parameters, one after the other in each round.
type contest struct {
	parameters string
	entries    []entry
}

// entry is a system and how it is measured: the figures come by metric.
type entry struct {
	system  string
	measure func(context.Context) (map[string]float64, error)
}

// plans make the contests of the workloads.
var plans = []struct {
	name     string
	contests func(*world) []contest
}{
	{"w1", (*world).w1}, {"w2", (*world).w2}, {"w3", (*world).w3}, {"w4", (*world).w4}, {"w5", (*world).w5},
	{"small", (*world).small}, {"web", (*world).web}, {"engine", (*world).engine},
	{"scale", (*world).scale},
}

func planNames() []string {
	var names []string
	for _, p := range plans {
		names = append(names, p.name)
	}
	return names
}

// measure runs the workloads of these names, all if there are none, and keeps the figures after each.
func (w *world) measure(ctx context.Context, r *results, names []string) error {
	for _, p := range plans {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		began := time.Now()
		load := loadAverage()
		figures, err := w.play(ctx, p.name, p.contests(w))
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		r.forget(p.name)
		r.figures = append(r.figures, figures...)
		r.notes[p.name] = fmt.Sprintf("%s, %d rounds%s, load average %s before and %s after", time.Now().UTC().Format("2006-01-02 15:04"),
			w.rounds, priority(), load, loadAverage())
		if err := r.write(w.tsv); err != nil {
			return err
		}
		log.Printf("%s: %.0f s", p.name, time.Since(began).Seconds())
	}
	return nil
}

func (w *world) play(ctx context.Context, workload string, contests []contest) (figures []figure, err error) {
	for round := 1; round <= w.rounds; round++ {
		for _, c := range contests {
			for _, e := range c.entries {
				if err := w.settle(); err != nil {
					return nil, err
				}
				values, err := e.measure(ctx)
				if errors.Is(err, errUnable) {
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", e.system, c.parameters, err)
				}
				for _, metric := range sortedKeys(values) {
					figures = append(figures, figure{subject{workload, e.system, c.parameters}, metric, round, values[metric]})
				}
			}
		}
		log.Printf("%s: round %d of %d", workload, round, w.rounds)
	}
	return figures, nil
}

// seconds is how long a part of a measurement goes on: less when it is to be quick.
func (w *world) seconds(full, quick float64) string {
	if w.quick {
		full = quick
	}
	return fmt.Sprint(full)
}

// script measures with a program of scripts/internal/peers in a new folder, whose path replaces DIR and READ in args. In a mount it
// is read through the other one.
func (w *world) script(system, name, place string, args ...string) entry {
	return entry{system, func(ctx context.Context) (map[string]float64, error) {
		dir := w.in(place + "/work")
		read := dir
		if place == "rw" {
			read = w.in("ro/work")
		}
		remove, err := w.fresh(dir)
		if err != nil {
			return nil, err
		}
		defer remove()
		args := slices.Clone(args)
		for i, a := range args {
			args[i] = strings.NewReplacer("READ", read, "DIR", dir).Replace(a)
		}
		return w.peer(ctx, name, args...)
	}}
}

// benchOf measures one set of parameters with storefs bench.
func (w *world) benchOf(system string, args ...string) entry {
	return entry{system, func(ctx context.Context) (map[string]float64, error) {
		all, err := w.bench(ctx, args...)
		values := map[string]float64{}
		for k, v := range all {
			values[k[1]] = v
		}
		return values, err
	}}
}

const (
	goPackage = "storefs, Go package"
	throughRW = "storefs, mount"
	throughRO = "storefs, ro + rw mount"
	plainFile = "plain files"
)

func (w *world) w1() (contests []contest) {
	ratios, keys := []string{"50:1", "1:1", "1:50"}, []int{5, 100, 10000}
	if w.quick {
		ratios = ratios[:1]
	}
	for _, ratio := range ratios {
		for _, k := range keys {
			n, seconds := fmt.Sprint(k), w.seconds(0.5, 0.4)
			ruby := func(system, as, place, read string) entry {
				return w.script(system, "w1.rb", place, as, "DIR", read, n, "10", ratio, seconds)
			}
			contests = append(contests, contest{fmt.Sprintf("keys=%d,ratio=%s", k, ratio), []entry{
				ruby("PStore", "pstore", "plain", "DIR"),
				ruby("PStore, read-only reads", "pstore-ro", "plain", "DIR"),
				ruby("SQLite", "sqlite", "plain", "DIR"),
				ruby(plainFile+", flock", "files", "plain", "DIR"),
				ruby(throughRW, "storefs", "rw", "DIR"),
				ruby(throughRO, "storefs", "rw", "READ"),
				w.benchOf(goPackage, "--workloads", "w1", "--keys", n, "--ratios", ratio, "--time", seconds+"s", w.in("engine")),
			}})
		}
	}
	return contests
}

func (w *world) w2() []contest {
	seconds := w.seconds(4, 1)
	perl := func(system, as, place string) entry {
		return w.script(system, "w2.pl", place, as, "DIR", "READ", "50000", "20000", seconds)
	}
	return []contest{{"bytes=10240", []entry{
		perl(plainFile+", flock, in place", "files", "plain"),
		perl("lock_store, lock_retrieve", "storable", "plain"),
		perl(throughRO, "storefs", "rw"),
		w.benchOf(goPackage, "--workloads", "w2", "--time", seconds+"s", w.in("engine")),
	}}}
}

func (w *world) w4() []contest {
	seconds := w.seconds(2, 0.7)
	perl := func(system, as, place string) entry {
		return w.script(system, "w4.pl", place, as, "DIR", "20000", seconds)
	}
	return []contest{{"names=128,writes=8192", []entry{
		perl("nothing: making the contents", "content", "plain"),
		perl("plain files, overwritten (torn)", "overwrite", "plain"),
		perl("plain files, new and renamed", "rename", "plain"),
		perl("storefs, overwritten", "overwrite", "rw"),
		perl("storefs, new and renamed", "rename", "rw"),
	}}, {"names=128,writes=1", []entry{
		w.benchOf(plainFile, "--workloads", "w4", "--time", seconds+"s", w.in("plain")),
		w.benchOf(throughRW, "--workloads", "w4", "--time", seconds+"s", w.in("rw")),
		w.benchOf(goPackage, "--workloads", "w4", "--time", seconds+"s", w.in("engine")),
	}}}
}

func (w *world) w5() (contests []contest) {
	pairs, seconds := []string{"100", "10000"}, w.seconds(0.6, 0.3)
	if w.quick {
		pairs = pairs[:1]
	}
	for _, n := range pairs {
		for _, bytes := range []string{"50", "500", "5000", "20000"} {
			perl := func(system, as, place string) entry {
				return w.script(system, "w5.pl", place, as, "DIR", "READ", n, bytes, seconds)
			}
			contests = append(contests, contest{fmt.Sprintf("bytes=%s,pairs=%s", bytes, n), []entry{
				perl("SDBM_File", "sdbm", "plain"),
				perl("MLDBM::Sync::SDBM_File", "msdbm", "plain"),
				perl("GDBM_File", "gdbm", "plain"),
				perl("DB_File", "dbfile", "plain"),
				perl("SQLite, opened each time", "sqlite", "plain"),
				perl("SQLite, held open", "sqlite-held", "plain"),
				perl(plainFile, "files", "plain"),
				perl(throughRW, "storefs", "rw"),
				w.benchOf(goPackage, "--workloads", "w5", "--sizes", bytes, "--pairs", n, "--time", seconds+"s", w.in("engine")),
			}})
		}
	}
	return contests
}

func (w *world) small() []contest {
	t := w.seconds(0.5, 0.2) + "s"
	bench := func(system string, args ...string) entry {
		return w.benchOf(system, append([]string{"--workloads", "small", "--time", t}, args...)...)
	}
	return []contest{{"bytes=1000", []entry{
		bench(plainFile, w.in("plain")),
		bench(throughRW, w.in("rw")),
		bench(throughRO, "--read-from", w.in("ro"), w.in("rw")),
		bench("go-fuse loopback", w.in("loop")),
		bench("bindfs", w.in("bind")),
		bench(goPackage, w.in("engine")),
	}}}
}
