package backend_test

import (
	"errors"
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/storetest"
)

func openMemory(*testing.T) backend.Store { return backend.NewMemory() }

func TestMemory(t *testing.T) { storetest.Run(t, openMemory) }

func TestMemoryModel(t *testing.T) { storetest.RunModel(t, openMemory) }

// A watch from before what a Memory remembers must say so; one from after it must miss nothing.
func TestMemoryForgetsHistory(t *testing.T) {
	m := backend.NewMemory()
	defer m.Close()
	a := backend.Ref{Dir: backend.RootIno, Name: "a"}
	const n = 25_000
	for i := range n {
		b := &backend.Batch{}
		if i%2 == 0 {
			b.Mkdir(a, backend.Attr{})
		} else {
			b.Rmdir(a)
		}
		if _, err := m.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	yields := 0
	for _, err := range m.Watch(t.Context(), 0) {
		if yields++; !errors.Is(err, backend.ErrHistoryGone) {
			t.Errorf("from the beginning: %v", err)
		}
	}
	if yields != 1 {
		t.Errorf("yielded %d times", yields)
	}
	want := backend.Generation(n - 4000)
	for c, err := range m.Watch(t.Context(), want) {
		if err != nil || c.Generation != want && c.Generation != want+1 {
			t.Fatalf("after %d: %+v, %v", want, c, err)
		}
		if want = c.Generation; want == n {
			break
		}
	}
}
