package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func newCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [--json] STORE",
		Short: "Read everything and name all damage",
		Long: `Read all of the newest generation and of the snapshots, compare it with its checksums, and write a line for everything that is
wrong: the file in the store's folder, the byte in it, what is wrong, and the keys that it concerns as far as they can be known.
Exit status 1 if there is damage. Changes nothing; the store may be in use.`,
		Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error { return check(cmd, args[0], asJSON, os.Stdout) }),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// checkJSON is what check --json writes.
type checkJSON struct {
	Store       string        `json:"store"`
	Generation  uint64        `json:"generation"`
	Keys        uint64        `json:"keys"`
	Directories uint64        `json:"directories"`
	Bytes       uint64        `json:"bytes"`
	Tables      int           `json:"tables"`
	Blocks      int           `json:"blocks"`
	Volumes     int           `json:"volumes"`
	Snapshots   int           `json:"snapshots"`
	Unknown     []string      `json:"unknown"`
	Damage      []findingJSON `json:"damage"`
}

type findingJSON struct {
	Path     string      `json:"path"`
	Offset   int64       `json:"offset"`
	Reason   string      `json:"reason"`
	Snapshot string      `json:"snapshot,omitempty"`
	Keys     []placeJSON `json:"keys,omitempty"`
	From     *placeJSON  `json:"from,omitempty"`
	Before   *placeJSON  `json:"before,omitempty"`
}

// placeJSON is a key, or where directories that lead to it are not known, the rest of it and the number of the first that is.
type placeJSON struct {
	jsonKey
	Directory uint64 `json:"directory,omitempty"`
}

func newPlaceJSON(k *filestore.Key) *placeJSON {
	if k == nil {
		return nil
	}
	return &placeJSON{newJSONKey(k.Path), uint64(k.Dir)}
}

func newFindingJSON(f filestore.Finding) findingJSON {
	j := findingJSON{Path: f.Path, Offset: f.Offset, Reason: f.Reason, Snapshot: f.Snapshot, From: newPlaceJSON(f.From), Before: newPlaceJSON(f.Before)}
	for _, k := range f.Keys {
		j.Keys = append(j.Keys, *newPlaceJSON(&k))
	}
	return j
}

// asKeys returns f with keys in the place of paths.
func asKeys(f filestore.Finding) filestore.Finding {
	f.Keys = slices.Clone(f.Keys)
	for i := range f.Keys {
		f.Keys[i] = *asKey(&f.Keys[i])
	}
	f.From, f.Before = asKey(f.From), asKey(f.Before)
	return f
}

func asKey(k *filestore.Key) *filestore.Key {
	if k == nil {
		return nil
	}
	return &filestore.Key{Path: pathKey(k.Path), Dir: k.Dir}
}

func check(cmd *cobra.Command, dir string, asJSON bool, out io.Writer) error {
	if dir == "" {
		return errors.New("the name of the store is empty")
	}
	said := newProgress("checked")
	var outErr error
	damage := []findingJSON{}
	r, err := filestore.Check(cmd.Context(), dir, &filestore.CheckOptions{Progress: said.add, Report: func(f filestore.Finding) {
		f = asKeys(f)
		if damage = append(damage, newFindingJSON(f)); !asJSON && outErr == nil {
			said.hide()
			_, outErr = fmt.Fprintln(out, oneLine(f.String()))
		}
	}})
	said.end()
	if err != nil {
		return openError(dir, err)
	}
	switch {
	case asJSON:
		outErr = json.NewEncoder(out).Encode(checkJSON{dir, uint64(r.Generation), r.Files, r.Dirs, r.Bytes, r.Tables, r.Blocks, r.Volumes, r.Snapshots,
			append([]string{}, r.Unknown...), damage})
	case r.Problems == 0:
		_, outErr = fmt.Fprintf(out, "%s: sound: generation %d, %d keys in %d directories, %d bytes\n", dir, r.Generation, r.Files, r.Dirs, r.Bytes)
	}
	if outErr != nil {
		return outErr
	}
	if r.Problems > 0 {
		return hinted(fmt.Errorf("%s: %w: %d found", dir, backend.ErrCorrupt, r.Problems), "storefs repair saves what is whole")
	}
	return nil
}
