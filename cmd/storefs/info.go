package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend/filestore"
)

func newInfo() *cobra.Command {
	return &cobra.Command{
		Use:   "info STORE",
		Short: "Say what is in a store and what it takes on disk",
		Args:  argCount(1, 1),
		RunE: operation(func(_ *cobra.Command, args []string) error {
			o := &filestore.Options{ReadOnly: true, Command: "storefs info"}
			return withOpen(args[0], o, func(st *filestore.Store) error { return info(st, os.Stdout) })
		}),
	}
}

func info(st *filestore.Store, out io.Writer) error {
	i, err := st.Info()
	if err != nil {
		return err
	}
	last := "never"
	if i.Generation > 0 {
		last = i.LastCommit.Format(time.RFC3339)
	}
	_, err = fmt.Fprintf(out, `store        %s
format       %d
generation   %d
last-commit  %s
keys         %d
directories  %d
bytes        %d
disk-bytes   %d
disk-files   %d
tables       %d
volumes      %d
`, i.Path, i.Format, i.Generation, last, i.Files, i.Dirs, i.Bytes, i.DiskBytes, i.DiskFiles, i.Tables, i.Volumes)
	return err
}
