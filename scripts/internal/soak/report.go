package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// report counts what is done and what was found.
type report struct {
	s     *site
	begun time.Time

	mu         sync.Mutex
	operations map[string]int
	faults     map[string]int
	checked    map[string]int
	violations int

	first, last usage // of the first mount's daemon, which nothing bad happens to
}

// usage is what a daemon takes.
type usage struct {
	resident    int64
	descriptors int
}

func newReport(s *site) *report {
	return &report{s: s, begun: time.Now(), operations: map[string]int{}, faults: map[string]int{}, checked: map[string]int{}}
}

func (r *report) count(m map[string]int, what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m[what] += n
}

func (r *report) did(what string) { r.count(r.operations, what, 1) }

func (r *report) fault(what string) { r.count(r.faults, what, 1) }

func (r *report) verified(what string, n int) { r.count(r.checked, what, n) }

// violation tells of something wrong, at once.
func (r *report) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.violations++; r.violations <= 20 {
		fmt.Fprintf(os.Stderr, "soak: violation after %v: %s\n", time.Since(r.begun).Round(time.Millisecond), fmt.Sprintf(format, args...))
	}
}

// everyMinute prints until the time is over.
func (r *report) everyMinute(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	warm := time.After(20 * time.Second)
	for {
		select {
		case <-ctx.Done():
			r.look()
			return
		case <-warm:
			r.look()
		case <-tick.C:
			r.look()
			r.print(time.Since(r.begun).Round(time.Second).String())
		}
	}
}

// look notes what the first mount's daemon takes.
func (r *report) look() {
	resident, descriptors, err := r.s.mounts[0].daemon.Usage()
	if err != nil {
		r.violation("daemon of the first mount: %v", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = usage{resident, descriptors}
	if r.first == (usage{}) {
		r.first = r.last
	}
}

func (r *report) print(when string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("%s: %d violations\n", when, r.violations)
	fmt.Printf("  operations:  %s\n", list(r.operations))
	fmt.Printf("  faults:      %s\n", list(r.faults))
	fmt.Printf("  checked:     %s\n", list(r.checked))
	fmt.Printf("  the daemon:  %d MiB resident, was %d; %d descriptors, was %d\n",
		r.last.resident>>20, r.first.resident>>20, r.last.descriptors, r.first.descriptors)
}

func list(m map[string]int) string {
	var all []string
	total := 0
	for what, n := range m {
		all = append(all, fmt.Sprintf("%d %s", n, what))
		total += n
	}
	slices.Sort(all)
	return fmt.Sprintf("%d: %s", total, strings.Join(all, ", "))
}

// A daemon that takes more than this beyond what it took in the beginning leaks.
const (
	moreMemory      = 64 << 20
	moreDescriptors = 100
)

func (r *report) verdict() error {
	if r.last.resident > r.first.resident+moreMemory || r.last.descriptors > r.first.descriptors+moreDescriptors {
		return errors.New("the daemon grows")
	}
	if r.violations > 0 {
		return fmt.Errorf("%d violations", r.violations)
	}
	return nil
}
