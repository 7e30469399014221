package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// job is what a process of w1 does.
type job struct {
	Spec     Spec
	Seed     uint64
	Keys     int
	Ratio    Ratio
	Accesses int
	Limit    time.Duration
}

// report is what it has done. Times are of the clock that all processes share, in nanoseconds.
type report struct {
	Began, Ended  int64
	Reads, Writes int
	Wrong         int
	Error         string
}

// accesses is how many a process of w1 makes at most.
const accesses = 3000

func (r *run) w1(ctx context.Context) error {
	for _, keys := range r.Keys {
		for i := range keys {
			if err := r.place.write(keyName(i), counter(0)); err != nil {
				return err
			}
		}
		for _, ratio := range r.Ratios {
			if err := r.accesses(ctx, keys, ratio); err != nil {
				return err
			}
		}
	}
	return nil
}

// accesses lets all processes read and count at the same time, and looks whether all increments are there.
func (r *run) accesses(ctx context.Context, keys int, ratio Ratio) error {
	before, err := r.total(keys)
	if err != nil {
		return err
	}
	reports, err := r.atOnce(ctx, job{Spec: r.spec, Keys: keys, Ratio: ratio, Accesses: accesses, Limit: r.Limit})
	if err != nil {
		return err
	}
	first, last := reports[0].Began, reports[0].Ended
	reads, writes := 0, 0
	for _, p := range reports {
		first, last = min(first, p.Began), max(last, p.Ended)
		reads, writes = reads+p.Reads, writes+p.Writes
		r.result.Wrong += p.Wrong
	}
	after, err := r.total(keys)
	if err != nil {
		return err
	}
	lost := before + writes - after
	r.result.Lost += max(lost, -lost)
	parameters := fmt.Sprintf("keys=%d,procs=%d,ratio=%v", keys, r.Procs, ratio)
	r.emit("w1", parameters, "per_s", float64(reads+writes)/(float64(last-first)/1e9))
	r.emit("w1", parameters, "lost", float64(lost))
	return nil
}

// total is the sum of all counters.
func (r *run) total(keys int) (sum int, err error) {
	buf := make([]byte, 2*counterSize)
	for i := range keys {
		value, err := r.place.read(keyName(i), buf)
		if err != nil {
			return 0, err
		}
		n, err := parseCounter(value)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", keyName(i), err)
		}
		sum += n
	}
	return sum, nil
}

// atOnce runs a job in several processes, which begin when the last of them is ready.
func (r *run) atOnce(ctx context.Context, j job) ([]report, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	procs := make([]*process, r.Procs)
	defer func() {
		stop()
		for _, p := range procs {
			if p != nil {
				p.cmd.Wait()
			}
		}
	}()
	for i := range procs {
		j.Seed = uint64(i)
		if procs[i], err = start(ctx, exe, j); err != nil {
			return nil, err
		}
	}
	for _, p := range procs {
		if _, err := p.out.ReadString('\n'); err != nil {
			return nil, fmt.Errorf("process: %w", err)
		}
	}
	for _, p := range procs {
		p.in.Close()
	}
	reports := make([]report, len(procs))
	for i, p := range procs {
		if err := json.NewDecoder(p.out).Decode(&reports[i]); err != nil {
			return nil, fmt.Errorf("process: %w", err)
		}
		if e := reports[i].Error; e != "" {
			return nil, errors.New(e)
		}
	}
	return reports, nil
}

// process is one of several that work at the same time.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser // closed, it begins
	out *bufio.Reader
}

// WorkerCommand is the command line, after the program's name, of a process that calls Work.
const WorkerCommand = "bench-worker"

func start(ctx context.Context, exe string, j job) (*process, error) {
	cmd := exec.CommandContext(ctx, exe, WorkerCommand)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, in, bufio.NewReader(out)}
	return p, json.NewEncoder(in).Encode(j)
}

// Work does the job that it reads from in, after the end of in, and writes the report to out.
func Work(in io.Reader, out io.Writer) error {
	var j job
	d := json.NewDecoder(in)
	if err := d.Decode(&j); err != nil {
		return err
	}
	p, err := j.Spec.open()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	io.Copy(io.Discard, io.MultiReader(d.Buffered(), in))
	r, err := j.work(p)
	if cerr := p.close(); err == nil {
		err = cerr
	}
	if err != nil {
		r.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(r)
}

func (j *job) work(p place) (r report, err error) {
	rng := rand.New(rand.NewPCG(j.Seed, 1))
	buf := make([]byte, 2*counterSize)
	r.Began = now()
	for range j.Accesses {
		if time.Duration(now()-r.Began) >= j.Limit {
			break
		}
		key := keyName(rng.IntN(j.Keys))
		if rng.IntN(j.Ratio.Reads+j.Ratio.Writes) >= j.Ratio.Reads {
			if err := p.increment(key); err != nil {
				return r, fmt.Errorf("increment of %s: %w", key, err)
			}
			r.Writes++
			continue
		}
		value, err := p.read(key, buf)
		if err != nil {
			return r, fmt.Errorf("read of %s: %w", key, err)
		}
		if _, err := parseCounter(value); err != nil {
			r.Wrong++
		}
		r.Reads++
	}
	r.Ended = now()
	return r, nil
}

// now is the time since the machine was started.
func now() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
