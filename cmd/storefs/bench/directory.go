package bench

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// directory is a place of files. It makes its system calls itself, because package os makes more of them.
type directory struct {
	dir, reads string
	kind       Kind
	buf        []byte
}

func openDirectory(s Spec) (place, error) {
	d := &directory{dir: filepath.Join(s.Path, s.Under), reads: filepath.Join(s.Path, s.Under), kind: s.Kind, buf: make([]byte, 1<<17)}
	if s.ReadFrom != "" {
		d.reads = filepath.Join(s.ReadFrom, s.Under)
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, err
	}
	return d, nil
}

// open is open(2) and, with a lock, flock(2). Go's own signals may interrupt either.
func open(path string, flags, lock int) (fd int, err error) {
	for {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	for lock != 0 {
		err = unix.Flock(fd, lock)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			unix.Close(fd)
			return -1, &os.PathError{Op: "flock", Path: path, Err: err}
		}
	}
	return fd, nil
}

// readAll reads to the end, in buf if that is long enough.
func readAll(fd int, buf []byte) ([]byte, error) {
	n := 0
	for {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		n += m
		if n < len(buf) { // what a file gives less than was asked for, it has no more
			return buf[:n], nil
		}
		buf = append(buf, make([]byte, len(buf))...)
	}
}

func writeAll(fd int, value []byte) error {
	if n, err := unix.Write(fd, value); err != nil || n != len(value) {
		return fmt.Errorf("write: %d of %d bytes: %w", n, len(value), err)
	}
	return nil
}

func (d *directory) read(key string, buf []byte) ([]byte, error) {
	lock := 0
	if d.kind == Directory {
		lock = unix.LOCK_SH
	}
	fd, err := open(d.reads+"/"+key, unix.O_RDONLY, lock)
	if err != nil {
		return nil, err
	}
	value, err := readAll(fd, buf)
	unix.Close(fd)
	return value, err
}

func (d *directory) write(key string, value []byte) error {
	fd, err := open(d.dir+"/"+key, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0)
	if err != nil {
		return err
	}
	err = writeAll(fd, value)
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return err
}

func (d *directory) replace(key string, value []byte) error {
	if err := d.write(key+".new", value); err != nil {
		return err
	}
	return unix.Rename(d.dir+"/"+key+".new", d.dir+"/"+key)
}

// increment holds the lock of the key's own file. Through a mount that file shows what was there when it was opened, so the
// value is read, and written, through others.
func (d *directory) increment(key string) (err error) {
	if d.kind == Directory {
		return d.incrementInPlace(key)
	}
	lock, err := open(d.dir+"/"+key, unix.O_RDONLY, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unix.Close(lock)
	fd, err := open(d.dir+"/"+key, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	value, err := readAll(fd, d.buf)
	unix.Close(fd)
	if err != nil {
		return err
	}
	if err := addOne(value); err != nil {
		return err
	}
	return d.write(key, value)
}

func (d *directory) incrementInPlace(key string) error {
	fd, err := open(d.dir+"/"+key, unix.O_RDWR, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value, err := readAll(fd, d.buf)
	if err != nil {
		return err
	}
	if err := addOne(value); err != nil {
		return err
	}
	_, err = unix.Pwrite(fd, value, 0)
	return err
}

func (d *directory) unlink(key string) error { return unix.Unlink(d.dir + "/" + key) }

func (d *directory) missing(key string) error {
	fd, err := open(d.reads+"/"+key, unix.O_RDONLY, 0)
	if err == nil {
		unix.Close(fd)
		return fmt.Errorf("there is a key %q", key)
	}
	return nil
}

func (d *directory) stat(key string) error {
	var st unix.Stat_t
	return unix.Stat(d.reads+"/"+key, &st)
}

func (d *directory) list() (int, error) {
	f, err := os.Open(d.reads)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	return len(names), err
}

func (d *directory) fill(first, end int, value func(int) []byte) error {
	for i := first; i < end; i++ {
		if err := d.write(keyName(i), value(i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *directory) remove() error { return os.RemoveAll(d.dir) }

func (d *directory) close() error { return nil }
