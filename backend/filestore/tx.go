package filestore

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/storefs/storefs/backend"
)

const (
	inlineMax = 1024 // a longer value lies in a volume
	manyExts  = 64   // a value with as many extents is rewritten where it would get one more
	copyChunk = 256 << 10
)

// tx is one batch being committed, under the commit lock.
type tx struct {
	s       *Store
	base    *pin
	h       *head // what it leaves
	add     []rec
	parents map[backend.Ino]backend.Ref // directories that came to a place
	gone    []backend.Ino               // and that left one
	exts    map[extent]int              // how often the old entries named it, less how often the new ones do
	ownVols bool                        // h.vols is a copy
	vol     *volFile
	wrote   []uint64 // shared volumes that were written to
	written uint64   // bytes, to them
	joins   []join
	newFile bool // a file was made in data/
	trash   []trash
}

// join is a stage that has become a volume.
type join struct {
	st *stage
	id uint64
}

// apply adds what c changes.
func (t *tx) apply(c *backend.Change) error {
	t.tally(c.Old, ^uint64(0))
	t.tally(c.New, 1)
	if o, n := c.Old, c.New; o != nil && o.Kind == backend.Dir && (n == nil || n.Ino != o.Ino) {
		t.gone = append(t.gone, o.Ino)
	}
	if c.New == nil {
		t.add = append(t.add, tombRec(uint64(c.Ref.Dir), c.Ref.Name, t.h.gen))
		return nil
	}
	if c.New.Kind == backend.Dir && (c.Old == nil || c.Old.Ino != c.New.Ino) {
		if t.parents == nil {
			t.parents = map[backend.Ino]backend.Ref{}
		}
		t.parents[c.New.Ino] = c.Ref
	}
	l, isNew := locatorOf(c.New), false
	if c.New.Kind == backend.File && c.Parts != nil {
		var err error
		isNew = true
		if l, err = t.value(c.Parts, c.New.Size); err != nil {
			return err
		}
		c.New.Locator, c.Parts = l, nil
	}
	t.use(c.New, -1)
	r := entryRec(c.New, l)
	if n := len(l.inline); isNew && n > 0 {
		l.inline = r[len(r)-n:] // it was in vbuf
	}
	t.add = append(t.add, r)
	return nil
}

// tally changes the counts in h by the entry e times sign.
func (t *tx) tally(e *backend.Entry, sign uint64) {
	if e == nil {
		return
	}
	if sign != 1 {
		t.use(e, 1)
	}
	switch e.Kind {
	case backend.Dir:
		t.h.dirs += sign
	case backend.File:
		t.h.bytes += sign * uint64(e.Size)
		fallthrough
	default:
		t.h.files += sign
	}
}

func (t *tx) use(e *backend.Entry, n int) {
	for _, x := range locatorOf(e).exts {
		if t.exts == nil {
			t.exts = map[extent]int{}
		}
		t.exts[x] += n
	}
}

// finish makes the records that follow from the others, and puts all into h.
func (t *tx) finish() {
	for _, d := range t.gone {
		if _, ok := t.parents[d]; !ok {
			t.add = append(t.add, tombRec(uint64(d), "", t.h.gen))
		}
	}
	for d, at := range t.parents {
		t.add = append(t.add, parentRec(uint64(d), at, t.h.gen))
	}
	for x, n := range t.exts {
		if n > 0 {
			t.dead(x)
		}
	}
	if len(t.add) > 1 {
		slices.SortFunc(t.add, func(a, b rec) int { return a.cmp(b.dir(), string(b.name())) })
	}
	t.h.merge(t.add)
}

// dead notes that nothing names the extent any more.
func (t *tx) dead(x extent) {
	i, ok := t.h.volume(x.vol)
	if !ok { // a volume for this value alone
		t.add = append(t.add, tombRec(0, volumeName(x.vol), t.h.gen))
		t.h.solos--
		t.trash = append(t.trash, trash{x.vol, true, t.h.seq})
		return
	}
	t.copyVols()
	v := &t.h.vols[i]
	if v.garbage += x.span(); v.garbage == v.length && (i < len(t.h.vols)-1 || v.length >= t.s.sizes.dead) {
		t.trash = append(t.trash, trash{x.vol, true, t.h.seq})
		t.h.vols = slices.Delete(t.h.vols, i, i+1)
	}
}

func (t *tx) copyVols() {
	if !t.ownVols {
		t.h.vols, t.ownVols = append(make([]volInfo, 0, len(t.h.vols)+1), t.h.vols...), true
	}
}

// source is a piece of a value being written.
type source struct {
	r  io.ReaderAt
	n  int64
	st *stage
}

