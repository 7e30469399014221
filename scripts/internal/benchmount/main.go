// Command benchmount measures a store, and a mount of it, beside plain files of the same file system.
//
//	benchmount [-rounds N] STOREFS
//
// STOREFS is the binary to mount with. Rounds of the two sides alternate, so that what else the machine does meets both;
// printed are the medians of each side and the median of the rounds' ratios. Plain files are changed as careful programs
// do it: a new file, renamed over the old one.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// pair is one comparison: each side does n operations.
type pair struct {
	name         string
	n            int
	store, plain func(n int) error
}

func main() {
	rounds := flag.Int("rounds", 15, "rounds of each side")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: benchmount [-rounds N] STOREFS")
	}
	if err := run(flag.Arg(0), *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(binary string, rounds int) error {
	top, err := os.MkdirTemp("", "storefs-bench.")
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(top, name) }
	cleanUp := sync.OnceFunc(func() {
		for _, d := range []string{"rw", "ro"} {
			exec.Command(binary, "umount", in(d)).Run() // one that was not made says so to nobody
			os.Remove(in(d))
		}
		os.RemoveAll(in("kv"))
		os.RemoveAll(in("engine"))
		os.RemoveAll(in("plain"))
		os.Remove(top)
	})
	defer cleanUp()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		cleanUp()
		os.Exit(1)
	}()
	for _, d := range []string{"plain", "rw", "ro"} {
		if err := os.Mkdir(in(d), 0o755); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{in("kv"), in("rw")}, {"-o", "ro", in("kv"), in("ro")}} {
		cmd := exec.Command(binary, append([]string{"mount"}, args...)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
	}
	st, err := filestore.Open(in("engine"), &filestore.Options{Create: true, Sync: filestore.Never})
	if err != nil {
		return err
	}
	defer st.Close()
	pairs, err := comparisons(st, in("plain"), in("rw"), in("ro"))
	if err != nil {
		return err
	}
	fmt.Printf("%-42s %12s %12s %8s\n", "", "storefs", "plain", "ratio")
	for _, p := range pairs {
		if err := p.measure(rounds); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// comparisons makes what is to be read, and returns what is to be compared.
func comparisons(st backend.Store, plain, rw, ro string) ([]pair, error) {
	small, big := bytes.Repeat([]byte("v"), 100), bytes.Repeat([]byte("v"), 16<<10)
	for _, dir := range []string{plain, rw} {
		if err := os.Mkdir(filepath.Join(dir, "many"), 0o755); err != nil {
			return nil, err
		}
		for i := range 1000 {
			if err := os.WriteFile(filepath.Join(dir, "many", fmt.Sprint(i)), small, 0o644); err != nil {
				return nil, err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "k"), small, 0o644); err != nil {
			return nil, err
		}
	}
	key := func(dir string) string { return filepath.Join(dir, "k") }
	return []pair{
		{"engine: commit of 100 B, 1 000 keys", 300, commits(st, small), replaces(plain, small)},
		{"mount: overwrite 100 B", 300, overwrites(rw, small), replaces(plain, small)},
		{"mount: overwrite 16 KB", 300, overwrites(rw, big), replaces(plain, big)},
		{"mount: append 100 B (plain: in place)", 300, appends(rw, small), appends(plain, small)},
		{"mount: hot open, read, close", 2000, reads(key(rw)), reads(key(plain))},
		{"read-only mount: hot open, read, close", 2000, reads(key(ro)), reads(key(plain))},
		{"mount: hot stat", 5000, stats(key(rw)), stats(key(plain))},
		{"mount: open of a missing key", 2000, misses(rw), misses(plain)},
		{"mount: list 1 000 keys", 10, lists(rw), lists(plain)},
	}, nil
}

func (p pair) measure(rounds int) error {
	var store, plain, ratio []float64
	for round := range rounds + 1 {
		a, err := timed(p.n, p.store)
		if err != nil {
			return err
		}
		b, err := timed(p.n, p.plain)
		if err != nil {
			return err
		}
		if round > 0 { // the first one warms up
			store, plain, ratio = append(store, a), append(plain, b), append(ratio, a/b)
		}
	}
	fmt.Printf("%-42s %9.1f µs %9.1f µs %8.2f\n", p.name, median(store), median(plain), median(ratio))
	return nil
}

// timed returns microseconds for each of n operations.
func timed(n int, do func(int) error) (float64, error) {
	began := time.Now()
	err := do(n)
	return float64(time.Since(began).Nanoseconds()) / 1000 / float64(n), err
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

func commits(st backend.Store, value []byte) func(int) error {
	i := 0
	return func(n int) error {
		for range n {
			stage, err := st.NewStage()
			if err != nil {
				return err
			}
			if _, err := stage.WriteAt(value, 0); err != nil {
				return err
			}
			var b backend.Batch
			b.Put(backend.Ref{Dir: backend.RootIno, Name: fmt.Sprint(i % 1000)}, stage, &backend.Attr{Mode: 0o644}, backend.AttrChange{})
			i++
			_, err = st.Commit(context.Background(), &b)
			stage.Close()
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func replaces(dir string, value []byte) func(int) error {
	return func(n int) error {
		for i := range n {
			name := filepath.Join(dir, "many", fmt.Sprint(i%1000))
			if err := os.WriteFile(name+".new", value, 0o644); err != nil {
				return err
			}
			if err := os.Rename(name+".new", name); err != nil {
				return err
			}
		}
		return nil
	}
}

func overwrites(dir string, value []byte) func(int) error {
	return func(n int) error {
		for i := range n {
			if err := os.WriteFile(filepath.Join(dir, "many", fmt.Sprint(i%1000)), value, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

func appends(dir string, value []byte) func(int) error {
	return func(n int) error {
		for range n {
			f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
			if err != nil {
				return err
			}
			_, err = f.Write(value)
			if cerr := f.Close(); err != nil || cerr != nil {
				return fmt.Errorf("append: %v, close: %v", err, cerr)
			}
		}
		return nil
	}
}

func reads(name string) func(int) error {
	buf := make([]byte, 4096)
	return func(n int) error {
		for range n {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			_, err = f.Read(buf)
			f.Close()
			if err != nil && err != io.EOF {
				return err
			}
		}
		return nil
	}
}

func stats(name string) func(int) error {
	return func(n int) error {
		for range n {
			if _, err := os.Stat(name); err != nil {
				return err
			}
		}
		return nil
	}
}

func misses(dir string) func(int) error {
	return func(n int) error {
		for range n {
			if f, err := os.Open(filepath.Join(dir, "nothing")); err == nil {
				f.Close()
				return fmt.Errorf("there is something")
			}
		}
		return nil
	}
}

func lists(dir string) func(int) error {
	return func(n int) error {
		for range n {
			if _, err := os.ReadDir(filepath.Join(dir, "many")); err != nil {
				return err
			}
		}
		return nil
	}
}
