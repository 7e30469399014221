package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func some() *results {
	a, b := subject{"w2", "a", "n=1"}, subject{"w2", "b", "n=1"}
	return &results{notes: map[string]string{"w2": "at noon"}, figures: []figure{
		{a, "read_us", 1, 10}, {a, "read_us", 2, 20}, {a, "read_us", 3, 60},
		{b, "read_us", 1, 5}, {b, "read_us", 2, 40}, {b, "read_us", 3, 20},
		{a, "per_s", 1, 100}, {b, "per_s", 1, 300},
	}}
}

func TestResultsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tsv")
	want := some()
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("w1\ta\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(path); err == nil {
		t.Error("half a line was taken")
	}
	got.forget("w2")
	if len(got.figures) != 0 || len(got.notes) != 0 {
		t.Errorf("left: %+v", got)
	}
}

func TestRatios(t *testing.T) {
	r := some()
	a, b := r.figures[0].subject, r.figures[3].subject
	if v, ok := r.median(a, "read_us"); v != 20 || !ok {
		t.Errorf("median %v", v)
	}
	if v, ok := r.faster(b, a, "read_us", "read_us"); v != 2 || !ok { // 2, 0.5 and 3
		t.Errorf("b is %v times as fast", v)
	}
	if v, ok := r.faster(b, a, "per_s", "per_s"); v != 3 || !ok {
		t.Errorf("b does %v times as many", v)
	}
	if _, ok := r.faster(b, subject{"w2", "c", "n=1"}, "read_us", "read_us"); ok {
		t.Error("there is a ratio to nothing")
	}
}

func TestTable(t *testing.T) {
	d := &document{config: &config{}, r: some()}
	want := "| | n=1 |\n|---|---:|\n| a | 20.0 µs |\n| b | 20.0 µs (2.00) |\n"
	if got := d.table("w2", "", "read_us"); got != want {
		t.Errorf("got:\n%s", got)
	}
}

// Every target finds its figures under the names that the plan gives them.
func TestTargetsAreMeasured(t *testing.T) {
	w := &world{config: &config{rounds: 1}}
	r := &results{}
	for _, p := range plans {
		for _, c := range p.contests(w) {
			for _, e := range c.entries {
				for metric := range metricNames {
					r.figures = append(r.figures, figure{subject{p.name, e.system, c.parameters}, metric, 1, 1})
				}
			}
		}
	}
	for _, target := range targets() {
		if v, ok := target.find(r); !ok || v != 1 {
			t.Errorf("%s: %v, %v", target.text, v, ok)
		}
	}
}

func TestDocument(t *testing.T) {
	c := &config{out: t.TempDir()}
	if err := writeDocument(c, some()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(c.out, "performance.md"))
	if err != nil || !strings.Contains(string(b), "Measured at noon.") {
		t.Errorf("%v: %.200s", err, b)
	}
}
