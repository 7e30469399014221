package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
)

func newMv() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mv STORE OLD NEW",
		Short: "Rename a key or a directory",
		Long: `Rename OLD to NEW in one commit, as rename(2) does: a file replaces a file, a directory an empty directory.
Missing directories on the way to NEW are made.`,
		Args: argCount(3, 3),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, args[0], func(st backend.Store) error { return rename(cmd.Context(), st, args[1], args[2]) })
		}),
	}
	cmd.Flags().SetInterspersed(false) // a key may begin with a dash
	return cmd
}

func rename(ctx context.Context, st backend.Store, from, to string) error {
	if err := errors.Join(checkKey(from), checkKey(to)); err != nil {
		return err
	}
	s, err := st.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	ref, err := place(s, from)
	if err != nil {
		return keyError(from, err)
	}
	e, err := s.Lookup(ref)
	if err != nil {
		return keyError(from, err)
	}
	if e.Kind == backend.Dir && strings.HasPrefix(to, from+"/") { // before a directory is made in it
		return fmt.Errorf("key %q: cannot be moved into itself", from)
	}
	err = inPlace(ctx, st, to, func(dst backend.Ref) error {
		var b backend.Batch
		b.Rename(ref, dst, 0)
		_, err := st.Commit(ctx, &b)
		if errors.Is(err, backend.ErrNotFound) {
			if _, gone := lookup(ctx, st, ref); gone != nil {
				return &movedAway{keyError(from, gone)}
			}
		}
		return err
	})
	if moved := (*movedAway)(nil); errors.As(err, &moved) {
		return moved.err
	}
	return keyError(to, err)
}

// movedAway says that what was to be renamed is gone, not the directory it was to go to. It does not unwrap, so
// that inPlace does not try again.
type movedAway struct{ err error }

func (e *movedAway) Error() string { return e.err.Error() }
