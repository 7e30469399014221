package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// engine runs the Go benchmarks of the folder of that name, one system at a time.
func (w *world) engine() []contest {
	entries := []entry{}
	for _, s := range []struct{ system, as string }{
		{goPackage, "storefs"}, {"bbolt", "bbolt"}, {"SQLite in Go", "sqlite"}, {plainFile, "files"},
	} {
		entries = append(entries, entry{s.system, func(ctx context.Context) (map[string]float64, error) { return w.benchmarks(ctx, s.as) }})
	}
	return []contest{{"keys=100000,bytes=100", entries}}
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\w+)/system=\S+\s+\d+\s+([0-9.]+) ns/op`)

func (w *world) benchmarks(ctx context.Context, system string) (map[string]float64, error) {
	binary := w.in("engine.test")
	if _, err := os.Stat(binary); err != nil {
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./engine")
		build.Dir = w.root + "/scripts/internal/bench"
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go test -c: %w: %s", err, out)
		}
	}
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", "/^system="+system+"$", "-test.benchtime", w.seconds(0.5, 0.2)+"s")
	cmd.Env = append(os.Environ(), "TMPDIR="+w.in("tmp"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	values := map[string]float64{}
	for _, m := range benchmarkLine.FindAllStringSubmatch(string(out), -1) {
		ns, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		values[strings.ToLower(m[1])+"_us"] = ns / 1000
	}
	return values, nil
}
