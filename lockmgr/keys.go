package lockmgr

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Keys are the locks that programs take on keys: shared and exclusive, on ranges of bytes, across every process that
// uses the same folder. Each key and kind has a file there, present while somebody holds or waits for a lock; each owner
// locks through a description of its own (F_OFD_SETLK), so all its locks end when it is dropped or the process ends.
// Safe for concurrent use.
//
// Who waits is woken when something is given up, in any process, and in a process served in the order of asking, as far as
// that is possible: a lock that is free is never kept from the next one because an earlier one waits for another. Processes
// that compete take turns, after a few locks each.
type Keys struct {
	dir     string
	timeout time.Duration

	mu     sync.Mutex // guards what follows
	files  map[string]*keyFile
	watch  *keyWatch // nil until somebody waits, and if the system has none left
	deaf   bool      // for tests: the system has none
	closed bool
}

// Kind keeps locks apart that do not exclude each other, as flock(2) and fcntl(2) do not.
type Kind string

const (
	Flock  Kind = "flock"
	Record Kind = "fcntl"
)

// Owner is who holds a lock. Two owners with the same ID, kind and key are one.
type Owner struct {
	Key     string // as it is shown
	Kind    Kind
	ID      uint64
	PID     uint32
	Command string
}

// KeyHolder is who is in the way of a lock, or holds one. PID is 0 if it is not known.
type KeyHolder struct {
	Owner
	Range     Range
	Exclusive bool
}

// NewKeys keeps lock files in the folder dir, which is made when it is needed. timeout bounds each wait; 0 is 30 seconds.
func NewKeys(dir string, timeout time.Duration) *Keys {
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	return &Keys{dir: dir, timeout: timeout, files: map[string]*keyFile{}}
}

// path returns the path of the lock file of the key that id names.
func (k *Keys) path(id string, kind Kind) string {
	h := fnv.New128a()
	io.WriteString(h, id)
	return filepath.Join(k.dir, fmt.Sprintf("%x.%s", h.Sum(nil), kind))
}

// Lock takes a lock on a range of the key that id names, changing what o held of that range. Without wait, and when it was
// waited for as long as the timeout allows, it returns a *TimeoutError that names a holder; when ctx ends its error, and
// after Close ErrClosed.
func (k *Keys) Lock(ctx context.Context, id string, o Owner, r Range, exclusive, wait bool) error {
	start := time.Now()
	w, err := k.ask(k.path(id, o.Kind), KeyHolder{o, r, exclusive}, wait)
	if w == nil && err == nil {
		return nil
	}
	if err == nil {
		err = w.until(ctx, k.timeout)
	}
	if err != errTimeUp {
		if err != nil {
			err = fmt.Errorf("lock %s: %w", o.Key, err)
		}
		return err
	}
	t := &TimeoutError{Path: o.Key, Waited: time.Since(start)}
	if h, ok := k.Test(id, o, r, exclusive); ok {
		t.PID, t.Command = int(h.PID), h.Command
	}
	return t
}

// Unlock gives up what the owner holds of a range.
func (k *Keys) Unlock(id string, kind Kind, owner uint64, r Range) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.files[k.path(id, kind)]
	if f == nil || f.owners[owner] == nil {
		return nil
	}
	return k.unlockLocked(f, owner, r)
}

// Drop gives up all that the owner holds of the key.
func (k *Keys) Drop(id string, kind Kind, owner uint64) { k.Unlock(id, kind, owner, Range{}) }

// Test returns who is in the way of a lock; false if nobody is.
func (k *Keys) Test(id string, o Owner, r Range, exclusive bool) (KeyHolder, bool) {
	path := k.path(id, o.Kind)
	k.mu.Lock()
	defer k.mu.Unlock()
	var own *os.File
	if f := k.files[path]; f != nil {
		for id, d := range f.owners {
			for _, h := range d.locks {
				if id != o.ID && (h.Exclusive || exclusive) && h.Range.overlaps(r) {
					return h, true
				}
			}
		}
		if d := f.owners[o.ID]; d != nil {
			own = d.f
		}
	}
	if own == nil {
		f, err := OpenFile(path, os.O_RDONLY, 0)
		if err != nil {
			return KeyHolder{}, false
		}
		defer f.Close()
		own = f
	}
	h, ok := inTheWay(own, r, exclusive)
	if !ok {
		return h, false
	}
	h.Owner = Owner{Key: o.Key, Kind: o.Kind}
	for _, other := range holdersIn(own) {
		if other.Range.overlaps(h.Range) && other.Exclusive == h.Exclusive && (other.PID != o.PID || o.PID == 0) {
			h.PID, h.Command = other.PID, other.Command
		}
	}
	return h, true
}

// Holders returns who holds locks, in every process.
func (k *Keys) Holders() []KeyHolder {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []KeyHolder
	names, _ := os.ReadDir(k.dir)
	for _, n := range names {
		f, err := OpenFile(filepath.Join(k.dir, n.Name()), os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		for _, h := range holdersIn(f) {
			if _, taken := inTheWay(f, h.Range, true); taken { // else its process was killed
				all = append(all, h)
			}
		}
		f.Close()
	}
	slices.SortFunc(all, func(a, b KeyHolder) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// Close drops everything that is held, and makes waiting and later calls of Lock return ErrClosed.
func (k *Keys) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, f := range k.files {
		for len(f.waiting) > 0 {
			f.waiting[0].end(ErrClosed)
		}
		k.unmarkLocked(f)
		for id := range f.owners {
			k.unlockLocked(f, id, Range{})
		}
		f.resting = time.Time{}
		f.call()
	}
	if k.watch != nil {
		k.watch.f.Close()
		k.watch = nil
	}
}

// inTheWay returns a lock that another description than f's holds in a range.
func inTheWay(f *os.File, r Range, exclusive bool) (KeyHolder, bool) {
	lk := r.flock(unix.F_RDLCK)
	if exclusive {
		lk.Type = unix.F_WRLCK
	}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lk) != nil || lk.Type == unix.F_UNLCK {
		return KeyHolder{}, false
	}
	return KeyHolder{Range: rangeOf(&lk), Exclusive: lk.Type == unix.F_WRLCK}, true
}
