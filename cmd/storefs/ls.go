package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// listing is how ls writes entries.
type listing struct {
	out   *bufio.Writer
	long  bool
	json  bool
	quote bool   // names that would upset a terminal
	end   string // after each entry
}

func newLs() *cobra.Command {
	var l listing
	var nul bool
	cmd := &cobra.Command{
		Use:   "ls [-l] [-0] [--json] STORE [PREFIX]",
		Short: "List keys",
		Long: `List the keys of STORE, or PREFIX itself and the keys below it, one a line, in the byte order of keys.
All are of one generation. Directories are listed with -l only, and only empty ones: their line ends in a slash.

With --json each line is an object: key (key_base64 too where the key is not UTF-8), kind (file, symlink, directory),
size, mode, uid, gid, mtime, revision, target.`,
		Args: argCount(1, 2),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) == 2 {
				prefix = args[1]
			}
			l.out, l.end = bufio.NewWriterSize(os.Stdout, 64<<10), "\n"
			if nul {
				l.end = "\x00"
			}
			l.quote = isTerminal(os.Stdout) && !nul
			return withSnapshot(cmd, args[0], func(s backend.Snapshot) error { return l.list(s, prefix) })
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&l.long, "long", "l", false, "mode, owner, group, size, time, key; empty directories too")
	f.BoolVarP(&nul, "null", "0", false, "a NUL byte after each key instead of a line end")
	f.BoolVar(&l.json, "json", false, "one JSON object a line")
	return cmd
}

func (l *listing) list(s backend.Snapshot, prefix string) error {
	e, path, err := findPrefix(s, prefix)
	if err != nil {
		return err
	}
	if e.Kind == backend.Dir {
		err = l.dir(s, e, path)
	} else {
		err = l.entry(e, path)
	}
	if err != nil {
		return err
	}
	return l.out.Flush()
}

// findPrefix returns what prefix names, with or without a slash at its end. The empty prefix is the root.
func findPrefix(s backend.Snapshot, prefix string) (e backend.Entry, path string, err error) {
	key := strings.TrimSuffix(prefix, "/")
	if key != "" || prefix == "/" {
		if path, err = keyPath(key); err != nil {
			return e, "", err
		}
	}
	if e, err = walk(s, path); err != nil {
		return e, "", keyError(key, err)
	}
	return e, path, nil
}

// dir lists what is below directory d, whose path is path, in the byte order of whole keys: a directory sorts as its
// name with a slash, so "a-b" stands before "a/x". Names come in order, so the directories that have to wait
// are those whose name is a prefix of a later one.
func (l *listing) dir(s backend.Snapshot, d backend.Entry, path string) error {
	base := ""
	if path != "" {
		base = path + "/"
	}
	var waiting []backend.Entry // each one's name begins with that of the one before it
	empty := true
	flush := func(before string) error {
		for len(waiting) > 0 {
			last := waiting[len(waiting)-1]
			if before != "" && last.Name+"/" > before {
				return nil
			}
			waiting = waiting[:len(waiting)-1]
			if err := l.dir(s, last, base+last.Name); err != nil {
				return err
			}
		}
		return nil
	}
	for e, err := range s.List(d.Ino, "") {
		if err != nil {
			return fmt.Errorf("directory %q: %w", path, err)
		}
		empty = false
		if err := flush(e.Name); err != nil {
			return err
		}
		if e.Kind == backend.Dir {
			waiting = append(waiting, e)
		} else if err := l.entry(e, base+e.Name); err != nil {
			return err
		}
	}
	if empty && l.long && path != "" {
		return l.entry(d, path)
	}
	return flush("")
}

// entry writes one entry.
func (l *listing) entry(e backend.Entry, path string) error {
	var text string
	key := pathKey(path)
	if e.Kind == backend.Dir {
		key += "/"
	}
	switch {
	case l.json:
		b, err := json.Marshal(describe(e, key))
		if err != nil {
			return keyError(key, err)
		}
		text = string(b)
	case l.long:
		text = fmt.Sprintf("%s %5d %5d %10d %s %s", modeString(e), e.UID, e.GID, e.Size,
			time.Unix(0, e.Mtime).Format("2006-01-02 15:04:05"), l.name(key))
		if e.Kind == backend.Symlink {
			text += " -> " + l.name(e.Target)
		}
	default:
		text = l.name(key)
	}
	_, err := io.WriteString(l.out, text+l.end)
	return err
}

func (l *listing) name(s string) string {
	if l.quote && !isPrintable(s) {
		return strconv.Quote(s)
	}
	return s
}

// jsonKey is a key in JSON, which cannot hold every byte.
type jsonKey struct {
	Key       string `json:"key"`
	KeyBase64 string `json:"key_base64,omitempty"` // where the key is not UTF-8
}

func newJSONKey(key string) jsonKey {
	j := jsonKey{Key: key}
	if !utf8.ValidString(key) {
		j.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(key))
	}
	return j
}

// entryJSON is an entry as --json shows it.
type entryJSON struct {
	jsonKey
	Kind     string `json:"kind"`
	Size     int64  `json:"size"`
	Mode     string `json:"mode"`
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	Mtime    string `json:"mtime"`
	Revision uint64 `json:"revision"`
	Target   string `json:"target,omitempty"`
}

func describe(e backend.Entry, key string) entryJSON {
	return entryJSON{
		jsonKey: newJSONKey(key), Kind: kindNames[e.Kind], Size: e.Size, Mode: fmt.Sprintf("%04o", e.Mode), UID: e.UID, GID: e.GID,
		Mtime: time.Unix(0, e.Mtime).UTC().Format(time.RFC3339Nano), Revision: uint64(e.Revision), Target: e.Target,
	}
}

var kindNames = map[backend.Kind]string{backend.File: "file", backend.Dir: "directory", backend.Symlink: "symlink"}

// modeString returns what ls(1) shows for the mode of e.
func modeString(e backend.Entry) string {
	kind := map[backend.Kind]byte{backend.File: '-', backend.Dir: 'd', backend.Symlink: 'l'}[e.Kind]
	b := append([]byte{kind}, "rwxrwxrwx"...)
	for i := range 9 {
		if e.Mode&(0o400>>i) == 0 {
			b[1+i] = '-'
		}
	}
	for _, special := range []struct {
		bit           uint32
		at            int
		with, without byte
	}{{0o4000, 3, 's', 'S'}, {0o2000, 6, 's', 'S'}, {0o1000, 9, 't', 'T'}} {
		if e.Mode&special.bit == 0 {
			continue
		}
		if b[special.at] == 'x' {
			b[special.at] = special.with
		} else {
			b[special.at] = special.without
		}
	}
	return string(b)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
