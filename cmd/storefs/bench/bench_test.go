package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/storefs/storefs/backend/filestore"
)

// TestMain makes the test's binary one that w1 can start.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == WorkerCommand {
		if err := Work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func quick() Options {
	return Options{Limit: 20 * time.Millisecond, Procs: 3, Keys: []int{2}, Growth: []int{30}, Pairs: 20, Sizes: []int{50, 5000}}
}

func newStore(t *testing.T) Spec {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kv")
	st, err := filestore.Open(dir, &filestore.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return Spec{Kind: Store, Path: dir, Sync: filestore.Never}
}

// Every workload runs at every kind of place, finds everything as it was written and leaves nothing.
func TestWorkloads(t *testing.T) {
	for _, s := range []Spec{newStore(t), {Kind: Directory, Path: t.TempDir()}} {
		t.Run(string(s.Kind), func(t *testing.T) {
			r, err := Run(context.Background(), s, quick())
			if err != nil {
				t.Fatal(err)
			}
			if r.Lost != 0 || r.Wrong != 0 {
				t.Errorf("%d lost, %d wrong", r.Lost, r.Wrong)
			}
			seen := map[string]bool{}
			for _, row := range r.Rows {
				seen[row.Workload] = true
				if row.Metric != "lost" && row.Metric != "disk_ratio" && row.Value <= 0 {
					t.Errorf("%v", row)
				}
			}
			for _, w := range Names() {
				if !seen[w] {
					t.Errorf("no figure of %s", w)
				}
			}
			p, err := s.in("").open()
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			if n, err := p.list(); n != 0 || err != nil {
				t.Errorf("left: %d, %v", n, err)
			}
		})
	}
}

// Increments that are not where the counters are read are lost.
func TestLostIncrements(t *testing.T) {
	s := Spec{Kind: Directory, Path: t.TempDir(), ReadFrom: t.TempDir(), Under: "x"}
	p, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := os.MkdirAll(filepath.Join(s.ReadFrom, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.ReadFrom, "x", keyName(0)), counter(0), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &run{Options: quick(), spec: s, place: p, result: &Result{}}
	r.Keys, r.Ratios = []int{1}, []Ratio{{0, 1}}
	if err := r.w1(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r.result.Lost == 0 {
		t.Error("nobody noticed")
	}
}

// A value that another program changes is wrong.
func TestWrongValues(t *testing.T) {
	s := Spec{Kind: Directory, Path: t.TempDir(), Under: "x"}
	p, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	r := &run{Options: quick(), spec: s, place: &scribbler{p}, result: &Result{}}
	if err := r.w2(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r.result.Wrong == 0 {
		t.Error("nobody noticed")
	}
}

// scribbler writes something else than it is given.
type scribbler struct{ place }

func (s *scribbler) write(key string, value []byte) error {
	value = append([]byte{}, value...)
	value[len(value)/2]++
	return s.place.write(key, value)
}

func TestCounter(t *testing.T) {
	b := counter(99)
	if err := addOne(b); err != nil || string(b) != string(counter(100)) {
		t.Errorf("%s, %v", b, err)
	}
	for name, b := range map[string][]byte{"empty": nil, "cut": counter(7)[:60], "long": append(counter(7), '1'), "no digits": make([]byte, counterSize)} {
		if _, err := parseCounter(b); err == nil {
			t.Errorf("%s: %q is a counter", name, b)
		}
	}
}
