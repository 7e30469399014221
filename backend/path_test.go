package backend_test

import (
	"errors"
	"testing"

	"github.com/storefs/storefs/backend"
)

func TestWalkAndPath(t *testing.T) {
	m := backend.NewMemory()
	defer m.Close()
	commit := func(fill func(b *backend.Batch)) backend.Committed {
		t.Helper()
		b := &backend.Batch{}
		fill(b)
		c, err := m.Commit(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	d := backend.Ref{Dir: backend.RootIno, Name: "d"}
	made, _ := commit(func(b *backend.Batch) { b.Mkdir(d, backend.Attr{}) }).Entry(d)
	link := backend.Ref{Dir: made.Ino, Name: "l"}
	commit(func(b *backend.Batch) { b.Symlink(link, "..", backend.Attr{}) })
	s, err := m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for path, want := range map[string]backend.Ref{"": backend.RootRef, "d": d, "d/l": link} {
		e, err := backend.Walk(s, path)
		if err != nil || e.Ref != want {
			t.Errorf("walk to %q: %+v, %v", path, e.Ref, err)
		}
		if p, err := backend.Path(s, want); err != nil || p != path {
			t.Errorf("path of %+v: %q, %v", want, p, err)
		}
	}
	for path, want := range map[string]error{
		"x": backend.ErrNotFound, "d/x": backend.ErrNotFound, "x/y": backend.ErrNotFound, "d/l/d": backend.ErrNotDir,
		"/": backend.ErrNotFound, "d/": backend.ErrNotFound, "d//l": backend.ErrNotFound, ".": backend.ErrNotFound,
	} {
		if e, err := backend.Walk(s, path); !errors.Is(err, want) {
			t.Errorf("walk to %q: %+v, %v", path, e.Ref, err)
		}
	}
	if p, err := backend.Path(s, backend.Ref{Dir: 99, Name: "x"}); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("path in no directory: %q, %v", p, err)
	}
}
