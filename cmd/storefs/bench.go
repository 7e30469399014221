package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
	"github.com/storefs/storefs/cmd/storefs/bench"
)

func newBench() *cobra.Command {
	var o bench.Options
	var asJSON bool
	var readFrom, sync, seconds string
	var ratios []string
	cmd := &cobra.Command{
		Use:   "bench [FLAGS] STORE_OR_DIR",
		Short: "Measure a store, a mount or a plain directory",
		Long: `Run the workloads of the programs that storefs descends from: on a STORE through the Go package, on a directory, which may be
one of a mount, through files. They use a directory of their own there, which is gone afterwards. Everything is checked: the status is 1
if an increment was lost or a value was not what was written.

  w1     processes that read and increment counters (XPStore)
  w2     one page of HTML, written and read (Storable)
  w3     reading, updating, adding as the number of keys grows (DirectoryStorage)
  w4     128 names, overwritten, and made anew and renamed (Movable Type)
  w5     pairs of a write and a read of a new key (MLDBM::Sync)
  small  single operations on values of 1 000 bytes

--json writes one object: target, kind (store, mount or directory), rows (workload, parameters, metric, value), lost, wrong.`,
		Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			spec, err := benchSpec(args[0], readFrom, sync)
			if err == nil {
				err = benchOptions(&o, seconds, ratios)
			}
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			r, err := bench.Run(ctx, spec, o)
			if err != nil {
				return withPath(args[0], err)
			}
			return showBench(os.Stdout, r, asJSON)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "write one JSON object")
	f.StringSliceVar(&o.Workloads, "workloads", bench.Names(), "which")
	f.StringVar(&seconds, "time", "1s", "how long each part of a workload goes on at most")
	f.StringVar(&readFrom, "read-from", "", "read from `DIR`, another mount of the same store")
	f.StringVar(&sync, "sync", "interval", "sync mode of a store: always, interval, never")
	f.IntVar(&o.Procs, "procs", 10, "processes of w1")
	f.StringSliceVar(&ratios, "ratios", []string{"50:1", "1:1", "1:50"}, "reads to writes of w1")
	f.IntSliceVar(&o.Keys, "keys", []int{5, 100}, "keys of w1")
	f.IntSliceVar(&o.Growth, "growth", []int{100, 1000, 10000}, "keys of w3")
	f.BoolVar(&o.Keep, "keep", false, "leave the keys of w3 there, for the next time")
	f.IntVar(&o.Pairs, "pairs", 1000, "pairs of w5")
	f.IntSliceVar(&o.Sizes, "sizes", []int{50, 500, 5000, 20000}, "sizes of w5 in bytes")
	return cmd
}

// benchSpec finds out what there is at path.
func benchSpec(path, readFrom, sync string) (bench.Spec, error) {
	s := bench.Spec{Kind: bench.Directory, Path: path, ReadFrom: readFrom}
	var o mountOptions
	if err := o.setSync(sync); err != nil {
		return s, usagef("--sync %s: %w", sync, err)
	}
	s.Sync = o.sync
	for _, dir := range []string{path, readFrom} {
		if info, err := os.Stat(dir); dir != "" && err != nil {
			return s, withPath(dir, pathError(err))
		} else if dir != "" && !info.IsDir() {
			return s, withPath(dir, backend.ErrNotDir)
		}
	}
	if _, ok := mountOf(path); ok {
		s.Kind = bench.Mount
		return s, nil
	}
	st, err := filestore.Open(path, &filestore.Options{ReadOnly: true})
	switch {
	case err == nil:
		s.Kind = bench.Store
		return s, st.Close()
	case errors.Is(err, backend.ErrFormat), errors.Is(err, fs.ErrNotExist): // no store in it
		return s, nil
	}
	return s, openError(path, err)
}

func benchOptions(o *bench.Options, seconds string, ratios []string) (err error) {
	if o.Limit, err = time.ParseDuration(seconds); err != nil || o.Limit <= 0 {
		return usagef("--time %s: not a time such as 500ms or 2s", seconds)
	}
	for _, w := range o.Workloads {
		if !strings.Contains(" "+strings.Join(bench.Names(), " ")+" ", " "+w+" ") {
			return usagef("--workloads %s: no such workload (there are %s)", w, strings.Join(bench.Names(), ", "))
		}
	}
	for _, text := range ratios {
		a, b, ok := strings.Cut(text, ":")
		reads, err1 := strconv.Atoi(a)
		writes, err2 := strconv.Atoi(b)
		if !ok || err1 != nil || err2 != nil || reads < 0 || writes < 0 || reads+writes == 0 {
			return usagef("--ratios %s: not reads:writes, such as 50:1", text)
		}
		o.Ratios = append(o.Ratios, bench.Ratio{Reads: reads, Writes: writes})
	}
	for _, n := range append(append(append([]int{o.Procs, o.Pairs}, o.Keys...), o.Growth...), o.Sizes...) {
		if n <= 0 {
			return usagef("%d: numbers of processes, pairs, keys and bytes are greater than 0", n)
		}
	}
	return nil
}

func showBench(out io.Writer, r *bench.Result, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	} else if err := benchTable(out, r); err != nil {
		return err
	}
	if r.Lost > 0 || r.Wrong > 0 {
		return fmt.Errorf("%s: %d increments lost, %d values wrong", r.Target, r.Lost, r.Wrong)
	}
	return nil
}

func benchTable(out io.Writer, r *bench.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t(%s)\n", r.Target, r.Kind)
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.4g\n", row.Workload, row.Parameters, row.Metric, row.Value)
	}
	return w.Flush()
}

// newBenchWorker is what bench starts several of.
func newBenchWorker() *cobra.Command {
	return &cobra.Command{
		Use:    bench.WorkerCommand,
		Hidden: true,
		Args:   argCount(0, 0),
		RunE:   operation(func(*cobra.Command, []string) error { return bench.Work(os.Stdin, os.Stdout) }),
	}
}
