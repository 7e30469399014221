package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// roundTripBudgets count requests that somebody waits for, in .storefs/stats of a mount.
var roundTripBudgets = []budget{
	{"open, read, close: name and data cached", 1, "", trips("rw", nil, func(m mounts) error { return readKey(m.rw) })},
	{"the same on a read-only mount", 0, "", trips("ro", nil, func(m mounts) error { return readKey(m.ro) })},
	{"the same after this mount changed the key", 3, "", trips("rw", func(m mounts) error { return overwrite(m.rw+"/k", 0) }, func(m mounts) error { return readKey(m.rw) })},
	{"the same after another process changed it", 5, "", trips("rw", func(m mounts) error { return overwrite(m.other+"/k", 0) }, func(m mounts) error { return readKey(m.rw) })},
	{"stat, cached", 0, "", trips("rw", func(m mounts) error { return stat(m.rw + "/k") }, func(m mounts) error { return stat(m.rw + "/k") })},
	{"open of a missing key", 1, "", trips("rw", nil, func(m mounts) error {
		if _, err := os.Open(m.rw + "/missing"); err == nil {
			return fmt.Errorf("there is one")
		}
		return nil
	})},
	{"overwrite: open(O_TRUNC), write, close", 4, "", trips("rw", nil, func(m mounts) error { return overwrite(m.rw+"/k", 0) })},
	{"the same with noxattr", 3, "", trips("other", nil, func(m mounts) error { return overwrite(m.other+"/k", 0) })},
	{"the same of a new key", 4, "", trips("rw", func(m mounts) error { os.Remove(m.rw + "/new"); return nil }, func(m mounts) error { return overwrite(m.rw+"/new", unix.O_CREAT) })},
	{"ls of 300 keys", 12, "", trips("rw", nil, func(m mounts) error {
		names, err := os.ReadDir(m.rw + "/many")
		if err == nil && len(names) != 300 {
			err = fmt.Errorf("%d names", len(names))
		}
		return err
	})},
}

// mounts are three of one store; other has noxattr.
type mounts struct{ rw, ro, other string }

func (m mounts) named(name string) string {
	return map[string]string{"rw": m.rw, "ro": m.ro, "other": m.other}[name]
}

// trips returns what counts the requests at one of the mounts that action costs after prepare: the fewest of five times, because a
// notification of the one before may still be on its way.
func trips(at string, prepare, action func(mounts) error) func(*world) (float64, error) {
	return func(w *world) (least float64, err error) {
		m, err := w.countingMounts()
		if err != nil {
			return 0, err
		}
		for try := range 5 {
			if err := readKey(m.named(at)); err != nil {
				return 0, err
			}
			if prepare != nil {
				if err := prepare(m); err != nil {
					return 0, err
				}
			}
			n, err := count(m.named(at), func() error { return action(m) })
			if err != nil {
				return 0, err
			}
			if try == 0 || n < least {
				least = n
			}
		}
		return least, nil
	}
}

// countingMounts mounts the store a third time, when it is first called, and makes what is read.
func (w *world) countingMounts() (mounts, error) {
	m := mounts{w.in("rw"), w.in("ro"), w.in("other")}
	if _, err := os.Stat(m.other); err == nil {
		return m, nil
	}
	if err := os.Mkdir(m.other, 0o755); err != nil {
		return m, err
	}
	if err := w.mount("kv", "other", "noxattr,sync=never"); err != nil {
		return m, err
	}
	if err := overwrite(m.rw+"/k", unix.O_CREAT); err != nil {
		return m, err
	}
	if err := os.Mkdir(m.rw+"/many", 0o755); err != nil {
		return m, err
	}
	for i := range 300 {
		if err := overwrite(fmt.Sprintf("%s/many/%d", m.rw, i), unix.O_CREAT); err != nil {
			return m, err
		}
	}
	return m, nil
}

// count returns how many requests action makes. Reading the counters costs as well: that is measured and taken off.
func count(mount string, action func() error) (float64, error) {
	var at [3]float64
	var err error
	for i := range at {
		if i == 2 {
			if err := action(); err != nil {
				return 0, err
			}
		}
		if at[i], err = requests(mount); err != nil {
			return 0, err
		}
	}
	return at[2] - at[1] - (at[1] - at[0]), nil
}

// requests is the number of all requests that somebody waited for.
func requests(mount string) (sum float64, err error) {
	text, err := os.ReadFile(mount + "/.storefs/stats")
	for line := range strings.Lines(string(text)) {
		var op string
		var n float64
		if _, err := fmt.Sscanf(line, "storefs_fuse_requests_total{op=%q} %g", &op, &n); err != nil {
			continue
		}
		if op != "forget" && op != "release" && op != "releasedir" {
			sum += n
		}
	}
	return sum, err
}

func readKey(mount string) error {
	fd, err := unix.Open(mount+"/k", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	var b [64]byte
	_, err = unix.Read(fd, b[:])
	unix.Close(fd)
	return err
}

func overwrite(path string, flags int) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_TRUNC|flags, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = unix.Write(fd, []byte("value"))
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return err
}

func stat(path string) error {
	var st unix.Stat_t
	return unix.Stat(path, &st)
}
