package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// memoryHistory is how many changes a Memory knows of at least; Watch from before them yields ErrHistoryGone.
const memoryHistory = 10_000

// Memory is a store that lasts as long as its process, and the specification of all others: each generation is a sorted
// list of entries that never changes, and the meaning of a batch is Resolve. A commit costs time in proportion to the whole store.
type Memory struct {
	mu       sync.Mutex // guards what follows
	now      *tree
	lastIno  Ino
	history  []Change   // what was committed after generation forgot, in order
	forgot   Generation // the newest generation of which history does not hold everything
	changed  chan struct{}
	reserved map[Ref]bool
	commits  uint64
	closed   bool
}

var (
	_ Store    = (*Memory)(nil)
	_ Reserver = (*Memory)(nil)
	_ Counter  = (*Memory)(nil)
)

// NewMemory makes an empty store: a root directory with mode 0755 at generation 0.
func NewMemory() *Memory {
	now := time.Now().UnixNano()
	root := &Entry{Ref: RootRef, Kind: Dir, Ino: RootIno, Attr: Attr{Mode: 0o755, Atime: now, Mtime: now}, Ctime: now}
	return &Memory{
		now:      &tree{entries: []*Entry{root}, dirs: map[Ino]Ref{RootIno: RootRef}},
		lastIno:  RootIno,
		changed:  make(chan struct{}),
		reserved: map[Ref]bool{},
	}
}

// tree is one generation. It never changes.
type tree struct {
	gen     Generation
	entries []*Entry    // sorted by directory, then by name
	dirs    map[Ino]Ref // where each directory stands
}

// find returns where in entries ref is, or would be.
func (t *tree) find(ref Ref) (int, bool) {
	return slices.BinarySearchFunc(t.entries, ref, func(e *Entry, ref Ref) int {
		return cmp.Or(cmp.Compare(e.Dir, ref.Dir), cmp.Compare(e.Name, ref.Name))
	})
}

// with returns the generation that follows t by changes.
func (t *tree) with(g Generation, changes []Change) *tree {
	n := &tree{gen: g, entries: slices.Clone(t.entries), dirs: maps.Clone(t.dirs)}
	for _, c := range changes {
		i, there := n.find(c.Ref)
		switch {
		case c.New == nil && there:
			n.entries = slices.Delete(n.entries, i, i+1)
		case c.New != nil && there:
			n.entries[i] = c.New
		case c.New != nil:
			n.entries = slices.Insert(n.entries, i, c.New)
		}
	}
	// A directory that moved is the old entry of one change and the new one of another.
	for _, c := range changes {
		if c.Old != nil && c.Old.Kind == Dir {
			delete(n.dirs, c.Old.Ino)
		}
	}
	for _, c := range changes {
		if c.New != nil && c.New.Kind == Dir {
			n.dirs[c.New.Ino] = c.Ref
		}
	}
	return n
}

// Snapshot is as in Store.
func (m *Memory) Snapshot(ctx context.Context) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("snapshot: %w", ErrClosed)
	}
	return &memorySnapshot{tree: m.now}, nil
}

// Commit is as in Store.
func (m *Memory) Commit(ctx context.Context, b *Batch) (Committed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.now.gen + 1
	c, err := m.commitLocked(ctx, b, g)
	if err != nil {
		return Committed{}, fmt.Errorf("commit generation %d: %w", g, err)
	}
	return c, nil
}

func (m *Memory) commitLocked(ctx context.Context, b *Batch, g Generation) (Committed, error) {
	if m.closed {
		return Committed{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Committed{}, err
	}
	next := func() Ino { m.lastIno++; return m.lastIno }
	changes, err := Resolve(&memorySnapshot{tree: m.now}, b, g, time.Now().UnixNano(), next)
	if err != nil {
		return Committed{}, err
	}
	if len(changes) == 0 {
		return Committed{Generation: m.now.gen}, nil
	}
	for i := range changes {
		c := &changes[i]
		c.Own = true
		if c.Parts == nil {
			continue
		}
		if c.New.Locator, err = concatenate(c.Parts); err != nil {
			return Committed{}, err
		}
		c.Parts = nil
	}
	m.now = m.now.with(g, changes)
	m.commits++
	m.rememberLocked(changes)
	return Committed{Generation: g, Changes: changes}, nil
}

// concatenate returns the bytes that a value made of parts has.
func concatenate(parts []Part) ([]byte, error) {
	value := []byte{}
	for _, p := range parts {
		if p.Stage == nil {
			value = append(value, p.Entry.Locator.([]byte)...)
			continue
		}
		piece := make([]byte, p.Size())
		if n, err := p.Stage.ReadAt(piece, 0); n < len(piece) {
			return nil, fmt.Errorf("read stage: %w", err)
		}
		value = append(value, piece...)
	}
	return value, nil
}

func (m *Memory) rememberLocked(changes []Change) {
	m.history = append(m.history, changes...)
	// Not at each commit, or each would copy the history.
	if drop := len(m.history) - memoryHistory; drop > memoryHistory {
		m.forgot = m.history[drop-1].Generation
		for drop < len(m.history) && m.history[drop].Generation == m.forgot {
			drop++ // half a generation is none
		}
		m.history = slices.Clone(m.history[drop:])
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// Watch is as in Store. It yields the changes of every single commit, with Old known, and ErrClosed when the store is closed.
func (m *Memory) Watch(ctx context.Context, from Generation) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for {
			news, changed, err := m.since(from)
			if err != nil {
				yield(Change{}, fmt.Errorf("watch from generation %d: %w", from, err))
				return
			}
			for _, c := range news {
				if ctx.Err() != nil || !yield(c, nil) {
					return
				}
				from = c.Generation
			}
			if len(news) > 0 {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// since returns what was committed after from, and a channel that is closed by the next commit.
func (m *Memory) since(from Generation) ([]Change, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, nil, ErrClosed
	case from < m.forgot:
		return nil, nil, ErrHistoryGone
	}
	i, _ := slices.BinarySearchFunc(m.history, from+1, func(c Change, g Generation) int { return cmp.Compare(c.Generation, g) })
	return slices.Clone(m.history[i:]), m.changed, nil
}

// Reserve is as in Reserver.
func (m *Memory) Reserve(ref Ref) (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("reserve key %q: %w", ref.Name, ErrClosed)
	}
	if m.reserved[ref] {
		return nil, fmt.Errorf("reserve key %q: %w", ref.Name, ErrExists)
	}
	m.reserved[ref] = true
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.reserved, ref)
	}), nil
}

