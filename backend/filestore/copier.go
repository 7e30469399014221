package filestore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// copier writes generations of one store, each as a whole, into a new one that nobody else has open. Pieces of values that they share are
// copied once. Memory is bounded but for 8 bytes a key, and what they may share.
type copier struct {
	from *Store
	to   *Store
	t    *tx               // appends to the volumes of to
	exts map[extent]extent // copied already, and where they are; nil if that is not to be remembered
	vols []uint64          // volumes in which to look for what is not where it should be
	made []string          // tables and volumes of one value
	kept []string          // files of snapshots
	buf  []byte

	// Of the generation that is being written.
	h    head
	f    *disk.File
	w    *tableWriter
	used map[uint64]uint64 // bytes in use, by volume
}

// makeFull makes a store in dir, which must be missing or empty. What fill makes with a copier, which has no store to copy from yet, is its first
// generation, and what returns when all of it is on stable storage. Until then there is no HEAD.
func makeFull(dir string, o *Options, fill func(*copier) (*head, error)) error {
	made := *o
	made.Create, made.ManualMerge = true, true
	made.fill = func(s *Store, first *head) (*head, error) {
		h := *first
		c := &copier{to: s, t: &tx{s: s, h: &h}, buf: make([]byte, copyChunk)}
		full, err := fill(c)
		if err == nil {
			err = c.sync()
		}
		if err != nil {
			c.undo()
			return nil, err
		}
		return full, nil
	}
	s, err := Open(dir, &made)
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.Created() {
		return fmt.Errorf("another process has just made a store there: %w", backend.ErrNotEmpty)
	}
	return s.Close()
}

// mustBeEmpty returns an error if there is something in a folder in which a store is to be made.
func (s *Store) mustBeEmpty(dir string) error {
	switch st, err := (&Store{dir: dir, disk: s.disk}).look(); {
	case errors.Is(err, backend.ErrFormat):
		return fmt.Errorf("%s: %w", dir, backend.ErrNotEmpty)
	case err == nil && st == hasStore:
		return fmt.Errorf("%s: there is a store already: %w", dir, backend.ErrNotEmpty)
	default:
		return err
	}
}

// begin begins a generation that has the numbers of h, and of which no more is known.
func (c *copier) begin(h *head) (err error) {
	c.t.h.seq++
	c.t.h.nextIno = max(c.t.h.nextIno, h.nextIno)
	c.h = head{gen: h.gen, seq: c.t.h.seq, time: h.time, history: h.gen} // no removal is on record
	c.used = map[uint64]uint64{}
	if c.f, err = c.to.tempFile(); err != nil {
		return err
	}
	c.w = newTableWriter(c.f, bufio.NewWriterSize(nil, 128<<10), 0)
	return nil
}

// ino returns a number for something new.
func (c *copier) ino() backend.Ino {
	c.t.h.nextIno++
	return backend.Ino(c.t.h.nextIno - 1)
}

// abandon gives up the generation.
func (c *copier) abandon() {
	if c.f != nil {
		c.to.disk.Remove(c.f.Name())
		c.f.Close()
	}
}

// add adds a record, in the order of keys. Values must be in the new store already. Removals and the store's own volumes are not for it.
func (c *copier) add(r rec) error {
	switch r.kind() {
	case recDir:
		c.h.dirs++
	case recInline, recExtents, recSymlink:
		e, err := r.entry()
		if err != nil {
			return err
		}
		c.h.files++
		if r.kind() != recSymlink {
			c.h.bytes += uint64(e.Size)
		}
		for _, x := range locatorOf(&e).exts {
			c.used[x.vol] += x.span()
		}
	}
	return c.w.add(r)
}

// damagedValue is an error that is about the value that was to be copied.
type damagedValue struct{ error }

func (e *damagedValue) Unwrap() error { return e.error }

// value copies the pieces of a value. A *damagedValue if one of them is not what it was.
func (c *copier) value(l *locator) (*locator, error) {
	out := &locator{inline: l.inline}
	for _, x := range l.exts {
		y, ok := c.exts[x]
		if !ok {
			var err error
			if y, err = c.extent(x); err != nil {
				return nil, err
			}
			if c.exts != nil {
				c.exts[x] = y
			}
		}
		out.exts = append(out.exts, y)
	}
	return out, nil
}

// sound is a value of which it is remembered that it could not be read.
type sound struct {
	*value
	err error
}

func (v *sound) ReadAt(b []byte, off int64) (int, error) {
	n, err := v.value.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		v.err = err
	}
	return n, err
}

