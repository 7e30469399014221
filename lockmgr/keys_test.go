package lockmgr

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// newKeys returns locks that exclude those of other calls for dir as another process would: each owner has its own description.
func newKeys(t *testing.T, dir string, timeout time.Duration) *Keys {
	t.Helper()
	k := NewKeys(dir, timeout)
	t.Cleanup(k.Close)
	return k
}

func keysDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "locks")
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	return dir
}

func owner(id uint64) Owner {
	return Owner{Key: "k", Kind: Flock, ID: id, PID: uint32(id), Command: fmt.Sprint("owner ", id)}
}

func lockKey(t *testing.T, k *Keys, id uint64, r Range, exclusive bool) {
	t.Helper()
	if err := k.Lock(t.Context(), "k", owner(id), r, exclusive, true); err != nil {
		t.Fatal(err)
	}
}

// lockLater locks in a goroutine; the channel carries the error.
func lockLater(ctx context.Context, k *Keys, id uint64, r Range, exclusive bool) <-chan error {
	c := make(chan error, 1)
	go func() { c <- k.Lock(ctx, "k", owner(id), r, exclusive, true) }()
	return c
}

// waits returns how many wait for a lock of the key "k".
func (k *Keys) waits() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.files[k.path("k", Flock)]; f != nil {
		return len(f.waiting)
	}
	return 0
}

func awaitWaits(t *testing.T, k *Keys, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " waiting"), func() bool { return k.waits() == n })
}

func mustGet(t *testing.T, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still blocked")
	}
}

// twoKeys runs a test within one process and between two.
func twoKeys(t *testing.T, test func(t *testing.T, a, b *Keys)) {
	t.Run("one", func(t *testing.T) {
		k := newKeys(t, keysDir(t), 0)
		test(t, k, k)
	})
	t.Run("two", func(t *testing.T) {
		dir := keysDir(t)
		test(t, newKeys(t, dir, 0), newKeys(t, dir, 0))
	})
}

func TestKeysExclude(t *testing.T) {
	twoKeys(t, func(t *testing.T, a, b *Keys) {
		inside, n := atomic.Int32{}, 0
		var wg sync.WaitGroup
		for i := range 8 {
			k := []*Keys{a, b}[i%2]
			wg.Go(func() {
				for range 100 {
					if err := k.Lock(context.Background(), "k", owner(uint64(i)), Range{}, true, true); err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two inside")
					}
					n++
					inside.Add(-1)
					k.Drop("k", Flock, uint64(i))
				}
			})
		}
		wg.Wait()
		if n != 800 {
			t.Errorf("counted %d of 800", n)
		}
	})
}

// Who waits is woken by what may let it in: an unlock, part of one, a shared lock instead of an exclusive one, another waiter's end.
func TestKeysWake(t *testing.T) {
	all, head := Range{}, Range{0, 10}
	for name, c := range map[string]struct {
		have, want Range
		exclusive  bool // what is wanted
		release    func(a *Keys)
	}{
		"dropped":      {all, all, true, func(a *Keys) { a.Drop("k", Flock, 1) }},
		"a part":       {all, head, true, func(a *Keys) { a.Unlock("k", Flock, 1, Range{0, 20}) }},
		"downgraded":   {all, all, false, func(a *Keys) { a.Lock(context.Background(), "k", owner(1), all, false, true) }},
		"at the end":   {Range{100, 0}, Range{1 << 62, 0}, true, func(a *Keys) { a.Unlock("k", Flock, 1, Range{200, 0}) }},
		"its Keys end": {all, all, true, func(a *Keys) { a.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			twoKeys(t, func(t *testing.T, a, b *Keys) {
				if a == b && name == "its Keys end" {
					return
				}
				lockKey(t, a, 1, c.have, true)
				w := lockLater(t.Context(), b, 2, c.want, c.exclusive)
				awaitWaits(t, b, 1)
				c.release(a)
				mustGet(t, w)
				b.Drop("k", Flock, 2)
				a.Drop("k", Flock, 1)
			})
		})
	}
}

// A lock that is free is not kept from the next one because one before it waits for another.
func TestKeysGrantPastABlockedOne(t *testing.T) {
	twoKeys(t, func(t *testing.T, a, b *Keys) {
		lockKey(t, a, 1, Range{0, 1}, true)
		lockKey(t, a, 2, Range{10, 1}, true)
		first := lockLater(t.Context(), b, 3, Range{0, 20}, true)
		awaitWaits(t, b, 1)
		second := lockLater(t.Context(), b, 4, Range{10, 1}, true)
		awaitWaits(t, b, 2)
		a.Drop("k", Flock, 2)
		mustGet(t, second)
		b.Drop("k", Flock, 4)
		a.Drop("k", Flock, 1)
		mustGet(t, first)
		b.Drop("k", Flock, 3)
	})
}

// An owner that waits in two threads does not wait for itself.
func TestKeysOneOwnerWaitsTwice(t *testing.T) {
	twoKeys(t, func(t *testing.T, a, b *Keys) {
		lockKey(t, a, 1, Range{}, true)
		x, y := lockLater(t.Context(), b, 2, Range{}, true), lockLater(t.Context(), b, 2, Range{}, true)
		awaitWaits(t, b, 2)
		a.Drop("k", Flock, 1)
		mustGet(t, x)
		mustGet(t, y)
		b.Drop("k", Flock, 2)
	})
}

