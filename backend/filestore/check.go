package filestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/storefs/storefs/backend"
)

// CheckResult is what Check has looked at.
type CheckResult struct {
	Generation backend.Generation
	Files      uint64 // symbolic links among them
	Dirs       uint64
	Bytes      uint64 // of values, read and compared with their checksums
	Tables     int
	Blocks     int // of tables
	Volumes    int
	Snapshots  int      // that have names; the counts above are of the newest generation
	Unknown    []string // what is in dir, relative to it, and not of the store: nothing is wrong with that
	Problems   int      // calls of report
}

// Check reads all of the newest generation of the store in dir, which may be in use, and of its named snapshots, and calls report for
// everything that is wrong. What several generations share is read once. The error is about what kept it from looking.
func Check(ctx context.Context, dir string, report func(error)) (CheckResult, error) {
	s, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		if !errors.Is(err, backend.ErrCorrupt) {
			return CheckResult{}, err
		}
		report(err)
		return CheckResult{Problems: 1}, nil
	}
	defer s.Close()
	p, err := s.pinNewest()
	if err != nil {
		return CheckResult{}, err
	}
	defer s.unpin(p)
	names, _, err := s.snapshotNames()
	if err != nil {
		return CheckResult{}, err
	}
	sh := &shared{s: s, report: report, buf: make([]byte, blockSize)}
	if len(names) > 0 {
		sh.tabs, sh.exts = map[uint64]bool{}, map[extent]struct{}{}
	}
	c := newChecker(sh, p, "")
	c.r.Generation = backend.Generation(p.h.gen)
	if err := c.all(ctx); err != nil {
		return c.r, err
	}
	c.folders()
	for _, name := range names {
		if err := c.snapshot(ctx, name); err != nil {
			return c.r, err
		}
	}
	c.r.Unknown, err = s.unknown()
	return c.r, err
}

// snapshot checks the generation kept under name, and adds what is wrong with it to the result.
func (c *checker) snapshot(ctx context.Context, name string) error {
	p, err := c.s.pinNamed(ctx, name)
	if errors.Is(err, backend.ErrNotFound) { // removed meanwhile
		return nil
	}
	c.r.Snapshots++
	if errors.Is(err, backend.ErrCorrupt) || errors.Is(err, backend.ErrFormat) {
		c.bad(fmt.Errorf("snapshot %q: %w", name, err))
		return nil
	}
	if err != nil {
		return err
	}
	defer c.s.unpin(p)
	sub := newChecker(c.shared, p, fmt.Sprintf("snapshot %q: ", name))
	err = sub.all(ctx)
	c.r.Problems += sub.r.Problems
	return err
}

// shared is what the checks of several generations of a store have in common.
type shared struct {
	s      *Store
	report func(error)
	buf    []byte
	tabs   map[uint64]bool     // tables found sound; nil if there is but one generation
	exts   map[extent]struct{} // and pieces of values
}

func newChecker(sh *shared, p *pin, where string) *checker {
	return &checker{shared: sh, p: p, where: where, used: map[uint64]uint64{}, solo: map[uint64]uint64{}, dirs: map[uint64]backend.Ref{},
		at: map[uint64]backend.Ref{}}
}

// all checks one generation.
func (c *checker) all(ctx context.Context) error {
	if err := c.tables(ctx); err != nil {
		return err
	}
	if err := c.records(ctx); err != nil {
		return err
	}
	c.volumes()
	c.tree()
	c.counts()
	return nil
}

type checker struct {
	*shared
	p      *pin
	where  string // begins the reports
	r      CheckResult
	used   map[uint64]uint64      // bytes that live extents take, by volume
	solo   map[uint64]uint64      // volumes for one value and their lengths
	dirs   map[uint64]backend.Ref // where directory entries stand
	at     map[uint64]backend.Ref // where parent records say that directories stand
	refs   []backend.Ref          // of all entries; those in no directory are orphans
	broken bool                   // some records could not be read
}

