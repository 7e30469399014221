package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
)

func newPut() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put STORE KEY [FILE]",
		Short: "Publish a file or standard input as the value of a key",
		Long: `Publish FILE, or standard input, as the value of KEY: once, whole, when all of it has been read. A key that exists
keeps its mode, owner and extended attributes. Missing directories on the way to a new key are made.`,
		Args: argCount(2, 3),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			in := os.Stdin
			path, err := keyPath(args[1])
			if err != nil {
				return err
			}
			if len(args) == 3 {
				f, err := os.Open(args[2])
				if err != nil {
					return fmt.Errorf("file %s: %w", args[2], pathError(err))
				}
				defer f.Close()
				in = f
			}
			return withStore(cmd, args[0], func(st backend.Store) error { return put(cmd.Context(), st, args[1], path, in) })
		}),
	}
	cmd.Flags().SetInterspersed(false) // a key may begin with a dash
	return cmd
}

// put publishes all of in. Nothing is changed in the store, not even a directory made, before in has ended.
func put(ctx context.Context, st backend.Store, key, path string, in io.Reader) error {
	stage, err := st.NewStage()
	if err != nil {
		return keyError(key, err)
	}
	defer stage.Close()
	if _, err := io.CopyBuffer(io.NewOffsetWriter(stage, 0), readOnly{in}, make([]byte, copyBuffer)); err != nil {
		return keyError(key, err)
	}
	attr := ownAttr(0o666)
	return keyError(key, commitEdit(ctx, st, func(e *edit) error {
		return e.put(path, stage, attr, backend.AttrChange{})
	}))
}
