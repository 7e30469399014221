package lockmgr

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Keys are the locks that programs take on keys: shared and exclusive, on ranges of bytes, across every process that
// uses the same folder. Each key and kind has a file there, present while somebody holds or waits for a lock; each owner
// locks through a description of its own (F_OFD_SETLK), so all its locks end when it is dropped or the process ends.
// Safe for concurrent use. Waiting is not fair between processes: whoever looks first gets it.
type Keys struct {
	dir     string
	timeout time.Duration

	mu   sync.Mutex
	held map[ownerKey]*owned
	free map[string]chan struct{} // closed when a lock of that file is given up in this process
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

// Range is a range of bytes: from Start on, Len of them, or to the end if Len is 0.
type Range struct{ Start, Len int64 }

// KeyHolder is who is in the way of a lock, or holds one. PID is 0 if it is not known.
type KeyHolder struct {
	Owner
	Range     Range
	Exclusive bool
}

type ownerKey struct {
	file string
	id   uint64
}

// owned is an owner's description of a lock file, and the locks that it took there last, for showing.
type owned struct {
	Owner
	f     *os.File
	locks []KeyHolder
}

const (
	keyPollMin = time.Millisecond
	keyPollMax = 10 * time.Millisecond
	maxLine    = 1024
)

// NewKeys keeps lock files in the folder dir, which is made when it is needed. timeout bounds each wait; 0 is 30 seconds.
func NewKeys(dir string, timeout time.Duration) *Keys {
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	return &Keys{dir: dir, timeout: timeout, held: map[ownerKey]*owned{}, free: map[string]chan struct{}{}}
}

// file returns the path of the lock file of the key that id names.
func (k *Keys) file(id string, kind Kind) string {
	h := fnv.New128a()
	io.WriteString(h, id)
	return filepath.Join(k.dir, fmt.Sprintf("%x.%s", h.Sum(nil), kind))
}

// Lock takes a lock on a range of the key that id names, changing what o held of that range. Without wait, and when it was
// waited for as long as the timeout allows, it returns a *TimeoutError that names a holder; when ctx ends its error.
func (k *Keys) Lock(ctx context.Context, id string, o Owner, r Range, exclusive, wait bool) error {
	path := k.file(id, o.Kind)
	start := time.Now()
	for pause := keyPollMin; ; pause = min(2*pause, keyPollMax) {
		ok, freed, err := k.try(path, o, r, exclusive)
		if ok || err != nil {
			return err
		}
		if waited := time.Since(start); !wait || waited >= k.timeout {
			t := &TimeoutError{Path: o.Key, Waited: waited}
			if h, ok := holderIn(path); ok {
				t.PID, t.Command = int(h.PID), h.Command
			}
			return t
		}
		t := time.NewTimer(pause)
		select {
		case <-freed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("lock %s: %w", o.Key, ctx.Err())
		}
		t.Stop()
	}
}

// try takes the lock if nothing is in the way; else freed is closed when something in this process no longer is.
func (k *Keys) try(path string, o Owner, r Range, exclusive bool) (ok bool, freed <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := ownerKey{path, o.ID}
	w := k.held[key]
	for {
		fresh := w == nil
		if fresh {
			if w, err = k.open(path, o); err != nil {
				return false, nil, err
			}
		}
		kind := int16(unix.F_RDLCK)
		if exclusive {
			kind = unix.F_WRLCK
		}
		ok, err = ofdLock(w.f, kind, r)
		if ok && fresh && !named(w.f, path) { // removed by the one who held it last
			w.f.Close()
			w = nil
			continue
		}
		if !ok {
			if fresh {
				w.f.Close()
			}
			c := k.free[path]
			if c == nil {
				c = make(chan struct{})
				k.free[path] = c
			}
			return false, c, err
		}
		break
	}
	k.held[key] = w
	w.locks = append(slices.DeleteFunc(w.locks, func(h KeyHolder) bool { return h.Range == r }), KeyHolder{o, r, exclusive})
	line := fmt.Sprintf("%d\t%s\t%q\t%q\n", o.PID, o.Kind, o.Key, o.Command)
	w.f.WriteAt([]byte(line[:min(len(line), maxLine)]), 0) // only for showing
	return true, nil, nil
}

func (k *Keys) open(path string, o Owner) (*owned, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.Mkdir(k.dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	}
	if err != nil {
		return nil, err
	}
	return &owned{Owner: o, f: f}, nil
}

// Unlock gives up what the owner holds of a range.
func (k *Keys) Unlock(id string, kind Kind, owner uint64, r Range) error {
	path := k.file(id, kind)
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.held[ownerKey{path, owner}]
	if w == nil {
		return nil
	}
	_, err := ofdLock(w.f, unix.F_UNLCK, r)
	w.locks = slices.DeleteFunc(w.locks, func(h KeyHolder) bool { return h.Range == r || r == Range{} })
	if (r == Range{}) {
		k.dropLocked(ownerKey{path, owner}, w)
	}
	k.freedLocked(path)
	return err
}

// Drop gives up all that the owner holds of the key.
func (k *Keys) Drop(id string, kind Kind, owner uint64) { k.Unlock(id, kind, owner, Range{}) }

// dropLocked closes an owner's description, and removes the file if nobody else uses it.
func (k *Keys) dropLocked(key ownerKey, w *owned) {
	delete(k.held, key)
	if ok, _ := ofdLock(w.f, unix.F_WRLCK, Range{}); ok && named(w.f, key.file) {
		os.Remove(key.file)
	}
	w.f.Close()
}

func (k *Keys) freedLocked(path string) {
	if c := k.free[path]; c != nil {
		close(c)
		delete(k.free, path)
	}
}

// Test returns who is in the way of a lock; false if nobody is.
func (k *Keys) Test(id string, o Owner, r Range, exclusive bool) (KeyHolder, bool) {
	path := k.file(id, o.Kind)
	k.mu.Lock()
	defer k.mu.Unlock()
	var f *os.File
	if w := k.held[ownerKey{path, o.ID}]; w != nil {
		f = w.f
	} else {
		var err error
		if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
			return KeyHolder{}, false
		}
		defer f.Close()
	}
	lk := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: r.Start, Len: r.Len}
	if exclusive {
		lk.Type = unix.F_WRLCK
	}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lk) != nil || lk.Type == unix.F_UNLCK {
		return KeyHolder{}, false
	}
	h := KeyHolder{Owner: o, Range: Range{lk.Start, lk.Len}, Exclusive: lk.Type == unix.F_WRLCK}
	if last, ok := holderIn(path); ok {
		h.PID, h.Command = last.PID, last.Command
	}
	return h, true
}

