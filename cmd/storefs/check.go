package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func newInfo() *cobra.Command {
	return &cobra.Command{
		Use:   "info STORE",
		Short: "Say what is in a store and what it takes on disk",
		Args:  argCount(1, 1),
		RunE: operation(func(_ *cobra.Command, args []string) error {
			o := &filestore.Options{ReadOnly: true, Command: "storefs info"}
			return withOpen(args[0], o, func(st *filestore.Store) error { return info(st, os.Stdout) })
		}),
	}
}

func info(st *filestore.Store, out io.Writer) error {
	i, err := st.Info()
	if err != nil {
		return err
	}
	last := "never"
	if i.Generation > 0 {
		last = i.LastCommit.Format(time.RFC3339)
	}
	_, err = fmt.Fprintf(out, `store        %s
format       %d
generation   %d
last-commit  %s
keys         %d
directories  %d
bytes        %d
disk-bytes   %d
disk-files   %d
tables       %d
volumes      %d
`, i.Path, i.Format, i.Generation, last, i.Files, i.Dirs, i.Bytes, i.DiskBytes, i.DiskFiles, i.Tables, i.Volumes)
	return err
}

func newCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [--json] STORE",
		Short: "Read everything and name all damage",
		Long: `Read all of the newest generation, compare it with its checksums, and write a line for everything that is wrong: the file,
the byte in it, what is wrong. Exit status 1 if there is damage. Changes nothing; the store may be in use.`,
		Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error { return check(cmd, args[0], asJSON, os.Stdout) }),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// report is what check --json writes.
type report struct {
	Store       string   `json:"store"`
	Generation  uint64   `json:"generation"`
	Keys        uint64   `json:"keys"`
	Directories uint64   `json:"directories"`
	Bytes       uint64   `json:"bytes"`
	Damage      []damage `json:"damage"`
}

type damage struct {
	Path   string `json:"path,omitempty"`
	Offset *int64 `json:"offset,omitempty"`
	Reason string `json:"reason"`
}

func check(cmd *cobra.Command, dir string, asJSON bool, out io.Writer) error {
	if dir == "" {
		return errors.New("the name of the store is empty")
	}
	r := report{Store: dir, Damage: []damage{}}
	var outErr error
	result, err := filestore.Check(cmd.Context(), dir, func(err error) {
		r.Damage = append(r.Damage, describeDamage(err))
		if !asJSON && outErr == nil {
			_, outErr = fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	})
	if err != nil {
		return openError(dir, err)
	}
	r.Generation, r.Keys, r.Directories, r.Bytes = uint64(result.Generation), result.Files, result.Dirs, result.Bytes
	switch {
	case asJSON:
		outErr = json.NewEncoder(out).Encode(r)
	case len(r.Damage) == 0:
		_, outErr = fmt.Fprintf(out, "%s: sound: generation %d, %d keys in %d directories, %d bytes\n", dir, r.Generation, r.Keys, r.Directories, r.Bytes)
	}
	if outErr != nil {
		return outErr
	}
	if n := len(r.Damage); n > 0 {
		return fmt.Errorf("%s: %w: %d found", dir, backend.ErrCorrupt, n)
	}
	return nil
}

func describeDamage(err error) damage {
	var c *backend.CorruptError
	if errors.As(err, &c) {
		return damage{Path: c.Path, Offset: &c.Offset, Reason: c.Reason}
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return damage{Path: p.Path, Reason: err.Error()}
	}
	return damage{Reason: err.Error()}
}
