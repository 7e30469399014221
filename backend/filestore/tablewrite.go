package filestore

import (
	"bufio"

	"github.com/storefs/storefs/backend/filestore/disk"
)

// tableWriter writes a table record by record, in the order of keys.
type tableWriter struct {
	f     *disk.File
	w     *bufio.Writer
	info  tabInfo
	block []byte
	cur   blockInfo
	off   uint64
	index []blockInfo
	hash  []uint64
	foot  footer
	bloom []byte
}

// newTableWriter writes to f by way of w.
func newTableWriter(f *disk.File, w *bufio.Writer, id uint64) *tableWriter {
	w.Reset(f)
	return &tableWriter{f: f, w: w, info: tabInfo{id: id, minGen: ^uint64(0)}}
}

func (w *tableWriter) add(r rec) error {
	if len(w.block) > 0 && len(w.block)+len(r) > tableBlock {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.block) == 0 {
		w.cur = blockInfo{off: w.off, dir: r.dir(), name: string(r.name())}
	}
	w.block = append(w.block, r...)
	rev := r.rev()
	w.cur.maxRev = max(w.cur.maxRev, rev)
	w.info.minGen, w.info.maxGen = min(w.info.minGen, rev), max(w.info.maxGen, rev)
	w.info.count++
	w.hash = append(w.hash, keyHash(r.dir(), string(r.name())))
	return nil
}

func (w *tableWriter) flush() error {
	if len(w.block) == 0 {
		return nil
	}
	w.block = le.AppendUint32(w.block, checksum(w.block))
	w.cur.n = uint32(len(w.block))
	w.off += uint64(len(w.block))
	w.index = append(w.index, w.cur)
	_, err := w.w.Write(w.block)
	w.block = w.block[:0]
	return err
}

// body writes index and filter.
func (w *tableWriter) body() error {
	if err := w.flush(); err != nil {
		return err
	}
	if w.info.count == 0 {
		w.info.minGen = 0
	}
	ix, bl := encodeIndex(w.index), makeBloom(w.hash)
	x := footer{uint64(len(w.index)), w.off, uint64(len(ix)), uint64(len(bl)), checksum(ix), checksum(bl)}
	w.foot, w.bloom, w.hash = x, bl, nil
	for _, b := range [][]byte{ix, bl} {
		if _, err := w.w.Write(b); err != nil {
			return err
		}
		w.off += uint64(len(b))
	}
	return w.w.Flush()
}

// footer writes the last part, which says the number of the table. The file stays open and is not synced.
func (w *tableWriter) footer() (*tableMeta, error) {
	if _, err := w.f.WriteAt(encodeFooter(w.info, w.foot), int64(w.off)); err != nil {
		return nil, err
	}
	w.info.length = w.off + footerSize
	return &tableMeta{f: w.f, info: w.info, index: w.index, bloom: w.bloom}, nil
}

// finish is body and footer.
func (w *tableWriter) finish() (*tableMeta, error) {
	if err := w.body(); err != nil {
		return nil, err
	}
	return w.footer()
}
