package integration

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A value over maxvalue is refused by the call that makes it too large, and the old value stays.
func TestTooLargeIsRefusedEarly(t *testing.T) {
	w, _ := one(t, "maxvalue=1000")
	w.mount()
	w.python(`
def refused(f, *args):
    try: f(*args)
    except OSError as e: assert e.errno == errno.EFBIG, e
    else: raise SystemExit("not refused: %r" % (args,))
def closed(fd):
    try: os.close(fd)
    except OSError as e: assert e.errno == errno.EFBIG, e
T = os.O_WRONLY|os.O_CREAT|os.O_TRUNC
with open("k", "w") as f: f.write("o" * 1000)
fd = os.open("k", T); refused(os.write, fd, b"x" * 1001); closed(fd)
fd = os.open("k", T); os.write(fd, b"x" * 600); refused(os.write, fd, b"x" * 600); closed(fd)
fd = os.open("k", os.O_WRONLY|os.O_APPEND); refused(os.write, fd, b"x"); closed(fd)
fd = os.open("k", os.O_RDWR); refused(os.pwrite, fd, b"x", 1000); closed(fd)
fd = os.open("k", os.O_RDWR); refused(os.ftruncate, fd, 1001); closed(fd)
fd = os.open("k", os.O_RDWR); refused(os.posix_fallocate, fd, 0, 1001); closed(fd)
refused(os.truncate, "k", 1001)
assert open("k").read() == "o" * 1000
fd = os.open("new", T); refused(os.write, fd, b"x" * 1001); closed(fd)
assert not os.path.exists(N+"/new")
fd = os.open("k", os.O_RDWR); os.pwrite(fd, b"y", 999); os.close(fd)
assert open(N+"/k").read() == "o" * 999 + "y"
`)
	if errs := read(t, w.mounts[0].dir+"/.storefs/errors"); !strings.Contains(errs, `"new"`) {
		t.Errorf("errors: %q", errs)
	}
}

// A full disk: open or write says so, old values are readable, and removing makes room again.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a tmpfs")
	}
	w := newWorld(t)
	disk := w.dir + "/disk"
	must(t, os.Mkdir(disk, 0o755))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=20m"))
	w.store = disk + "/kv"
	w.env = append(w.env, "S="+w.store, "DISK="+disk)
	t.Cleanup(func() { // before the world ends: it unmounts in its own cleanup, which comes after this one
		w.end()
		w.mounts, w.store = nil, w.dir+"/none"
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	m := w.mount()
	r := seeded(3)
	keep := map[string][]byte{"small": proof(100, r), "large": proof(2_000_000, r)}
	for k, v := range keep {
		must(t, os.WriteFile(m+"/"+k, v, 0o644))
	}
	kept := func(when string) {
		t.Helper()
		for k, v := range keep {
			if b, err := os.ReadFile(m + "/" + k); err != nil || !bytes.Equal(b, v) {
				t.Fatalf("%s %s: %v, %v", when, k, err, proven(b))
			}
		}
	}
	w.python(`
n, full = 0, 0
while full < 3:
    where = "open"
    try:
        fd = os.open("fill%d" % n, os.O_WRONLY|os.O_CREAT|os.O_TRUNC)
        where = "write"
        try:
            for i in range(20): os.write(fd, b"f" * 50000)
        except OSError:
            try: os.close(fd)
            except OSError: pass
            raise
        where = "close"
        os.close(fd)
        n += 1
        assert n < 40, "40 MB fit in 20"
    except OSError as e:
        assert e.errno == errno.ENOSPC, (where, e)
        assert where != "close", "ENOSPC came as late as close"
        full += 1
        if where == "open": break
`)
	kept("full")
	// Very full: nothing is left for anybody.
	w.try(`cat /dev/zero > $DISK/ballast`)
	kept("very full")
	fd, err := unix.Open(m+"/small", unix.O_WRONLY|unix.O_TRUNC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("new"))
		unix.Close(fd)
	}
	wantErr(t, "write on a very full disk", err, unix.ENOSPC)
	kept("after a refused write")
	w.sh(`$BIN ls $S > /dev/null; ls > /dev/null`)
	must(t, os.Remove(disk+"/ballast"))
	w.sh(`rm fill*`)
	kept("after the removal")
	before := stats(t, m)["storefs_publications_total"]
	until(t, "room comes back", func() bool {
		return os.WriteFile(m+"/again", bytes.Repeat([]byte("n"), 1_500_000), 0o644) == nil
	})
	if stats(t, m)["storefs_publications_total"] <= before {
		t.Error("nothing was published")
	}
	kept("at the end")
}

