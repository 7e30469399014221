package main

import (
	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func newSync() *cobra.Command {
	return &cobra.Command{
		Use:   "sync STORE",
		Short: "Put everything committed on stable storage",
		Long:  "Return when everything that was committed before is on stable storage, by whomever and in whatever sync mode it was.",
		Args:  argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, args[0], func(st backend.Store) error { return st.Sync(cmd.Context()) })
		}),
	}
}

func newCompact() *cobra.Command {
	return &cobra.Command{
		Use:   "compact STORE",
		Short: "Merge the index of a store",
		Long: `Merge the tables of the index into one, which is what reading is fastest with and takes the least room. The store may be in use:
nobody waits for it.`,
		Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			o := &filestore.Options{Command: "storefs compact"}
			return withOpen(args[0], o, func(st *filestore.Store) error { return st.Compact(cmd.Context()) })
		}),
	}
}
