package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// engineBudgets are ratios to what runs beside, unless there is a unit.
var engineBudgets = []budget{
	{"commit of 100 B among 1 000 keys, beside a new file renamed", 1.0 / 6, "", commitBesideRename},
	{"the same among 1 000 000 keys, beside among 1 000", 1.5, "", commitAmongMany},
	{"get from a pinned snapshot of 1 000 000 keys", 3, "µs", getPinned},
	{"open a store of 1 000 000 keys and get one: a process, beside one that does nothing", 10, "ms", openCold},
	{"memory of a mount of 1 000 000 keys of 1 KB after ls -R and drop_caches", 200, "MB", memoryOfMount},
	{"bytes on disk after compaction, values of 500 B", 1.2, "", bytesOnDisk(500)},
	{"bytes on disk after compaction, values of 5 000 B", 1.2, "", bytesOnDisk(5000)},
	{"time of a value of 1 GiB in and out through the mount, beside the disk", 1 / 0.7, "", bigValue},
	{"memory of the mount's process meanwhile, at its highest", 100, "MB", peakOfMount},
}

const million = 1000000

// many is a million; less when it is to be quick.
func (w *world) many() int {
	if w.quick {
		return million / 10
	}
	return million
}

var newFile = &backend.Attr{Mode: 0o644}

func key(i int) backend.Ref { return backend.Ref{Dir: backend.RootIno, Name: fmt.Sprintf("k%08d", i)} }

// filled makes a store of n keys with values of size bytes, if it is not there, and opens it.
func (w *world) filled(n, size int) (*filestore.Store, error) {
	dir := w.in(fmt.Sprintf("filled-%d-%d", n, size))
	_, missing := os.Stat(dir)
	st, err := filestore.Open(dir, &filestore.Options{Create: true, Sync: filestore.Never})
	if err != nil || missing == nil {
		return st, err
	}
	if err := fill(st, n, size); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

func fill(st *filestore.Store, n, size int) error {
	const perCommit = 1000
	for i := 0; i < n; i += perCommit {
		if err := put(st, i, min(n, i+perCommit), size); err != nil {
			return err
		}
	}
	return nil
}

// put commits the keys first to end-1.
func put(st *filestore.Store, first, end, size int) error {
	var b backend.Batch
	for i := first; i < end; i++ {
		stage, err := st.NewStage()
		if err != nil {
			return err
		}
		defer stage.Close()
		if _, err := stage.WriteAt(bytes.Repeat([]byte{byte(i)}, size), 0); err != nil {
			return err
		}
		b.Put(key(i), stage, newFile, backend.AttrChange{})
	}
	_, err := st.Commit(context.Background(), &b)
	return err
}

// beside returns the median of the ratios of what a and b take, in turns.
func beside(rounds int, a, b func() error) (float64, error) {
	var ratios []float64
	for round := range rounds + 1 {
		x, err := clock(a)
		if err != nil {
			return 0, err
		}
		y, err := clock(b)
		if err != nil {
			return 0, err
		}
		if round > 0 { // the first warms up
			ratios = append(ratios, x.Seconds()/y.Seconds())
		}
	}
	return median(ratios), nil
}

func clock(fn func() error) (time.Duration, error) {
	began := time.Now()
	err := fn()
	return time.Since(began), err
}

// commits commits 300 values, one by one, among n keys.
func commits(st *filestore.Store, n int) func() error {
	i := 0
	return func() error {
		for range 300 {
			i += 7919
			if err := put(st, i%n, i%n+1, 100); err != nil {
				return err
			}
		}
		return nil
	}
}

func commitBesideRename(w *world) (float64, error) {
	st, err := w.filled(1000, 100)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	dir := w.in("plain/renamed")
	remove, err := w.fresh(dir)
	if err != nil {
		return 0, err
	}
	defer remove()
	i := 0
	renames := func() error {
		for range 300 {
			i++
			name := filepath.Join(dir, fmt.Sprint(i%1000))
			if err := os.WriteFile(name+".new", make([]byte, 100), 0o644); err != nil {
				return err
			}
			if err := os.Rename(name+".new", name); err != nil {
				return err
			}
		}
		return nil
	}
	return beside(11, commits(st, 1000), renames)
}

func commitAmongMany(w *world) (float64, error) {
	few, err := w.filled(1000, 100)
	if err != nil {
		return 0, err
	}
	defer few.Close()
	many, err := w.filled(w.many(), 100)
	if err != nil {
		return 0, err
	}
	defer many.Close()
	return beside(11, commits(many, w.many()), commits(few, 1000))
}

func getPinned(w *world) (float64, error) {
	st, err := w.filled(w.many(), 100)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	s, err := st.Snapshot(context.Background())
	if err != nil {
		return 0, err
	}
	defer s.Close()
	i, n := 0, w.many()
	gets := func() error {
		for range 20000 {
			i += 7919
			if _, err := s.Lookup(key(i % n)); err != nil {
				return err
			}
		}
		return nil
	}
	var all []float64
	for range 5 {
		d, err := clock(gets)
		if err != nil {
			return 0, err
		}
		all = append(all, d.Seconds()*1e6/20000)
	}
	return median(all), nil
}

func openCold(w *world) (float64, error) {
	n := w.many()
	st, err := w.filled(n, 100)
	if err != nil {
		return 0, err
	}
	if err := st.Close(); err != nil {
		return 0, err
	}
	var all []float64
	for i := range 11 {
		with, err := clock(exec.Command(w.storefs, "get", w.in(fmt.Sprintf("filled-%d-100", n)), key(i).Name).Run)
		if err != nil {
			return 0, err
		}
		without, err := clock(exec.Command(w.storefs, "version").Run)
		if err != nil {
			return 0, err
		}
		all = append(all, (with-without).Seconds()*1000)
	}
	return median(all), nil
}

// withMount mounts a store and calls fn with the mountpoint and the daemon's process id.
func (w *world) withMount(store string, fn func(at, pid string) (float64, error)) (v float64, err error) {
	if err := w.mount(store, "grown", "sync=never"); err != nil {
		return 0, err
	}
	defer func() {
		if uerr := w.umount(); err == nil {
			err = uerr
		}
	}()
	stats, err := os.ReadFile(w.in("grown/.storefs/stats"))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`storefs_process_pid (\d+)`).FindSubmatch(stats)
	if m == nil {
		return 0, errors.New("no process id in .storefs/stats")
	}
	return fn(w.in("grown"), string(m[1]))
}