// Holders returns who holds locks: all of this process, and of others those that took one last.
func (k *Keys) Holders() []KeyHolder {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []KeyHolder
	own := map[string]bool{}
	for key, w := range k.held {
		all = append(all, w.locks...)
		own[key.file] = true
	}
	names, _ := os.ReadDir(k.dir)
	for _, n := range names {
		path := filepath.Join(k.dir, n.Name())
		if own[path] {
			continue
		}
		if h, ok := holderIn(path); ok && taken(path) {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b KeyHolder) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// Close drops everything that is held.
func (k *Keys) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, w := range k.held {
		k.dropLocked(key, w)
		k.freedLocked(key.file)
	}
}

// holderIn reads who took a lock of a file last.
func holderIn(path string) (h KeyHolder, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return h, false
	}
	defer f.Close()
	b := make([]byte, maxLine)
	n, _ := f.ReadAt(b, 0)
	line, _, _ := strings.Cut(string(b[:n]), "\n")
	part := strings.Split(line, "\t")
	if len(part) != 4 {
		return h, false
	}
	pid, err := strconv.ParseUint(part[0], 10, 32)
	if err != nil {
		return h, false
	}
	h.PID, h.Kind = uint32(pid), Kind(part[1])
	h.Key, _ = strconv.Unquote(part[2])
	h.Command, _ = strconv.Unquote(part[3])
	return h, true
}

// taken says whether anybody holds a lock of a file.
func taken(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lk) == nil && lk.Type != unix.F_UNLCK
}

// named says whether path still leads to f.
func named(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

func ofdLock(f *os.File, kind int16, r Range) (bool, error) {
	lk := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: r.Start, Len: r.Len}
	for {
		switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}
