// Package storetest holds every implementation of backend.Store to the contract.
//
// [Run] checks each sentence of it by a subtest, [RunModel] compares random operations with backend.Memory,
// [RunReopen] checks what must survive Close, [RunShared] what two Store values on one storage owe each other.
// The suite closes every store that it was given, some of them twice.
package storetest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

// Run checks the contract, one subtest for each rule. open returns a new empty store.
func Run(t *testing.T, open func(t *testing.T) backend.Store) { RunExcept(t, open, nil) }

// RunExcept is Run without the rules that a store says it does not keep, each by its name with the reason.
func RunExcept(t *testing.T, open func(t *testing.T) backend.Store, except map[string]string) {
	for _, group := range [][]rule{operations, attributes, names, values, snapshots, commits, watching} {
		for _, r := range group {
			t.Run(r.name, func(t *testing.T) {
				if why, ok := except[r.name]; ok {
					t.Skip(why)
				}
				r.check(newFixture(t, open(t)))
			})
		}
	}
}

// rule is a sentence of the contract with its check.
type rule struct {
	name  string
	check func(f *fixture)
}

// fixture is a store under test. Its methods end the test when something fails that the test takes for granted.
type fixture struct {
	*testing.T
	s backend.Store
}

func newFixture(t *testing.T, s backend.Store) *fixture {
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, backend.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return &fixture{t, s}
}

// now is the time of the commits of the suite.
const now = int64(1_700_000_000_123_456_789)

// fresh are the attributes of what the suite makes.
var fresh = backend.Attr{Mode: 0o640, UID: 12, GID: 34, Atime: now - 1, Mtime: now - 2}

var none backend.AttrChange

func (f *fixture) snap() backend.Snapshot {
	f.Helper()
	s, err := f.s.Snapshot(f.Context())
	if err != nil {
		f.Fatalf("snapshot: %v", err)
	}
	f.Cleanup(func() { s.Close() })
	return s
}

// ref returns the place at path, whose directory must exist.
func (f *fixture) ref(path string) backend.Ref {
	f.Helper()
	if path == "" {
		return backend.RootRef
	}
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	return backend.Ref{Dir: f.entry(dir).Ino, Name: name}
}

func (f *fixture) entry(path string) backend.Entry {
	f.Helper()
	s, err := f.s.Snapshot(f.Context())
	if err != nil {
		f.Fatalf("snapshot: %v", err)
	}
	defer s.Close()
	e, err := backend.Walk(s, path)
	if err != nil {
		f.Fatalf("walk to %q: %v", path, err)
	}
	return e
}

func (f *fixture) absent(path string) {
	f.Helper()
	s := f.snap()
	defer s.Close()
	if e, err := backend.Walk(s, path); !errors.Is(err, backend.ErrNotFound) {
		f.Errorf("%q: %+v, %v; want none", path, e, err)
	}
}

func (f *fixture) stage(content string) backend.Stage {
	f.Helper()
	s, err := f.s.NewStage()
	if err != nil {
		f.Fatalf("stage: %v", err)
	}
	f.Cleanup(func() { s.Close() })
	if n, err := s.WriteAt([]byte(content), 0); err != nil || n != len(content) {
		f.Fatalf("write stage: %d, %v", n, err)
	}
	return s
}

// do commits what fill puts into a batch.
func (f *fixture) do(fill func(b *backend.Batch)) backend.Committed {
	f.Helper()
	b := &backend.Batch{Time: now}
	fill(b)
	c, err := f.s.Commit(f.Context(), b)
	if err != nil {
		f.Fatalf("commit: %v", err)
	}
	return c
}

// fails commits what fill puts into a batch, and wants the error, and nothing changed.
func (f *fixture) fails(want error, fill func(b *backend.Batch)) {
	f.Helper()
	before := f.dump()
	b := &backend.Batch{Time: now + 1000}
	fill(b)
	if c, err := f.s.Commit(f.Context(), b); !errors.Is(err, want) {
		f.Errorf("commit: %+v, error %v; want %v", c, err, want)
	}
	if after := f.dump(); after != before {
		f.Errorf("a failed commit changed the store from\n%s\nto\n%s", before, after)
	}
}

func (f *fixture) put(path, content string) backend.Committed {
	f.Helper()
	ref := f.ref(path)
	return f.do(func(b *backend.Batch) { b.Put(ref, f.stage(content), &fresh, none) })
}

func (f *fixture) append(path, content string) backend.Committed {
	f.Helper()
	ref := f.ref(path)
	return f.do(func(b *backend.Batch) { b.Append(ref, f.stage(content), &fresh, none) })
}

func (f *fixture) mkdir(paths ...string) {
	f.Helper()
	for _, p := range paths {
		ref := f.ref(p)
		f.do(func(b *backend.Batch) { b.Mkdir(ref, fresh) })
	}
}

func (f *fixture) symlink(path, target string) {
	f.Helper()
	ref := f.ref(path)
	f.do(func(b *backend.Batch) { b.Symlink(ref, target, fresh) })
}

func (f *fixture) rename(from, to string, flags backend.RenameFlags) {
	f.Helper()
	a, z := f.ref(from), f.ref(to)
	f.do(func(b *backend.Batch) { b.Rename(a, z, flags) })
}

func (f *fixture) renameFails(want error, from, to string, flags backend.RenameFlags) {
	f.Helper()
	a, z := f.ref(from), f.ref(to)
	f.fails(want, func(b *backend.Batch) { b.Rename(a, z, flags) })
}

