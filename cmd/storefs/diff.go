package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func newDiff() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff [--json] STORE A B",
		Short: "List the keys that differ between two snapshots",
		Long: `List the keys that are different in snapshot B from what they are in snapshot A; now is the newest generation. A line is a sign, a space
and the key: + it came, - it went, ~ it changed (its value was written, or its mode, owner, target or attributes are
others). Empty directories count, with a slash at the end.`,
		Args: argCount(3, 3),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			o := &filestore.Options{ReadOnly: true, Command: "storefs diff"}
			return withOpen(args[0], o, func(st *filestore.Store) error {
				a, err := openNamed(cmd.Context(), st, args[1])
				if err != nil {
					return err
				}
				defer a.Close()
				b, err := openNamed(cmd.Context(), st, args[2])
				if err != nil {
					return err
				}
				defer b.Close()
				d := differ{a: a, b: b, out: bufio.NewWriter(os.Stdout), json: asJSON, quote: isTerminal(os.Stdout)}
				if err := d.dirs("", backend.RootIno, backend.RootIno); err != nil {
					return err
				}
				return d.out.Flush()
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line: change, key")
	return cmd
}

type differ struct {
	a, b  backend.Snapshot
	out   *bufio.Writer
	json  bool
	quote bool
}

// dirs compares two directories, 0 for one that is not there.
func (d *differ) dirs(base string, a, b backend.Ino) error {
	left, stopLeft := iter.Pull2(list(d.a, a))
	defer stopLeft()
	right, stopRight := iter.Pull2(list(d.b, b))
	defer stopRight()
	l, lerr, lok := left()
	r, rerr, rok := right()
	for lok || rok {
		if err := cmp.Or(lerr, rerr); err != nil {
			return fmt.Errorf("directory %q: %w", pathKey(base), err)
		}
		var x, y *backend.Entry
		if lok && (!rok || l.Name <= r.Name) {
			e := l
			x = &e
		}
		if rok && (!lok || r.Name <= l.Name) {
			e := r
			y = &e
		}
		if err := d.entries(base, x, y); err != nil {
			return err
		}
		if x != nil {
			l, lerr, lok = left()
		}
		if y != nil {
			r, rerr, rok = right()
		}
	}
	return nil
}

// entries compares what stands at one path; nil is nothing.
func (d *differ) entries(base string, x, y *backend.Entry) error {
	path := base + cmp.Or(x, y).Name
	if x != nil && y != nil && x.Kind == backend.Dir && y.Kind == backend.Dir {
		if !sameAttr(x, y) {
			if err := d.line("changed", "~", path+"/"); err != nil {
				return err
			}
		}
		return d.dirs(path+"/", x.Ino, y.Ino)
	}
	if x != nil && y != nil && x.Kind != backend.Dir && y.Kind != backend.Dir {
		if x.Ino == y.Ino && x.Target == y.Target && sameAttr(x, y) {
			return nil
		}
		return d.line("changed", "~", path)
	}
	if err := d.one("removed", "-", d.a, path, x, func(i backend.Ino) error { return d.dirs(path+"/", i, 0) }); err != nil {
		return err
	}
	return d.one("added", "+", d.b, path, y, func(i backend.Ino) error { return d.dirs(path+"/", 0, i) })
}

// one writes what came or went.
func (d *differ) one(change, sign string, s backend.Snapshot, path string, e *backend.Entry, deeper func(backend.Ino) error) error {
	switch {
	case e == nil:
		return nil
	case e.Kind != backend.Dir:
		return d.line(change, sign, path)
	}
	for _, err := range s.List(e.Ino, "") {
		if err != nil {
			return err
		}
		return deeper(e.Ino)
	}
	return d.line(change, sign, path+"/")
}

func (d *differ) line(change, sign, path string) error {
	key, slash := path, ""
	if path[len(path)-1] == '/' {
		key, slash = path[:len(path)-1], "/"
	}
	key = pathKey(key) + slash
	if !d.json {
		_, err := io.WriteString(d.out, sign+" "+(&listing{quote: d.quote}).name(key)+"\n")
		return err
	}
	return json.NewEncoder(d.out).Encode(struct {
		Change string `json:"change"`
		jsonKey
	}{change, newJSONKey(key)})
}

// sameAttr says whether all but times are the same.
func sameAttr(x, y *backend.Entry) bool {
	return x.Mode == y.Mode && x.UID == y.UID && x.GID == y.GID && maps.Equal(x.Xattrs, y.Xattrs)
}

// list is s.List from the beginning; of directory 0 nothing.
func list(s backend.Snapshot, dir backend.Ino) iter.Seq2[backend.Entry, error] {
	if dir == 0 {
		return func(func(backend.Entry, error) bool) {}
	}
	return s.List(dir, "")
}
