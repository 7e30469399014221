// Command soak puts all kinds of load on a store at once while all kinds of things go wrong, for as long as it is told, and verifies
// everything that it sees:
//
//	soak [-size BYTES] [-seed N] STOREFS DURATION
//
// Several processes make histories, which are checked for linearizability. Others keep a record of what was acknowledged to them, fill the disk, empty it
// again, and compare. Meanwhile daemons are stopped, killed, unmounted and mounted, clients and commands are killed, the index is compacted, snapshots come
// and go, and the store is checked. Every minute, and at the end, it prints what was done and found; it ends with status 1 if
// anything was wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/history"
)

// roleEnv makes a process a client of a history, which its argument describes.
const roleEnv = "STOREFS_SOAK_ROLE"

func main() {
	if os.Getenv(roleEnv) != "" {
		exit(history.Play(os.Args[1]))
	}
	size := flag.Int64("size", 256<<20, "of the disk, a tmpfs, if run by root")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of what happens when")
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	d, err := time.ParseDuration(flag.Arg(1))
	if err != nil {
		exit(err)
	}
	exit(soak(flag.Arg(0), d, *size, *seed))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// soak returns an error if anything was wrong.
func soak(binary string, d time.Duration, size int64, seed uint64) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	s, err := newSite(binary, size)
	if err != nil {
		return err
	}
	defer s.remove()
	fmt.Printf("soak: %v with seed %d on %s\n", d, seed, s.disk)
	r := newReport(s)
	var loads sync.WaitGroup
	run := func(f func(context.Context, *site, *report, uint64)) {
		seed++
		n := seed
		loads.Go(func() { f(ctx, s, r, n) })
	}
	run(histories)
	run(keepers)
	run(makeMishaps)
	run(upkeep)
	r.everyMinute(ctx)
	loads.Wait()
	s.end(r)
	r.print("at the end")
	return r.verdict()
}
