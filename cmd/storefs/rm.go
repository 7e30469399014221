package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
)

func newRm() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm STORE KEY...",
		Short: "Remove keys",
		Long:  "Remove all the keys in one commit, or none of them if one does not exist. Directories stay.",
		Args:  argCount(2, -1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, args[0], func(st backend.Store) error { return remove(cmd.Context(), st, args[0], args[1:]) })
		}),
	}
	cmd.Flags().SetInterspersed(false) // a key may begin with a dash
	return cmd
}

func remove(ctx context.Context, st backend.Store, dir string, keys []string) error {
	paths := map[string]string{}
	var order []string
	for _, key := range keys {
		path, err := keyPath(key)
		if err != nil {
			return err
		}
		if _, twice := paths[path]; !twice {
			order = append(order, path)
		}
		paths[path] = key
	}
	return commitEdit(ctx, st, func(e *edit) error {
		for _, path := range order {
			key, err := paths[path], e.remove(path)
			if errors.Is(err, backend.ErrIsDir) {
				return hinted(keyError(key, err), "rm -r removes it through a mount; storefs ls %s %s lists what is in it", shellWord(dir), shellWord(key))
			}
			if err != nil {
				return keyError(key, err)
			}
		}
		return nil
	})
}
