package backend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/storefs/storefs/backend"
)

// Money is neither made nor lost, in any snapshot and any transaction, and every transfer that was reported is there.
func TestTxnBank(t *testing.T) { bank(t, backend.NewMemory(), 6, 40) }

// bank makes transfers between accounts by workers, each counted in a file of the worker, while sums are taken.
func bank(t *testing.T, s backend.Store, workers, each int) {
	const accounts, total = 8, 8 * 100
	counted := &countingStore{Store: s}
	err := backend.Update(t.Context(), counted, func(txn *backend.Txn) error {
		err := txn.MkdirAll("bank/done")
		for i := range accounts {
			err = errors.Join(err, txn.WriteFile(fmt.Sprint("bank/", i), []byte("100")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workersDone, auditors sync.WaitGroup
	for w := range workers {
		workersDone.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			for i := range each {
				err := backend.Update(t.Context(), counted, func(txn *backend.Txn) error {
					from, to := r.IntN(accounts), r.IntN(accounts)
					return errors.Join(add(txn, from, -7), add(txn, to, 7),
						txn.WriteFile(fmt.Sprint("bank/done/", w), []byte(strconv.Itoa(i+1))))
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	auditors.Go(func() {
		for ctx.Err() == nil {
			snap, err := counted.Snapshot(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			sum := 0
			for i := range accounts {
				b, err := backend.ReadFile(snap, fmt.Sprint("bank/", i))
				n, err2 := strconv.Atoi(string(b))
				if err := errors.Join(err, err2); err != nil {
					t.Error(err)
				}
				sum += n
			}
			snap.Close()
			if sum != total {
				t.Errorf("sum %d, want %d", sum, total)
				return
			}
		}
	})
	workersDone.Wait()
	stop()
	auditors.Wait()
	snap, err := counted.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for w := range workers {
		if b, err := backend.ReadFile(snap, fmt.Sprint("bank/done/", w)); string(b) != strconv.Itoa(each) || err != nil {
			t.Errorf("worker %d made %s of %d transfers, %v", w, b, each, err)
		}
	}
	snap.Close()
	if s := counted.open(); s != "" {
		t.Error(s)
	}
}

func add(txn *backend.Txn, account, amount int) error {
	path := fmt.Sprint("bank/", account)
	b, err := txn.ReadFile(path)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return err
	}
	return txn.WriteFile(path, []byte(strconv.Itoa(n+amount)))
}

// TestTxnListAppend has transactions append unique numbers to lists, and read lists, at once. What they saw must have an order in
// which they could have run one after the other: the graph of who must be before whom has no cycle.
func TestTxnListAppend(t *testing.T) {
	seeds := 25
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		listAppend(t, backend.NewMemory(), uint64(seed))
	}
}

// ran is a transaction that was published, with what it read and appended, by key.
type ran struct {
	read     map[string][]string
	appended map[string]string
}

func listAppend(t *testing.T, s backend.Store, seed uint64) {
	t.Helper()
	keys := []string{"x", "y", "z"}
	var mu sync.Mutex
	var all []ran
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range 12 {
				var now ran
				err := backend.Update(t.Context(), s, func(txn *backend.Txn) error {
					now = ran{map[string][]string{}, map[string]string{}}
					for op := range 1 + r.IntN(3) {
						key := keys[r.IntN(len(keys))]
						b, err := txn.ReadFile(key)
						if err != nil && !errors.Is(err, backend.ErrNotFound) {
							return err
						}
						if _, mine := now.appended[key]; !mine {
							now.read[key] = strings.Fields(string(b))
						}
						if _, mine := now.appended[key]; !mine && r.IntN(2) == 0 {
							id := fmt.Sprintf("%d.%d.%d", w, i, op)
							now.appended[key] = id
							if err := txn.WriteFile(key, append(b, id+"\n"...)); err != nil {
								return err
							}
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all = append(all, now)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	final := map[string][]string{}
	for _, k := range keys {
		if b, err := backend.ReadFile(snap, k); err == nil {
			final[k] = strings.Fields(string(b))
		}
	}
	if err := acyclic(all, final); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// acyclic returns an error unless the transactions have an order that explains what they read, and the lists at the end.
func acyclic(all []ran, final map[string][]string) error {
	writer := map[string]int{}
	count := 0
	for i, r := range all {
		for _, id := range r.appended {
			writer[id] = i
			count++
		}
	}
	for _, l := range final {
		count -= len(l)
	}
	if count != 0 {
		return fmt.Errorf("%d numbers too few in the lists", count)
	}
	after := make([][]int, len(all))
	edge := func(a, b int) {
		if a != b {
			after[a] = append(after[a], b)
		}
	}
	for _, l := range final {
		for i := 1; i < len(l); i++ {
			edge(writer[l[i-1]], writer[l[i]])
		}
	}
	for i, r := range all {
		for key, read := range r.read {
			l := final[key]
			if len(read) > len(l) || !slices.Equal(read, l[:len(read)]) {
				return fmt.Errorf("read %v of %v", read, l)
			}
			if len(read) > 0 {
				edge(writer[read[len(read)-1]], i)
			}
			if len(read) < len(l) {
				edge(i, writer[l[len(read)]])
			}
		}
	}
	state := make([]int, len(all))
	var visit func(i int) bool
	visit = func(i int) bool {
		state[i] = 1
		for _, j := range after[i] {
			if state[j] == 1 || state[j] == 0 && !visit(j) {
				return false
			}
		}
		state[i] = 2
		return true
	}
	for i := range all {
		if state[i] == 0 && !visit(i) {
			return errors.New("the transactions have no order")
		}
	}
	return nil
}

// Write skew: each takes its own away if the other's is there. At most one may.
func TestTxnWriteSkew(t *testing.T) {
	for range 50 {
		s := backend.NewMemory()
		sh := shell{t, s}
		sh.put("a", "")
		sh.put("b", "")
		one, two := begin(t, s), begin(t, s)
		for txn, keys := range map[*backend.Txn][2]string{one: {"a", "b"}, two: {"b", "a"}} {
			if _, err := txn.ReadFile(keys[1]); err != nil {
				t.Fatal(err)
			}
			if err := txn.Remove(keys[0]); err != nil {
				t.Fatal(err)
			}
		}
		errs := make(chan error, 2)
		for _, txn := range []*backend.Txn{one, two} {
			go func() { _, err := txn.Publish(t.Context()); errs <- err }()
		}
		if err := errors.Join(<-errs, <-errs); !errors.Is(err, backend.ErrConflict) {
			t.Fatal("both were published")
		}
	}
}

// A transaction is read, changed and published by many at once.
func TestTxnConcurrentUse(t *testing.T) {
	counted := &countingStore{Store: backend.NewMemory()}
	txn := begin(t, counted)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 60 {
				path := fmt.Sprint(w, "-", i%7)
				if err := txn.WriteFile(path, []byte(path)); err != nil {
					if !errors.Is(err, backend.ErrClosed) {
						t.Error(err)
					}
					return
				}
				b, err := txn.ReadFile(path)
				if err == nil && string(b) != path || err != nil && !errors.Is(err, backend.ErrClosed) {
					t.Errorf("%q, %v", b, err)
				}
				if w == 0 && i == 50 {
					if _, err := txn.Publish(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if s := counted.open(); s != "" {
		t.Error(s)
	}
}

func TestUpdate(t *testing.T) {
	s := backend.NewMemory()
	mine := errors.New("mine")
	if err := backend.Update(t.Context(), s, func(txn *backend.Txn) error {
		return errors.Join(txn.WriteFile("a", nil), mine)
	}); !errors.Is(err, mine) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := backend.Update(ctx, s, func(txn *backend.Txn) error {
		if n++; n == 5 {
			cancel()
		}
		shell{t, s}.put("a", fmt.Sprint(n)) // someone else, always
		return txn.WriteFile("a", nil)
	})
	if n != 5 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d times, %v", n, err)
	}
	if err := backend.Update(t.Context(), s, func(txn *backend.Txn) error {
		return fmt.Errorf("of the function: %w", backend.ErrConflict)
	}); !errors.Is(err, backend.ErrConflict) {
		t.Error(err)
	}
	txn := begin(t, s)
	for _, c := range []struct {
		err  error
		want error
	}{
		{txn.MkdirAll("d/e/f"), nil},
		{txn.MkdirAll("d/e"), nil},
		{txn.MkdirAll("a/b"), backend.ErrNotDir},
		{txn.MkdirAll(""), nil},
		{txn.MkdirAll("d//e"), backend.ErrName},
		{txn.WriteFile("d/e/x", []byte("x")), nil},
		{txn.WriteFile("d/e", nil), backend.ErrIsDir},
		{txn.WriteFile("n/x", nil), backend.ErrNotFound},
		{txn.WriteFile("a/x", nil), backend.ErrNotDir},
		{txn.Remove("d/e"), backend.ErrNotEmpty},
		{txn.Remove("d/e/f"), nil},
		{txn.Remove("d/e/x"), nil},
		{txn.Remove("d/e"), nil},
		{txn.Remove("n"), backend.ErrNotFound},
		{txn.Remove(""), backend.ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
}
