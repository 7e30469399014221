package filestore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
	"github.com/storefs/storefs/lockmgr"
)

// faultKind is a way in which a system call goes wrong.
type faultKind struct {
	name  string
	err   unix.Errno
	made  bool // the call is made, and yet said to have gone wrong
	short bool // half is written, and that is said
	on    bool // all calls after it go wrong too
	hits  func(*disk.Call) bool
	every int // in an ordinary run it strikes every so many calls
}

func anyCall(c *disk.Call) bool { return true }

// changing are calls that may go wrong after they have done what they should.
func changing(c *disk.Call) bool {
	return c.Op.Changes() && c.Op != disk.Open || c.Op == disk.Sync || c.Op == disk.Datasync || c.Op == disk.Close
}

// growing are calls that a full disk refuses.
func growing(c *disk.Call) bool {
	return c.Op == disk.Open && c.Flags&os.O_CREATE != 0 || slices.Contains([]disk.Op{disk.Write, disk.Mkdir, disk.Link, disk.Rename, disk.Allocate}, c.Op)
}

func interruptible(c *disk.Call) bool {
	return c.Op != disk.Close && c.Op != disk.OpenLock && c.Op != disk.Acquire && c.Op != disk.LockByte
}

var faultKinds = []faultKind{
	{name: "EIO", err: unix.EIO, hits: anyCall, every: 2},
	{name: "EIO after it was made", err: unix.EIO, made: true, hits: changing, every: 2},
	{name: "ENOSPC", err: unix.ENOSPC, hits: growing, every: 1},
	{name: "ENOSPC from there on", err: unix.ENOSPC, on: true, hits: growing, every: 2},
	{name: "EIO from there on", err: unix.EIO, on: true, hits: anyCall, every: 5},
	{name: "short write", short: true, hits: func(c *disk.Call) bool { return c.Op == disk.Write && len(c.Data) > 1 }, every: 1},
	{name: "EINTR", err: unix.EINTR, hits: interruptible, every: 8},
}

// harmless says whether an operation is to succeed whichever call meets the fault.
func (k *faultKind) harmless() bool { return k.short || k.err == unix.EINTR }

// faultyDisk lets one call go wrong.
type faultyDisk struct {
	mu   sync.Mutex
	kind *faultKind // nil while nothing goes wrong
	left int        // calls that go well before
	hit  []string   // the calls that went wrong
}

func (f *faultyDisk) arm(k *faultKind, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind, f.left, f.hit = k, n, nil
}

// disarm returns the calls that went wrong.
func (f *faultyDisk) disarm() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind = nil
	return f.hit
}

// fault returns what is to befall the call, nil if nothing.
func (f *faultyDisk) fault(c *disk.Call) *faultKind {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.kind
	if k == nil || !k.hits(c) || len(f.hit) > 0 && !k.on {
		return nil
	}
	if f.left--; f.left >= 0 {
		return nil
	}
	path, to := c.Names()
	f.hit = append(f.hit, strings.TrimSuffix(fmt.Sprint(c.Op, " ", short(path), " ", short(to)), " "))
	return k
}

// miss says that the call in which fault was to strike has gone wrong by itself.
func (f *faultyDisk) miss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hit, f.left = nil, 0
}

// short leaves of a path what stands in the store.
func short(path string) string {
	if i := strings.LastIndex(path, "/s/"); i >= 0 {
		return path[i+3:]
	}
	return path
}

func (f *faultyDisk) hook(c *disk.Call) error {
	k := f.fault(c)
	switch {
	case k == nil:
		return c.Do()
	case k.short:
		c.Data = c.Data[:len(c.Data)/2]
		return c.Do()
	case k.made || c.Op == disk.Close:
		if err := c.Do(); err != nil {
			f.miss()
			return err
		}
	}
	return k.err
}

