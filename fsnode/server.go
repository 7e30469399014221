package fsnode

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
)

// Server is one mount of a store.
type Server struct {
	fuse.RawFileSystem // what is not implemented here is ENOSYS

	main   *tree // the mounted store
	o      Options
	fuse   *fuse.Server
	ctx    context.Context // ends when the mount does
	stop   context.CancelFunc
	stats  stats
	errors errorLog
	done   sync.WaitGroup // the watcher
	mounts mounts

	names sync.RWMutex // see doc.go

	mu         sync.Mutex
	nodes      map[uint64]*node
	handles    map[uint64]any       // *readHandle, *writeHandle, *dirHandle, *controlHandle
	retries    map[uint32]*retry    // by thread
	refused    map[uint32]refusal   // by thread
	trees      map[controlKey]*tree // transactions and open snapshots, by the id of the folder and the name
	lockIDs    map[uint64]string    // what the locks of a handle belong to
	lockOwners map[uint64]map[lockOwner]struct{}
	lastNode   uint64
	lastHandle uint64

	due atomic.Int64 // write handles whose release is due
}

// Mount shows store at mountpoint and returns when the mount answers. The store stays the caller's, to be closed after Wait.
func Mount(store backend.Store, mountpoint string, o *Options) (*Server, error) {
	s := &Server{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		nodes:         map[uint64]*node{},
		handles:       map[uint64]any{},
		retries:       map[uint32]*retry{},
		refused:       map[uint32]refusal{},
		trees:         map[controlKey]*tree{},
		lockIDs:       map[uint64]string{},
		lockOwners:    map[uint64]map[lockOwner]struct{}{},
		lastNode:      firstNode,
	}
	if o != nil {
		s.o = *o
	}
	if s.o.LockTimeout == 0 {
		s.o.LockTimeout = 30 * time.Second
	}
	if s.o.FsName == "" {
		s.o.FsName = "storefs"
	}
	if s.o.Log == nil {
		s.o.Log = log.New(os.Stderr, "storefs: ", log.LstdFlags)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	snap, err := store.Snapshot(s.ctx)
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	if s.main, err = s.newTree(store, "", rootNode); err != nil {
		return nil, fmt.Errorf("root directory: %w", err)
	}

	server, err := fuse.NewServer(s, mountpoint, s.mountOptions())
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("mount %s: %w", mountpoint, err)
	}
	s.fuse = server
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		s.stop()
		return nil, fmt.Errorf("mount %s: %w", mountpoint, err)
	}
	s.mounts.find(mountpoint)
	s.done.Go(func() { s.main.watch(snap.Generation()) })
	s.done.Go(s.dropForgotten)
	return s, nil
}

func (s *Server) mountOptions() *fuse.MountOptions {
	m := &fuse.MountOptions{
		AllowOther:               s.o.AllowOther,
		FsName:                   s.o.FsName,
		Name:                     "storefs",
		Options:                  append([]string(nil), s.o.Extra...),
		MaxBackground:            64,
		MaxWrite:                 1 << 20,
		ExplicitDataCacheControl: true,
		EnableLocks:              s.o.Locks != nil,
		DisableXAttrs:            s.o.NoXattr,
		ExtraCapabilities:        fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_EXPLICIT_INVAL_DATA,
		DirectMount:              os.Geteuid() == 0,
		DirectMountFlags:         unix.MS_NOSUID | unix.MS_NODEV,
		Logger:                   s.o.Log,
		Debug:                    s.o.Debug,
	}
	if s.o.ReadOnly {
		m.Options = append(m.Options, "ro")
		if m.DirectMount {
			m.Options = m.Options[:len(m.Options)-1]
			m.DirectMountFlags |= unix.MS_RDONLY
		}
	}
	// A mount that only root can use needs no checks, and with them each notification of a name costs the next open a GETATTR.
	if os.Geteuid() != 0 || s.o.AllowOther {
		m.Options = append(m.Options, "default_permissions")
	}
	if m.DirectMount {
		m.Options = kernelOptions(m)
	}
	return m
}

// kernelOptions turns options that mount(2) takes as flags into flags, and returns the others.
func kernelOptions(m *fuse.MountOptions) []string {
	flags := map[string]uintptr{"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "sync": unix.MS_SYNCHRONOUS,
		"dirsync": unix.MS_DIRSYNC, "relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME}
	var rest []string
	for _, o := range m.Options {
		if f, ok := flags[o]; ok {
			m.DirectMountFlags |= f
		} else if o != "rw" && o != "ro" && o != "async" {
			rest = append(rest, o)
		}
	}
	return rest
}

// Wait returns when the mount has ended and every release that came before is done.
func (s *Server) Wait() {
	s.fuse.Wait()
	s.stop()
	s.done.Wait()
	s.abandonAll()
	s.endTrees()
}

// Shutdown unmounts: what is open and unpublished is not published, publications that run are finished. A mount that is busy is
// detached, so that its name is free at once.
func (s *Server) Shutdown(mountpoint string) error {
	s.names.Lock() // no publication runs, and none begins
	s.mu.Lock()
	var all []*writeHandle
	for _, h := range s.handles {
		if w, ok := h.(*writeHandle); ok {
			all = append(all, w)
		}
	}
	s.mu.Unlock()
	s.names.Unlock()
	for _, w := range all {
		w.abandon("the mount ended", 0)
	}
	err := s.fuse.Unmount()
	if err != nil {
		if os.Geteuid() == 0 {
			err = unix.Unmount(mountpoint, unix.MNT_DETACH)
		} else {
			err = detach(mountpoint)
		}
	}
	return err
}

// Init is called by go-fuse.
func (s *Server) Init(server *fuse.Server) { s.fuse = server }

func (s *Server) String() string { return "storefs" }

// count notes a round trip.
func (s *Server) count(op opcode) { s.stats.ops[op].Add(1) }

// snapshot returns the newest generation; the caller closes it.
func (t *tree) snapshot() (backend.Snapshot, error) { return t.store.Snapshot(t.ctx) }

// entry returns what stands at ref in the newest generation.
func (t *tree) entry(ref backend.Ref) (backend.Entry, error) {
	snap, err := t.snapshot()
	if err != nil {
		return backend.Entry{}, err
	}
	defer snap.Close()
	return snap.Lookup(ref)
}

// patience is how long a request goes on after its program got a signal: long enough that SIGCHLD and the like do not
// break a commit that waits for another, short enough that ^C seems to work at once.
const patience = 200 * time.Millisecond

// request returns the context of a request: it ends with the mount, a while after the program was interrupted, and never
// later than the lock timeout allows.
func (s *Server) request(cancel <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(s.ctx)
	if cancel == nil {
		return ctx, stop
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-cancel:
			t := time.NewTimer(patience)
			defer t.Stop()
			select {
			case <-ctx.Done():
			case <-t.C:
				stop()
			}
		}
	}()
	return ctx, stop
}

// newHandle gives h a number.
func (s *Server) newHandle(h any) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastHandle++
	s.handles[s.lastHandle] = h
	return s.lastHandle
}

func (s *Server) handle(fh uint64) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handles[fh]
}

func (s *Server) takeHandle(fh uint64) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handles[fh]
	delete(s.handles, fh)
	return h
}

// nameOf returns the path of ref for messages.
func (t *tree) nameOf(ref backend.Ref) string {
	snap, err := t.snapshot()
	if err != nil {
		return t.path + ref.Name
	}
	defer snap.Close()
	p, err := backend.Path(snap, ref)
	if err != nil {
		return ref.Name
	}
	return t.path + p
}
