// Package bench measures a directory, or a store through the Go package, with the workloads of the programs that storefs
// descends from. All that is written is checked when it is read: a figure of a place that loses something is worth nothing.
//
//	w1     XPStore: processes that read keys and add one to others, each key a counter
//	w2     Storable: one page of HTML, written and read again and again
//	w3     DirectoryStorage: what reading, updating, adding and removing cost as the number of keys grows
//	w4     Movable Type: 128 names, up to 64 KiB, overwritten, and made anew and renamed
//	w5     MLDBM::Sync: pairs of a write and a read of a new key
//	small  values of 1 000 bytes: what one operation costs
package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options say what is measured. Zero values are replaced by what the field's comment says.
type Options struct {
	Workloads []string      // all
	Limit     time.Duration // how long each part of a workload goes on at most; 1 s
	Procs     int           // of w1; 10
	Ratios    []Ratio       // of w1; 50:1, 1:1, 1:50
	Keys      []int         // of w1; 5, 100
	Growth    []int         // of w3; 100, 1 000, 10 000
	Keep      bool          // leave the keys of w3 where they are, and use those that are there
	Pairs     int           // of w5; 1 000
	Sizes     []int         // of w5; 50, 500, 5 000, 20 000
}

// Ratio is how many reads there are for how many writes.
type Ratio struct{ Reads, Writes int }

func (r Ratio) String() string { return fmt.Sprintf("%d:%d", r.Reads, r.Writes) }

// Row is one figure. The unit is the end of the metric's name.
type Row struct {
	Workload   string  `json:"workload"`
	Parameters string  `json:"parameters"` // such as "keys=5,procs=10"
	Metric     string  `json:"metric"`
	Value      float64 `json:"value"`
}

// Result is what was measured, and what went wrong.
type Result struct {
	Target string `json:"target"`
	Kind   Kind   `json:"kind"`
	Rows   []Row  `json:"rows"`
	Lost   int    `json:"lost"`  // increments that were reported done and are not there
	Wrong  int    `json:"wrong"` // values that are not what was written
}

// run is one run of some workloads at one place.
type run struct {
	Options
	spec   Spec
	place  place
	result *Result
}

var workloads = []struct {
	name string
	run  func(*run, context.Context) error
}{{"w1", (*run).w1}, {"w2", (*run).w2}, {"w3", (*run).w3}, {"w4", (*run).w4}, {"w5", (*run).w5}, {"small", (*run).small}}

// Names lists the workloads.
func Names() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// Run measures at the place that s describes, in a directory of its own there that is gone afterwards.
func Run(ctx context.Context, s Spec, o Options) (result *Result, err error) {
	o.setDefaults()
	s.Under = ownName()
	p, err := s.open()
	if err != nil {
		return nil, err
	}
	defer func() {
		if rerr := p.remove(); err == nil {
			err = rerr
		}
		if cerr := p.close(); err == nil {
			err = cerr
		}
	}()
	r := &run{Options: o, spec: s, place: p, result: &Result{Target: s.Path, Kind: s.Kind}}
	for _, w := range workloads {
		if !slices.Contains(o.Workloads, w.name) {
			continue
		}
		if err := w.run(r, ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return r.result, nil
}

func (o *Options) setDefaults() {
	if len(o.Workloads) == 0 {
		o.Workloads = Names()
	}
	if o.Limit == 0 {
		o.Limit = time.Second
	}
	if o.Procs == 0 {
		o.Procs = 10
	}
	if len(o.Ratios) == 0 {
		o.Ratios = []Ratio{{50, 1}, {1, 1}, {1, 50}}
	}
	if len(o.Keys) == 0 {
		o.Keys = []int{5, 100}
	}
	if len(o.Growth) == 0 {
		o.Growth = []int{100, 1000, 10000}
	}
	if o.Pairs == 0 {
		o.Pairs = 1000
	}
	if len(o.Sizes) == 0 {
		o.Sizes = []int{50, 500, 5000, 20000}
	}
}

// emit adds a figure.
func (r *run) emit(workload, parameters, metric string, value float64) {
	r.result.Rows = append(r.result.Rows, Row{workload, parameters, metric, value})
}

// timed does fn up to n times, as long as the time goes, and adds the mean of what it took, in microseconds.
func (r *run) timed(ctx context.Context, workload, parameters, metric string, n int, fn func(i int) error) (done int, err error) {
	began := time.Now()
	for done < n && (done == 0 || time.Since(began) < r.Limit) {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		if err := fn(done); err != nil {
			return done, fmt.Errorf("%s: %w", strings.TrimSuffix(metric, "_us"), err)
		}
		done++
	}
	r.emit(workload, parameters, metric, float64(time.Since(began).Nanoseconds())/1000/float64(done))
	return done, nil
}

// check counts a value that is not what was written.
func (r *run) check(ok bool) {
	if !ok {
		r.result.Wrong++
	}
}