// dump is all that can be seen of the newest generation and the named snapshots, but for numbers and times.
func dump(t testing.TB, s *Store) string {
	t.Helper()
	var b strings.Builder
	n := snap(t, s)
	defer n.Close()
	dumpDir(t, &b, n, backend.RootIno, "/")
	list, err := s.Snapshots(bg)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		named, err := s.OpenSnapshot(bg, l.Name)
		if err != nil {
			t.Fatal(err)
		}
		dumpDir(t, &b, named, backend.RootIno, l.Name+":/")
		named.Close()
	}
	return b.String()
}

func dumpDir(t testing.TB, b *strings.Builder, n backend.Snapshot, dir backend.Ino, path string) {
	t.Helper()
	for e, err := range n.List(dir, "") {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "%s%s %d %o %d %d %v %s", path, e.Name, e.Kind, e.Mode, e.UID, e.GID, e.Xattrs, e.Target)
		switch e.Kind {
		case backend.Dir:
			b.WriteByte('\n')
			dumpDir(t, b, n, e.Ino, path+e.Name+"/")
			continue
		case backend.File:
			data, err := read(n, e.Ref)
			if err != nil {
				t.Fatalf("%s%s: %v", path, e.Name, err)
			}
			fmt.Fprintf(b, " %d %08x", len(data), crc32.ChecksumIEEE(data))
		}
		b.WriteByte('\n')
	}
}

// differ says where two dumps first differ.
func differ(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("%.90q, not %.90q", as[i], bs[i])
		}
	}
	return fmt.Sprintf("%d lines, not %d", len(as), len(bs))
}

func copyStore(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// descriptors returns the open files below dir.
func descriptors(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	ds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if to, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			all = append(all, short(to))
		}
	}
	return all
}

// tolerated says which calls may go wrong without anybody being told, and why.
func tolerated(k *faultKind, hit string) string {
	op, path, _ := strings.Cut(hit, " ")
	path, _, _ = strings.Cut(path, " ")
	is := func(ops ...string) bool { return slices.Contains(ops, op) }
	spare := isSpare(path)
	switch {
	case is("close"):
		return "the descriptor is gone whatever close(2) says; what is to last was synced, the rest is the kernel's"
	case is("flock") && (spare || path == "HEAD"):
		return "a lock that cannot be given up ends with the file, which is closed instead"
	case is("open", "stat", "fstat", "read", "flock") && spare:
		return "another spare is taken"
	case is("open", "fallocate", "write") && spare:
		return "on a full disk a commit waits for a spare"
	case is("unlink") && (spare || strings.HasPrefix(path, "tmp/")):
		return "it goes when the store is opened next"
	case is("open", "flock", "stat") && strings.HasPrefix(path, "tmp/"):
		return "it is swept when the store is opened next"
	case is("open", "read", "fstat", "stat") && strings.HasPrefix(path, "snapshots/"):
		return "of a snapshot that cannot be read nothing is known, so nothing goes that it might name"
	case is("exchange", "rename") && spare && k.made:
		return "a look at HEAD shows that it was"
	case is("link"):
		return "with sync=always what was HEAD is no longer needed"
	case is("open", "write", "sync") && strings.HasPrefix(path, "index/") && k.err == unix.ENOSPC:
		return "on a full disk the records stay in HEAD"
	case is("fstat", "mmap", "open", "read") && path == "durable":
		return "it is read instead; or nothing is known to be durable"
	case is("write") && path == "durable":
		return "committed it is; the next commit syncs it again"
	}
	return ""
}

// step returns by how many calls two faults are apart.
func (k *faultKind) step() int {
	switch {
	case long:
		return 1
	case testing.Short() || raceDetector:
		return 8 * k.every
	}
	return k.every
}

