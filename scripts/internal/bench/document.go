package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

//go:embed performance.md.tmpl
var templates embed.FS

// metricNames are the headings of tables.
var metricNames = map[string]string{
	"per_s": "a second", "read_us": "read", "write_us": "write", "update_us": "update", "insert_us": "insert", "open_us": "open, read one", "load_us": "load",
	"overwrite_us": "overwrite", "rename_us": "new and rename", "pair_us": "write and read", "disk_ratio": "bytes on disk / bytes of data",
	"read_any_us": "read any of 1 000", "missing_us": "open what is not there", "list_1000_us": "list 1 000", "write_read_us": "write, read",
	"new_us": "new key", "stat_us": "stat", "get_us": "get", "getpinned_us": "get, pinned", "put_us": "put", "putsync_us": "put, synced",
	"put1000_us": "put 1 000 at once", "scan1000_us": "scan 1 000",
}

// writeDocument writes performance.md and the plots that it shows.
func writeDocument(c *config, r *results) error {
	if err := os.MkdirAll(filepath.Join(c.out, "plots"), 0o755); err != nil {
		return err
	}
	d := &document{config: c, r: r}
	t, err := template.New("performance.md.tmpl").Funcs(template.FuncMap{
		"machine": machine, "note": d.note, "table": d.table, "figures": d.figures, "targets": d.targets, "bars": d.bars, "lines": d.lines,
	}).ParseFS(templates, "*.tmpl")
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.out, "performance.md"), []byte(b.String()), 0o644)
}

// document is what the template's functions work on.
type document struct {
	*config
	r *results
}

func (d *document) note(workload string) string {
	if n := d.r.notes[workload]; n != "" {
		return "Measured " + n + "."
	}
	return "Not measured yet."
}

// systems and parameters of a workload come in the order of the figures.
func (d *document) systems(workload string) []string {
	return d.distinct(workload, func(f figure) string { return f.system })
}

func (d *document) parameters(workload string) []string {
	return d.distinct(workload, func(f figure) string { return f.parameters })
}

func (d *document) distinct(workload string, of func(figure) string) (all []string) {
	for _, f := range d.r.figures {
		if f.workload == workload && !slices.Contains(all, of(f)) {
			all = append(all, of(f))
		}
	}
	return all
}

// holds says whether part is one of parameters, such as "keys=5" of "keys=5,ratio=1:1"; "" always is.
func holds(parameters, part string) bool {
	return part == "" || slices.Contains(strings.Split(parameters, ","), part)
}

// without returns parameters but for part.
func without(parameters, part string) string {
	all := slices.DeleteFunc(strings.Split(parameters, ","), func(p string) bool { return p == part })
	return strings.Join(all, ", ")
}

// table makes a table of one metric with a column for each set of parameters, or with several metrics a column for each, of the
// parameters that hold only. Behind each figure stands, in parentheses, how many times as good as that of the first system it is.
func (d *document) table(workload, only string, metrics ...string) string {
	return d.tabulate(workload, only, true, metrics)
}

// figures makes the same table without the ratios.
func (d *document) figures(workload, only string, metrics ...string) string {
	return d.tabulate(workload, only, false, metrics)
}

func (d *document) tabulate(workload, only string, ratios bool, metrics []string) string {
	type column struct{ head, parameters, metric string }
	var columns []column
	for _, p := range d.parameters(workload) {
		if !holds(p, only) {
			continue
		}
		for _, m := range metrics {
			head := metricNames[m]
			if len(metrics) == 1 {
				head = without(p, only)
			}
			columns = append(columns, column{head, p, m})
		}
	}
	if len(columns) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	systems := d.systems(workload)
	for _, s := range systems {
		row := ""
		found := false
		for _, c := range columns {
			reference := systems[0]
			if !ratios {
				reference = s
			}
			cell := d.cell(subject{workload, s, c.parameters}, subject{workload, reference, c.parameters}, c.metric)
			found = found || cell != ""
			row += " " + cell + " |"
		}
		if found {
			fmt.Fprintf(&b, "| %s |%s\n", s, row)
		}
	}
	return b.String()
}

func (d *document) cell(s, reference subject, metric string) string {
	v, ok := d.r.median(s, metric)
	if !ok {
		return ""
	}
	text := number(metric, v)
	if x, ok := d.r.faster(s, reference, metric, metric); ok && s != reference && metric != "disk_ratio" {
		text += " (" + short(x) + ")"
	}
	return text
}

// number writes a figure with its unit.
func number(metric string, v float64) string {
	if !strings.HasSuffix(metric, "_us") {
		return short(v)
	}
	if v >= 10000 {
		return short(v/1000) + " ms"
	}
	return short(v) + " µs"
}

// short writes a number with three digits, or two behind a point.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// targets makes the table of what was promised.
func (d *document) targets() string {
	var b strings.Builder
	b.WriteString("| | wanted | measured | |\n|---|---|---:|---|\n")
	for _, t := range targets() {
		v, ok := t.find(d.r)
		measured, verdict := "not yet", ""
		if ok {
			measured, verdict = short(v), "not met"
			if t.met(v) {
				verdict = "met"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.text, t.wanted(), measured, verdict)
	}
	return b.String()
}