// value stores the concatenation of the parts. Extents that are there already stay where they are, but a last one that is
// not longer than what follows it is written again with it: so a value appended to n times has O(log n) extents,
// and each byte was copied O(log n) times.
func (t *tx) value(parts []backend.Part, size int64) (*locator, error) {
	var exts []extent
	var src []source
	for _, p := range parts {
		if p.Size() == 0 {
			continue
		}
		if p.Stage != nil {
			st, _ := p.Stage.(*stage)
			src = append(src, source{p.Stage, p.Size(), st})
			continue
		}
		l := locatorOf(p.Entry)
		switch {
		case len(l.exts) == 0:
			src = append(src, source{inlineValue(l.inline), int64(len(l.inline)), nil})
		case len(src) == 0:
			exts = append(exts, l.exts...)
		default:
			src = append(src, source{t.base.value(l), p.Size(), nil})
		}
	}
	if size <= inlineMax {
		return t.inline(exts, src, size)
	}
	if len(src) == 0 {
		return &locator{exts: exts}, nil
	}
	if st := src[0].st; len(src) == 1 && len(exts) < manyExts && st != nil && st.s == t.s && st.f != nil && st.size >= t.s.sizes.solo && !st.joined {
		x, err := t.join(st)
		return &locator{exts: append(exts, x)}, err
	}
	n := int64(0)
	for _, s := range src {
		n += s.n
	}
	for k := len(exts) - 1; k >= 0 && int64(exts[k].n) <= n; k-- {
		src = slices.Insert(src, 0, source{t.base.value(&locator{exts: exts[k : k+1]}), int64(exts[k].n), nil})
		n += int64(exts[k].n)
		exts = exts[:k]
	}
	x, err := t.write(src, uint64(n))
	return &locator{exts: append(slices.Clone(exts), x)}, err
}

// inline returns a short value. It is in vbuf until its record is made.
func (t *tx) inline(exts []extent, src []source, size int64) (*locator, error) {
	if len(exts) > 0 {
		l := &locator{exts: exts}
		src = slices.Insert(src, 0, source{t.base.value(l), t.base.value(l).Size(), nil})
	}
	b := t.s.vbuf[:size:size]
	at := int64(0)
	for _, s := range src {
		if err := readAll(s.r, b[at:at+s.n], 0); err != nil {
			return nil, err
		}
		at += s.n
	}
	return &locator{inline: b}, nil
}

func readAll(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// write appends the sources to the current volume as one extent of n bytes.
func (t *tx) write(src []source, n uint64) (extent, error) {
	v, err := t.volume()
	if err != nil {
		return extent{}, err
	}
	x := extent{vol: v.id, off: t.h.vols[len(t.h.vols)-1].length, n: n}
	off := int64(x.off)
	buf, table := t.s.vbuf[:0], make([]byte, 0, 4*blocksOf(n))
	at := int64(0)
	for len(src) > 0 {
		k := min(src[0].n-at, int64(blockSize-len(buf)%blockSize))
		end := len(buf) + int(k)
		if err := readAll(src[0].r, buf[len(buf):end], at); err != nil {
			return x, err
		}
		buf = buf[:end]
		if at += k; at == src[0].n {
			src, at = src[1:], 0
		}
		if len(buf)%blockSize == 0 || len(src) == 0 {
			table = le.AppendUint32(table, checksum(buf[(len(buf)-1)/blockSize*blockSize:]))
		}
		if len(src) == 0 {
			buf = append(buf, table...)
		}
		if len(buf) >= copyChunk || len(src) == 0 {
			if _, err := v.f.WriteAt(buf, off); err != nil {
				return x, err
			}
			off += int64(len(buf))
			buf = buf[:0]
		}
	}
	x.crc = checksum(table)
	t.written += x.span()
	t.h.vols[len(t.h.vols)-1].length += x.span()
	return x, nil
}

// volume returns the volume to append to.
func (t *tx) volume() (*volFile, error) {
	t.copyVols()
	if n := len(t.h.vols); n == 0 || t.h.vols[n-1].length >= t.s.sizes.volume {
		id, err := t.s.claimID(t.h, t.s.volumePath)
		if err != nil {
			return nil, err
		}
		f, err := t.s.disk.Open(t.s.volumePath(id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return nil, err
		}
		f.Close()
		t.s.vols.forget(id)
		t.h.vols = append(t.h.vols, volInfo{id: id})
		t.newFile = true
		t.release()
	}
	if t.vol != nil {
		return t.vol, nil
	}
	v, err := t.s.vols.get(t.h.vols[len(t.h.vols)-1].id)
	if err == nil {
		t.vol = v
		t.wrote = append(t.wrote, v.id)
	}
	return v, err
}

// release gives the volume back.
func (t *tx) release() {
	if t.vol != nil {
		t.s.vols.put(t.vol)
		t.vol = nil
	}
}

// join makes the file of a stage a volume.
func (t *tx) join(st *stage) (extent, error) {
	table, err := st.table()
	if err != nil {
		return extent{}, err
	}
	id, err := t.s.claimID(t.h, t.s.volumePath)
	if err != nil {
		return extent{}, err
	}
	x := extent{vol: id, n: uint64(st.size), crc: checksum(table)}
	if _, err = st.f.WriteAt(table, st.size); err == nil {
		err = st.f.Chmod(t.s.fileMode)
	}
	if err == nil && t.s.opt.Sync == Always {
		err = st.f.Sync()
	}
	if err == nil {
		err = t.s.disk.Rename(st.path, t.s.volumePath(id))
	}
	if err != nil {
		st.f.Truncate(st.size)
		return x, err
	}
	t.s.vols.forget(id)
	st.joined = true
	t.joins = append(t.joins, join{st, id})
	t.newFile = true
	t.h.solos++
	t.add = append(t.add, volumeRec(id, x.span(), t.h.gen))
	return x, nil
}

// undo gives stages their files back. One of which this fails stays a volume, which nothing names; the stage can still be read.
func (t *tx) undo() {
	for _, j := range t.joins {
		if t.s.disk.Rename(t.s.volumePath(j.id), j.st.path) != nil {
			continue
		}
		j.st.f.Truncate(j.st.size)
		j.st.joined = false
	}
}
