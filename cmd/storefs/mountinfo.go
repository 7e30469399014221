package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fsType is what the kernel calls a storefs mount.
const fsType = "fuse.storefs"

// mountEntry is a line of /proc/self/mountinfo.
type mountEntry struct {
	device string // major:minor
	point  string // absolute, without symbolic links
	fsType string
	source string // of a storefs mount: the store's path
}

// parseMountinfo reads lines as proc_pid_mountinfo(5) describes them; what is no such line is left out.
func parseMountinfo(text string) []mountEntry {
	var out []mountEntry
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		head, tail := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(head) < 6 || len(tail) < 2 {
			continue
		}
		out = append(out, mountEntry{device: head[2], point: unescapeMountinfo(head[4]), fsType: tail[0], source: unescapeMountinfo(tail[1])})
	}
	return out
}

// unescapeMountinfo undoes the kernel's \ooo for space, tab, line end and backslash.
func unescapeMountinfo(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountAt returns what is mounted exactly at the resolved path: the last mounted, which is the one seen.
func mountAt(path string) (mountEntry, bool) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return mountEntry{}, false
	}
	var found mountEntry
	for _, m := range parseMountinfo(string(text)) {
		if m.point == path {
			found = m
		}
	}
	return found, found.point != ""
}

// mountOf returns the storefs mount that path is in.
func mountOf(path string) (mountEntry, bool) {
	path, err := resolve(path)
	for err == nil {
		if m, ok := mountAt(path); ok {
			return m, m.fsType == fsType
		}
		if path == "/" {
			break
		}
		path = filepath.Dir(path)
	}
	return mountEntry{}, false
}

// resolve returns the absolute path without symbolic links, without asking anything of what is mounted at the
// path itself: that may be a mount whose daemon is dead. What does not exist is kept as written.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for range 40 { // as many links as the kernel follows
		if path == "/" {
			return path, nil
		}
		parent, err := filepath.EvalSymlinks(filepath.Dir(path))
		if errors.Is(err, os.ErrNotExist) {
			parent, err = resolve(filepath.Dir(path))
		}
		if err != nil {
			return "", err
		}
		path = filepath.Join(parent, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link, or nothing there, or nothing that answers
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(parent, target)
		}
		path = filepath.Clean(target)
	}
	return "", &os.PathError{Op: "resolve", Path: path, Err: unix.ELOOP}
}

// inside says whether path is dir or below it; both resolved.
func inside(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
