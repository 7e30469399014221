package main

import (
	"context"
	"errors"
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
	fromPath, err := keyPath(from)
	if err != nil {
		return err
	}
	toPath, err := keyPath(to)
	if err != nil {
		return err
	}
	about := to
	err = commitEdit(ctx, st, func(e *edit) error {
		about = from
		src, err := e.at(fromPath)
		switch {
		case err != nil:
			return err
		case src.kind == 0:
			return backend.ErrNotFound
		case src.kind == backend.Dir && strings.HasPrefix(toPath, fromPath+"/"): // before a directory is made in it
			return errors.New("cannot be moved into itself")
		}
		about = to
		return e.rename(fromPath, toPath)
	})
	return keyError(about, err)
}
