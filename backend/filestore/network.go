package filestore

import (
	"errors"
	"os"
	"path/filepath"
)

// networkTypes are the file systems, by what statfs(2) calls them (include/uapi/linux/magic.h), that several machines may use at once. There each machine
// has its own locks, boot id and inotify(7), or its locks cost a round trip.
var networkTypes = map[int64]string{
	0x6969: "nfs", 0xfe534d42: "smb3", 0xff534d42: "cifs", 0x517b: "smb", 0x5346414f: "afs", 0x6b414653: "afs", 0x73757245: "coda",
	0xc36400: "ceph", 0x0bd00bd0: "lustre", 0x01161970: "gfs2", 0x7461636f: "ocfs2", 0x01021997: "9p", 0x19830326: "beegfs", 0x47504653: "gpfs",
}

// unsuitableError is returned, as errors.ErrUnsupported, where no store can be kept.
type unsuitableError struct{ dir, reason string }

func (e *unsuitableError) Error() string { return e.dir + ": " + e.reason }

func (e *unsuitableError) Is(target error) bool { return target == errors.ErrUnsupported }

// refuseNetwork returns an error if the store is, or would be, on a file system of several machines.
func (s *Store) refuseNetwork() error {
	dir := s.dir
	space, err := s.disk.Space(dir)
	for errors.Is(err, os.ErrNotExist) && dir != "/" {
		dir = filepath.Dir(dir)
		space, err = s.disk.Space(dir)
	}
	if err != nil {
		return err
	}
	if name, ok := networkTypes[int64(space.Type)]; ok {
		return &unsuitableError{s.dir, "is on a network file system (" + name + "), where machines do not see each other's locks: a store needs a local disk"}
	}
	return nil
}

// tryLocks returns an error if the lock file, which this process has locked, can be locked again.
func (s *Store) tryLocks() error {
	f, err := s.disk.Open(filepath.Join(s.dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if ok, err := f.TryExclusive(); err != nil || !ok {
		return err
	}
	return &unsuitableError{s.dir, "is on a file system where flock(2) excludes nobody"}
}
