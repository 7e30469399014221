package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/lockmgr"
)

// Op is the name of a system call.
type Op string

const (
	Open     Op = "open"
	Close    Op = "close"
	Read     Op = "read"
	Write    Op = "write"
	Truncate Op = "truncate"
	Allocate Op = "fallocate"
	Chmod    Op = "chmod"
	Sync     Op = "sync"     // fsync(2)
	Datasync Op = "datasync" // fdatasync(2): content and length
	Map      Op = "mmap"
	Flock    Op = "flock"
	Stat     Op = "stat"
	Lstat    Op = "lstat"
	Fstat    Op = "fstat"
	Statfs   Op = "statfs"
	List     Op = "readdir"
	Mkdir    Op = "mkdir"
	Remove   Op = "unlink"
	Rename   Op = "rename"
	Exchange Op = "exchange" // renameat2(2) with RENAME_EXCHANGE
	Link     Op = "link"
	Watch    Op = "inotify"
	Resolve  Op = "readlink"  // of every name of a path
	OpenLock Op = "open lock" // package lockmgr's three
	Acquire  Op = "acquire"
	LockByte Op = "lock byte"
)

// Changes says whether a call of that kind can change what is on the disk.
func (o Op) Changes() bool {
	switch o {
	case Open, Write, Truncate, Allocate, Chmod, Mkdir, Remove, Rename, Exchange, Link:
		return true
	}
	return false
}

// Call is one system call. Which of the fields it has depends on Op.
type Call struct {
	Op    Op
	Dir   *File // what Path and To are relative to; nil if they are not
	Path  string
	To    string
	File  *File // that is read or written; after Open, the new one
	Flags int   // of open(2), fallocate(2) or flock(2)
	Mode  uint32
	Off   int64  // after Truncate, the size
	Len   int64  // of Allocate and Map
	Data  []byte // what to write, or where to read to
	N     int    // bytes read or written

	info    Info
	space   *unix.Statfs_t
	names   []string
	entries []fs.DirEntry
	ok      bool // the lock was taken
	lock    *lockmgr.Lock
	lockOpt *lockmgr.Options
	ctx     context.Context
	release func()
}

// Info is what stat(2) tells of a file.
type Info struct {
	Ino, Nlink uint64
	Mode       uint32 // with the type
	Size       int64
	Blocks     int64 // of 512 bytes
}

// Regular says whether it is a regular file.
func (i Info) Regular() bool { return i.Mode&unix.S_IFMT == unix.S_IFREG }

// IsDir says whether it is a directory.
func (i Info) IsDir() bool { return i.Mode&unix.S_IFMT == unix.S_IFDIR }

// Perm returns the permission bits.
func (i Info) Perm() os.FileMode { return os.FileMode(i.Mode & 0o777) }

// Names returns the paths that the call is about, in full; the second is empty if there is one only.
func (c *Call) Names() (path, to string) {
	switch {
	case c.File != nil && c.Path == "":
		return c.File.name, ""
	case c.Dir == nil:
		return c.Path, c.To
	case c.To == "":
		return filepath.Join(c.Dir.name, c.Path), ""
	}
	return filepath.Join(c.Dir.name, c.Path), filepath.Join(c.Dir.name, c.To)
}

func (c *Call) dirFD() int {
	if c.Dir == nil {
		return unix.AT_FDCWD
	}
	return c.Dir.fd()
}

// Space is what Statfs has found; a hook may change it.
func (c *Call) Space() *unix.Statfs_t { return c.space }

// Grant makes a Flock that was not done one that was.
func (c *Call) Grant() { c.ok = true }

