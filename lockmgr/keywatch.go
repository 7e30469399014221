package lockmgr

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// keyWatch hears of lock files that another process has closed or changed (inotify(7)).
type keyWatch struct {
	f     *os.File
	fd    int
	files map[int32]*keyFile // GUARDED_BY Keys.mu
}

// listenLocked has the attendant of f called when any process gives up a lock. Where the system has no room for it nobody calls.
func (k *Keys) listenLocked(f *keyFile) {
	if k.deaf {
		return
	}
	if k.watch == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return
		}
		k.watch = &keyWatch{os.NewFile(uintptr(fd), "inotify"), fd, map[int32]*keyFile{}}
		go k.hear(k.watch)
	}
	wd, err := unix.InotifyAddWatch(k.watch.fd, f.path, unix.IN_CLOSE_WRITE|unix.IN_ATTRIB)
	if err != nil {
		return
	}
	f.notices = int32(wd)
	k.watch.files[f.notices] = f
}

func (k *Keys) unlistenLocked(f *keyFile) {
	if f.notices == 0 {
		return
	}
	delete(k.watch.files, f.notices)
	_, _ = unix.InotifyRmWatch(k.watch.fd, uint32(f.notices))
	f.notices = 0
}

// hear ends when the watch is closed.
func (k *Keys) hear(w *keyWatch) {
	buf := make([]byte, 4096)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return
		}
		k.mu.Lock()
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			if f := w.files[int32(binary.NativeEndian.Uint32(b))]; f != nil {
				f.call()
			}
			b = b[unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(b[12:]):]
		}
		k.mu.Unlock()
	}
}
