package integration

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attrsOf shows what stat and the xattrs say of a file.
func attrsOf(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	s := fmt.Sprintf("%o %d:%d %d.%d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
	b := make([]byte, 1000)
	n, err := unix.Llistxattr(path, b)
	if err != nil {
		return s
	}
	var names []string
	for start, i := 0, 0; i < n; i++ {
		if b[i] == 0 {
			names = append(names, string(b[start:i]))
			start = i + 1
		}
	}
	slices.Sort(names)
	for _, name := range names {
		v := make([]byte, 100)
		k, err := unix.Lgetxattr(path, name, v)
		must(t, err)
		s += fmt.Sprintf(" %s=%q", name, v[:k])
	}
	return s
}

// Attributes set on a published file are one commit each, and stay when its value is replaced in any way.
func TestAttributesStay(t *testing.T) {
	w, m, n := two(t)
	w.sh(`echo v > k; mkdir d; ln -s k l`)
	for _, name := range []string{"k", "d"} {
		must(t, os.Chmod(m+"/"+name, 0o751))
		must(t, os.Chown(m+"/"+name, 12, 34))
		must(t, unix.Setxattr(m+"/"+name, "user.type", []byte("text/html"), 0))
		must(t, unix.Setxattr(m+"/"+name, "user.empty", nil, unix.XATTR_CREATE))
		wantErr(t, "XATTR_CREATE twice", unix.Setxattr(m+"/"+name, "user.empty", nil, unix.XATTR_CREATE), unix.EEXIST)
		wantErr(t, "XATTR_REPLACE of nothing", unix.Setxattr(m+"/"+name, "user.no", nil, unix.XATTR_REPLACE), unix.ENODATA)
		must(t, os.Chtimes(m+"/"+name, time.Unix(1, 2), time.Unix(981173106, 123456789)))
	}
	must(t, os.Lchown(m+"/l", 5, 6))
	wanted := `12:34 981173106.123456789 user.empty="" user.type="text/html"`
	want(t, "file", attrsOf(t, n+"/k"), "100751 "+wanted)
	want(t, "directory", attrsOf(t, n+"/d"), "40751 "+wanted)
	for _, script := range []string{`echo x > k`, `echo x >> k`, `: > k`, `truncate -s 9 k`, `cat $N/k | $BIN put $S k`,
		`printf q | dd of=k bs=1 seek=1 conv=notrunc status=none`, `mv k k2; mv k2 k`, `echo z > $N/k`} {
		w.sh(script)
		w.sh(`touch -d @981173106.123456789 k`)
		until(t, "the other mount shows the attributes after "+script, func() bool {
			return attrsOf(t, n+"/k") == "100751 "+wanted
		})
	}
	must(t, unix.Removexattr(m+"/k", "user.type"))
	wantErr(t, "removed xattr", unix.Removexattr(m+"/k", "user.type"), unix.ENODATA)
	_, err := unix.Getxattr(n+"/k", "user.type", make([]byte, 10))
	wantErr(t, "removed xattr, other mount", err, unix.ENODATA)
	_, err = unix.Getxattr(n+"/d", "user.type", make([]byte, 2))
	wantErr(t, "short buffer", err, unix.ERANGE)
	want(t, "after umount and mount", attrsOf(t, w.mount()+"/d"), "40751 "+wanted)
}

// On a file that is being made, attributes belong to what is published; on one that is open and published, they are set at once.
func TestAttributesOfOpenFiles(t *testing.T) {
	_, m, n := two(t)
	f, err := os.Create(m + "/new")
	must(t, err)
	f.WriteString("v")
	must(t, f.Chmod(0o640))
	must(t, f.Chown(7, 8))
	must(t, unix.Fsetxattr(int(f.Fd()), "user.a", []byte("b"), 0))
	tv := []unix.Timeval{{Sec: 5}, {Sec: 981173106}}
	must(t, unix.Futimes(int(f.Fd()), tv))
	if st, err := f.Stat(); err != nil || st.Mode() != 0o640 || st.Size() != 1 {
		t.Errorf("fstat: %v, %v", st, err)
	}
	must(t, f.Close())
	want(t, "published", attrsOf(t, n+"/new"), `100640 7:8 981173106.0 user.a="b"`)

	f, err = os.OpenFile(m+"/new", os.O_RDWR, 0)
	must(t, err)
	must(t, f.Chmod(0o600))
	until(t, "chmod of an open file is seen", func() bool { st, err := os.Stat(n + "/new"); return err == nil && st.Mode() == 0o600 })
	f.WriteString("w")
	must(t, f.Close())
	want(t, "value", read(t, n+"/new"), "w")
	if st := statIn(t, m+"/new"); st.Mode() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}

	r := open(t, m+"/new")
	must(t, r.Chmod(0o604))
	if st, err := r.Stat(); err != nil || st.Mode() != 0o604 {
		t.Errorf("fchmod of a reader: %v, %v", st, err)
	}
	until(t, "chmod through a reader is seen", func() bool { return statIn(t, n+"/new").Mode() == 0o604 })
}

