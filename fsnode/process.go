package fsnode

import (
	"bytes"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the daemon may look at in /proc while a program waits for an answer. A process in execve(2) closes its
// O_CLOEXEC descriptors, and so sends FLUSH, while it holds its exec_update_lock (Linux 6.18); reading its stat, or following a link
// in its fd folder, waits for that lock, and so for ever. status, fdinfo and cmdline do not wait. stat is read only of a
// process that is past its last descriptor, which no exec is.

// process is what /proc tells of the process that a request came from.
type process struct {
	tgid    uint32
	exiting bool // it has no descriptors any more: it is exiting, and closing the last of them
}

// processOf returns the process of thread tid; false if it cannot be seen from here.
func processOf(tid uint32) (process, bool) {
	b, ok := readProc(tid, "status")
	if !ok {
		return process{}, false
	}
	tgid, ok1 := field(b, "\nTgid:")
	fds, ok2 := field(b, "\nFDSize:")
	return process{uint32(tgid), fds == 0}, ok1 && ok2
}

// killed says whether the exiting process of thread tid dies by a signal (PF_SIGNALED in field 9 of proc_pid_stat(5)).
func killed(tid uint32) bool {
	b, ok := readProc(tid, "stat")
	if !ok {
		return false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 7 {
		return false
	}
	const signaled = 0x400
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	return err == nil && flags&signaled != 0
}

// writable counts the descriptors of process tgid that are open for writing on an inode with one of the numbers in a mount that
// is ours; false if that cannot be seen.
func writable(tgid uint32, inos []uint64, ours func(mount uint64) bool) (int, bool) {
	dir, err := unix.Open("/proc/"+strconv.FormatUint(uint64(tgid), 10)+"/fdinfo", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(dir)
	n := 0
	buf, info := make([]byte, 4096), make([]byte, 512)
	var names []string
	for {
		k, err := unix.Getdents(dir, buf)
		if err != nil {
			return 0, false
		}
		if k == 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:k], -1, names)
	}
	for _, name := range names {
		b, ok := readAt(dir, name, info)
		if !ok {
			continue // closed meanwhile
		}
		ino, ok1 := field(b, "\nino:")
		flags, ok2 := octal(b, "flags:")
		if !ok1 || !ok2 || flags&syscall.O_ACCMODE == syscall.O_RDONLY || !slices.Contains(inos, ino) {
			continue
		}
		if mount, ok := field(b, "\nmnt_id:"); !ok || ours(mount) {
			n++
		}
	}
	return n, true
}

// commandOf returns the command line of process tgid, for messages; of one that is exiting its name.
func commandOf(tgid uint32) string {
	b, _ := readProc(tgid, "cmdline")
	if len(b) == 0 {
		b, _ = readProc(tgid, "comm")
	}
	if len(b) > 200 {
		b = b[:200]
	}
	return string(bytes.TrimSpace(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
}

func readProc(pid uint32, file string) ([]byte, bool) {
	if pid == 0 {
		return nil, false
	}
	return readAt(unix.AT_FDCWD, "/proc/"+strconv.FormatUint(uint64(pid), 10)+"/"+file, make([]byte, 1024))
}

// readAt reads the beginning of a file.
func readAt(dir int, name string, b []byte) ([]byte, bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, b)
	if err != nil || n < 0 {
		return nil, false
	}
	return b[:n], true
}

func field(b []byte, name string) (uint64, bool) { return number(b, name, 10) }
func octal(b []byte, name string) (uint64, bool) { return number(b, name, 8) }

func number(b []byte, name string, base int) (uint64, bool) {
	i := bytes.Index(b, []byte(name))
	if i < 0 {
		return 0, false
	}
	b = b[i+len(name):]
	if j := bytes.IndexByte(b, '\n'); j >= 0 {
		b = b[:j]
	}
	v, err := strconv.ParseUint(string(bytes.TrimSpace(b)), base, 64)
	return v, err == nil
}
