package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/storefs/storefs/backend/filestore/disk"
)

// standing is the file of a named snapshot, or of a removed one that somebody still reads: it holds the tables and volumes that it names.
type standing struct {
	named
	path    string
	removed bool
	err     error // why it is not known what it names; then it may be anything
	p       *pin  // what it names, once that was asked for
}

// standing returns the snapshots that hold files, and removes the removed ones that nobody reads. Under the commit lock none is added
// meanwhile. The caller releases them.
func (s *Store) standing() ([]*standing, error) {
	names, _, err := s.snapshotNames()
	if err != nil {
		return nil, err
	}
	var all []*standing
	for _, n := range names {
		all = append(all, &standing{path: s.namedPath(n)})
	}
	names, err = s.disk.List(filepath.Join(s.dir, "tmp"))
	if err != nil {
		return nil, err
	}
	if err := s.forgetRemoved(names); err != nil {
		return nil, err
	}
	for _, n := range names {
		if strings.HasPrefix(n, removedName) && !s.sweepFile(filepath.Join(s.dir, "tmp", n)) {
			all = append(all, &standing{path: filepath.Join(s.dir, "tmp", n), removed: true})
		}
	}
	for _, st := range all {
		var f *disk.File
		if f, st.err = s.disk.Open(st.path, os.O_RDONLY, 0); st.err == nil {
			st.named, st.err = readNamed(f)
			f.Close()
		}
	}
	return all, nil
}

// forgetRemoved makes sure that no power failure brings snapshots back that were removed, if names, of files in tmp/, has some: who
// removed them may have died before he did. To be called before anything is removed that they name.
func (s *Store) forgetRemoved(names []string) error {
	if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, removedName) }) {
		return nil
	}
	if err := s.disk.Sync(filepath.Join(s.dir, "snapshots")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// sweepFile removes a file that nobody has locked; false if it is still there.
func (s *Store) sweepFile(path string) bool {
	f, err := s.disk.Open(path, os.O_RDWR, 0)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) // or another user's
	}
	defer f.Close()
	ok, err := f.TryExclusive()
	return ok && err == nil && s.disk.Remove(path) == nil
}

func (s *Store) releaseStanding(all []*standing) {
	for _, st := range all {
		if st.p != nil {
			s.unpin(st.p)
		}
	}
}

// needs says whether the snapshot may name the file. Those made after it, and those that had gone before, it does not.
func (st *standing) needs(s *Store, t trash) bool {
	if st.err == nil && (t.id >= st.nextID || t.seq <= st.seq) {
		return false
	}
	if st.err == nil && st.p == nil {
		st.p, st.err = s.pinStanding(st.path)
	}
	if st.err != nil {
		return true
	}
	named, err := st.p.names(t.id, t.volume)
	return named || err != nil
}

// pinStanding pins what the file names for a moment in which it stands anyway.
func (s *Store) pinStanding(path string) (*pin, error) {
	f, err := s.disk.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	_, h, err := readNamedHead(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return s.pinFile(h, f, 0)
}

// heldBy returns a snapshot that needs the file, one with a name before a removed one; nil if none does.
func (s *Store) heldBy(all []*standing, t trash) *standing {
	for _, st := range all {
		if st.needs(s, t) {
			return st
		}
	}
	return nil
}

// fileID returns the number that the name of a table or volume file says; false if it is no such name.
func fileID(name string) (uint64, bool) {
	id, err := strconv.ParseUint(name, 16, 64)
	return id, err == nil && len(name) == 16 && strings.ToLower(name) == name
}

// unknown returns what is in the directory of the store and does not belong to it, relative to it. It is never touched.
func (s *Store) unknown() ([]string, error) {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		if !ours(n) {
			out = append(out, n)
		}
	}
	for _, d := range []string{"index", "data"} {
		names, err := s.disk.List(filepath.Join(s.dir, d))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, n := range names {
			if _, ok := fileID(n); !ok {
				out = append(out, filepath.Join(d, n))
			}
		}
	}
	_, others, err := s.snapshotNames()
	for _, n := range others {
		out = append(out, filepath.Join("snapshots", n))
	}
	return out, err
}

// ours says whether an entry of that name in the directory of a store belongs to it. The files in locks/ are kept by package lockmgr.
func ours(name string) bool {
	switch name {
	case "HEAD", "lock", "durable", "index", "data", "tmp", "snapshots", "locks":
		return true
	}
	return isSpare(name)
}