// Do makes the call. The error is the kernel's, as it is.
func (c *Call) Do() (err error) {
	switch c.Op {
	case Open:
		var f *os.File
		if f, err = lockmgr.OpenFile(c.Path, c.Flags, os.FileMode(c.Mode)); err == nil {
			c.File = &File{f: f, name: c.Path}
		}
		err = bare(err)
	case Close:
		err = bare(c.File.f.Close())
	case Read:
		c.N, err = unix.Pread(c.File.fd(), c.Data, c.Off)
	case Write:
		c.N, err = unix.Pwrite(c.File.fd(), c.Data, c.Off)
	case Truncate:
		err = unix.Ftruncate(c.File.fd(), c.Off)
	case Allocate:
		err = unix.Fallocate(c.File.fd(), uint32(c.Flags), c.Off, c.Len)
	case Chmod:
		err = unix.Fchmod(c.File.fd(), c.Mode)
	case Sync:
		err = unix.Fsync(c.File.fd())
	case Datasync:
		err = unix.Fdatasync(c.File.fd())
	case Map:
		c.Data, err = unix.Mmap(c.File.fd(), 0, int(c.Len), unix.PROT_READ, unix.MAP_SHARED)
	case Flock:
		c.ok, err = c.flock()
	case Stat:
		err = c.stat(0)
	case Lstat:
		err = c.stat(unix.AT_SYMLINK_NOFOLLOW)
	case Fstat:
		var st unix.Stat_t
		if err = unix.Fstat(c.File.fd(), &st); err == nil {
			c.info = infoOf(&st)
		}
	case Statfs:
		c.space = new(unix.Statfs_t)
		err = unix.Statfs(c.Path, c.space)
	case List:
		err = bare(c.list())
	case Mkdir:
		err = c.in(c.Path, func(dir int, name string) error { return unix.Mkdirat(dir, name, c.Mode) })
	case Remove:
		err = c.in(c.Path, func(dir int, name string) error { return unix.Unlinkat(dir, name, 0) })
	case Rename:
		err = c.in(c.Path, func(dir int, name string) error {
			return c.in(c.To, func(toDir int, toName string) error { return unix.Renameat(dir, name, toDir, toName) })
		})
	case Exchange:
		err = unix.Renameat2(c.dirFD(), c.Path, c.dirFD(), c.To, unix.RENAME_EXCHANGE)
	case Link:
		err = unix.Linkat(c.dirFD(), c.Path, c.dirFD(), c.To, 0)
	case Watch:
		err = c.watch()
	case Resolve:
		c.To, err = realPath(c.Path)
		err = bare(err)
	case OpenLock:
		c.lock, err = lockmgr.New(c.Path, c.lockOpt)
	case Acquire:
		c.release, err = c.lock.Acquire(c.ctx)
	case LockByte:
		c.release, c.ok, err = c.lock.TryRange(c.Off)
	default:
		err = unix.ENOSYS
	}
	return err
}

// in calls f with the directory of path, which no symbolic link leads to, and the name in it.
func (c *Call) in(path string, f func(dir int, name string) error) error {
	if c.Dir != nil {
		return f(c.Dir.fd(), path)
	}
	dir, err := lockmgr.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return bare(err)
	}
	defer dir.Close()
	return f(int(dir.Fd()), filepath.Base(path))
}

func (c *Call) flock() (bool, error) {
	switch c.Flags {
	case unix.LOCK_SH:
		return lockmgr.TryShared(c.File.f)
	case unix.LOCK_EX:
		return lockmgr.TryExclusive(c.File.f)
	}
	return true, lockmgr.Unlock(c.File.f)
}

func (c *Call) stat(flags int) error {
	var st unix.Stat_t
	err := unix.Fstatat(c.dirFD(), c.Path, &st, flags)
	if err == nil {
		c.info = infoOf(&st)
	}
	return err
}

func infoOf(st *unix.Stat_t) Info {
	return Info{Ino: st.Ino, Nlink: uint64(st.Nlink), Mode: st.Mode, Size: st.Size, Blocks: st.Blocks}
}

// list reads a directory: names only, or entries if Flags is not 0.
func (c *Call) list() error {
	d, err := lockmgr.OpenFile(c.Path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Flags != 0 {
		c.entries, err = d.ReadDir(-1)
	} else {
		c.names, err = d.Readdirnames(-1)
	}
	return err
}

// watch makes a file that becomes readable when something in directory Path gets a name by renaming.
func (c *Call) watch() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(fd, c.Path, unix.IN_MOVED_TO); err != nil {
		unix.Close(fd)
		return err
	}
	c.File = &File{f: os.NewFile(uintptr(fd), "inotify"), name: c.Path}
	return nil
}

// realPath returns the absolute path that leads where path does, as far as that exists without symbolic links.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if up := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && up != path {
		if real, err = realPath(up); err == nil {
			real = filepath.Join(real, filepath.Base(path))
		}
	}
	return real, err
}

// bare takes the kernel's error out of package os's.
func bare(err error) error {
	if p, ok := err.(*os.PathError); ok {
		return p.Err
	}
	return err
}
