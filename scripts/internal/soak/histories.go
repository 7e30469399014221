package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/history"
)

// crowd is the history that is being made, for who kills its clients.
type crowd struct {
	mu  sync.Mutex
	run *history.Run // nil between two histories
}

// expected are the errors of programs on a full disk, and of those that use a mount whose daemon is killed.
var expected = []error{unix.ENOSPC, unix.ENOTCONN, unix.ECONNABORTED}

// histories makes one history after another, and checks each while the next is made.
func histories(ctx context.Context, s *site, r *report, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	var checks sync.WaitGroup
	defer checks.Wait()
	logs := filepath.Join(s.dir, "logs")
	for n := 0; ctx.Err() == nil; n++ {
		all, err := s.history(ctx, logs, n, rnd)
		if err != nil {
			r.violation("history %d: %v", n, err)
			return
		}
		for _, o := range all {
			r.did("by clients: " + string(o.Op.Verb))
		}
		for _, bad := range history.Failures(all, expected...) {
			r.violation("history %d: %s", n, bad)
		}
		checks.Wait()
		checks.Go(func() {
			switch v := history.Check(all, time.Minute); {
			case v.Legal:
				r.verified("histories", 1)
				r.verified("operations in them", len(all))
			case v.Unknown:
				r.verified("histories without a result within a minute", 1)
			default:
				r.violation("history %d is not linearizable: %s", n, v.Why)
			}
		})
	}
}

// history makes a history of some seconds and returns it.
func (s *site) history(ctx context.Context, logs string, n int, rnd *rand.Rand) ([]history.Record, error) {
	folder := filepath.Join(s.mounts[0].dir, history.Folder)
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(logs); err != nil {
		return nil, err
	}
	if err := os.Mkdir(logs, 0o755); err != nil {
		return nil, err
	}
	run := &history.Run{
		Client:  history.Client{Name: fmt.Sprintf("r%d", n), Binary: s.binary, Store: s.store, Seed: rnd.Uint64(), Ops: 1 << 30},
		Clients: 5, Dir: logs,
		Command: func(client string) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe", client)
			cmd.Env = append(os.Environ(), roleEnv+"=1")
			return cmd
		},
	}
	for _, m := range s.mounts {
		run.Client.Mounts = append(run.Client.Mounts, m.dir)
	}
	if err := run.Start(); err != nil {
		return nil, err
	}
	s.crowd.mu.Lock()
	s.crowd.run = run
	s.crowd.mu.Unlock()
	pause(ctx, time.Duration(5+rnd.IntN(8))*time.Second)
	s.crowd.mu.Lock()
	s.crowd.run = nil
	s.crowd.mu.Unlock()
	all, err := run.Finish(true)
	if err != nil {
		return nil, err
	}
	first := run.Client
	first.Mounts = first.Mounts[:1] // the others may be dead just now
	return append(all, first.Look()...), s.forgetSnapshots(fmt.Sprintf("r%d", n))
}

// forgetSnapshots removes the snapshots that killed clients have left.
func (s *site) forgetSnapshots(prefix string) error {
	out, err := s.command(nil, "snapshot", "ls", s.store)
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); strings.HasPrefix(name, prefix+"c") && err == nil {
			_, err = s.command(nil, "snapshot", "rm", s.store, name)
		}
	}
	return err
}

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
