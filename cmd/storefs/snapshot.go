package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot create|ls|rm STORE [NAME]",
		Short: "Keep a generation of a store under a name",
		Long: `Keep the newest generation of STORE under NAME until it is removed: create; list what is kept, with generation and time: ls;
let a generation go: rm. Every mount shows it as .storefs/snapshots/NAME. It takes the room of what has changed since.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return usagef("name what to do: create, ls or rm (storefs help snapshot says how)")
		},
		Args: cobra.ArbitraryArgs,
	}
	create := &cobra.Command{
		Use: "create STORE NAME", Short: "Keep the newest generation", Args: argCount(2, 2),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			if args[1] == "now" {
				return usagef("now is what diff and export call the newest generation, and no name for one that is kept")
			}
			return withSnapshotter(cmd, args[0], false, func(s backend.Snapshotter) error {
				_, err := s.CreateSnapshot(cmd.Context(), args[1])
				return snapshotError(args[1], err)
			})
		}),
	}
	list := &cobra.Command{
		Use: "ls STORE", Short: "List what is kept", Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			return withSnapshotter(cmd, args[0], true, func(s backend.Snapshotter) error { return listSnapshots(cmd.Context(), s) })
		}),
	}
	rm := &cobra.Command{
		Use: "rm STORE NAME", Short: "Let a generation go", Args: argCount(2, 2),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			return withSnapshotter(cmd, args[0], false, func(s backend.Snapshotter) error {
				return snapshotError(args[1], s.RemoveSnapshot(cmd.Context(), args[1]))
			})
		}),
	}
	for _, c := range []*cobra.Command{create, list, rm} {
		c.DisableFlagsInUseLine = true
		cmd.AddCommand(c)
	}
	return cmd
}

func withSnapshotter(cmd *cobra.Command, dir string, readOnly bool, fn func(backend.Snapshotter) error) error {
	o := &filestore.Options{ReadOnly: readOnly, Command: "storefs snapshot " + cmd.Name()}
	return withOpen(dir, o, func(st *filestore.Store) error {
		s, ok := backend.Store(st).(backend.Snapshotter)
		if !ok {
			return errors.New("keeps no snapshots")
		}
		return fn(s)
	})
}

func listSnapshots(ctx context.Context, s backend.Snapshotter) error {
	all, err := s.Snapshots(ctx)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	l := &listing{quote: isTerminal(os.Stdout)}
	for _, n := range all {
		fmt.Fprintf(out, "%s\t%d\t%s\n", l.name(n.Name), n.Generation, time.Unix(0, n.Time).Format(time.RFC3339))
	}
	return out.Flush()
}

// snapshotError says which snapshot err is about.
func snapshotError(name string, err error) error {
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return fmt.Errorf("snapshot %q: no such snapshot", name)
	case errors.Is(err, backend.ErrExists):
		return fmt.Errorf("snapshot %q: exists", name)
	case err != nil:
		return fmt.Errorf("snapshot %q: %w", name, err)
	}
	return nil
}

// openNamed returns the generation kept under name, the newest for "now".
func openNamed(ctx context.Context, st *filestore.Store, name string) (backend.Snapshot, error) {
	if name == "now" {
		return st.Snapshot(ctx)
	}
	sn, ok := backend.Store(st).(backend.Snapshotter)
	if !ok {
		return nil, errors.New("keeps no snapshots")
	}
	s, err := sn.OpenSnapshot(ctx, name)
	return s, snapshotError(name, err)
}
