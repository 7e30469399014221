package filestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

const (
	namedMagic  = "storefsS"
	namedFixed  = 64
	offName     = 56
	offNamedSum = 60
	removedName = "removed-" // begins the names in tmp/ of snapshots that were removed
)

// named is what the fixed part of the file of a named snapshot says.
type named struct {
	gen, seq, nextID uint64
	made             int64
	length           uint64 // of the HEAD that follows
	name             uint32 // checksum of the snapshot's name
}

func (n *named) encode(b []byte) []byte {
	b = append(b[:0], namedMagic...)
	b = le.AppendUint32(b, formatVer)
	b = le.AppendUint32(b, 0)
	for _, v := range []uint64{n.gen, n.seq, n.nextID, uint64(n.made), n.length} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, n.name)
	return le.AppendUint32(b, checksum(b))
}

// decodeNamed decodes the fixed part. path is for the errors.
func decodeNamed(b []byte, path string) (named, error) {
	bad := func(off int, reason string) (named, error) {
		return named{}, &backend.CorruptError{Path: path, Offset: int64(off), Reason: reason}
	}
	switch {
	case len(b) < namedFixed:
		return bad(len(b), "the snapshot ends too early")
	case string(b[:8]) != namedMagic:
		return bad(0, "no magic of a snapshot")
	case le.Uint32(b[8:]) != formatVer:
		return named{}, otherVersion(b[:offNamedSum], le.Uint32(b[offNamedSum:]), path)
	case checksum(b[:offNamedSum]) != le.Uint32(b[offNamedSum:]):
		return bad(offNamedSum, "checksum mismatch")
	case le.Uint32(b[12:]) != 0:
		return bad(12, "unknown flags")
	}
	u := func(off int) uint64 { return le.Uint64(b[off:]) }
	n := named{u(16), u(24), u(32), int64(u(40)), u(48), le.Uint32(b[offName:])}
	if n.length < headFixed+4 || n.length > maxHead {
		return bad(48, "impossible length")
	}
	return n, nil
}

func (s *Store) namedPath(name string) string { return filepath.Join(s.dir, "snapshots", name) }

// readNamed reads the fixed part of a snapshot's file.
func readNamed(f *disk.File) (named, error) {
	var b [namedFixed]byte
	n, err := readFull(f, b[:], 0)
	if err != nil {
		return named{}, err
	}
	return decodeNamed(b[:n], f.Name())
}

// readNamedHead reads all that a snapshot's file holds.
func readNamedHead(f *disk.File) (named, *head, error) {
	n, err := readNamed(f)
	if err != nil {
		return n, nil, err
	}
	b := make([]byte, n.length)
	k, err := readFull(f, b, namedFixed)
	if err != nil {
		return n, nil, err
	}
	h, err := decodeHead(b[:k], f.Name())
	if c := (*backend.CorruptError)(nil); errors.As(err, &c) {
		c.Offset += namedFixed
	}
	if err == nil && (h.gen != n.gen || h.seq != n.seq || h.nextID != n.nextID || k != len(b)) {
		err = &backend.CorruptError{Path: f.Name(), Offset: namedFixed, Reason: "not the generation that the snapshot names"}
	}
	return n, h, err
}

// CreateSnapshot implements backend.Snapshotter. The generation and its name are on stable storage when it returns, whatever the sync
// mode: so no recovery falls back behind a snapshot.
//
//	step                                             after a crash here
//	sync the generation, which is pinned             nothing happened
//	write and sync a file in tmp/                    a file that is swept
//	under the commit lock: note that it is durable   the same
//	rename it into snapshots/, sync that             the snapshot is there, whole
func (s *Store) CreateSnapshot(ctx context.Context, name string) (backend.NamedSnapshot, error) {
	n, err := s.createSnapshot(ctx, name)
	if err != nil {
		return backend.NamedSnapshot{}, fmt.Errorf("create snapshot %q: %w", name, err)
	}
	return n, nil
}

