package backend_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

// TestTxnIsSerializable interleaves the steps of a transaction with those of others, at random. If it can be published, then all of its steps must
// see and do the same when done after the others, on a second store; if not, nothing must have changed.
func TestTxnIsSerializable(t *testing.T) {
	n := uint64(1500)
	if testing.Short() {
		n = 500
	}
	published, conflicts := 0, 0
	for seed := range n {
		h := &history{T: t, seed: seed, r: rand.New(rand.NewPCG(seed, 2)), a: backend.NewMemory(), b: backend.NewMemory()}
		if h.run() {
			published++
		} else {
			conflicts++
		}
	}
	t.Logf("%d published, %d in conflict", published, conflicts)
	if published < conflicts/20 || conflicts < published/20 {
		t.Error("one of the two is too rare")
	}
}

// history is a transaction on a, among other steps that are done to b too.
type history struct {
	*testing.T
	seed uint64
	r    *rand.Rand
	a, b *backend.Memory
	at   int64
	log  strings.Builder
}

// Fatal tells the steps.
func (h *history) Fatal(args ...any) {
	h.Helper()
	h.T.Fatalf("seed %d:\n%s%s", h.seed, h.log.String(), fmt.Sprint(args...))
}

func (h *history) draw() pathStep {
	h.at++
	return drawStep(h.r, h.at)
}

func (h *history) outside() {
	s := h.draw()
	x, y := s.do(h, h.a), s.do(h, h.b)
	fmt.Fprintf(&h.log, "outside  %+v: %s\n", s, x)
	if x != y {
		h.Fatal("on the second store ", y)
	}
}

// run says whether the transaction was published.
func (h *history) run() bool {
	for range 3 + h.r.IntN(20) {
		h.outside()
	}
	counted := &countingStore{Store: h.a}
	txn, err := backend.Begin(h.Context(), counted)
	if err != nil {
		h.Fatal(err)
	}
	defer func() {
		if s := counted.open(); s != "" {
			h.Fatal(s)
		}
	}()
	var steps []pathStep
	var saw []string
	for range 2 + h.r.IntN(10) {
		if h.r.IntN(3) == 0 {
			h.outside()
			continue
		}
		s := h.draw()
		steps, saw = append(steps, s), append(saw, s.do(h, txn))
		fmt.Fprintf(&h.log, "inside   %+v: %s\n", s, saw[len(saw)-1])
	}
	done, err := txn.Publish(h.Context())
	if errors.Is(err, backend.ErrConflict) {
		if x, y := names(h, h.a), names(h, h.b); x != y {
			h.Fatal("a conflict left\n", x, "of\n", y)
		}
		if err := txn.Close(); err != nil {
			h.Fatal(err)
		}
		return false
	}
	if err != nil {
		h.Fatal(err)
	}
	if len(done.Changes) == 0 {
		return true // it read at the generation it began with
	}
	for i, s := range steps {
		if again := s.do(h, h.b); again != saw[i] {
			h.Fatal(fmt.Sprintf("step %d, %+v, saw %s, and afterwards %s", i, s, saw[i], again))
		}
	}
	if x, y := names(h, h.a), names(h, h.b); x != y {
		h.Fatal("published is\n", x, "instead of\n", y)
	}
	return true
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

func drawStep(r *rand.Rand, clock int64) pathStep {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	path := func() string { return one("a", "b", "d", "e", "d/a", "d/b", "e/a", "d/e", "d/e/a", "e/d", "e/d/a") }
	return pathStep{
		op: one("put", "put", "append", "mkdir", "mkdir", "symlink", "remove", "rmdir", "rename", "rename", "chmod", "xattr", "read", "read", "stat", "list"),
		p:  path(), q: path(), clock: clock, mode: r.Uint32N(8),
		flags: []backend.RenameFlags{0, 0, backend.NoReplace, backend.Exchange}[r.IntN(4)],
	}
}

// do does the step in s, and returns what it tells.
func (s pathStep) do(h *history, st backend.Store) string {
	snap, err := st.Snapshot(h.Context())
	if err != nil {
		h.Fatal(err)
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
		return s.look(h, snap, p)
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
			h.Fatal(err)
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
	_, err = st.Commit(h.Context(), b)
	for _, e := range []error{backend.ErrNotFound, backend.ErrExists, backend.ErrNotEmpty, backend.ErrIsDir, backend.ErrNotDir, backend.ErrInvalid} {
		if errors.Is(err, e) {
			return "! " + e.Error()
		}
	}
	if err != nil {
		h.Fatal(err)
	}
	return "done"
}

func (s pathStep) look(h *history, snap backend.Snapshot, p backend.Ref) string {
	e, err := snap.Lookup(p)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return "! none"
	case err != nil:
		h.Fatal(err)
	case s.op == "read" && e.Kind == backend.File:
		return content(h, snap, e)
	case s.op == "read" && e.Kind == backend.Symlink:
		return e.Target
	case s.op == "list":
		var names []string
		for c, err := range snap.List(e.Ino, "") {
			if err != nil {
				h.Fatal(err)
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
func names(h *history, s backend.Store) string {
	snap, err := s.Snapshot(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	defer snap.Close()
	var out strings.Builder
	var show func(dir backend.Ino, path string)
	show = func(dir backend.Ino, path string) {
		for e, err := range snap.List(dir, "") {
			if err != nil {
				h.Fatal(err)
			}
			fmt.Fprintf(&out, "%s%s %d %o %v %s", path, e.Name, e.Kind, e.Mode, e.Xattrs, e.Target)
			if e.Kind == backend.File {
				fmt.Fprintf(&out, " %d %q", e.Mtime, content(h, snap, e))
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