// memory returns a line of /proc/PID/status in MB.
func memory(pid, line string) (float64, error) {
	kb, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/"+pid+"/status", `(?m)^`+line+`:\s*(\d+) kB`), " kB"), 64)
	return kb / 1000, err
}

func memoryOfMount(w *world) (float64, error) {
	st, err := w.filled(w.many(), 1000)
	if err != nil {
		return 0, err
	}
	if err := st.Close(); err != nil {
		return 0, err
	}
	return w.withMount(fmt.Sprintf("filled-%d-1000", w.many()), func(at, pid string) (float64, error) {
		ls := exec.Command("ls", "-lR", at)
		if err := ls.Run(); err != nil {
			return 0, err
		}
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0); err != nil {
			return 0, fmt.Errorf("drop_caches: %w", err)
		}
		return settled(pid)
	})
}

// settled returns the memory of a process when it no longer shrinks: forgetting takes a while.
func settled(pid string) (float64, error) {
	least, err := memory(pid, "VmRSS")
	for lower := time.Now(); err == nil && time.Since(lower) < 10*time.Second; time.Sleep(time.Second) {
		now, merr := memory(pid, "VmRSS")
		if err = merr; now < least {
			least, lower = now, time.Now()
		}
	}
	return least, err
}

// bytesOnDisk writes values, half of them twice, and compacts.
func bytesOnDisk(size int) func(*world) (float64, error) {
	return func(w *world) (float64, error) {
		const n = 20000
		name := fmt.Sprintf("compacted-%d", size)
		if err := w.newStore(name); err != nil {
			return 0, err
		}
		st, err := filestore.Open(w.in(name), &filestore.Options{Sync: filestore.Never})
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(w.in(name))
		defer st.Close()
		for _, part := range []int{n, n / 2} {
			if err := fill(st, part, size); err != nil {
				return 0, err
			}
		}
		if err := st.Compact(context.Background()); err != nil {
			return 0, err
		}
		i, err := st.Info()
		return float64(i.DiskBytes) / (n * float64(size)), err
	}
}

// bigBytes is the length of the big value.
func (w *world) bigBytes() int64 {
	if w.quick {
		return 64 << 20
	}
	return 1 << 30
}

func bigValue(w *world) (float64, error) {
	return beside(3, func() error { return w.inAndOut(w.in("rw")) }, func() error { return w.inAndOut(w.in("plain")) })
}

// inAndOut writes a big value and reads it.
func (w *world) inAndOut(dir string) error {
	path, chunk := filepath.Join(dir, "big"), make([]byte, 1<<20)
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	for n := int64(0); n < w.bigBytes(); n += int64(len(chunk)) {
		if _, err := f.Write(chunk); err != nil {
			f.Close()
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if f, err = os.Open(path); err != nil {
		return err
	}
	defer f.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, chunk)
	if err == nil && n != w.bigBytes() {
		err = fmt.Errorf("read %d bytes", n)
	}
	return err
}

func peakOfMount(w *world) (float64, error) {
	if err := w.newStore("big"); err != nil {
		return 0, err
	}
	return w.withMount("big", func(at, pid string) (float64, error) {
		if err := w.inAndOut(at); err != nil {
			return 0, err
		}
		return memory(pid, "VmHWM")
	})
}
