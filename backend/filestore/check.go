package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/storefs/storefs/backend"
)

// CheckOptions of Check. Nil means the defaults.
type CheckOptions struct {
	Report   func(Finding)           // called for everything that is wrong, in no order; nil: only counted
	Progress func(keys, bytes int64) // called with what was read since the last call; nil: not called
}

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

// Check reads all of the newest generation of the store in dir, which may be in use, and of its named snapshots, and reports
// everything that is wrong. What several generations share is read once. Of what no generation needs it reads nothing. Where HEAD is damaged it
// checks every table there is, and the snapshots. The error is about what kept it from looking.
func Check(ctx context.Context, dir string, o *CheckOptions) (CheckResult, error) {
	if o == nil {
		o = &CheckOptions{}
	}
	s, err := open(dir, &Options{ReadOnly: true})
	if errors.Is(err, backend.ErrCorrupt) {
		s, err = inspect(dir, nil)
	}
	if err != nil {
		return CheckResult{}, fmt.Errorf("open store: %w", err)
	}
	defer s.Close()
	c := &checker{s: s, o: o, buf: make([]byte, blockSize), tabs: map[uint64]*layer{}}
	defer c.close()
	err = c.all(ctx)
	return c.r, err
}

// checker checks a store.
type checker struct {
	s    *Store
	o    *CheckOptions
	r    CheckResult
	buf  []byte
	tabs map[uint64]*layer   // tables read so far
	exts map[extent]struct{} // pieces of values found sound; nil if there is but one generation
}

func (c *checker) close() {
	for _, t := range c.tabs {
		t.close()
	}
}

func (c *checker) report(f Finding) {
	c.r.Problems++
	if c.o.Report != nil {
		c.o.Report(f)
	}
}

func (c *checker) all(ctx context.Context) error {
	names, _, err := c.s.snapshotNames()
	if err != nil {
		return err
	}
	if len(names) > 0 {
		c.exts = map[extent]struct{}{}
	}
	p, err := c.s.pinNewest()
	switch err = c.s.headGone(err); {
	case err == nil:
		defer c.s.unpin(p)
		g := newGenerationCheck(c, p, "")
		if err := g.all(ctx); err != nil {
			return err
		}
		g.sum()
		found, err := c.s.besideHEAD()
		if err != nil {
			return err
		}
		for _, f := range found {
			c.report(f)
		}
	case isDamage(err):
		c.report(c.s.finding(err))
		if err := c.allTables(ctx); err != nil {
			return err
		}
	default:
		return err
	}
	if err := c.files(); err != nil {
		return err
	}
	for _, name := range names {
		if err := c.snapshot(ctx, name); err != nil {
			return err
		}
	}
	c.r.Unknown, err = c.s.unknown()
	return err
}

// snapshot checks the generation kept under name.
func (c *checker) snapshot(ctx context.Context, name string) error {
	p, err := c.s.pinNamed(ctx, name)
	if errors.Is(err, backend.ErrNotFound) { // removed meanwhile
		return nil
	}
	c.r.Snapshots++
	if err != nil {
		if isDamage(err) {
			f := c.s.finding(err)
			f.Path, f.Snapshot = c.s.relative(c.s.namedPath(name)), name
			c.report(f)
			return nil
		}
		return err
	}
	defer c.s.unpin(p)
	return newGenerationCheck(c, p, name).all(ctx)
}

// table reads a table, once: when it does, news is what is wrong with it.
func (c *checker) table(ctx context.Context, id uint64) (t *layer, news []flaw, err error) {
	if t := c.tabs[id]; t != nil {
		return t, nil, nil
	}
	if t, err = c.s.survey(ctx, id); err != nil {
		return nil, nil, err
	}
	c.tabs[id] = t
	c.r.Blocks += len(t.blocks)
	return t, t.flaws, nil
}

// allTables reads the tables that there are, where no HEAD says which are needed.
func (c *checker) allTables(ctx context.Context) error {
	ids, err := c.s.tableFiles()
	if err != nil {
		return err
	}
	for _, id := range ids {
		c.r.Tables++
		_, news, err := c.table(ctx, id)
		if err != nil {
			return err
		}
		for _, f := range news {
			c.report(f.Finding)
		}
	}
	return nil
}

// files looks at the files beside those that a generation names.
func (c *checker) files() error {
	for _, d := range []string{"index", "data", "tmp"} {
		if i, err := c.s.disk.Stat(filepath.Join(c.s.dir, d)); err != nil || !i.IsDir() {
			c.report(Finding{Path: d, Reason: "no folder"})
		}
	}
	for _, f := range []string{"lock", "durable"} {
		if i, err := c.s.disk.Lstat(filepath.Join(c.s.dir, f)); err != nil || !i.Regular() {
			c.report(Finding{Path: f, Reason: "the file is gone"})
		}
	}
	return nil
}
