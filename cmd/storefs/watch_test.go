package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

// forgetful is a store that does not know what has changed.
type forgetful struct{ backend.Store }

func (forgetful) Watch(_ context.Context, from backend.Generation) iter.Seq2[backend.Change, error] {
	return func(yield func(backend.Change, error) bool) { yield(backend.Change{}, backend.ErrHistoryGone) }
}

func TestWatchSaysThatHistoryIsGone(t *testing.T) {
	st := backend.NewMemory()
	defer st.Close()
	w := watcher{out: io.Discard}
	err := w.watch(context.Background(), forgetful{st}, "0")
	if err == nil || !strings.HasPrefix(err.Error(), "what has changed since generation 0 is no longer known (") {
		t.Error(err)
	}
}

var leadingZero = regexp.MustCompile(`[-+,]0[0-9]`)

// What is read of records is what makes them again.
func FuzzReadRecord(f *testing.F) {
	f.Add("+1,2:a->bc\n\n")
	f.Add("-3:a\x00b\n\n")
	f.Add("+0,0:->\n+1:")
	f.Fuzz(func(t *testing.T, in string) {
		st := backend.NewMemory()
		defer st.Close()
		sp, err := newSpool(st)
		if err != nil {
			t.Fatal(err)
		}
		defer sp.Close()
		var again strings.Builder
		r := bufio.NewReader(strings.NewReader(in))
		for {
			rec, err := readRecord(r, sp)
			if err == io.EOF && again.String()+"\n" != in && !leadingZero.MatchString(in) {
				t.Fatalf("%q was read as %q", in, again.String())
			}
			if err != nil {
				return
			}
			if rec.value == nil {
				fmt.Fprintf(&again, "-%d:%s\n", len(rec.key), rec.key)
				continue
			}
			value := make([]byte, rec.value.Size())
			if _, err := rec.value.ReadAt(value, 0); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			fmt.Fprintf(&again, "+%d,%d:%s->%s\n", len(rec.key), len(value), rec.key, value)
		}
	})
}
