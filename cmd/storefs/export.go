package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// paxXattr begins the names of the records in which GNU tar, bsdtar and star keep extended attributes.
const paxXattr = "SCHILY.xattr."

func newExport() *cobra.Command {
	snapshot := "now"
	cmd := &cobra.Command{
		Use:   "export [--snapshot NAME] STORE",
		Short: "Write a store as a tar archive to standard output",
		Long: `Write all of one generation of STORE as a tar archive (pax format) to standard output: the newest, or the one that is kept as
the snapshot NAME. Modes, owners, times in nanoseconds, symbolic links, extended attributes (as GNU tar --xattrs does) and empty
directories are in it, under the names that a mount shows. The store may be in use.`,
		Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			if isTerminal(os.Stdout) {
				return usagef("standard output is a terminal, which is not for an archive (storefs export %s > FILE)", shellWord(args[0]))
			}
			o := &filestore.Options{ReadOnly: true, Command: "storefs export"}
			return withOpen(args[0], o, func(st *filestore.Store) error {
				s, err := openNamed(cmd.Context(), st, snapshot)
				if err != nil {
					return err
				}
				defer s.Close()
				return export(s, os.Stdout)
			})
		}),
	}
	cmd.Flags().StringVar(&snapshot, "snapshot", "now", "the generation that is kept as `NAME`")
	return cmd
}

// exporter writes a snapshot as an archive.
type exporter struct {
	s    backend.Snapshot
	tar  *tar.Writer
	buf  []byte
	said *progress
}

func export(s backend.Snapshot, to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	x := exporter{s: s, tar: tar.NewWriter(out), buf: make([]byte, copyBuffer), said: newProgress("exported")}
	defer x.said.end()
	root, err := s.Lookup(backend.RootRef)
	if err == nil {
		err = x.entry(root, "./")
	}
	return errors.Join(err, x.tar.Close(), out.Flush())
}

// entry writes e, and what is below it.
func (x *exporter) entry(e backend.Entry, name string) error {
	h := &tar.Header{
		Name: name, Mode: int64(e.Mode), Uid: int(e.UID), Gid: int(e.GID), Format: tar.FormatPAX,
		ModTime: time.Unix(0, e.Mtime), Typeflag: tar.TypeReg, Size: e.Size, PAXRecords: map[string]string{},
	}
	for k, v := range e.Xattrs {
		h.PAXRecords[paxXattr+k] = v
	}
	switch e.Kind {
	case backend.Dir:
		h.Typeflag, h.Size = tar.TypeDir, 0
	case backend.Symlink:
		h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, e.Target
	}
	if err := x.tar.WriteHeader(h); err != nil {
		return keyError(pathKey(name), err)
	}
	x.said.add(1, e.Size)
	if e.Kind == backend.File {
		return keyError(pathKey(name), x.value(e))
	}
	if e.Kind == backend.Symlink {
		return nil
	}
	if name == "./" {
		name = ""
	}
	for child, err := range x.s.List(e.Ino, "") {
		if err != nil {
			return fmt.Errorf("directory %q: %w", pathKey(name), err)
		}
		path := name + child.Name
		if child.Kind == backend.Dir {
			path += "/"
		}
		if err := x.entry(child, path); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) value(e backend.Entry) error {
	v, err := x.s.Open(e)
	if err != nil {
		return err
	}
	defer v.Close()
	_, err = io.CopyBuffer(writeOnly{x.tar}, readOnly{io.NewSectionReader(v, 0, v.Size())}, x.buf)
	return err
}