func (s *Store) createSnapshot(ctx context.Context, name string) (none backend.NamedSnapshot, err error) {
	if err := backend.ValidName(name); err != nil {
		return none, err
	}
	if s.opt.ReadOnly {
		return none, backend.ErrReadOnly
	}
	s.life.RLock()
	defer s.life.RUnlock()
	p, _, err := s.pinSynced(ctx)
	if err != nil {
		return none, err
	}
	defer s.unpin(p)
	if err := s.absent(name); err != nil { // before the work; what counts is under the lock
		return none, err
	}
	f, err := s.tempFile()
	if err != nil {
		return none, err
	}
	defer f.Close()
	defer func() {
		if err != nil {
			s.disk.Remove(f.Name())
		}
	}()
	made := time.Now().UnixNano()
	if err = s.writeNamed(f, name, p.h, made); err == nil {
		err = s.nameSnapshot(ctx, p, f, name)
	}
	if err != nil {
		return none, err
	}
	return backend.NamedSnapshot{Name: name, Generation: backend.Generation(p.h.gen), Time: made}, nil
}

// writeNamed makes f the file of a snapshot of h, and syncs it.
func (s *Store) writeNamed(f *disk.File, name string, h *head, made int64) error {
	image := h.encode(nil)
	n := named{h.gen, h.seq, h.nextID, made, uint64(len(image)), checksum([]byte(name))}
	if _, err := f.Write(append(n.encode(nil), image...)); err != nil {
		return err
	}
	if err := f.Chmod(s.fileMode); err != nil {
		return err
	}
	return f.Sync()
}