// TestFaults has each call of each operation go wrong in each way: the store is then what it was before or what it was to be, the caller
// was told, what comes next works, and nothing is left. With STOREFS_LONG=1 it leaves out none.
func TestFaults(t *testing.T) {
	root := memoryDir(t)
	sample := filepath.Join(root, "sample")
	sampleStore(t, sample)
	for row, c := range faultCases() {
		for _, mode := range []SyncMode{Always, Interval} {
			t.Run(fmt.Sprint(c.name, "/", mode), func(t *testing.T) {
				t.Parallel()
				h := &faultRun{c: c, sample: sample, root: filepath.Join(root, "run", fmt.Sprint(strings.ReplaceAll(c.name, " ", "-"), "-", mode))}
				h.c.o.Sync, h.c.o.Interval, h.c.o.ManualMerge, h.c.o.LockTimeout = mode, time.Hour, true, 5*time.Second
				h.c.o.sizes = &smallSizes
				h.old, h.new = h.states(t)
				for i := range faultKinds {
					k := &faultKinds[i]
					step := k.step()
					for n := (row + int(mode)) % step; h.one(t, k, n) && !t.Failed(); n += step {
						if n > 2000 {
							t.Fatal("it never succeeds")
						}
					}
				}
				t.Logf("%d faults", h.faults)
			})
		}
	}
}

type faultRun struct {
	c            faultCase
	sample, root string
	old, new     string // states of the store
	faults       int
	runs         int
	dir          string // of the present run
}

// prepare opens a copy of the sample, in dir.
func (h *faultRun) prepare(t *testing.T, f *faultyDisk) (s *Store, dir string) {
	if err := os.RemoveAll(h.root); err != nil {
		t.Fatal(err)
	}
	h.runs++
	h.dir = filepath.Join(h.root, fmt.Sprint(h.runs)+"/")
	dir = filepath.Join(h.dir, "s")
	copyStore(t, h.sample, dir)
	if h.c.open != nil {
		return nil, dir
	}
	o := h.c.o
	o.Disk = disk.New(f.hook)
	s, err := Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	if h.c.before != nil {
		h.c.before(t, s)
	}
	return s, dir
}

func (h *faultRun) do(t *testing.T, s *Store, dir string, f *faultyDisk) error {
	if h.c.open == nil {
		return h.c.do(t, s)
	}
	o := h.c.o
	o.Disk = disk.New(f.hook)
	return h.c.open(t, dir, o)
}