func (f *fixture) read(path string) string {
	f.Helper()
	s := f.snap()
	defer s.Close()
	e, err := backend.Walk(s, path)
	if err != nil {
		f.Fatalf("walk to %q: %v", path, err)
	}
	content, err := readEntry(s, e)
	if err != nil {
		f.Fatalf("read %q: %v", path, err)
	}
	return content
}

func (f *fixture) holds(path, want string) {
	f.Helper()
	if got := f.read(path); got != want {
		f.Errorf("%q holds %s, want %s", path, short(got), short(want))
	}
}

// list returns the names in the directory at path that are greater than after.
func (f *fixture) list(path, after string) []string {
	f.Helper()
	s := f.snap()
	defer s.Close()
	dir, err := backend.Walk(s, path)
	if err != nil {
		f.Fatalf("walk to %q: %v", path, err)
	}
	names := []string{}
	for e, err := range s.List(dir.Ino, after) {
		if err != nil {
			f.Fatalf("list %q: %v", path, err)
		}
		names = append(names, e.Name)
	}
	return names
}

func (f *fixture) lists(path, after string, want ...string) {
	f.Helper()
	if got := f.list(path, after); !slices.Equal(got, want) {
		f.Errorf("%q lists %q after %q, want %q", path, got, after, want)
	}
}

func (f *fixture) dump() string {
	f.Helper()
	s := f.snap()
	defer s.Close()
	d, err := dump(s, numbers)
	if err != nil {
		f.Fatalf("dump: %v", err)
	}
	return d
}

// numbers tells what is the store's own in an entry.
func numbers(e backend.Entry) string { return fmt.Sprintf("ino %d revision %d", e.Ino, e.Revision) }

func readEntry(s backend.Snapshot, e backend.Entry) (string, error) {
	v, err := s.Open(e)
	if err != nil {
		return "", err
	}
	content, err := readValue(v)
	return content, errors.Join(err, v.Close())
}

// readValue reads the whole of v in pieces of an odd size.
func readValue(v backend.Value) (string, error) {
	b := make([]byte, v.Size()+1)
	got := 0
	for got < len(b) {
		n, err := v.ReadAt(b[got:min(got+99_991, len(b))], int64(got))
		got += n
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if int64(got) != v.Size() {
		return "", fmt.Errorf("read %d bytes of %d", got, v.Size())
	}
	return string(b[:got]), nil
}

// dump returns the whole tree of s as text, with what ids makes of each entry, and an error
// if the ways to look at a snapshot contradict each other.
func dump(s backend.Snapshot, ids func(backend.Entry) string) (string, error) {
	root, err := s.Lookup(backend.RootRef)
	if err != nil {
		return "", err
	}
	d := dumper{s: s, ids: ids, buf: make([]byte, 16<<10)}
	err = d.entry(root, "")
	return d.out.String(), err
}

type dumper struct {
	s   backend.Snapshot
	ids func(backend.Entry) string
	out strings.Builder
	buf []byte // one for all values: the race detector makes large allocations dear
}

func (d *dumper) entry(e backend.Entry, path string) error {
	again, err := d.s.Lookup(e.Ref)
	if err != nil || again.Ino != e.Ino || again.Revision != e.Revision || again.Ref != e.Ref {
		return fmt.Errorf("%q: listed %+v, looked up %+v, %v", path, e, again, err)
	}
	fmt.Fprintf(&d.out, "%q kind %d mode %o uid %d gid %d atime %d mtime %d ctime %d xattrs %v size %d target %q %s",
		path, e.Kind, e.Mode, e.UID, e.GID, e.Atime, e.Mtime, e.Ctime, e.Xattrs, e.Size, e.Target, d.ids(e))
	if e.Kind == backend.File {
		if err := d.content(e); err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
	}
	d.out.WriteByte('\n')
	if e.Kind != backend.Dir {
		return nil
	}
	if at, err := d.s.Parent(e.Ino); err != nil || at != e.Ref {
		return fmt.Errorf("directory %q stands at %+v, parent says %+v, %v", path, e.Ref, at, err)
	}
	last := ""
	for child, err := range d.s.List(e.Ino, "") {
		if err != nil {
			return fmt.Errorf("list %q: %w", path, err)
		}
		if child.Name <= last || child.Dir != e.Ino {
			return fmt.Errorf("list %q: %+v after %q", path, child.Ref, last)
		}
		last = child.Name
		if err := d.entry(child, path+"/"+child.Name); err != nil {
			return err
		}
	}
	return nil
}

// content tells how the value of e begins, and a sum of the whole.
func (d *dumper) content(e backend.Entry) (err error) {
	v, err := d.s.Open(e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if v.Size() != e.Size {
		return fmt.Errorf("size %d, value of %d bytes", e.Size, v.Size())
	}
	var sum maphash.Hash
	sum.SetSeed(seed)
	for off := int64(0); ; {
		n, err := v.ReadAt(d.buf, off)
		sum.Write(d.buf[:n])
		if off == 0 {
			fmt.Fprintf(&d.out, " content %q", d.buf[:min(n, 20)])
		}
		off += int64(n)
		switch {
		case err == io.EOF && off == e.Size:
			fmt.Fprintf(&d.out, " sum %x", sum.Sum64())
			return nil
		case err != nil:
			return fmt.Errorf("%d bytes read of %d: %w", off, e.Size, err)
		}
	}
}

// seed makes sums comparable within one run.
var seed = maphash.MakeSeed()

// short returns s so that it fits a line, and that different ones look different.
func short(s string) string {
	if len(s) <= 60 {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… (%d bytes, sum %x)", s[:30], len(s), maphash.String(seed, s))
}

// pattern returns n bytes that no shift, cut or zeroed part of leaves the same.
func pattern(n int, seed uint64) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(n), byte(n >> 8)}).Read(b) // never fails
	return string(b)
}
