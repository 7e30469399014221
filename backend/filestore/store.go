package filestore

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
	"github.com/storefs/storefs/lockmgr"
)

var (
	_ backend.Store       = (*Store)(nil)
	_ backend.Reserver    = (*Store)(nil)
	_ backend.Spacer      = (*Store)(nil)
	_ backend.Counter     = (*Store)(nil)
	_ backend.Snapshotter = (*Store)(nil)
)

// Store is a store in a directory. Lock order: life, syncMu, the commit lock, mu; nothing is waited for under mu.
type Store struct {
	dir      string // absolute, without symbolic links
	opt      Options
	sizes    *sizes
	boot     [16]byte
	fileMode os.FileMode // of the files of the store
	created  bool
	disk     *disk.Disk
	dirf     *disk.File    // dir
	durf     *disk.File    // may be nil if read-only
	durMap   mapping       // of durf
	lock     *lockmgr.Lock // the commit lock; nil if read-only
	vols     *volumes
	blocks   *blockCache

	life   sync.RWMutex // held shared by what must be over before the store is closed
	syncMu sync.Mutex   // one sync at a time

	mu         sync.Mutex // guards the following, and where it is said elsewhere
	closed     bool
	cur        *pin              // the newest known
	tables     map[uint64]*table // those in some table set
	spareFiles map[string]spare  // kept open, not locked
	own        map[uint64]bool   // generations committed here
	trash      []trash
	bgErr      error

	queue queue // the calls of Commit that wait for the commit lock

	// Guarded by the commit lock.
	spareNames []string
	lastSeq    uint64 // of the HEAD that was installed here last
	scratch    []byte
	vbuf       []byte
	spillBuf   *bufio.Writer

	removed atomic.Bool // a snapshot was removed here

	count struct{ commits, spares, spills, merges, syncs atomic.Uint64 }

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	dirty   chan struct{} // something was committed
	kick    chan struct{} // there is something to merge or to remove
	closing sync.Once
}

// Open opens the store in directory dir. ErrFormat if it is something else, ErrCorrupt if it is damaged.
func Open(dir string, o *Options) (*Store, error) {
	s, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

func open(dir string, o *Options) (*Store, error) {
	s, err := prepare(dir, o)
	if err == nil {
		err = s.start()
	}
	if err != nil {
		s.stop()
		s.release()
		return nil, err
	}
	if !s.opt.ReadOnly {
		s.wg.Add(1)
		go s.keeper(s.ctx)
		if s.opt.Sync == Interval {
			s.wg.Add(1)
			go s.syncer(s.ctx)
		}
	}
	return s, nil
}

// inspect opens what is in dir for reading, as damaged as it may be, if it is a store or was one.
func inspect(dir string, o *Options) (*Store, error) {
	s, err := prepare(dir, o)
	s.opt.ReadOnly = true
	if err == nil {
		err = s.startInspection()
	}
	if err != nil {
		s.stop()
		s.release()
		return nil, err
	}
	return s, nil
}

// prepare returns a store that has opened nothing.
func prepare(dir string, o *Options) (*Store, error) {
	s := &Store{tables: map[uint64]*table{}, spareFiles: map[string]spare{}, own: map[uint64]bool{},
		dirty: make(chan struct{}, 1), kick: make(chan struct{}, 1), blocks: newBlockCache(cacheBytes)}
	if o != nil {
		s.opt = *o
	}
	s.disk, s.sizes = s.opt.Disk, s.opt.sizes
	if s.sizes == nil {
		s.sizes = ordinarySizes()
	}
	if s.opt.Interval <= 0 {
		s.opt.Interval = time.Second
	}
	s.vols = &volumes{s: s, m: map[uint64]*volFile{}, limit: idleVolumes}
	s.vbuf = make([]byte, 0, copyChunk+blockSize)
	s.spillBuf = bufio.NewWriterSize(nil, 2*headBound)
	s.ctx, s.stop = context.WithCancel(context.Background())
	var err error
	if s.dir, err = s.disk.Real(dir); err == nil {
		err = s.bootID()
	}
	return s, err
}

// release closes what start has opened.
func (s *Store) release() {
	if s.cur != nil {
		s.cur.name = ""
		s.unpin(s.cur)
	}
	for _, sp := range s.spareFiles {
		sp.f.Close()
	}
	s.vols.close()
	s.durMap.unmap()
	if s.durf != nil {
		s.durf.Close()
	}
	if s.lock != nil {
		s.lock.Close()
	}
	if s.dirf != nil {
		s.dirf.Close()
	}
}

func (s *Store) bootID() error {
	text := s.opt.bootID
	if text == "" {
		b, err := s.disk.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return err
		}
		text = string(b)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(text), "-", ""))
	if err != nil || len(b) != len(s.boot) {
		return fmt.Errorf("boot id %q is none", text)
	}
	copy(s.boot[:], b)
	return nil
}