// Removal works even when not one byte is free.
func TestRemovalOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a tmpfs")
	}
	w := newWorld(t)
	disk := w.dir + "/disk"
	must(t, os.Mkdir(disk, 0o755))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"))
	w.store = disk + "/kv"
	w.env = append(w.env, "S="+w.store, "DISK="+disk)
	t.Cleanup(func() {
		w.end()
		w.mounts, w.store = nil, w.dir+"/none"
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	m := w.mount()
	w.sh(`for i in $(seq 50); do head -c 3000 /dev/zero > k$i; done; mkdir d; cat /dev/zero > $DISK/ballast 2> /dev/null || true`)
	for i := 1; i <= 50; i++ {
		must(t, os.Remove(m+"/k"+itoa(i)))
	}
	must(t, os.Remove(m+"/d"))
	wantListing(t, m)
	must(t, os.Remove(disk+"/ballast"))
}

// A read-only mount refuses every change with EROFS, and reads.
func TestReadOnlyMount(t *testing.T) {
	w, m := one(t)
	w.sh(`echo v > k; mkdir d; ln -s k l`)
	ro := w.mount("ro")
	want(t, "read", read(t, ro+"/k"), "v\n")
	for name, f := range map[string]func() error{
		"truncating open": func() error { return os.WriteFile(ro+"/k", nil, 0o644) },
		"create":          func() error { return os.WriteFile(ro+"/new", nil, 0o644) },
		"append":          func() error { _, err := os.OpenFile(ro+"/k", os.O_WRONLY|os.O_APPEND, 0); return err },
		"read-write":      func() error { _, err := os.OpenFile(ro+"/k", os.O_RDWR, 0); return err },
		"unlink":          func() error { return os.Remove(ro + "/k") },
		"mkdir":           func() error { return os.Mkdir(ro+"/e", 0o755) },
		"rmdir":           func() error { return unix.Rmdir(ro + "/d") },
		"rename":          func() error { return os.Rename(ro+"/k", ro+"/x") },
		"symlink":         func() error { return os.Symlink("k", ro+"/s") },
		"truncate":        func() error { return os.Truncate(ro+"/k", 0) },
		"chmod":           func() error { return os.Chmod(ro+"/k", 0o600) },
		"chown":           func() error { return os.Chown(ro+"/k", 1, 1) },
		"setxattr":        func() error { return unix.Setxattr(ro+"/k", "user.a", []byte("b"), 0) },
		"utimes":          func() error { return unix.Utimes(ro+"/k", make([]unix.Timeval, 2)) },
	} {
		wantErr(t, name, f(), unix.EROFS)
	}
	write(t, m+"/k", "next")
	want(t, "read after a commit elsewhere", read(t, ro+"/k"), "next")
	wantListing(t, ro, "k", "d", "l")
}

// Wrong kinds and names are refused by the call itself.
func TestWrongKinds(t *testing.T) {
	w, m := one(t)
	w.sh(`echo v > k; mkdir -p d/e; echo x > d/k; ln -s loop2 loop1; ln -s loop1 loop2; ln -s nowhere dangling`)
	opening := func(path string, flags int) error {
		fd, err := unix.Open(m+path, flags, 0o644)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	for _, c := range []struct {
		name string
		err  error
		want unix.Errno
	}{
		{"write to a directory", opening("/d", unix.O_WRONLY), unix.EISDIR},
		{"truncate a directory", opening("/d", unix.O_RDONLY|unix.O_TRUNC), unix.EISDIR},
		{"create over a directory", opening("/d", unix.O_WRONLY|unix.O_CREAT), unix.EISDIR},
		{"truncate(directory)", os.Truncate(m+"/d", 0), unix.EISDIR},
		{"file as directory", opening("/k/x", unix.O_RDONLY), unix.ENOTDIR},
		{"create under a file", opening("/k/x", unix.O_WRONLY|unix.O_CREAT), unix.ENOTDIR},
		{"O_DIRECTORY of a file", opening("/k", unix.O_DIRECTORY), unix.ENOTDIR},
		{"loop", opening("/loop1", unix.O_RDONLY), unix.ELOOP},
		{"O_NOFOLLOW of a link", opening("/dangling", unix.O_RDONLY|unix.O_NOFOLLOW), unix.ELOOP},
		{"dangling", opening("/dangling", unix.O_RDONLY), unix.ENOENT},
		{"create in no directory", opening("/no/x", unix.O_WRONLY|unix.O_CREAT), unix.ENOENT},
		{"O_EXCL of what is there", opening("/k", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL), unix.EEXIST},
		{"O_EXCL of a dangling link", opening("/dangling", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL), unix.EEXIST},
		{"O_TMPFILE", opening("", unix.O_WRONLY|unix.O_TMPFILE), unix.EOPNOTSUPP},
		{"rmdir of a full directory", unix.Rmdir(m + "/d"), unix.ENOTEMPTY},
		{"rmdir of a file", unix.Rmdir(m + "/k"), unix.ENOTDIR},
		{"unlink of a directory", unix.Unlink(m + "/d"), unix.EISDIR},
		{"mkdir over a file", unix.Mkdir(m+"/k", 0o755), unix.EEXIST},
		{"link", unix.Link(m+"/k", m+"/hard"), unix.EPERM},
		{"mkfifo", unix.Mkfifo(m+"/fifo", 0o644), unix.EPERM},
		{"socket", unix.Mknod(m+"/sock", unix.S_IFSOCK|0o644, 0), unix.EPERM},
		{"device", unix.Mknod(m+"/null", unix.S_IFCHR|0o644, 0x103), unix.EPERM},
		{"rename of a directory into itself", unix.Rename(m+"/d", m+"/d/e/f"), unix.EINVAL},
		{"rename over a full directory", w.rename("d/e", "d"), unix.ENOTEMPTY},
		{"rename of a file over a directory", unix.Rename(m+"/k", m+"/d/e"), unix.EISDIR},
		{"rename of a directory over a file", unix.Rename(m+"/d/e", m+"/k"), unix.ENOTDIR},
		{"rename of nothing", unix.Rename(m+"/no", m+"/x"), unix.ENOENT},
		{"name too long", opening("/"+strings.Repeat("n", 256), unix.O_WRONLY|unix.O_CREAT), unix.ENAMETOOLONG},
		{"lookup of a name too long", opening("/"+strings.Repeat("n", 256), unix.O_RDONLY), unix.ENAMETOOLONG},
		{"mkdir of a name too long", unix.Mkdir(m+"/"+strings.Repeat("n", 256), 0o755), unix.ENAMETOOLONG},
		{"rename to a name too long", unix.Rename(m+"/k", m+"/"+strings.Repeat("n", 256)), unix.ENAMETOOLONG},
		{"symlink over a file", os.Symlink("x", m+"/k"), unix.EEXIST},
		{"write to a control file", opening("/.storefs/stats", unix.O_WRONLY), unix.EACCES},
		{"unlink of a control file", unix.Unlink(m + "/.storefs/stats"), unix.EPERM},
		{"rmdir of .storefs", unix.Rmdir(m + "/.storefs"), unix.EPERM},
		{"rename of .storefs", unix.Rename(m+"/.storefs", m+"/x"), unix.EPERM},
	} {
		if c.want == unix.EPERM && c.err == unix.EACCES || c.want == unix.ENOTEMPTY && c.err == unix.EEXIST {
			continue
		}
		wantErr(t, c.name, c.err, c.want)
	}
	// A dangling link is created through.
	must(t, os.WriteFile(m+"/dangling", []byte("made"), 0o644))
	want(t, "through a dangling link", read(t, m+"/nowhere"), "made")
	// Writable shared maps are refused at once, private ones are not.
	f, err := os.OpenFile(m+"/k", os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = unix.Mmap(int(f.Fd()), 0, 2, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	wantErr(t, "writable shared map", err, unix.ENODEV)
	b, err := unix.Mmap(int(f.Fd()), 0, 2, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	must(t, err)
	b[0] = 'X'
	must(t, unix.Munmap(b))
	want(t, "under a private map", read(t, m+"/k"), "v\n")
}

// rename renames below the first mount.
func (w *world) rename(from, to string) error {
	m := w.mounts[0].dir
	return unix.Rename(m+"/"+from, m+"/"+to)
}

// maxstore bounds all values together; what is there can be replaced, and removing makes room.
func TestMaxStore(t *testing.T) {
	_, m := one(t, "maxstore=10K")
	must(t, os.WriteFile(m+"/a", make([]byte, 6000), 0o644))
	wantErr(t, "too much", os.WriteFile(m+"/b", make([]byte, 6000), 0o644), unix.EDQUOT)
	must(t, os.WriteFile(m+"/a", make([]byte, 9000), 0o644))
	wantErr(t, "truncate", os.Truncate(m+"/a", 11000), unix.EDQUOT)
	must(t, os.Remove(m+"/a"))
	must(t, os.WriteFile(m+"/b", make([]byte, 6000), 0o644))
}