// A shared lock that becomes exclusive waits for the other shared one, and keeps what it has when it waits in vain.
func TestKeysUpgrade(t *testing.T) {
	twoKeys(t, func(t *testing.T, a, b *Keys) {
		lockKey(t, a, 1, Range{}, false)
		lockKey(t, b, 2, Range{}, false)
		ctx, cancel := context.WithCancel(t.Context())
		w := lockLater(ctx, b, 2, Range{}, true)
		awaitWaits(t, b, 1)
		cancel()
		if err := <-w; !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v", err)
		}
		if _, held := a.Test("k", owner(1), Range{}, true); !held {
			t.Error("the shared one is gone")
		}
		w = lockLater(t.Context(), b, 2, Range{}, true)
		awaitWaits(t, b, 1)
		a.Drop("k", Flock, 1)
		mustGet(t, w)
		if h, held := a.Test("k", owner(1), Range{}, false); !held || !h.Exclusive || h.PID != 2 {
			t.Errorf("in the way: %+v, %v", h, held)
		}
		b.Drop("k", Flock, 2)
	})
}

// Of two processes with many that ask again at once, neither gets all.
func TestKeysTakeTurns(t *testing.T) {
	for _, many := range []int{1, 4} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			dir := keysDir(t)
			keys := []*Keys{newKeys(t, dir, 0), newKeys(t, dir, 0)}
			const total = 2000
			var got [2]atomic.Int32
			var wg sync.WaitGroup
			for i := range 2 * many {
				side := i % 2
				wg.Go(func() {
					for end := false; !end; {
						if err := keys[side].Lock(context.Background(), "k", owner(uint64(i)), Range{}, true, true); err != nil {
							t.Error(err)
							return
						}
						if end = got[0].Load()+got[1].Load() >= total; !end {
							got[side].Add(1)
						}
						keys[side].Drop("k", Flock, uint64(i))
					}
				})
			}
			wg.Wait()
			if a, b := got[0].Load(), got[1].Load(); min(a, b) < total/4 {
				t.Errorf("shares %d, %d", a, b)
			}
		})
	}
}

func TestKeysTimeoutNamesHolder(t *testing.T) {
	dir := keysDir(t)
	a, b := newKeys(t, dir, 0), newKeys(t, dir, 30*time.Millisecond)
	lockKey(t, a, 7, Range{}, true)
	before := descriptors(t)
	for _, wait := range []bool{false, true, true} {
		err := b.Lock(t.Context(), "k", owner(8), Range{}, true, wait)
		var e *TimeoutError
		if !errors.Is(err, ErrLocked) || !errors.As(err, &e) || e.PID != 7 || e.Command != "owner 7" {
			t.Errorf("error %v", err)
		}
	}
	eventually(t, "as many descriptors as before, and the watch", func() bool { return descriptors(t) <= before+2 })
	a.Drop("k", Flock, 7)
}

// Close ends waits; what the others hold is not touched.
func TestKeysClose(t *testing.T) {
	twoKeys(t, func(t *testing.T, a, _ *Keys) {
		b := newKeys(t, a.dir, 0)
		lockKey(t, a, 1, Range{}, true)
		w := lockLater(t.Context(), b, 2, Range{}, true)
		awaitWaits(t, b, 1)
		b.Close()
		if err := <-w; !errors.Is(err, ErrClosed) {
			t.Errorf("waiting: %v", err)
		}
		if err := b.Lock(t.Context(), "k", owner(2), Range{}, true, true); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		lockKey(t, a, 1, Range{}, true)
		a.Drop("k", Flock, 1)
	})
}

// A process that is killed gives up its locks, and who waits hears of it.
func TestKeysOfAKilledProcess(t *testing.T) {
	dir := keysDir(t)
	c := start(t, "key", filepath.Join(filepath.Dir(dir), "lock"), dir)
	k := newKeys(t, dir, 0)
	if h, held := k.Test("k", owner(1), Range{}, true); !held || h.Command != "owner 99" {
		t.Fatalf("held: %+v, %v", h, held)
	}
	w := lockLater(t.Context(), k, 1, Range{}, true)
	awaitWaits(t, k, 1)
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	mustGet(t, w)
	k.Drop("k", Flock, 1)
}

// Where the system has no room for a watch, waiting still ends.
func TestKeysWithoutNotices(t *testing.T) {
	dir := keysDir(t)
	a, b := newKeys(t, dir, 0), newKeys(t, dir, 0)
	b.mu.Lock()
	b.deaf = true
	b.mu.Unlock()
	for range 5 {
		lockKey(t, a, 1, Range{}, true)
		w := lockLater(t.Context(), b, 2, Range{}, true)
		awaitWaits(t, b, 1)
		a.Drop("k", Flock, 1)
		mustGet(t, w)
		b.Drop("k", Flock, 2)
	}
}

// Two processes with two each that ask again at once; the figure is one turn.
func BenchmarkKeysContended(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "locks")
	keys := []*Keys{NewKeys(dir, 0), NewKeys(dir, 0)}
	left := int64(b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range uint64(4) {
		wg.Go(func() {
			k := keys[i%2]
			for atomic.AddInt64(&left, -1) >= 0 {
				if err := k.Lock(context.Background(), "k", owner(i), Range{}, true, true); err != nil {
					b.Error(err)
					return
				}
				k.Drop("k", Flock, i)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	keys[0].Close()
	keys[1].Close()
}

func BenchmarkKeysFree(b *testing.B) {
	k := NewKeys(filepath.Join(b.TempDir(), "locks"), 0)
	defer k.Close()
	for b.Loop() {
		if err := k.Lock(context.Background(), "k", owner(1), Range{}, true, true); err != nil {
			b.Fatal(err)
		}
		k.Drop("k", Flock, 1)
	}
}
