package main

import (
	"context"

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
	s, err := st.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	var b backend.Batch
	seen := map[backend.Ref]bool{}
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
		ref, err := place(s, key)
		if err != nil {
			return keyError(key, err)
		}
		e, err := s.Lookup(ref)
		switch {
		case err != nil:
			return keyError(key, err)
		case e.Kind == backend.Dir:
			return hinted(keyError(key, backend.ErrIsDir), "rm -r removes it through a mount; storefs ls %s %s lists what is in it", shellWord(dir), shellWord(key))
		}
		if !seen[ref] {
			seen[ref] = true
			b.Remove(ref)
		}
	}
	if _, err := st.Commit(ctx, &b); err != nil {
		if len(keys) == 1 {
			return keyError(keys[0], err)
		}
		return err
	}
	return nil
}
