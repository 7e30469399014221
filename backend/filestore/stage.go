package filestore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// stage implements backend.Stage: in memory while it is short, then in a file of tmp/.
// INVARIANT: sums holds the checksums of the full blocks before hashed, and run that of the bytes after them up to hashed.
type stage struct {
	s      *Store
	mem    []byte
	f      *disk.File // nil while in memory
	path   string
	size   int64
	sums   []byte
	run    uint32
	hashed int64
	joined bool // the file is a volume now
	closed bool
}

// NewStage implements backend.Store.
func (s *Store) NewStage() (backend.Stage, error) {
	if s.opt.ReadOnly {
		return nil, backend.ErrReadOnly
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, backend.ErrClosed
	}
	return &stage{s: s}, nil
}

func (t *stage) Size() int64 { return t.size }

func (t *stage) ReadAt(b []byte, off int64) (int, error) {
	switch {
	case t.closed:
		return 0, backend.ErrClosed
	case off < 0:
		return 0, errNegative
	case off >= t.size:
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	want := len(b)
	b = b[:min(int64(want), t.size-off)]
	n := 0
	if t.f == nil {
		n = copy(b, t.mem[off:])
	} else {
		var err error
		if n, err = readFull(t.f, b, off); err != nil {
			return n, err
		}
		clear(b[n:]) // the file is shorter only if someone cut it
		n = len(b)
	}
	if n < want {
		return n, io.EOF
	}
	return n, nil
}

func (t *stage) WriteAt(b []byte, off int64) (int, error) {
	switch {
	case t.closed:
		return 0, backend.ErrClosed
	case off < 0 || off+int64(len(b)) < off:
		return 0, errNegative
	case t.joined:
		return 0, fmt.Errorf("stage that was committed: %w", backend.ErrInvalid)
	case len(b) == 0:
		return 0, nil
	}
	end := off + int64(len(b))
	if t.f == nil && end > t.s.sizes.stage {
		if err := t.toFile(); err != nil {
			return 0, err
		}
	}
	if t.f == nil {
		t.grow(end)
		t.size = int64(len(t.mem))
		return copy(t.mem[off:], b), nil
	}
	if off < t.hashed {
		t.unhash(off)
	}
	n, err := t.f.WriteAt(b, off)
	if off == t.hashed && n > 0 {
		t.hash(b[:n])
	}
	t.size = max(t.size, off+int64(n))
	return n, err
}

// grow makes mem at least end bytes long; the new ones are zeros.
func (t *stage) grow(end int64) {
	old := int64(len(t.mem))
	if end <= old {
		return
	}
	if end > int64(cap(t.mem)) {
		t.mem = append(make([]byte, 0, max(end, 2*old)), t.mem...)
	}
	t.mem = t.mem[:end]
	clear(t.mem[old:])
}

func (t *stage) Truncate(size int64) error {
	switch {
	case t.closed:
		return backend.ErrClosed
	case size < 0:
		return errNegative
	case t.joined:
		return fmt.Errorf("stage that was committed: %w", backend.ErrInvalid)
	}
	if t.f == nil && size > t.s.sizes.stage {
		if err := t.toFile(); err != nil {
			return err
		}
	}
	if t.f == nil {
		t.grow(size)
		t.mem = t.mem[:size]
		t.size = size
		return nil
	}
	if err := t.f.Truncate(size); err != nil {
		return err
	}
	if size < t.hashed {
		t.unhash(size)
	}
	t.size = size
	return nil
}

// toFile moves the content to a file.
func (t *stage) toFile() error {
	f, err := t.s.tempFile()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(t.mem, 0); err != nil {
		t.s.disk.Remove(f.Name())
		f.Close()
		return err
	}
	t.f, t.path = f, f.Name()
	t.hash(t.mem)
	t.mem = nil
	return nil
}

// tempFile makes a file in tmp/ that nobody sweeps while this process has it open.
func (s *Store) tempFile() (*disk.File, error) {
	for {
		var r [8]byte
		rand.Read(r[:])
		path := filepath.Join(s.dir, "tmp", fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(r[:])))
		f, err := s.disk.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		ok, err := f.TryExclusive()
		if err != nil {
			s.disk.Remove(path)
			f.Close()
			return nil, err
		}
		_, err = s.disk.Lstat(path)
		if ok && err == nil {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.disk.Remove(path)
			return nil, err
		} // else a sweeper was faster than the lock
	}
}

// hash takes in bytes that stand at hashed.
func (t *stage) hash(b []byte) {
	for len(b) > 0 {
		in := t.hashed % blockSize
		n := min(int64(len(b)), blockSize-in)
		t.run = updateSum(t.run, b[:n])
		t.hashed += n
		if in+n == blockSize {
			t.sums = le.AppendUint32(t.sums, t.run)
			t.run = 0
		}
		b = b[n:]
	}
}

// unhash forgets the checksums from the block of off on.
func (t *stage) unhash(off int64) {
	t.hashed = off / blockSize * blockSize
	t.sums, t.run = t.sums[:4*(off/blockSize)], 0
}

// table returns the block checksums of the whole stage; only what was not written in order is read again.
func (t *stage) table() ([]byte, error) {
	if t.f == nil {
		t.unhash(0)
		t.hash(t.mem)
	}
	for buf := []byte(nil); t.hashed < t.size; {
		if buf == nil {
			buf = make([]byte, 4*blockSize)
		}
		n, err := t.ReadAt(buf[:min(int64(len(buf)), t.size-t.hashed)], t.hashed)
		if err != nil {
			return nil, err
		}
		t.hash(buf[:n])
	}
	sums := append(make([]byte, 0, len(t.sums)+4), t.sums...)
	if t.hashed%blockSize != 0 {
		sums = le.AppendUint32(sums, t.run)
	}
	return sums, nil
}

func (t *stage) Close() error {
	if t.closed {
		return nil
	}
	t.closed, t.mem = true, nil
	if t.f == nil {
		return nil
	}
	var err error
	if !t.joined {
		err = t.s.disk.Remove(t.path)
	}
	t.f.Close()
	return err
}