// states returns what the store is before and after the operation, without a fault.
func (h *faultRun) states(t *testing.T) (old, now string) {
	f := &faultyDisk{}
	s, dir := h.prepare(t, f)
	old = h.state(t, dir, h.c.o.bootID)
	if err := h.do(t, s, dir, f); err != nil {
		t.Fatal(err)
	}
	now = h.state(t, dir, h.c.o.bootID)
	if s != nil {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return old, now
}

// state is what another process sees.
func (h *faultRun) state(t *testing.T, dir, boot string) string {
	t.Helper()
	s, err := Open(dir, &Options{Sync: Never, ManualMerge: true, bootID: boot, sizes: &smallSizes})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return dump(t, s)
}

// restarted is what is there after the machine was started anew.
func (h *faultRun) restarted(t *testing.T, dir string) string {
	t.Helper()
	return h.state(t, h.copied(t, dir), bootB)
}

// copied copies the store while nobody changes it.
func (h *faultRun) copied(t *testing.T, dir string) string {
	t.Helper()
	l, err := lockmgr.New(filepath.Join(dir, "lock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	release, err := l.Acquire(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	to := filepath.Join(h.dir, "boot", "s")
	os.RemoveAll(to)
	copyStore(t, dir, to)
	return to
}

// one lets call n go wrong. It returns false if there was none.
func (h *faultRun) one(t *testing.T, k *faultKind, n int) bool {
	f := &faultyDisk{}
	s, dir := h.prepare(t, f)
	f.arm(k, n)
	err := h.do(t, s, dir, f)
	hit := f.disarm()
	bad := func(format string, a ...any) {
		t.Helper()
		t.Errorf("%s at call %d %q: %s", k.name, n, hit, fmt.Sprintf(format, a...))
	}
	if len(hit) > 0 {
		h.faults++
	}
	h.after(t, bad, s, dir, k, err)
	if cerr := h.close(s); err == nil && cerr != nil {
		h.told(bad, k, hit, cerr)
	} else {
		h.told(bad, k, hit, err)
	}
	if t.Failed() {
		return false
	}
	h.rest(t, bad, dir)
	return len(hit) > 0
}

// close closes the store if the operation has not.
func (h *faultRun) close(s *Store) error {
	if s == nil || s.isClosed() {
		return nil
	}
	return s.Close()
}

// told looks whether the caller was told, by the operation or, of what the background has done for it, by Close.
func (h *faultRun) told(bad func(string, ...any), k *faultKind, hit []string, err error) {
	switch {
	case len(hit) == 0 || k.harmless():
		if err != nil {
			bad("error %v", err)
		}
	case err != nil && !errors.Is(err, k.err):
		bad("another error: %v", err)
	case err == nil && slices.ContainsFunc(hit, func(c string) bool { return tolerated(k, c) == "" }):
		bad("no error")
	}
}

// after looks at the state, and whether what comes next works, with this Store value and another.
func (h *faultRun) after(t *testing.T, bad func(string, ...any), s *Store, dir string, k *faultKind, err error) {
	other, oerr := Open(dir, &Options{Sync: Always, ManualMerge: true, LockTimeout: 5 * time.Second, bootID: h.c.o.bootID, sizes: &smallSizes})
	if oerr != nil {
		bad("next open: %v", oerr)
		return
	}
	now, unsure := dump(t, other), errors.Is(err, backend.ErrIndeterminate)
	switch {
	case err == nil && now != h.new:
		bad("done, but it is neither: %s", differ(now, h.new))
	case err != nil && now != h.old && !(now == h.new && (h.c.partly || unsure)):
		bad("error %v, and not as before: %s", err, differ(now, h.old))
	}
	if err != nil && !unsure && h.c.o.bootID == "" {
		if again := h.restarted(t, dir); again != now {
			bad("another state after the machine was started anew: %s", differ(again, now))
		}
	}
	if h.c.then != nil {
		if err := h.c.then(t, dir); err != nil {
			bad("then: %v", err)
		}
	}
	put(t, other, "other", pattern(5000, 1))
	if s != nil && !s.isClosed() && !s.opt.ReadOnly {
		wantValue(t, s, "other", pattern(5000, 1))
		put(t, s, "own", pattern(6000, 2))
		wantValue(t, other, "own", pattern(6000, 2))
	}
	if cerr := other.Close(); cerr != nil {
		bad("close of another: %v", cerr)
	}
}

// rest looks at what is left when everybody has closed the store.
func (h *faultRun) rest(t *testing.T, bad func(string, ...any), dir string) {
	if left := descriptors(t, h.dir); len(left) > 0 {
		bad("left open: %q", left)
	}
	s, err := Open(dir, &Options{Sync: Never, ManualMerge: true, bootID: h.c.o.bootID, sizes: &smallSizes})
	if err == nil {
		err = errors.Join(s.makeDurable(bg), s.sweep(bg), s.tidy(bg))
		h.leftovers(t, bad, s)
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		bad("sweep: %v", err)
	}
	checkStore(t, dir)
}

// leftovers looks for files that nothing names.
func (h *faultRun) leftovers(t *testing.T, bad func(string, ...any), s *Store) {
	if names, err := readNames(filepath.Join(s.dir, "tmp")); err != nil || len(names) > 0 {
		bad("in tmp: %q %v", names, err)
	}
	if quiet, err := s.quiet(); err != nil || !quiet {
		bad("files that nothing names: %v", err)
	}
	if names, err := s.listSpares(); err != nil || len(names) > manySpares+2 {
		bad("spares: %q %v", names, err)
	}
}
