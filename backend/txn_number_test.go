package backend_test

import (
	"context"
	"testing"

	"github.com/storefs/storefs/backend"
)

// A file that is made in a transaction under a number drawn beforehand, as a mount does, is published with its content and that number.
func TestTxnPublishesNumberedFiles(t *testing.T) {
	ctx := context.Background()
	s := backend.NewMemory()
	defer s.Close()
	x, err := backend.Begin(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	st, err := x.NewStage()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.WriteAt([]byte("value"), 0); err != nil {
		t.Fatal(err)
	}
	ref, number := backend.Ref{Dir: backend.RootIno, Name: "k"}, backend.FreeIno()
	var b backend.Batch
	b.Put(ref, st, &backend.Attr{Mode: 0o644}, backend.AttrChange{})
	b.Number(number)
	if _, err := x.Commit(ctx, &b); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Publish(ctx); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	e, err := snap.Lookup(ref)
	if err != nil || e.Ino != number || e.Size != 5 {
		t.Fatalf("%+v, %v; want number %d and 5 bytes", e, err, number)
	}
	v, err := snap.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	got := make([]byte, 5)
	if _, err := v.ReadAt(got, 0); string(got) != "value" {
		t.Errorf("%q, %v", got, err)
	}
}