// extent copies one piece. One that is not where it should be may be at the same place of another volume, if files were exchanged.
func (c *copier) extent(x extent) (extent, error) {
	y, err := c.copy(x)
	if d := (*damagedValue)(nil); !errors.As(err, &d) {
		return y, err
	}
	for _, id := range c.vols {
		z := extent{id, x.off, x.n, x.crc}
		if id == x.vol {
			continue
		}
		if _, terr := c.from.vols.table(z); terr == nil {
			return c.copy(z)
		}
	}
	return y, err
}

// copy copies a piece from where it is: a long one to a volume of its own.
func (c *copier) copy(x extent) (extent, error) {
	v := &sound{value: (&pin{s: c.from}).value(&locator{exts: []extent{x}})}
	var y extent
	var err error
	if int64(x.n) < c.to.sizes.solo {
		y, err = c.t.write([]source{{v, int64(x.n), nil}}, x.n)
	} else {
		y, err = c.join(v)
	}
	if v.err != nil && isDamage(v.err) {
		err = &damagedValue{v.err}
	}
	return y, err
}

func (c *copier) join(v *sound) (extent, error) {
	b, err := c.to.NewStage()
	if err != nil {
		return extent{}, err
	}
	defer b.Close()
	if _, err := io.CopyBuffer(writerOnly{io.NewOffsetWriter(b, 0)}, readerOnly{io.NewSectionReader(v, 0, v.Size())}, c.buf); err != nil {
		return extent{}, err
	}
	y, err := c.t.join(b.(*stage))
	if err == nil {
		c.made = append(c.made, c.to.volumePath(y.vol))
	}
	c.t.joins = nil
	return y, err
}

// These hide what would have io.CopyBuffer go past the buffer.
type readerOnly struct{ io.Reader }
type writerOnly struct{ io.Writer }

// end completes the generation.
func (c *copier) end() (*head, error) {
	c.t.release()
	if err := c.table(); err != nil {
		return nil, err
	}
	for _, v := range c.t.h.vols {
		if n := c.used[v.id]; n > 0 {
			c.h.vols = append(c.h.vols, volInfo{v.id, v.length, v.length - n})
			delete(c.used, v.id)
		}
	}
	var recs []rec
	for _, id := range slices.Sorted(maps.Keys(c.used)) {
		recs = append(recs, volumeRec(id, c.used[id], c.h.gen))
	}
	c.h.solos = uint64(len(recs))
	c.h.merge(recs)
	c.h.nextID, c.h.nextIno = c.t.h.nextID, c.t.h.nextIno
	if c.h.recBytes > headBound {
		t, err := c.to.spillLocked(&c.h)
		if err != nil {
			return nil, err
		}
		c.made = append(c.made, t.path)
		t.meta.Load().f.Close()
		c.t.h.nextID = c.h.nextID
	}
	h := c.h
	return &h, nil
}

// table completes the table of the generation.
func (c *copier) table() error {
	defer c.f.Close()
	if err := c.w.body(); err != nil {
		return err
	}
	c.w.info.id = c.t.h.nextID
	c.t.h.nextID++
	m, err := c.w.footer()
	if err == nil {
		err = c.f.Chmod(c.to.fileMode)
	}
	path := c.to.tablePath(c.w.info.id)
	if err == nil {
		err = c.to.disk.Rename(c.f.Name(), path)
	}
	if err != nil {
		return err
	}
	c.f, c.made = nil, append(c.made, path)
	c.h.tabs = []tabInfo{m.info}
	return nil
}

// name keeps the generation h, which was ended, as a snapshot.
func (c *copier) name(name string, h *head, made int64) error {
	f, err := c.to.tempFile()
	if err != nil {
		return err
	}
	defer f.Close()
	if err = c.to.writeNamed(f, name, h, made); err == nil {
		err = c.to.disk.MkdirAll(filepath.Join(c.to.dir, "snapshots"), 0o777)
	}
	if err == nil {
		err = c.to.disk.Rename(f.Name(), c.to.namedPath(name))
	}
	if err != nil {
		c.to.disk.Remove(f.Name())
		return err
	}
	c.kept = append(c.kept, c.to.namedPath(name))
	return nil
}

// files returns all that was made.
func (c *copier) files() []string {
	paths := slices.Concat(c.made, c.kept)
	for _, v := range c.t.h.vols {
		paths = append(paths, c.to.volumePath(v.id))
	}
	return paths
}

// undo removes everything that was made.
func (c *copier) undo() {
	c.t.release()
	for _, p := range c.files() {
		c.to.disk.Remove(p)
	}
}

// sync syncs everything that was made.
func (c *copier) sync() error {
	paths := append(c.files(), filepath.Join(c.to.dir, "index"), filepath.Join(c.to.dir, "data"))
	if len(c.kept) > 0 {
		paths = append(paths, filepath.Join(c.to.dir, "snapshots"))
	}
	for _, p := range paths {
		if err := c.to.disk.Sync(p); err != nil {
			return err
		}
	}
	return nil
}
