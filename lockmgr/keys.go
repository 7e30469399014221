package lockmgr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
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
	held map[string]map[uint64]*owned // by file and owner
	free map[string]chan struct{}     // closed when a lock of that file is given up in this process
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

// owned is an owner's description of a lock file, and the locks that it took there last, for showing.
type owned struct {
	Owner
	f     *os.File
	locks []KeyHolder
}

const (
	keyPollMin = time.Millisecond
	keyPollMax = 10 * time.Millisecond
	regions    = 256  // of a lock file: each process writes who it has in one of them
	regionSize = 4096 // bytes
)

// NewKeys keeps lock files in the folder dir, which is made when it is needed. timeout bounds each wait; 0 is 30 seconds.
func NewKeys(dir string, timeout time.Duration) *Keys {
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	return &Keys{dir: dir, timeout: timeout, held: map[string]map[uint64]*owned{}, free: map[string]chan struct{}{}}
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
			if h, ok := k.Test(id, o, r, exclusive); ok {
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
	w := k.held[path][o.ID]
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
	if k.held[path] == nil {
		k.held[path] = map[uint64]*owned{}
	}
	k.held[path][o.ID] = w
	w.locks = append(without(w.locks, r), KeyHolder{o, r, exclusive})
	k.writeLocked(path, w.f)
	return true, nil, nil
}

// without returns the locks that are left when r is given up or taken anew. One that r is in the middle of is shown as it was.
func without(locks []KeyHolder, r Range) []KeyHolder {
	return slices.DeleteFunc(locks, func(h KeyHolder) bool {
		return r.Start <= h.Range.Start && (r.Len == 0 || h.Range.Len != 0 && h.Range.end() <= r.end())
	})
}

func (r Range) end() int64 {
	if r.Len == 0 {
		return math.MaxInt64
	}
	return r.Start + r.Len
}

// overlaps says whether two ranges have a byte in common.
func (r Range) overlaps(s Range) bool { return r.Start < s.end() && s.Start < r.end() }

// writeLocked writes who in this process holds locks of a file, for other processes to show. What does not fit is left out.
func (k *Keys) writeLocked(path string, f *os.File) {
	b := make([]byte, 0, regionSize)
	for _, w := range k.held[path] {
		for _, h := range w.locks {
			line := fmt.Sprintf("%d\t%s\t%d\t%d\t%t\t%q\t%q\n", h.PID, h.Kind, h.Range.Start, h.Range.Len, h.Exclusive, h.Key, h.Command)
			if len(b)+len(line) < regionSize {
				b = append(b, line...)
			}
		}
	}
	f.WriteAt(append(b, 0), int64(os.Getpid()%regions)*regionSize) // an error spoils no lock
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
	w := k.held[path][owner]
	if w == nil {
		return nil
	}
	_, err := ofdLock(w.f, unix.F_UNLCK, r)
	w.locks = without(w.locks, r)
	if (r == Range{}) {
		k.dropLocked(path, owner, w)
	} else {
		k.writeLocked(path, w.f)
	}
	k.freedLocked(path)
	return err
}

// Drop gives up all that the owner holds of the key.
func (k *Keys) Drop(id string, kind Kind, owner uint64) { k.Unlock(id, kind, owner, Range{}) }

// dropLocked closes an owner's description, and removes the file if nobody else uses it.
func (k *Keys) dropLocked(path string, owner uint64, w *owned) {
	delete(k.held[path], owner)
	if len(k.held[path]) == 0 {
		delete(k.held, path)
	}
	if ok, _ := ofdLock(w.f, unix.F_WRLCK, Range{}); ok && named(w.f, path) {
		os.Remove(path)
	} else {
		k.writeLocked(path, w.f)
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
	for id, w := range k.held[path] {
		for _, h := range w.locks {
			if id != o.ID && (h.Exclusive || exclusive) && h.Range.overlaps(r) {
				return h, true
			}
		}
	}
	if w := k.held[path][o.ID]; w != nil {
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
	for _, other := range holdersIn(f) {
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
		f, err := os.OpenFile(filepath.Join(k.dir, n.Name()), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		for _, h := range holdersIn(f) {
			if taken(f, h.Range) { // else its process was killed
				all = append(all, h)
			}
		}
		f.Close()
	}
	slices.SortFunc(all, func(a, b KeyHolder) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// Close drops everything that is held.
func (k *Keys) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for path, owners := range k.held {
		for id, w := range owners {
			k.dropLocked(path, id, w)
		}
		k.freedLocked(path)
	}
}

// holdersIn reads what the processes that use a lock file have written of themselves.
func holdersIn(f *os.File) []KeyHolder {
	var all []KeyHolder
	b := make([]byte, regionSize)
	for off := int64(0); ; off += regionSize {
		at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err != nil {
			return all
		}
		off = at - at%regionSize
		n, _ := f.ReadAt(b, off)
		text, _, _ := bytes.Cut(b[:n], []byte{0})
		for line := range strings.Lines(string(text)) {
			if h, ok := parseKeyHolder(strings.TrimSuffix(line, "\n")); ok {
				all = append(all, h)
			}
		}
	}
}

func parseKeyHolder(line string) (h KeyHolder, ok bool) {
	part := strings.Split(line, "\t")
	if len(part) != 7 {
		return h, false
	}
	pid, err1 := strconv.ParseUint(part[0], 10, 32)
	start, err2 := strconv.ParseInt(part[2], 10, 64)
	length, err3 := strconv.ParseInt(part[3], 10, 64)
	exclusive, err4 := strconv.ParseBool(part[4])
	key, err5 := strconv.Unquote(part[5])
	command, err6 := strconv.Unquote(part[6])
	h = KeyHolder{Owner{Key: key, Kind: Kind(part[1]), PID: uint32(pid), Command: command}, Range{start, length}, exclusive}
	return h, errors.Join(err1, err2, err3, err4, err5, err6) == nil
}

// taken says whether anybody else holds a lock in a range of f.
func taken(f *os.File, r Range) bool {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: r.Start, Len: r.Len}
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
