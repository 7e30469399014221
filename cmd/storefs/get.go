package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
)

// copyBuffer is how much of a value get and put hold in memory.
const copyBuffer = 256 << 10

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get STORE KEY",
		Short: "Write the value of a key to standard output",
		Long:  "Write the value of KEY, as it was when get began, to standard output. Exit status 1 if there is no such key.",
		Args:  argCount(2, 2),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			return withSnapshot(cmd, args[0], func(s backend.Snapshot) error { return get(s, args[0], args[1], os.Stdout) })
		}),
	}
	cmd.Flags().SetInterspersed(false) // a key may begin with a dash
	return cmd
}

func get(s backend.Snapshot, dir, key string, out io.Writer) error {
	path, err := keyPath(key)
	if err != nil {
		return err
	}
	e, err := walk(s, path)
	switch {
	case err != nil:
		return keyError(key, err)
	case e.Kind == backend.Dir:
		return hinted(keyError(key, backend.ErrIsDir), "storefs ls %s %s lists it", shellWord(dir), shellWord(key))
	case e.Kind == backend.Symlink:
		return fmt.Errorf("key %q: is a symbolic link to %q", key, e.Target)
	}
	v, err := s.Open(e)
	if err != nil {
		return keyError(key, err)
	}
	defer v.Close()
	if _, err := io.CopyBuffer(writeOnly{out}, readOnly{io.NewSectionReader(v, 0, v.Size())}, make([]byte, copyBuffer)); err != nil {
		return keyError(key, err)
	}
	return nil
}

// writeOnly and readOnly hide the methods by which io.CopyBuffer would go round its buffer.
type (
	writeOnly struct{ io.Writer }
	readOnly  struct{ io.Reader }
)