func (c *checker) bad(err error) {
	c.r.Problems++
	if c.where != "" {
		err = fmt.Errorf("%s%w", c.where, err)
	}
	c.report(err)
}

func (c *checker) badf(format string, a ...any) {
	c.bad(&backend.CorruptError{Path: c.s.dir, Reason: fmt.Sprintf(format, a...)})
}

// tables reads every block of every table.
func (c *checker) tables(ctx context.Context) error {
	for i, t := range c.p.tabs.list {
		c.r.Tables++
		m, err := t.open()
		if err != nil {
			c.bad(err)
			c.broken = true
			continue
		}
		if m.info != c.p.h.tabs[i] {
			c.bad(&backend.CorruptError{Path: t.path, Reason: "not the table that HEAD names"})
		}
		if c.tabs[t.id] {
			continue
		}
		before := c.r.Problems
		count := uint64(0)
		var last rec
		for b := range m.index {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.r.Blocks++
			recs, err := t.records(m, b, false)
			if err != nil {
				c.bad(err)
				c.broken = true
				continue
			}
			if last != nil && !last.less(recs[0]) {
				c.bad(&backend.CorruptError{Path: t.path, Offset: int64(m.index[b].off), Reason: "blocks out of order"})
			}
			last = recs[len(recs)-1]
			count += uint64(len(recs))
			for _, r := range recs {
				if rev := r.rev(); rev < m.info.minGen || rev > m.info.maxGen || rev > m.index[b].maxRev {
					c.bad(&backend.CorruptError{Path: t.path, Offset: int64(m.index[b].off), Reason: "a revision beyond the bounds of the table"})
				}
				if !bloomHas(m.bloom, keyHash(r.dir(), string(r.name()))) {
					c.bad(&backend.CorruptError{Path: t.path, Offset: int64(m.index[b].off), Reason: "a key that the filter does not know"})
				}
			}
		}
		if count != m.info.count && !c.broken {
			c.bad(&backend.CorruptError{Path: t.path, Reason: fmt.Sprintf("%d records where %d are said to be", count, m.info.count)})
		}
		if c.tabs != nil && c.r.Problems == before {
			c.tabs[t.id] = true
		}
	}
	return nil
}

// records looks at the newest record of each key.
func (c *checker) records(ctx context.Context) error {
	if c.broken { // what can be read of values is in the tables that can be read; the rest would be false alarm
		return nil
	}
	for r, err := range c.p.scan(0, "") {
		if err == nil {
			err = ctx.Err()
		}
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			c.bad(err)
			c.broken = true
			return nil
		}
		if r.rev() > c.p.h.gen {
			c.badf("record of %q in directory %d is of generation %d, the store of %d", r.name(), r.dir(), r.rev(), c.p.h.gen)
		}
		switch k := r.kind(); {
		case k == recTomb:
		case k == recParent:
			ref, err := r.parent()
			if err != nil {
				c.bad(c.p.damaged(r, err))
			}
			c.at[r.dir()] = ref
		case k == recVolume:
			id, n, err := r.volume()
			if err != nil {
				c.bad(c.p.damaged(r, err))
			}
			c.solo[id] = n
		default:
			c.entry(r)
		}
	}
	return nil
}

func (c *checker) entry(r rec) {
	e, err := r.entry()
	if err != nil {
		c.bad(c.p.damaged(r, err))
		return
	}
	if e.Kind == backend.Dir {
		c.r.Dirs++
		c.dirs[uint64(e.Ino)] = e.Ref
	} else {
		c.r.Files++
	}
	if e.Ref != backend.RootRef {
		c.refs = append(c.refs, e.Ref)
		if err := backend.ValidName(e.Name); err != nil {
			c.bad(c.p.damaged(r, err))
		}
	}
	if e.Kind != backend.File {
		return
	}
	c.r.Bytes += uint64(e.Size)
	for _, x := range locatorOf(&e).exts {
		c.used[x.vol] += x.span()
		if _, ok := c.exts[x]; ok {
			continue
		}
		if err := c.s.vols.verify(x, c.buf); err != nil {
			c.bad(fmt.Errorf("key %q in directory %d: %w", e.Name, e.Dir, err))
		} else if c.exts != nil {
			c.exts[x] = struct{}{}
		}
	}
}

