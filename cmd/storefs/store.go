package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// withStore runs fn on the store at dir, opened for writing. What closing it reports is an error of the command.
func withStore(cmd *cobra.Command, dir string, fn func(backend.Store) error) error {
	o := &filestore.Options{Command: "storefs " + cmd.Name()}
	return withOpen(dir, o, func(st *filestore.Store) error { return fn(st) })
}

// withSnapshot runs fn on the newest generation of the store at dir, opened for reading.
func withSnapshot(cmd *cobra.Command, dir string, fn func(backend.Snapshot) error) error {
	return withOpen(dir, &filestore.Options{ReadOnly: true, Command: "storefs " + cmd.Name()}, func(st *filestore.Store) error {
		s, err := st.Snapshot(cmd.Context())
		if err != nil {
			return err
		}
		defer s.Close()
		return fn(s)
	})
}

func withOpen(dir string, o *filestore.Options, fn func(*filestore.Store) error) error {
	st, err := openStore(dir, o)
	if err != nil {
		return err
	}
	err = fn(st)
	if cerr := st.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// openStore opens the store at dir. Its errors name dir.
func openStore(dir string, o *filestore.Options) (*filestore.Store, error) {
	if dir == "" {
		return nil, errors.New("the name of the store is empty")
	}
	if isURL(dir) {
		return nil, fmt.Errorf("%s: no such kind of store (a store is a folder)", dir)
	}
	st, err := filestore.Open(dir, o)
	if err == nil {
		return st, nil
	}
	return nil, openError(dir, err)
}

// isURL says whether name begins with a scheme and "://".
func isURL(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	scheme, _, ok := strings.Cut(name, "://")
	return ok && strings.IndexAny(scheme, letters) == 0 && strings.Trim(scheme, letters+"0123456789+.-") == ""
}

// openError says why there is no store at dir, and what the user may have meant.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return hinted(fmt.Errorf("%s: no such store", dir), "storefs mount makes one")
	case errors.Is(err, backend.ErrFormat):
		if m, ok := mountOf(dir); ok {
			return hinted(fmt.Errorf("%s: is a mountpoint", dir), "its store is %s", shellWord(m.source))
		}
	}
	return withPath(dir, err)
}

// withPath puts path before err unless the error of an operating system call, whose own path says the same, is all there is.
func withPath(path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) && p.Path == path {
		return fmt.Errorf("%s: %w", path, p.Err)
	}
	return fmt.Errorf("%s: %w", path, err)
}
