package disk

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// File is an open file or directory. Its methods may be called at once, except Write.
type File struct {
	d    *Disk
	f    *os.File
	name string
	end  int64 // of what Write wrote
}

func (f *File) fd() int { return int(f.f.Fd()) }

// Name returns the path with which the file was opened.
func (f *File) Name() string { return f.name }

// Close gives up the file and its locks, whatever it returns.
func (f *File) Close() error {
	c := Call{Op: Close, File: f}
	return f.d.run(&c)
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		c := Call{Op: Read, File: f, Data: b[n:], Off: off + int64(n)}
		if err := f.d.run(&c); err != nil {
			return n, err
		}
		if c.N == 0 {
			return n, io.EOF
		}
		n += c.N
	}
	return n, nil
}

// WriteAt implements io.WriterAt.
func (f *File) WriteAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		c := Call{Op: Write, File: f, Data: b[n:], Off: off + int64(n)}
		if err := f.d.run(&c); err != nil {
			return n, err
		}
		if c.N == 0 {
			return n, &os.PathError{Op: string(Write), Path: f.name, Err: io.ErrShortWrite}
		}
		n += c.N
	}
	return n, nil
}

// Write writes after what was written before, from the start of the file on. One goroutine at a time.
func (f *File) Write(b []byte) (int, error) {
	n, err := f.WriteAt(b, f.end)
	f.end += int64(n)
	return n, err
}

// Truncate is ftruncate(2).
func (f *File) Truncate(size int64) error {
	c := Call{Op: Truncate, File: f, Off: size}
	return f.d.run(&c)
}

// Allocate is fallocate(2).
func (f *File) Allocate(mode int, off, n int64) error {
	c := Call{Op: Allocate, File: f, Flags: mode, Off: off, Len: n}
	return f.d.run(&c)
}

// Chmod is fchmod(2).
func (f *File) Chmod(mode os.FileMode) error {
	c := Call{Op: Chmod, File: f, Mode: uint32(mode)}
	return f.d.run(&c)
}

// Sync is fsync(2).
func (f *File) Sync() error {
	c := Call{Op: Sync, File: f}
	return f.d.run(&c)
}

// Datasync is fdatasync(2).
func (f *File) Datasync() error {
	c := Call{Op: Datasync, File: f}
	return f.d.run(&c)
}

// Map maps the first n bytes for reading, shared.
func (f *File) Map(n int) ([]byte, error) {
	c := Call{Op: Map, File: f, Len: int64(n)}
	err := f.d.run(&c)
	return c.Data, err
}

// Unmap ends a mapping.
func Unmap(b []byte) { unix.Munmap(b) }

// Info is fstat(2).
func (f *File) Info() (Info, error) {
	c := Call{Op: Fstat, File: f}
	err := f.d.run(&c)
	return c.info, err
}

// TryShared is lockmgr.TryShared.
func (f *File) TryShared() (bool, error) { return f.flock(unix.LOCK_SH) }

// TryExclusive is lockmgr.TryExclusive.
func (f *File) TryExclusive() (bool, error) { return f.flock(unix.LOCK_EX) }

// Unlock is lockmgr.Unlock.
func (f *File) Unlock() error {
	_, err := f.flock(unix.LOCK_UN)
	return err
}

func (f *File) flock(how int) (bool, error) {
	c := Call{Op: Flock, File: f, Flags: how}
	err := f.d.run(&c)
	return c.ok, err
}

// StatAt is fstatat(2) of a name in the directory f.
func (f *File) StatAt(name string) (Info, error) {
	c := Call{Op: Stat, Dir: f, Path: name}
	err := f.d.run(&c)
	return c.info, err
}

// RenameAt is renameat(2) within the directory f.
func (f *File) RenameAt(from, to string) error {
	c := Call{Op: Rename, Dir: f, Path: from, To: to}
	return f.d.run(&c)
}

// ExchangeAt exchanges two names in the directory f.
func (f *File) ExchangeAt(a, b string) error {
	c := Call{Op: Exchange, Dir: f, Path: a, To: b}
	return f.d.run(&c)
}

// LinkAt is linkat(2) within the directory f.
func (f *File) LinkAt(from, to string) error {
	c := Call{Op: Link, Dir: f, Path: from, To: to}
	return f.d.run(&c)
}
