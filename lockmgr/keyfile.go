package lockmgr

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// keyFile is what this process has to do with one lock file. GUARDED_BY Keys.mu.
type keyFile struct {
	path   string
	owners map[uint64]*description

	waiting []*keyWait    // in the order in which they asked
	wake    chan struct{} // of capacity 1, for the attendant; nil if there is none
	mark    *os.File      // holds a shared lock on waitByte, so that the file stays and other processes see that somebody waits
	notices int32         // number of the watch that tells of changes; 0: none does
	turns   int           // locks handed on here since other processes had their chance
	resting time.Time     // until then a lock that is free is left to other processes, or until they had a turn
	seen    uint64        // the turn when that began
}

// description is an owner's own open lock file, and the locks that it took there last, for showing.
type description struct {
	f     *os.File
	locks []KeyHolder
}

const (
	regions    = 256  // of a lock file: each process writes who it has in one of them
	regionSize = 4096 // bytes
)

// fileLocked returns the keyFile of path. It stays known while it has owners or an attendant.
func (k *Keys) fileLocked(path string) *keyFile {
	f := k.files[path]
	if f == nil {
		f = &keyFile{path: path, owners: map[uint64]*description{}}
		k.files[path] = f
	}
	return f
}

func (k *Keys) tidyLocked(f *keyFile) {
	if len(f.owners) == 0 && f.wake == nil && k.files[f.path] == f {
		delete(k.files, f.path)
	}
}

// got notes that d's owner has taken l.
func (f *keyFile) got(d *description, l KeyHolder) {
	d.locks = append(without(d.locks, l.Range), l)
	f.write(d.f)
}

// without returns the locks that are left when r is given up or taken anew. One that r is in the middle of is shown as it was.
func without(locks []KeyHolder, r Range) []KeyHolder {
	return slices.DeleteFunc(locks, func(h KeyHolder) bool { return h.Range.within(r) })
}

// unlockLocked gives up what an owner holds of a range, and its description with the last of it.
func (k *Keys) unlockLocked(f *keyFile, owner uint64, r Range) error {
	d := f.owners[owner]
	_, err := setLock(int(d.f.Fd()), r.flock(unix.F_UNLCK))
	d.locks = without(d.locks, r)
	k.takeTurnsLocked(f, d.f)
	if (r != Range{}) {
		f.write(d.f)
		f.changed(d.f)
		return err
	}
	delete(f.owners, owner)
	if !f.removeUnused(d.f) {
		f.write(d.f)
	}
	d.f.Close()
	f.call()
	k.tidyLocked(f)
	return err
}

// changed wakes who waits, in every process, after a change that closes no description.
func (f *keyFile) changed(d *os.File) {
	f.call()
	now := unix.NsecToTimeval(time.Now().UnixNano())
	_ = unix.Futimes(int(d.Fd()), []unix.Timeval{now, now}) // an error only makes them look later
}

// removeUnused removes the file, which d has open, if no other description has a lock or waits for one.
func (f *keyFile) removeUnused(d *os.File) bool {
	ok, _ := setLock(int(d.Fd()), unix.Flock_t{Type: unix.F_WRLCK})
	return ok && named(d, f.path) && os.Remove(f.path) == nil
}

// lock takes what l says for the description d, if nothing is in the way.
func (f *keyFile) lock(d *os.File, l KeyHolder) (bool, error) {
	kind := int16(unix.F_RDLCK)
	if l.Exclusive {
		kind = unix.F_WRLCK
	}
	ok, err := setLock(int(d.Fd()), l.Range.flock(kind))
	if err != nil {
		err = &os.PathError{Op: "lock", Path: f.path, Err: err}
	}
	return ok, err
}

func (k *Keys) open(path string) (*os.File, error) {
	f, err := OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.Mkdir(k.dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		f, err = OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	}
	return f, err
}

// named says whether path still leads to f.
func named(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// write writes who in this process holds locks of the file, for other processes to show. What does not fit is left out.
func (f *keyFile) write(to *os.File) {
	b := make([]byte, 0, regionSize)
	for _, d := range f.owners {
		for _, h := range d.locks {
			line := fmt.Sprintf("%d\t%s\t%d\t%d\t%t\t%q\t%q\n", h.PID, h.Kind, h.Range.Start, h.Range.Len, h.Exclusive, h.Key, h.Command)
			if len(b)+len(line) < regionSize {
				b = append(b, line...)
			}
		}
	}
	to.WriteAt(append(b, 0), int64(os.Getpid()%regions)*regionSize) // an error spoils no lock
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