// Counters counts commits; all else is 0.
func (m *Memory) Counters() Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counters{Commits: m.commits}
}

// Sync does nothing: memory has no stable storage.
func (m *Memory) Sync(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("sync: %w", ErrClosed)
	}
	return nil
}

// Close is as in Store. A second Close does nothing.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.changed)
	}
	return nil
}

// NewStage is as in Store.
func (m *Memory) NewStage() (Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("stage: %w", ErrClosed)
	}
	return &memoryStage{}, nil
}

// memorySnapshot is a tree that can be closed.
type memorySnapshot struct {
	*tree
	closed atomic.Bool
}

func (s *memorySnapshot) Generation() Generation { return s.gen }

func (s *memorySnapshot) Lookup(ref Ref) (Entry, error) {
	if s.closed.Load() {
		return Entry{}, fmt.Errorf("look up key %q: %w", ref.Name, ErrClosed)
	}
	i, ok := s.find(ref)
	if !ok {
		return Entry{}, fmt.Errorf("look up key %q: %w", ref.Name, ErrNotFound)
	}
	return *s.entries[i], nil
}

func (s *memorySnapshot) Parent(dir Ino) (Ref, error) {
	if s.closed.Load() {
		return Ref{}, fmt.Errorf("look up directory %d: %w", dir, ErrClosed)
	}
	ref, ok := s.dirs[dir]
	if !ok {
		return Ref{}, fmt.Errorf("look up directory %d: %w", dir, ErrNotFound)
	}
	return ref, nil
}

func (s *memorySnapshot) List(dir Ino, after string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.closed.Load() {
			yield(Entry{}, fmt.Errorf("list directory %d: %w", dir, ErrClosed))
			return
		}
		i, found := s.find(Ref{dir, after})
		if found {
			i++
		}
		for ; i < len(s.entries) && s.entries[i].Dir == dir; i++ {
			if !yield(*s.entries[i], nil) {
				return
			}
		}
	}
}

func (s *memorySnapshot) Open(e Entry) (Value, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("open key %q: %w", e.Name, ErrClosed)
	}
	switch e.Kind {
	case File:
		return &memoryValue{b: e.Locator.([]byte)}, nil
	case Dir:
		return nil, fmt.Errorf("open key %q: %w", e.Name, ErrIsDir)
	}
	return nil, fmt.Errorf("open key %q: %w", e.Name, ErrInvalid)
}

func (s *memorySnapshot) Close() error {
	s.closed.Store(true)
	return nil
}

type memoryValue struct {
	b      []byte
	closed atomic.Bool
}

func (v *memoryValue) Size() int64 { return int64(len(v.b)) }

func (v *memoryValue) ReadAt(p []byte, off int64) (int, error) {
	if v.closed.Load() {
		return 0, ErrClosed
	}
	return readAt(v.b, p, off)
}

func (v *memoryValue) Close() error {
	v.closed.Store(true)
	return nil
}

var errOffset = errors.New("negative offset")

func readAt(b, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errOffset
	}
	n := copy(p, b[min(off, int64(len(b))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

type memoryStage struct {
	b      []byte
	closed bool
}

func (s *memoryStage) Size() int64 { return int64(len(s.b)) }

func (s *memoryStage) ReadAt(p []byte, off int64) (int, error) {
	if s.closed {
		return 0, ErrClosed
	}
	return readAt(s.b, p, off)
}

func (s *memoryStage) WriteAt(p []byte, off int64) (int, error) {
	if s.closed {
		return 0, ErrClosed
	}
	if off < 0 {
		return 0, errOffset
	}
	if len(p) == 0 {
		return 0, nil
	}
	if end := off + int64(len(p)); end > s.Size() {
		s.resize(end)
	}
	return copy(s.b[off:], p), nil
}

func (s *memoryStage) Truncate(size int64) error {
	if s.closed {
		return ErrClosed
	}
	if size < 0 {
		return fmt.Errorf("size %d: %w", size, ErrInvalid)
	}
	s.resize(size)
	return nil
}

// resize makes s size bytes long; what is new is zero.
func (s *memoryStage) resize(size int64) {
	if size > s.Size() {
		s.b = append(s.b, make([]byte, size-s.Size())...)
		return
	}
	s.b = s.b[:size:size] // what is cut off must not come back
}

func (s *memoryStage) Close() error {
	s.b, s.closed = nil, true
	return nil
}