// nameSnapshot gives the file its place, while p is pinned.
func (s *Store) nameSnapshot(ctx context.Context, p *pin, f *disk.File, name string) error {
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	dir := filepath.Join(s.dir, "snapshots")
	if err := s.disk.Mkdir(dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := s.disk.Sync(s.dir); err != nil { // who made it may have died before he did
		return err
	}
	if err := s.absent(name); err != nil {
		return err
	}
	if s.readDurable().seq < p.h.seq {
		if err := s.writeDurableLocked(p.h); err != nil {
			return err
		}
	}
	// Readers must find it unlocked; nobody sweeps it, as that is done under an exclusive lock.
	if _, err := f.TryShared(); err != nil {
		return err
	}
	if err := s.disk.Rename(f.Name(), s.namedPath(name)); err != nil {
		return err
	}
	if err := s.disk.Sync(dir); err != nil {
		return errors.Join(err, s.disk.Remove(s.namedPath(name)))
	}
	return nil
}

// absent returns ErrExists if there is something of that name.
func (s *Store) absent(name string) error {
	_, err := s.disk.Lstat(s.namedPath(name))
	if err == nil {
		return backend.ErrExists
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveSnapshot implements backend.Snapshotter. A damaged one can be removed too. What only it needed goes as soon as what is newest is
// durable, and nobody reads it any more.
func (s *Store) RemoveSnapshot(ctx context.Context, name string) error {
	if err := s.removeSnapshot(ctx, name); err != nil {
		return fmt.Errorf("remove snapshot %q: %w", name, err)
	}
	signal(s.dirty)
	signal(s.kick)
	return nil
}

func (s *Store) removeSnapshot(ctx context.Context, name string) error {
	if err := backend.ValidName(name); err != nil {
		return err
	}
	if s.opt.ReadOnly {
		return backend.ErrReadOnly
	}
	s.life.RLock()
	defer s.life.RUnlock()
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	path := s.namedPath(name)
	fi, err := s.disk.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !fi.Regular() {
		return backend.ErrNotFound
	}
	if err != nil {
		return err
	}
	var r [8]byte
	rand.Read(r[:])
	// In tmp/ it holds what it names for as long as somebody reads it. Its lock tells, and its name is nobody's any more.
	if err := s.disk.Rename(path, filepath.Join(s.dir, "tmp", removedName+hex.EncodeToString(r[:]))); err != nil {
		return err
	}
	s.removed.Store(true)
	if err := s.disk.Sync(filepath.Dir(path)); err != nil { // else it could come back after a power failure, without what it names
		return err
	}
	return s.sweepLocked()
}

// OpenSnapshot implements backend.Snapshotter.
func (s *Store) OpenSnapshot(ctx context.Context, name string) (backend.Snapshot, error) {
	err := backend.ValidName(name)
	var p *pin
	if err == nil {
		p, err = s.pinNamed(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open snapshot %q: %w", name, err)
	}
	return &snapshot{p: p}, nil
}

// pinNamed pins the generation kept under name.
func (s *Store) pinNamed(ctx context.Context, name string) (*pin, error) {
	n, p, err := s.pinSnapshot(ctx, name)
	if err == nil && n.name != checksum([]byte(name)) {
		s.unpin(p)
		return nil, &backend.CorruptError{Path: s.namedPath(name), Offset: offName, Reason: "the file of a snapshot of another name"}
	}
	return p, err
}

// pinSnapshot pins the generation in the file of the name: like that of a HEAD file, with a shared lock on the snapshot's. If the name still leads
// to the file when that is locked, whoever removes it finds the lock.
func (s *Store) pinSnapshot(ctx context.Context, name string) (none named, p *pin, err error) {
	path := s.namedPath(name)
	for {
		if err := ctx.Err(); err != nil {
			return none, nil, err
		}
		f, err := s.openRegular(path)
		if errors.Is(err, os.ErrNotExist) {
			return none, nil, backend.ErrNotFound
		}
		if err != nil {
			return none, nil, err
		}
		ok, err := f.TryShared()
		var ino uint64
		if err == nil {
			ino, err = inoOf(f)
		}
		if err != nil {
			f.Close()
			return none, nil, err
		}
		i, err := s.disk.Stat(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			f.Close()
			return none, nil, err
		}
		if !ok || err != nil || i.Ino != ino { // removed meanwhile
			f.Close()
			if !ok { // or locked by another program
				time.Sleep(time.Millisecond)
			}
			continue
		}
		n, h, err := readNamedHead(f)
		if err != nil {
			f.Close()
			return none, nil, err
		}
		p, err := s.pinFile(h, f, ino)
		return n, p, err
	}
}

// pinFile makes a pin of h, of which f, locked, is the file.
func (s *Store) pinFile(h *head, f *disk.File, ino uint64) (*pin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		f.Close()
		return nil, backend.ErrClosed
	}
	return &pin{s: s, h: h, f: f, ino: ino, refs: 1, tabs: s.tableSetLocked(h.tabs)}, nil
}

// openRegular opens a file, or returns ErrNotExist if there is something else.
func (s *Store) openRegular(path string) (*disk.File, error) {
	f, err := s.disk.Open(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	if fi, err := f.Info(); err != nil || !fi.Regular() {
		f.Close()
		if err == nil {
			err = &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
		}
		return nil, err
	}
	return f, nil
}

// Snapshots implements backend.Snapshotter. It reads the fixed parts of the files only. A name whose file is damaged there is listed
// without generation and time; OpenSnapshot and Check say what is wrong with it.
func (s *Store) Snapshots(ctx context.Context) ([]backend.NamedSnapshot, error) {
	if s.isClosed() {
		return nil, fmt.Errorf("list snapshots: %w", backend.ErrClosed)
	}
	names, _, err := s.snapshotNames()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	list := make([]backend.NamedSnapshot, 0, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := s.openRegular(s.namedPath(name))
		if errors.Is(err, os.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list snapshots: %w", err)
		}
		n, err := readNamed(f)
		f.Close()
		if err != nil && !errors.Is(err, backend.ErrCorrupt) && !errors.Is(err, backend.ErrFormat) {
			return nil, fmt.Errorf("list snapshots: %w", err)
		}
		list = append(list, backend.NamedSnapshot{Name: name, Generation: backend.Generation(n.gen), Time: n.made})
	}
	return list, nil
}

// snapshotNames returns the names of the files in snapshots/, sorted, and of what else there is.
func (s *Store) snapshotNames() (names, others []string, err error) {
	ds, err := s.disk.ReadDir(filepath.Join(s.dir, "snapshots"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	for _, d := range ds {
		if d.Type().IsRegular() {
			names = append(names, d.Name())
		} else {
			others = append(others, d.Name())
		}
	}
	slices.Sort(names)
	slices.Sort(others)
	return names, others, err
}