// cp -p and cp -a, touch and install keep what they say they keep.
func TestToolsKeepAttributes(t *testing.T) {
	w, m, n := two(t)
	w.sh(`cd $W; echo v > src; chmod 640 src; chown 3:4 src; touch -d @981173106.5 src; python3 -c 'import os; os.setxattr("src", "user.a", b"b")'
	cp -p src $M/p; cp --preserve=all src $M/a; cp -p src $M/p; install -m 604 -o 9 -g 9 src $M/i; cp $M/a back -a`)
	plain := "100640 3:4 981173106.500000000"
	want(t, "cp -p", attrsOf(t, n+"/p"), plain)
	want(t, "cp --preserve=all", attrsOf(t, n+"/a"), plain+` user.a="b"`)
	want(t, "cp -a back", attrsOf(t, w.dir+"/back"), plain+` user.a="b"`)
	until(t, "install's mode", func() bool { return w.sh(`stat -c %a:%u:%g $N/i`) == "604:9:9" })
	w.sh(`touch -d @1 p; touch -a -d @5 p; touch -m -d @7 p`)
	want(t, "touch", w.sh(`stat -c %X:%Y p`), "5:7")
	old := statIn(t, m+"/p").ModTime()
	w.sh(`touch p`)
	if !statIn(t, m+"/p").ModTime().After(old) {
		t.Error("touch did not change the time")
	}
}

// utimensat with UTIME_NOW and UTIME_OMIT.
func TestUtimensat(t *testing.T) {
	_, m := one(t)
	write(t, m+"/k", "v")
	set := func(a, mt unix.Timespec) unix.Stat_t {
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, m+"/k", []unix.Timespec{a, mt}, 0))
		var st unix.Stat_t
		must(t, unix.Stat(m+"/k", &st))
		return st
	}
	omit, now := unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Nsec: unix.UTIME_NOW}
	st := set(unix.Timespec{Sec: -5, Nsec: 7}, unix.Timespec{Sec: 4e9, Nsec: 999999999})
	if st.Atim.Sec != -5 || st.Atim.Nsec != 7 || st.Mtim.Sec != 4e9 || st.Mtim.Nsec != 999999999 {
		t.Errorf("times %v %v", st.Atim, st.Mtim)
	}
	if st := set(omit, unix.Timespec{Sec: 9}); st.Atim.Sec != -5 || st.Mtim.Sec != 9 {
		t.Errorf("UTIME_OMIT of atime: %v %v", st.Atim, st.Mtim)
	}
	if st := set(now, omit); st.Atim.Sec < 1e9 || st.Mtim.Sec != 9 {
		t.Errorf("UTIME_NOW of atime: %v %v", st.Atim, st.Mtim)
	}
	if st := set(omit, omit); st.Mtim.Sec != 9 {
		t.Errorf("both omitted: %v", st.Mtim)
	}
}

// Each version has an inode number of its own, which an attribute change keeps.
func TestVersionsHaveInodes(t *testing.T) {
	w, m, n := two(t)
	seen := map[uint64]string{}
	ino := func() uint64 {
		var st unix.Stat_t
		must(t, unix.Stat(m+"/k", &st))
		return st.Ino
	}
	for _, script := range []string{`echo a > k`, `echo a > k`, `echo b >> k`, `truncate -s 3 k`, `echo c > $N/k`, `echo d | $BIN put $S k`,
		`echo e > x; mv -f x k`, `rm k; echo f > k`, `printf g | dd of=k conv=notrunc status=none`} {
		w.sh(script)
		w.sh(`cat k > /dev/null`)
		i := ino()
		if old, ok := seen[i]; ok {
			t.Errorf("inode %d after %s was there after %s", i, script, old)
		}
		seen[i] = script
		must(t, os.Chmod(m+"/k", 0o600))
		if ino() != i {
			t.Errorf("chmod after %s changed the inode number", script)
		}
	}
	if a, b := w.sh(`stat -c %i k`), w.sh(`cat $N/k > /dev/null; stat -c %i $N/k`); a != b {
		t.Errorf("the mounts show different inode numbers: %s, %s", a, b)
	}
	_ = n
}

// umask, uid= and gid= of the mount change what is shown, never what is kept.
func TestShownOwnerAndMode(t *testing.T) {
	w, m := one(t)
	shown := w.mount("uid=77,gid=88,umask=027")
	w.sh(`echo v > k; chmod 666 k; chown 1:2 k`)
	want(t, "kept", w.sh(`stat -c %a:%u:%g k`), "666:1:2")
	want(t, "shown", w.sh(`stat -c %a:%u:%g `+shown+`/k`), "640:77:88")
	write(t, shown+"/k", "w")
	want(t, "kept after a write", w.sh(`stat -c %a:%u:%g k`), "666:1:2")
	_ = m
}
