package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// subject is what figures belong to: a system at work.
type subject struct{ workload, system, parameters string }

// figure is the value of a metric in one round.
type figure struct {
	subject
	metric string
	round  int
	value  float64
}

// results are all figures, and notes that say how the workloads were run.
type results struct {
	figures []figure
	notes   map[string]string // by workload
}

// readResults reads what an earlier run has written; nothing if there is none.
//
//	workload <TAB> system <TAB> parameters <TAB> round <TAB> metric <TAB> value
//	# workload <TAB> note
func readResults(path string) (*results, error) {
	r := &results{notes: map[string]string{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if workload, note, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "# "), "\t"); ok && lines.Text()[0] == '#' {
			r.notes[workload] = note
			continue
		}
		f, err := parseFigure(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r.figures = append(r.figures, f)
	}
	return r, lines.Err()
}

func parseFigure(line string) (f figure, err error) {
	part := strings.Split(line, "\t")
	if len(part) != 6 {
		return f, fmt.Errorf("%q: not six columns", line)
	}
	f.subject, f.metric = subject{part[0], part[1], part[2]}, part[4]
	if f.round, err = strconv.Atoi(part[3]); err != nil {
		return f, fmt.Errorf("%q: %w", line, err)
	}
	if f.value, err = strconv.ParseFloat(part[5], 64); err != nil {
		return f, fmt.Errorf("%q: %w", line, err)
	}
	return f, nil
}

func (r *results) write(path string) error {
	var b strings.Builder
	for _, w := range sortedKeys(r.notes) {
		fmt.Fprintf(&b, "# %s\t%s\n", w, r.notes[w])
	}
	for _, f := range r.figures {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%d\t%s\t%.6g\n", f.workload, f.system, f.parameters, f.round, f.metric, f.value)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// forget drops what was measured of a workload.
func (r *results) forget(workload string) {
	r.figures = slices.DeleteFunc(r.figures, func(f figure) bool { return f.workload == workload })
	delete(r.notes, workload)
}

// values returns the figures of a metric by round.
func (r *results) values(s subject, metric string) map[int]float64 {
	v := map[int]float64{}
	for _, f := range r.figures {
		if f.subject == s && f.metric == metric {
			v[f.round] = f.value
		}
	}
	return v
}

// median returns the median over the rounds; false if there are no figures.
func (r *results) median(s subject, metric string) (float64, bool) {
	var all []float64
	for _, v := range r.values(s, metric) {
		all = append(all, v)
	}
	return median(all), len(all) > 0
}

// faster returns how many times as fast as b a is: the median of the rounds' ratios.
func (r *results) faster(a, b subject, metricA, metricB string) (float64, bool) {
	va, vb := r.values(a, metricA), r.values(b, metricB)
	var all []float64
	for round, x := range va {
		if y, ok := vb[round]; ok {
			all = append(all, ratio(metricA, x, y))
		}
	}
	return median(all), len(all) > 0
}

// ratio says how many times as good as y x is: metrics in _us are times, all others rates.
func ratio(metric string, x, y float64) float64 {
	if strings.HasSuffix(metric, "_us") || strings.HasSuffix(metric, "_ratio") {
		return y / x
	}
	return x / y
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	var keys []K
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
