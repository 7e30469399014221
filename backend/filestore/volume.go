package filestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// volumes keeps open volume files by number, at most about limit of them that nobody uses.
type volumes struct {
	s     *Store
	mu    sync.Mutex // guards all below
	m     map[uint64]*volFile
	idle  []*volFile // least recently used first
	limit int        // 0 after Close
}

type volFile struct {
	id   uint64
	f    *disk.File
	refs int
}

// get opens volume id, or takes it from those open.
func (v *volumes) get(id uint64) (*volFile, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.m[id]; f != nil {
		if f.refs == 0 {
			v.unidleLocked(f)
		}
		f.refs++
		return f, nil
	}
	mode := os.O_RDWR
	if v.s.opt.ReadOnly {
		mode = os.O_RDONLY
	}
	path := v.s.volumePath(id)
	file, err := v.s.disk.Open(path, mode, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &backend.CorruptError{Path: path, Reason: "the volume is missing"}
	}
	if err != nil {
		return nil, err
	}
	f := &volFile{id: id, f: file, refs: 1}
	v.m[id] = f
	return f, nil
}

func (v *volumes) put(f *volFile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.refs--; f.refs > 0 {
		return
	}
	v.idle = append(v.idle, f)
	for len(v.idle) > v.limit {
		v.closeLocked(v.idle[0])
	}
}

func (v *volumes) unidleLocked(f *volFile) {
	for i, x := range v.idle {
		if x == f {
			v.idle = append(v.idle[:i], v.idle[i+1:]...)
			return
		}
	}
}

func (v *volumes) closeLocked(f *volFile) {
	v.unidleLocked(f)
	if v.m[f.id] == f {
		delete(v.m, f.id)
	}
	f.f.Close()
}

// closeRemoved closes idle files that have been removed by anyone, so that their space is given back.
func (v *volumes) closeRemoved() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range append([]*volFile(nil), v.idle...) {
		if i, err := f.f.Info(); err == nil && i.Nlink == 0 {
			v.closeLocked(f)
		}
	}
}

// forget makes the next get of id open the file anew.
func (v *volumes) forget(id uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.m[id]; f != nil {
		delete(v.m, id)
		if f.refs == 0 {
			v.closeLocked(f)
		}
	}
}

func (v *volumes) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limit = 0
	for len(v.idle) > 0 {
		v.closeLocked(v.idle[0])
	}
}

// readFull reads into b at off until b is full or the file ends.
func readFull(f *disk.File, b []byte, off int64) (int, error) {
	n, err := f.ReadAt(b, off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// readVolume fills b from a volume; less than that is damage.
func (v *volumes) read(id uint64, b []byte, off int64) error {
	f, err := v.get(id)
	if err != nil {
		return err
	}
	defer v.put(f)
	n, err := readFull(f.f, b, off)
	if err == nil && n < len(b) {
		err = &backend.CorruptError{Path: v.s.volumePath(id), Offset: off + int64(n), Reason: "the volume ends too early"}
	}
	return err
}

// readTable returns the checked block checksums of an extent.
func (v *volumes) table(x extent) ([]byte, error) {
	b := make([]byte, 4*blocksOf(x.n))
	if err := v.read(x.vol, b, int64(x.off+x.n)); err != nil {
		return nil, err
	}
	if checksum(b) != x.crc {
		return nil, v.mismatch(x, x.n)
	}
	return b, nil
}

func (v *volumes) mismatch(x extent, at uint64) error {
	return &backend.CorruptError{Path: v.s.volumePath(x.vol), Offset: int64(x.off + at), Reason: "checksum mismatch"}
}

// verify reads a whole extent and checks it. buf is at least blockSize long.
func (v *volumes) verify(x extent, buf []byte) error {
	t, err := v.table(x)
	if err != nil {
		return err
	}
	for i := range blocksOf(x.n) {
		b := buf[:min(blockSize, x.n-i*blockSize)]
		if err := v.read(x.vol, b, int64(x.off+i*blockSize)); err != nil {
			return err
		}
		if checksum(b) != le.Uint32(t[4*i:]) {
			return v.mismatch(x, i*blockSize)
		}
	}
	return nil
}

func (s *Store) volumePath(id uint64) string { return fmt.Sprintf("%s/data/%016x", s.dir, id) }
func (s *Store) tablePath(id uint64) string  { return fmt.Sprintf("%s/index/%016x", s.dir, id) }
