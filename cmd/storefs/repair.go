package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func newRepair() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "repair [--json] SRC DST",
		Short: "Make a new store of everything that is whole in a damaged one",
		Long: `Make a new store in DST, a folder that is missing or empty, of everything that is whole in the store SRC, its snapshots too, and write
a line for everything that is not: what became of it, which key it is, where it stood, what is wrong there. SRC is not changed.
Exit status 0 if nothing is lost; 1 if something is, or the repair failed (then there is no store in DST).`,
		Args: argCount(2, 2),
		RunE: operation(func(cmd *cobra.Command, args []string) error { return repair(cmd, args[0], args[1], asJSON, os.Stdout) }),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// repairJSON is what repair --json writes.
type repairJSON struct {
	Source      string     `json:"source"`
	Destination string     `json:"destination"`
	Generation  uint64     `json:"generation"`
	Keys        uint64     `json:"keys"`
	Directories uint64     `json:"directories"`
	Bytes       uint64     `json:"bytes"`
	Snapshots   int        `json:"snapshots"`
	Losses      []lossJSON `json:"losses"`
}

type lossJSON struct {
	Kind       filestore.LossKind `json:"kind"`
	Generation uint64             `json:"generation,omitempty"`
	findingJSON
}

func repair(cmd *cobra.Command, src, dst string, asJSON bool, out io.Writer) error {
	if err := mustBeApart(src, dst); err != nil {
		return err
	}
	said := newProgress("saved")
	var outErr error
	losses := []lossJSON{}
	r, err := filestore.Repair(cmd.Context(), src, dst, &filestore.RepairOptions{Progress: said.add, Report: func(l filestore.Loss) {
		l.Finding = asKeys(l.Finding)
		if losses = append(losses, lossJSON{l.Kind, uint64(l.Generation), newFindingJSON(l.Finding)}); !asJSON && outErr == nil {
			said.hide()
			_, outErr = fmt.Fprintln(out, oneLine(l.String()))
		}
	}})
	said.end()
	switch {
	case errors.Is(err, backend.ErrNotEmpty):
		return hinted(fmt.Errorf("%s: is not empty", dst), "the new store needs a folder of its own")
	case err != nil:
		return openError(src, err)
	case asJSON:
		outErr = json.NewEncoder(out).Encode(repairJSON{src, dst, uint64(r.Generation), r.Files, r.Dirs, r.Bytes, r.Snapshots, losses})
	case outErr == nil:
		_, outErr = fmt.Fprintf(out, "%s: generation %d, %d keys in %d directories, %d bytes, %d snapshots\n", dst, r.Generation, r.Files, r.Dirs, r.Bytes, r.Snapshots)
	}
	if outErr != nil {
		return outErr
	}
	return lossError(src, r.Losses)
}

// lossError says how much was lost; nil if nothing was.
func lossError(src string, losses map[filestore.LossKind]int) error {
	var parts []string
	for _, kind := range []filestore.LossKind{filestore.Damaged, filestore.Lost, filestore.Older, filestore.Bare, filestore.Moved} {
		if n := losses[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: not everything could be saved: %s", src, backend.ErrCorrupt, strings.Join(parts, ", "))
}

// mustBeApart returns an error if a new store in dst would be in src, or has no name.
func mustBeApart(src, dst string) error {
	if src == "" || dst == "" {
		return errors.New("the name of the store is empty")
	}
	from, err := resolve(src)
	if err != nil {
		return nil // there is no such store: opening it says so
	}
	to, err := resolve(dst)
	if err == nil && inside(to, from) {
		return fmt.Errorf("%s: is inside the store %s", dst, src)
	}
	return nil
}