// volumes compares what extents take with what volumes are said to hold.
func (c *checker) volumes() {
	if c.broken {
		return
	}
	for _, v := range c.p.h.vols {
		c.r.Volumes++
		if err := c.s.longEnough(v.id, v.length); err != nil {
			c.bad(err)
		}
		if c.used[v.id]+v.garbage != v.length {
			c.bad(&backend.CorruptError{Path: c.s.volumePath(v.id), Reason: fmt.Sprintf("%d bytes in use and %d not, of %d", c.used[v.id], v.garbage, v.length)})
		}
		delete(c.used, v.id)
	}
	for id, n := range c.solo {
		c.r.Volumes++
		if err := c.s.longEnough(id, n); err != nil {
			c.bad(err)
		}
		if c.used[id] != n {
			c.bad(&backend.CorruptError{Path: c.s.volumePath(id), Reason: fmt.Sprintf("%d bytes in use of %d", c.used[id], n)})
		}
		delete(c.used, id)
	}
	for id := range c.used {
		c.bad(&backend.CorruptError{Path: c.s.volumePath(id), Reason: "in use, but not known to the store"})
	}
	if uint64(len(c.solo)) != c.p.h.solos {
		c.badf("%d volumes of one value, %d said to be", len(c.solo), c.p.h.solos)
	}
}

// tree looks whether every entry is in a directory, and every directory where it thinks that it is.
func (c *checker) tree() {
	if c.broken {
		return
	}
	for _, ref := range c.refs {
		if _, ok := c.dirs[uint64(ref.Dir)]; !ok {
			c.badf("%q is in directory %d, which does not exist", ref.Name, ref.Dir)
		}
	}
	for d, ref := range c.dirs {
		if at, ok := c.at[d]; !ok || at != ref {
			c.badf("directory %d stands at %q in %d, but its own record says %q in %d", d, ref.Name, ref.Dir, at.Name, at.Dir)
		}
	}
	for d := range c.at {
		if _, ok := c.dirs[d]; !ok {
			c.badf("a record says where directory %d stands, but it does not exist", d)
		}
	}
	if c.dirs[uint64(backend.RootIno)] != backend.RootRef {
		c.badf("there is no root directory")
	}
	state := map[uint64]int{uint64(backend.RootIno): 2} // 1 on the way, 2 known to lead to the root
	for d := range c.dirs {
		var way []uint64
		for state[d] == 0 && c.dirs[d] != (backend.Ref{}) {
			state[d] = 1
			way = append(way, d)
			d = uint64(c.dirs[d].Dir)
		}
		if state[d] == 1 {
			c.badf("directory %d is inside itself", d)
		}
		for _, w := range way {
			state[w] = 2
		}
	}
}

func (c *checker) counts() {
	if h := c.p.h; !c.broken && (h.files != c.r.Files || h.dirs != c.r.Dirs || h.bytes != c.r.Bytes) {
		c.bad(&backend.CorruptError{Path: c.p.f.Name(), Offset: c.offset(88), Reason: fmt.Sprintf("counts %d files, %d directories, %d bytes; there are %d, %d, %d",
			h.files, h.dirs, h.bytes, c.r.Files, c.r.Dirs, c.r.Bytes)})
	}
}

// offset returns where in the file of the generation the byte at off of a HEAD is.
func (c *checker) offset(off int64) int64 {
	if c.where != "" {
		off += namedFixed
	}
	return off
}

// folders looks whether the folders that every store has are there.
func (c *checker) folders() {
	for _, d := range []string{"index", "data", "tmp"} {
		if fi, err := c.s.disk.Stat(c.s.dir + "/" + d); err != nil || !fi.IsDir() {
			c.badf("%s is no directory", d)
		}
	}
}
