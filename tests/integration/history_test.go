package integration

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/history"
)

func init() {
	roles["history"] = func(args []string) error { return history.Play(args[0]) }
}

// deadMount are the errors of programs that use a mount whose daemon is killed.
var deadMount = []error{unix.ENOTCONN, unix.ECONNABORTED}

// What clients on three mounts and the command line do to the same keys could have been done by one after another, whoever is stopped or
// killed meanwhile.
func TestHistoriesAreLinearizable(t *testing.T) {
	times, ops := 2, 120
	if testing.Short() {
		times, ops = 1, 60
	}
	if long {
		times, ops = 100, 300
	}
	for _, c := range []struct {
		name    string
		disturb func(w *world, run *history.Run, r *rand.Rand)
		allowed []error
	}{
		{"undisturbed", nil, nil},
		{"daemons stopped", stopDaemon, nil},
		{"clients killed", killClient, nil},
		{"daemons killed", killDaemonOf, deadMount},
		{"everything", everything, deadMount},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range times {
				t.Run(itoa(i), func(t *testing.T) { makeHistory(t, uint64(i), ops, c.disturb, c.allowed) })
			}
		})
	}
}

func makeHistory(t *testing.T, seed uint64, ops int, disturb func(*world, *history.Run, *rand.Rand), allowed []error) {
	w := newWorld(t)
	mounts := []string{w.mount(), w.mount("sync=never"), w.mount("strict")}
	must(t, os.Mkdir(filepath.Join(mounts[0], history.Folder), 0o755))
	run := &history.Run{
		Client:  history.Client{Binary: binary, Store: w.store, Mounts: mounts, Seed: 100 * seed, Ops: ops},
		Clients: 5, Dir: w.dir,
		Command: func(client string) *exec.Cmd {
			cmd := exec.Command(os.Args[0], client)
			cmd.Env = append(w.env, "STOREFS_TEST_ROLE=history")
			return cmd
		},
	}
	must(t, run.Start())
	if disturb != nil {
		r := seeded(seed)
		for range 6 {
			time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond) // they are to have done something
			disturb(w, run, r)
		}
	}
	all, err := run.Finish(disturb != nil)
	must(t, err)
	all = append(all, run.Client.Look()...)
	for _, bad := range history.Failures(all, allowed...) {
		t.Error(bad)
	}
	v := history.Check(all, time.Minute)
	t.Logf("%d operations, linearizable: %v", len(all), v.Legal)
	if !v.Legal {
		t.Errorf("unknown: %v: %s", v.Unknown, v.Why)
	}
	for _, m := range mounts {
		w.must("umount", w.run(binary, "umount", m))
	}
	w.must("sync", w.run(binary, "sync", w.store)) // removes what the dead left in tmp/
}

func stopDaemon(w *world, _ *history.Run, r *rand.Rand) {
	d := w.mounts[r.IntN(len(w.mounts))]
	d.kill(unix.SIGSTOP)
	time.Sleep(time.Duration(100+r.IntN(200)) * time.Millisecond)
	d.kill(unix.SIGCONT)
}

func killClient(w *world, run *history.Run, r *rand.Rand) {
	must(w.t, run.Kill(r.IntN(run.Clients)))
}

func killDaemonOf(w *world, _ *history.Run, r *rand.Rand) {
	i := r.IntN(len(w.mounts))
	w.mounts[i].kill(unix.SIGKILL)
	w.mountAgain(i)
}

func everything(w *world, run *history.Run, r *rand.Rand) {
	[]func(*world, *history.Run, *rand.Rand){stopDaemon, killClient, killDaemonOf}[r.IntN(3)](w, run, r)
}
