package disk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/lockmgr"
)

// Hook stands between a store and the kernel. It is called, by many goroutines at once, for each system call, which it makes with
// c.Do, or does not; what it returns, the kernel's error as it is, is what the store gets. It may cut c.Data short before.
type Hook func(c *Call) error

// Disk makes system calls. nil makes them without a hook.
type Disk struct{ hook Hook }

// New returns a Disk that hands each call to the hook.
func New(h Hook) *Disk { return &Disk{h} }

// run makes the call, until it was not interrupted. Nothing of it but the files escapes to a hook, so calls without one allocate nothing.
func (d *Disk) run(c *Call) error {
	for {
		err := error(nil)
		if d == nil {
			err = c.Do()
		} else {
			err = d.hooked(c)
		}
		if err == nil {
			if c.Op == Open || c.Op == Watch {
				c.File.d = d
			}
			return nil
		}
		errno, ok := err.(unix.Errno)
		switch {
		case !ok:
			return err
		case errno == unix.EINTR && c.Op != Close:
			continue
		}
		path, to := c.Names()
		if to != "" {
			return &os.LinkError{Op: string(c.Op), Old: path, New: to, Err: errno}
		}
		return &os.PathError{Op: string(c.Op), Path: path, Err: errno}
	}
}

func (d *Disk) hooked(c *Call) error {
	h := *c
	h.Data = bytes.Clone(c.Data)
	err := d.hook(&h)
	if c.Op == Map {
		c.Data = h.Data
	} else {
		copy(c.Data, h.Data)
	}
	h.Data = c.Data
	*c = h
	return err
}

// Open is open(2), always with O_CLOEXEC.
func (d *Disk) Open(path string, flags int, mode os.FileMode) (*File, error) {
	c := Call{Op: Open, Path: path, Flags: flags, Mode: uint32(mode)}
	if err := d.run(&c); err != nil {
		return nil, err
	}
	return c.File, nil
}

// ReadFile returns the content of a file.
func (d *Disk) ReadFile(path string) ([]byte, error) {
	f, err := d.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, 0, 1<<62))
}

// Real returns the absolute path that leads where path does, as far as that exists without symbolic links. The paths of all
// other calls have none.
func (d *Disk) Real(path string) (string, error) {
	c := Call{Op: Resolve, Path: path}
	err := d.run(&c)
	return c.To, err
}

// Stat is stat(2).
func (d *Disk) Stat(path string) (Info, error) { return d.info(&Call{Op: Stat, Path: path}) }

// Lstat is lstat(2).
func (d *Disk) Lstat(path string) (Info, error) { return d.info(&Call{Op: Lstat, Path: path}) }

func (d *Disk) info(c *Call) (Info, error) {
	err := d.run(c)
	return c.info, err
}

// Space is statfs(2).
func (d *Disk) Space(path string) (*unix.Statfs_t, error) {
	c := Call{Op: Statfs, Path: path}
	err := d.run(&c)
	return c.space, err
}

// List returns the names in a directory, in no order.
func (d *Disk) List(path string) ([]string, error) {
	c := Call{Op: List, Path: path}
	err := d.run(&c)
	return c.names, err
}

// ReadDir returns what is in a directory, in no order.
func (d *Disk) ReadDir(path string) ([]fs.DirEntry, error) {
	c := Call{Op: List, Path: path, Flags: 1}
	err := d.run(&c)
	return c.entries, err
}

// Mkdir is mkdir(2).
func (d *Disk) Mkdir(path string, mode os.FileMode) error {
	return d.run(&Call{Op: Mkdir, Path: path, Mode: uint32(mode)})
}

// MkdirAll makes a directory and those above it, as far as they are missing, and syncs the names of those.
func (d *Disk) MkdirAll(path string, mode os.FileMode) error {
	if i, err := d.Stat(path); err == nil && i.IsDir() {
		return nil
	}
	if up := filepath.Dir(path); up != path {
		if err := d.MkdirAll(up, mode); err != nil {
			return err
		}
	}
	if err := d.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return d.Sync(filepath.Dir(path))
}

// Remove is unlink(2).
func (d *Disk) Remove(path string) error { return d.run(&Call{Op: Remove, Path: path}) }

// Rename is rename(2).
func (d *Disk) Rename(from, to string) error { return d.run(&Call{Op: Rename, Path: from, To: to}) }

// Sync is fsync(2) of a file or directory.
func (d *Disk) Sync(path string) error {
	f, err := d.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Watch returns a file, outside of all this, that becomes readable when something in the directory gets a name by renaming (inotify(7)).
func (d *Disk) Watch(path string) (*os.File, error) {
	c := Call{Op: Watch, Path: path}
	if err := d.run(&c); err != nil {
		return nil, err
	}
	return c.File.f, nil
}

// OpenLock is lockmgr.New.
func (d *Disk) OpenLock(path string, o *lockmgr.Options) (*lockmgr.Lock, error) {
	c := Call{Op: OpenLock, Path: path, lockOpt: o}
	err := d.run(&c)
	return c.lock, err
}

// Acquire is l.Acquire.
func (d *Disk) Acquire(ctx context.Context, l *lockmgr.Lock) (release func(), err error) {
	c := Call{Op: Acquire, Path: "lock", lock: l, ctx: ctx}
	err = d.run(&c)
	return c.release, err
}

// LockByte is l.TryRange.
func (d *Disk) LockByte(l *lockmgr.Lock, off int64) (release func(), ok bool, err error) {
	c := Call{Op: LockByte, Path: "lock", lock: l, Off: off}
	err = d.run(&c)
	return c.release, c.ok, err
}
