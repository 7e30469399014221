package backend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
	"pgregory.net/rapid"
)

// TestTxnIsSerializable interleaves the steps of a transaction with those of others. If it can be published, then all of its steps must see and do
// the same when done after the others, on a second store; if not, nothing must have changed.
func TestTxnIsSerializable(t *testing.T) {
	published, conflicts := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		a, b := backend.NewMemory(), backend.NewMemory()
		clock := int64(1000)
		outside := func() {
			clock++
			s := drawStep(rt, clock)
			if x, y := s.do(t, rt, a), s.do(t, rt, b); x != y {
				rt.Fatalf("%+v: %s and %s", s, x, y)
			}
		}
		for range rapid.IntRange(3, 10).Draw(rt, "before") {
			outside()
		}
		counted := &countingStore{Store: a}
		txn := beginIn(t, rt, counted)
		var steps []pathStep
		var saw []string
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			if rapid.IntRange(0, 2).Draw(rt, "who") == 0 {
				outside()
				continue
			}
			clock++
			s := drawStep(rt, clock)
			steps, saw = append(steps, s), append(saw, s.do(t, rt, txn))
		}
		done, err := txn.Publish(t.Context())
		switch {
		case errors.Is(err, backend.ErrConflict):
			conflicts++
			if x, y := names(t, rt, a), names(t, rt, b); x != y {
				rt.Fatalf("a conflict left\n%sof\n%s", x, y)
			}
			if err := txn.Close(); err != nil {
				rt.Fatal(err)
			}
		case err != nil:
			rt.Fatal(err)
		default:
			published++
			if len(done.Changes) == 0 {
				break // it read at the generation it began with
			}
			for i, s := range steps {
				if again := s.do(t, rt, b); again != saw[i] {
					rt.Fatalf("step %d, %+v, saw %s, and afterwards %s", i, s, saw[i], again)
				}
			}
			if x, y := names(t, rt, a), names(t, rt, b); x != y {
				rt.Fatalf("published is\n%sinstead of\n%s", x, y)
			}
		}
		if s := counted.open(); s != "" {
			rt.Fatal(s)
		}
	})
	t.Logf("%d published, %d in conflict", published, conflicts)
	if published < conflicts/20 || conflicts < published/20 {
		t.Errorf("%d published, %d in conflict", published, conflicts)
	}
}

// pathStep is an operation on paths with what it tells.
type pathStep struct {
	op    string
	p, q  string
	mode  uint32
	flags backend.RenameFlags
	clock int64
}

func (s pathStep) writes() bool { return s.op != "read" && s.op != "stat" && s.op != "list" }

func drawStep(rt *rapid.T, clock int64) pathStep {
	paths := rapid.SampledFrom([]string{"a", "b", "d", "e", "d/a", "d/b", "e/a", "d/e", "d/e/a", "e/d", "e/d/a"})
	return pathStep{
		op: rapid.SampledFrom([]string{"put", "put", "append", "mkdir", "mkdir", "symlink", "remove", "rmdir", "rename", "rename", "chmod", "xattr",
			"read", "read", "stat", "list"}).Draw(rt, "op"),
		p: paths.Draw(rt, "at"), q: paths.Draw(rt, "to"), clock: clock,
		mode:  rapid.Uint32Range(0, 7).Draw(rt, "mode"),
		flags: rapid.SampledFrom([]backend.RenameFlags{0, 0, backend.NoReplace, backend.Exchange}).Draw(rt, "flags"),
	}
}

// do does the step in s, and returns what it tells.
func (s pathStep) do(t testing.TB, rt *rapid.T, st backend.Store) string {
	snap, err := st.Snapshot(t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	defer snap.Close()
	p, err := refAt(snap, s.p)
	q, err2 := refAt(snap, s.q)
	if s.op != "rename" {
		q, err2 = p, nil
	}
	if err := errors.Join(err, err2); err != nil {
		return "! no directory"
	}
	if !s.writes() {
		return s.look(rt, snap, p)
	}
	b := &backend.Batch{Time: s.clock}
	attr := backend.Attr{Mode: s.mode, Mtime: s.clock, Atime: s.clock}
	switch s.op {
	case "put", "append":
		stage, err := st.NewStage()
		if err == nil {
			_, err = fmt.Fprint(stageWriter{stage}, s.clock, ";")
		}
		if err != nil {
			rt.Fatal(err)
		}
		defer stage.Close()
		if s.op == "put" {
			b.Put(p, stage, &attr, backend.AttrChange{})
		} else {
			b.Append(p, stage, &attr, backend.AttrChange{})
		}
	case "mkdir":
		b.Mkdir(p, attr)
	case "symlink":
		b.Symlink(p, fmt.Sprint(s.clock), attr)
	case "remove":
		b.Remove(p)
	case "rmdir":
		b.Rmdir(p)
	case "rename":
		b.Rename(p, q, s.flags)
	case "chmod":
		b.SetAttr(p, backend.AttrChange{Mode: &s.mode})
	case "xattr":
		b.SetAttr(p, backend.AttrChange{SetXattr: map[string]string{fmt.Sprint("user.", s.mode%2): fmt.Sprint(s.clock)}})
	}
	_, err = st.Commit(t.Context(), b)
	for _, e := range []error{backend.ErrNotFound, backend.ErrExists, backend.ErrNotEmpty, backend.ErrIsDir, backend.ErrNotDir, backend.ErrInvalid} {
		if errors.Is(err, e) {
			return "! " + e.Error()
		}
	}
	if err != nil {
		rt.Fatal(err)
	}
	return "done"
}

func (s pathStep) look(rt *rapid.T, snap backend.Snapshot, p backend.Ref) string {
	e, err := snap.Lookup(p)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return "! none"
	case err != nil:
		rt.Fatal(err)
	case s.op == "read" && e.Kind == backend.File:
		return content(rt, snap, e)
	case s.op == "read" && e.Kind == backend.Symlink:
		return e.Target
	case s.op == "list":
		var names []string
		for c, err := range snap.List(e.Ino, "") {
			if err != nil {
				rt.Fatal(err)
			}
			names = append(names, c.Name)
		}
		return fmt.Sprint(names)
	}
	return "there"
}

type stageWriter struct{ s backend.Stage }

func (w stageWriter) Write(p []byte) (int, error) { return w.s.WriteAt(p, w.s.Size()) }

// names returns what is in s but for times of directories and of status.
func names(t testing.TB, rt *rapid.T, s backend.Store) string {
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	defer snap.Close()
	var out strings.Builder
	var show func(dir backend.Ino, path string)
	show = func(dir backend.Ino, path string) {
		for e, err := range snap.List(dir, "") {
			if err != nil {
				rt.Fatal(err)
			}
			fmt.Fprintf(&out, "%s%s %d %o %v %s", path, e.Name, e.Kind, e.Mode, e.Xattrs, e.Target)
			if e.Kind == backend.File {
				fmt.Fprintf(&out, " %d %q", e.Mtime, content(rt, snap, e))
			}
			out.WriteByte('\n')
			if e.Kind == backend.Dir {
				show(e.Ino, path+e.Name+"/")
			}
		}
	}
	show(backend.RootIno, "")
	return out.String()
}