// start finds the newest generation: it makes the store, or recovers it, if there is need.
func (s *Store) start() error {
	st, err := s.look()
	if err != nil {
		return err
	}
	if !s.opt.ReadOnly {
		if err := s.refuseNetwork(); err != nil {
			return err
		}
	}
	if st == hasNothing {
		if !s.opt.Create || s.opt.ReadOnly {
			return &os.PathError{Op: "open", Path: filepath.Join(s.dir, "HEAD"), Err: os.ErrNotExist}
		}
		// The files' owners and modes are those of the mount; who can read the store's own files is kept from none of them. So
		// its folder is its maker's until he opens it.
		if err := s.disk.MkdirAll(filepath.Dir(s.dir), 0o777); err != nil {
			return err
		}
		if err := s.disk.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if st == hasStore {
		if err := s.refuse(); err != nil {
			return err
		}
	}
	if s.dirf, err = s.disk.Open(s.dir, os.O_RDONLY, 0); err != nil {
		return err
	}
	if !s.opt.ReadOnly {
		if s.lock, err = s.disk.OpenLock(filepath.Join(s.dir, "lock"), &lockmgr.Options{Timeout: s.opt.LockTimeout, Command: s.opt.Command}); err != nil {
			return err
		}
		if st == hasNothing {
			if err := s.create(); err != nil {
				return err
			}
		}
		if s.durf, err = s.disk.Open(filepath.Join(s.dir, "durable"), os.O_RDWR|os.O_CREATE, 0o666); err != nil {
			return err
		}
		fi, err := s.durf.Info()
		if err != nil {
			return err
		}
		s.fileMode = fi.Perm()
	}
	if s.opt.ReadOnly { // without it nothing is known to be durable
		s.durf, _ = s.disk.Open(filepath.Join(s.dir, "durable"), os.O_RDONLY, 0)
	}
	if err := s.recover(); err != nil {
		return err
	}
	if s.opt.ReadOnly {
		return nil
	}
	s.mapDurable()
	return s.sweep(s.ctx)
}

// startInspection is start for who takes what there is.
func (s *Store) startInspection() error {
	st, err := s.look()
	if err != nil {
		return err
	}
	if st == hasNothing {
		return &os.PathError{Op: "open", Path: filepath.Join(s.dir, "HEAD"), Err: os.ErrNotExist}
	}
	if err := s.refuse(); errors.Is(err, backend.ErrFormat) {
		return err
	}
	if s.dirf, err = s.disk.Open(s.dir, os.O_RDONLY, 0); err != nil {
		return err
	}
	s.durf, _ = s.disk.Open(filepath.Join(s.dir, "durable"), os.O_RDONLY, 0)
	return nil
}

// What a directory looks like.
type content int

const (
	hasStore   content = iota // HEAD or a spare
	hasNothing                // missing, empty, or what a creation that was interrupted has left
)

// look says what is at s.dir; ErrFormat if it is neither a store nor to become one.
func (s *Store) look() (content, error) {
	names, err := s.disk.List(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return hasNothing, nil
	}
	if errors.Is(err, unix.ENOTDIR) {
		return 0, fmt.Errorf("%s: not a directory: %w", s.dir, backend.ErrFormat)
	}
	if err != nil {
		if fi, serr := s.disk.Stat(s.dir); serr == nil && !fi.IsDir() {
			return 0, fmt.Errorf("%s: not a directory: %w", s.dir, backend.ErrFormat)
		}
		return 0, err
	}
	foreign, head, spare := "", false, false
	for _, n := range names {
		switch {
		case n == "HEAD":
			head = true
		case isSpare(n):
			spare = true
		case !ours(n):
			foreign = n
		}
	}
	switch {
	case head:
		return hasStore, nil
	case foreign != "":
		return 0, fmt.Errorf("%s: no storefs store, it holds %q but no HEAD: %w", s.dir, foreign, backend.ErrFormat)
	}
	return s.remains(spare)
}

// remains says what a directory without HEAD is. A store that has lost it is damaged, and not to be made anew.
func (s *Store) remains(spare bool) (content, error) {
	fi, err := s.disk.Stat(filepath.Join(s.dir, "durable"))
	if err == nil && fi.Size > 0 { // something was known to be durable
		return hasStore, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	if spare {
		if cs, err := s.comparable(); err != nil || spareGeneration(cs) {
			return hasStore, err
		}
	}
	for _, d := range []string{"index", "data", "snapshots"} {
		n, err := s.disk.List(filepath.Join(s.dir, d))
		if len(n) > 0 {
			return hasStore, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
	}
	return hasNothing, nil
}

// refuse returns an error if what is here was never a whole store, before anything is written: then there is no file durable, and
// HEAD is not one of ours, or cut.
func (s *Store) refuse() error {
	if _, err := s.disk.Lstat(filepath.Join(s.dir, "durable")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := s.disk.Open(filepath.Join(s.dir, "HEAD"), os.O_RDONLY, 0)
	if err != nil {
		return s.headGone(err)
	}
	defer f.Close()
	magic := make([]byte, len(headMagic))
	n, err := f.ReadAt(magic, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n > 0 && string(magic[:n]) != headMagic[:n] {
		tables, terr := s.tableFiles()
		cs, cerr := s.candidates()
		if err := errors.Join(terr, cerr); err != nil {
			return err
		}
		if len(tables) == 0 && !spareGeneration(cs) {
			return fmt.Errorf("%s: no storefs store, its HEAD is another program's: %w", s.dir, backend.ErrFormat)
		}
	}
	_, err = readHeadFile(f, f.Name())
	return err
}

// create makes what is missing, HEAD last, once all names that lead to it are on stable storage. Others may be doing the same, or
// have died while they did.
func (s *Store) create() error {
	release, err := s.disk.Acquire(s.ctx, s.lock)
	if err != nil {
		return err
	}
	defer release()
	if st, err := s.look(); err != nil || st == hasStore {
		return err
	}
	if err := s.tryLocks(); err != nil {
		return err
	}
	for _, d := range []string{"index", "data", "tmp"} {
		if err := s.disk.Mkdir(filepath.Join(s.dir, d), 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if s.durf, err = s.disk.Open(filepath.Join(s.dir, "durable"), os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return err
	}
	defer func() { s.durf.Close(); s.durf = nil }()
	for _, d := range []string{s.dir, filepath.Dir(s.dir)} {
		if err := s.disk.Sync(d); err != nil {
			return err
		}
	}
	var r [8]byte
	rand.Read(r[:])
	now := time.Now().UnixNano()
	h := &head{time: now, nextIno: (le.Uint64(r[:])>>24 | 1<<39) << 20, nextID: 1, dirs: 1}
	root := backend.Entry{Kind: backend.Dir, Ino: backend.RootIno, Ctime: now, Attr: backend.Attr{
		Mode: 0o755, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Atime: now, Mtime: now}}
	h.merge([]rec{entryRec(&root, &locator{}), parentRec(1, backend.RootRef, 0)})
	if s.opt.fill != nil {
		fi, err := s.durf.Info()
		if err != nil {
			return err
		}
		s.fileMode = fi.Perm()
		if h, err = s.opt.fill(s, h); err != nil {
			return err
		}
	}
	if err := s.renewLocked(&pin{h: &head{}}, h); err != nil {
		return err
	}
	s.created = true
	return nil
}

// renewLocked installs h, and then again, so that a spare too says that there was a generation since the machine started; and
// makes it durable. base is what is newest.
func (s *Store) renewLocked(base *pin, h *head) error {
	for range minSpares + 1 {
		n := *h
		n.seq = max(n.seq, base.h.seq) + 1
		if err := s.installLocked(base, &n); err != nil {
			return err
		}
		base, h = s.cur, &n
	}
	for len(s.spareNames) < minSpares {
		sp, err := s.makeSpare(s.spareNames)
		if err != nil {
			return err
		}
		s.spareNames = append(s.spareNames, sp.name)
		s.keepSpare(sp)
	}
	if err := s.syncFiles(s.ctx, s.cur, durable{}); err != nil {
		return err
	}
	if err := s.writeDurableLocked(h); err != nil {
		return err
	}
	return s.durf.Datasync() // so that, wherever it says nothing, no generation was ever there
}

// Created says whether Open has made the store.
func (s *Store) Created() bool { return s.created }

// Reserve implements backend.Reserver. Two names can share a lock, once in about 2^62: then one waits for the other in vain.
func (s *Store) Reserve(ref backend.Ref) (func(), error) {
	if s.opt.ReadOnly {
		return nil, backend.ErrReadOnly
	}
	release, ok, err := s.disk.LockByte(s.lock, int64(1+keyHash(uint64(ref.Dir), ref.Name)&(1<<62-1)))
	if err == nil && !ok {
		err = fmt.Errorf("key %q is being made: %w", ref.Name, backend.ErrExists)
	}
	if s.isClosed() {
		err = backend.ErrClosed
	}
	return release, err
}

// Space implements backend.Spacer.
func (s *Store) Space() (backend.Space, error) {
	p, err := s.pinNewest()
	if err != nil {
		return backend.Space{}, err
	}
	defer s.unpin(p)
	st, err := s.disk.Space(s.dir)
	if err != nil {
		return backend.Space{}, err
	}
	b := uint64(st.Bsize)
	return backend.Space{Total: st.Blocks * b, Free: st.Bfree * b, Available: st.Bavail * b, Keys: p.h.files + p.h.dirs - 1, Bytes: p.h.bytes}, nil
}

// Counters implements backend.Counter.
func (s *Store) Counters() backend.Counters {
	c := backend.Counters{Commits: s.count.commits.Load(), Spares: s.count.spares.Load(), Spills: s.count.spills.Load(),
		Merges: s.count.merges.Load(), Syncs: s.count.syncs.Load()}
	if s.lock != nil {
		n, d := s.lock.Waits()
		c.LockWaits, c.LockWaitTime = n, int64(d)
	}
	return c
}
