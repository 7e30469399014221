package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
)

func newImport() *cobra.Command {
	return &cobra.Command{
		Use:   "import STORE",
		Short: "Read a tar archive from standard input into a store",
		Long: `Read a tar archive from standard input and put everything in it into STORE in one commit, or nothing. What is in the store under
the same names is replaced, the rest stays. Modes, times, symbolic links and extended attributes are kept; owners too when root
imports. A hard link becomes a copy. Devices and the like are refused, as are names with .. in them.`,
		Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			if isTerminal(os.Stdin) {
				return usagef("standard input is a terminal (storefs import %s < FILE)", shellWord(args[0]))
			}
			return withStore(cmd, args[0], func(st backend.Store) error { return importTar(cmd.Context(), st, os.Stdin) })
		}),
	}
}

// member is an entry of an archive.
type member struct {
	path   string
	kind   backend.Kind
	attr   backend.Attr
	value  backend.Stage
	target string
}

// importer reads an archive.
type importer struct {
	sp      *spool
	members []member
	files   map[string]int // where the files are in members, for hard links
	said    *progress
}

func importTar(ctx context.Context, st backend.Store, in io.Reader) error {
	sp, err := newSpool(st)
	if err != nil {
		return err
	}
	defer sp.Close()
	im := importer{sp: sp, files: map[string]int{}, said: newProgress("read")}
	err = im.read(tar.NewReader(bufio.NewReaderSize(in, 64<<10)))
	im.said.end()
	if err != nil {
		return err
	}
	return commitEdit(ctx, st, im.write)
}

func (im *importer) read(r *tar.Reader) error {
	for n := 1; ; n++ {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil && n == 1 {
			return fmt.Errorf("standard input is no tar archive: %w", err)
		}
		if err != nil {
			return fmt.Errorf("archive, after %d entries: %w", n-1, err)
		}
		if err := im.member(h, r); err != nil {
			return fmt.Errorf("archive: %q: %w", h.Name, err)
		}
	}
}

func (im *importer) member(h *tar.Header, r io.Reader) error {
	path, err := memberPath(h.Name)
	if err != nil {
		return err
	}
	m := member{path: path, kind: backend.File, attr: memberAttr(h)}
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeReg, tar.TypeGNUSparse:
		m.value, err = im.sp.add(r, h.Size)
	case tar.TypeLink:
		m.value, m.attr, err = im.linked(h.Linkname)
	case tar.TypeDir:
		m.kind = backend.Dir
	case tar.TypeSymlink:
		m.kind, m.target = backend.Symlink, h.Linkname
	default:
		err = errors.New("is neither a file nor a directory nor a link")
	}
	if err == nil && path == "" && m.kind != backend.Dir {
		err = errors.New("has no name")
	}
	if err != nil {
		return err
	}
	if m.kind == backend.File {
		im.files[path] = len(im.members)
	}
	im.members = append(im.members, m)
	im.said.add(1, h.Size)
	return nil
}

// linked returns a copy of a file that was there before.
func (im *importer) linked(name string) (backend.Stage, backend.Attr, error) {
	path, err := memberPath(name)
	if err != nil {
		return nil, backend.Attr{}, err
	}
	i, ok := im.files[path]
	if !ok {
		return nil, backend.Attr{}, fmt.Errorf("is a link to %q, which is not in the archive before it", name)
	}
	of := im.members[i]
	st, err := im.sp.add(io.NewSectionReader(of.value, 0, of.value.Size()), of.value.Size())
	return st, of.attr, err
}

// memberPath returns the path of a store that a name in an archive means; "" is the root.
func memberPath(name string) (string, error) {
	var names []string
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." {
			continue
		}
		if err := backend.ValidName(part); err != nil {
			return "", err
		}
		names = append(names, part)
	}
	if len(names) > 0 && names[0] == reserved {
		return "", fmt.Errorf("%s at the root is reserved", reserved)
	}
	return strings.Join(names, "/"), nil
}

func memberAttr(h *tar.Header) backend.Attr {
	a := backend.Attr{Mode: uint32(h.Mode) & 0o7777, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Mtime: h.ModTime.UnixNano()}
	if a.UID == 0 {
		a.UID, a.GID = uint32(h.Uid), uint32(h.Gid)
	}
	a.Atime = a.Mtime
	for k, v := range h.PAXRecords {
		if name, ok := strings.CutPrefix(k, paxXattr); ok && strings.HasPrefix(name, "user.") {
			if a.Xattrs == nil {
				a.Xattrs = map[string]string{}
			}
			a.Xattrs[name] = v
		}
	}
	return a
}

// setting returns the change that gives an entry the attributes a.
func setting(a backend.Attr) backend.AttrChange {
	return backend.AttrChange{Mode: &a.Mode, UID: &a.UID, GID: &a.GID, Atime: &a.Atime, Mtime: &a.Mtime, SetXattr: maps.Clone(a.Xattrs)}
}

// write makes the changes that put everything into a store. Directories get their attributes last: what is made in them changes their times.
func (im *importer) write(e *edit) error {
	dirs := map[string]backend.Attr{}
	for _, m := range im.members {
		if err := im.writeOne(e, m, dirs); err != nil {
			return keyError(pathKey(m.path), err)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(dirs)) {
		ref := backend.RootRef
		if path != "" {
			var err error
			if ref, err = e.ref(path); err != nil {
				return keyError(pathKey(path), err)
			}
		}
		e.b.SetAttr(ref, setting(dirs[path]))
	}
	return nil
}

func (im *importer) writeOne(e *edit, m member, dirs map[string]backend.Attr) error {
	there, err := e.at(m.path)
	switch {
	case err != nil:
		return err
	case m.kind == backend.Dir:
		dirs[m.path] = m.attr
		if there.kind == backend.Dir {
			return nil
		}
		if there.kind != 0 {
			return &blockedError{m.path}
		}
		_, err = e.mkdir(m.path, m.attr)
		return err
	case there.kind == backend.Symlink || m.kind == backend.Symlink && there.kind != 0:
		if err := e.remove(m.path); err != nil {
			return err
		}
	}
	if m.kind == backend.File {
		return e.put(m.path, m.value, m.attr, setting(m.attr))
	}
	return e.symlink(m.path, m.target, m.attr)
}
