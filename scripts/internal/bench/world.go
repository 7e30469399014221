package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend/filestore"
)

// world is a folder with everything that is measured in it: plain files, a store for the Go package, and mounts.
type world struct {
	*config
	top     string
	mounts  []string // to be unmounted, in the order they were made
	daemons []*exec.Cmd
}

func newWorld(c *config) (*world, error) {
	top, err := os.MkdirTemp("", "storefs-bench.")
	if err != nil {
		return nil, err
	}
	w := &world{config: c, top: top}
	if err := w.make(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// in returns the path of something in the world.
func (w *world) in(name string) string { return filepath.Join(w.top, name) }

func (w *world) make() error {
	for _, d := range []string{"plain", "rw", "ro", "grown", "loop.src", "loop", "bind.src", "bind", "tmp"} {
		if err := os.Mkdir(w.in(d), 0o755); err != nil {
			return err
		}
	}
	if err := w.mount("kv", "rw", "sync=never"); err != nil {
		return err
	}
	if err := w.mount("kv", "ro", "ro"); err != nil {
		return err
	}
	if err := w.newStore("engine"); err != nil {
		return err
	}
	return w.mountPeers()
}

// newStore makes a store that is not mounted.
func (w *world) newStore(name string) error {
	st, err := filestore.Open(w.in(name), &filestore.Options{Create: true, Sync: filestore.Never})
	if err != nil {
		return err
	}
	return st.Close()
}

func (w *world) mount(store, at, options string) error {
	if out, err := exec.Command(w.storefs, "mount", "-o", options, w.in(store), w.in(at)).CombinedOutput(); err != nil {
		return fmt.Errorf("storefs mount: %w: %s", err, out)
	}
	w.mounts = append(w.mounts, w.in(at))
	return nil
}

// umount unmounts what was mounted last.
func (w *world) umount() error {
	at := w.mounts[len(w.mounts)-1]
	w.mounts = w.mounts[:len(w.mounts)-1]
	return unmount(at)
}

// unmount waits until nobody uses the mount any more. One that is not there is no error: its daemon was told to end.
func unmount(at string) error {
	for try := 0; ; try++ {
		err := unix.Unmount(at, 0)
		if err == unix.EPERM { // not root
			err = exec.Command("fusermount3", "-u", at).Run()
		}
		if err == nil || err == unix.EINVAL {
			return nil
		}
		if try == 50 {
			return fmt.Errorf("umount %s: %w", at, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// mountPeers mounts go-fuse's loopback example and bindfs on folders of plain files.
func (w *world) mountPeers() error {
	loop := exec.Command(w.loop, w.in("loop"), w.in("loop.src"))
	if err := loop.Start(); err != nil {
		return err
	}
	w.daemons = append(w.daemons, loop)
	if err := w.mounted("loop"); err != nil {
		return err
	}
	if out, err := exec.Command("bindfs", w.in("bind.src"), w.in("bind")).CombinedOutput(); err != nil {
		return fmt.Errorf("bindfs: %w: %s", err, out)
	}
	return w.mounted("bind")
}

// mounted waits until something is mounted there.
func (w *world) mounted(at string) error {
	for range 100 {
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		if strings.Contains(string(table), " "+w.in(at)+" ") {
			w.mounts = append(w.mounts, w.in(at))
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s: nothing was mounted", at)
}

func (w *world) close() {
	for len(w.mounts) > 0 {
		if err := w.umount(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
			return // and remove nothing of what is mounted
		}
	}
	for _, d := range w.daemons {
		d.Wait()
	}
	os.RemoveAll(w.top)
}

// settle writes to disk what was measured before, so that it is not paid by what comes next.
func (w *world) settle() error {
	f, err := os.Open(w.top)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// fresh makes an empty folder at path, which the caller removes.
func (w *world) fresh(path string) (remove func(), err error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return func() { os.RemoveAll(path) }, nil
}

// errUnable is returned for what a system cannot do.
var errUnable = errors.New("cannot do this")

// peer runs a program of scripts/internal/peers, and returns what it prints.
func (w *world) peer(ctx context.Context, script string, args ...string) (map[string]float64, error) {
	ctx, stop := context.WithTimeout(ctx, 30*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, filepath.Join(w.root, "scripts/internal/peers", script), args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // with the processes that it has made
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 4 {
		return nil, errUnable
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s%s", script, strings.Join(args, " "), err, out, stderr.String())
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		var metric string
		var value float64
		if _, err := fmt.Sscanf(line, "%s\t%g", &metric, &value); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", script, line, err)
		}
		values[metric] = value
	}
	return values, nil
}

// bench runs storefs bench, and returns the figures by parameters and metric.
func (w *world) bench(ctx context.Context, args ...string) (map[[2]string]float64, error) {
	cmd := exec.CommandContext(ctx, w.storefs, append([]string{"bench", "--json", "--sync", "never"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("storefs bench %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	var r struct {
		Rows []struct {
			Parameters, Metric string
			Value              float64
		}
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("storefs bench: %w", err)
	}
	values := map[[2]string]float64{}
	for _, row := range r.Rows {
		values[[2]string{row.Parameters, row.Metric}] = row.Value
	}
	return values, nil
}
