package integration

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// conflicts are ways to change k behind the back of a program that has it open for writing in place.
var conflicts = []struct{ name, script string }{
	{"this mount", `printf other > $M/k`},
	{"other mount", `printf other > $N/k`},
	{"command line", `printf other | $BIN put $S k`},
	{"in place", `printf other | dd of=$N/k conv=notrunc status=none; truncate -s 5 $N/k`},
	{"rename", `printf other > $N/x; mv -f $N/x $N/k`},
	{"the same value", `cat $N/k > $W/v; cat $W/v > $N/k; printf other > $N/k`},
	{"removed and made again", `rm $N/k; printf other > $N/k`},
	{"truncate and append", `truncate -s 0 $N/k; printf other >> $N/k`},
}

// A write in place over a value that someone has changed since the open fails with ESTALE at close, and the other value stays.
func TestStaleWriteInPlaceFails(t *testing.T) {
	w, m, n := two(t)
	for _, c := range conflicts {
		for _, when := range []string{"before the write", "after the write"} {
			t.Run(c.name+", "+when, func(t *testing.T) {
				w := w.in(t)
				write(t, m+"/k", "0123456789")
				fd, err := unix.Open(m+"/k", unix.O_RDWR, 0)
				must(t, err)
				b := make([]byte, 10)
				if k, err := unix.Read(fd, b); err != nil || string(b[:k]) != "0123456789" {
					t.Fatalf("%q, %v", b[:k], err)
				}
				if when == "before the write" {
					w.sh(c.script)
				}
				if _, err := unix.Pwrite(fd, []byte("X"), 2); err != nil {
					wantErr(t, "write", err, unix.ESTALE) // as early as possible is fine
				}
				if when == "after the write" {
					w.sh(c.script)
				}
				wantErr(t, "close", unix.Close(fd), unix.ESTALE)
				for _, dir := range []string{m, n} {
					want(t, "value", read(t, dir+"/k"), "other")
				}
				if errs := read(t, m+"/.storefs/errors"); !strings.Contains(errs, "not published") {
					t.Errorf("errors: %q", errs)
				}
			})
		}
	}
}

// A fsync reports the conflict too.
func TestStaleFsyncFails(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "0123456789")
	f, err := os.OpenFile(m+"/k", os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("X"), 1)
	must(t, err)
	w.sh(`echo other > $N/k`)
	wantErr(t, "fsync", f.Sync(), unix.ESTALE)
	f.Close()
	want(t, "value", read(t, n+"/k"), "other\n")
}

// What opens without truncation and only reads, or is not written to, conflicts with nobody.
func TestUnwrittenHandleIsNoConflict(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "old")
	before := stats(t, m)["storefs_publications_total"]
	for _, flags := range []int{unix.O_RDWR, unix.O_WRONLY, unix.O_WRONLY | unix.O_APPEND, unix.O_RDWR | unix.O_CREAT} {
		fd, err := unix.Open(m+"/k", flags, 0o644)
		must(t, err)
		w.sh(`echo other > $N/k`)
		must(t, unix.Close(fd))
		want(t, "value", read(t, n+"/k"), "other\n")
	}
	if d := stats(t, m)["storefs_publications_total"] - before; d != 0 {
		t.Errorf("%v publications of nothing", d)
	}
}

// Truncating writers replace: the last close wins.
func TestTruncatingWritersReplace(t *testing.T) {
	_, m, n := two(t)
	write(t, m+"/k", "old")
	a, err := os.Create(m + "/k")
	must(t, err)
	b, err := os.Create(n + "/k")
	must(t, err)
	c, err := os.Create(m + "/k")
	must(t, err)
	for _, f := range []*os.File{b, a, c} {
		f.WriteString(strings.Repeat(f.Name()[len(f.Name())-4:], 3))
	}
	for _, f := range []*os.File{c, b, a} {
		must(t, f.Close())
		want(t, "after a close", read(t, n+"/k"), strings.Repeat(f.Name()[len(f.Name())-4:], 3))
	}
}

// Writing in place, in all the ways that programs do it.
func TestWriteInPlace(t *testing.T) {
	w, m, _ := two(t)
	for _, c := range []struct{ name, script, want string }{
		{"dd notrunc", `printf XY | dd of=k bs=1 seek=3 conv=notrunc status=none`, "012XY56789"},
		{"dd notrunc past the end", `printf XY | dd of=k bs=1 seek=12 conv=notrunc status=none`, "0123456789\x00\x00XY"},
		{"dd seek truncates", `printf XY | dd of=k bs=1 seek=3 status=none`, "012XY"},
		{"bash <>", `exec 3<> k; printf AB >&3; exec 3>&-`, "AB23456789"},
		{"bash <> reads first", `exec 3<> k; read -N 4 -u 3 x; printf "[$x]" >&3; exec 3>&-`, "0123[0123]"},
		{"python r+", `python3 -c 'f = open("k", "r+"); s = f.read(); f.seek(0); f.write(s[::-1]); f.close()'`, "9876543210"},
		{"python r+ shorter", `python3 -c 'f = open("k", "r+"); f.write("new"); f.truncate(); f.close()'`, "new"},
		{"ftruncate", `python3 -c 'import os; f = os.open("k", os.O_RDWR); os.ftruncate(f, 4); assert os.fstat(f).st_size == 4; assert os.read(f, 99) == b"0123"; os.close(f)'`, "0123"},
		{"ftruncate longer", `python3 -c 'import os; f = os.open("k", os.O_WRONLY); os.ftruncate(f, 12); os.close(f)'`, "0123456789\x00\x00"},
		{"ftruncate to nothing and write", `python3 -c 'import os; f = os.open("k", os.O_RDWR); os.ftruncate(f, 0); os.write(f, b"z"); os.close(f)'`, "z"},
		{"perl +<", `perl -e 'open F, "+<", "k" or die; seek F, 5, 0; print F "VW"; close F or die'`, "01234VW789"},
		{"reads its own writes", `python3 -c '
import os
f = os.open("k", os.O_RDWR); os.pwrite(f, b"ab", 2); assert os.pread(f, 99, 0) == b"01ab456789"
os.lseek(f, 0, 2); os.write(f, b"+"); assert os.pread(f, 99, 8) == b"89+"; assert os.fstat(f).st_size == 11; os.close(f)'`, "01ab456789+"},
		{"fallocate", `fallocate -l 12 k`, "0123456789\x00\x00"},
		{"O_RDWR|O_TRUNC reads its own writes", `python3 -c 'f = open("k", "w+"); f.write("abc"); f.seek(1); assert f.read() == "bc"; f.close()'`, "abc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			write(t, m+"/k", "0123456789")
			w.settle(m)
			before := stats(t, m)["storefs_publications_total"]
			w.sh(c.script)
			w.settle(m)
			w.wantKey("k", c.want)
			if d := stats(t, m)["storefs_publications_total"] - before; d != 1 && !strings.HasPrefix(c.name, "dd seek truncates") {
				t.Errorf("%v publications", d)
			}
		})
	}
}

// Each fsync publishes what there is, and the handle goes on.
func TestFsyncPublishes(t *testing.T) {
	_, m, n := two(t)
	f, err := os.Create(m + "/k")
	must(t, err)
	for i := range 5 {
		f.WriteString(itoa(i))
		must(t, f.Sync())
		want(t, "after fsync", read(t, n+"/k"), "01234"[:i+1])
	}
	must(t, f.Sync()) // nothing to publish
	_, err = f.WriteAt([]byte("X"), 0)
	must(t, err)
	want(t, "before close", read(t, n+"/k"), "01234")
	must(t, f.Close())
	want(t, "after close", read(t, n+"/k"), "X1234")
	if got := stats(t, m)["storefs_publications_total"]; got != 6 {
		t.Errorf("%v publications", got)
	}
}

// Writes at scattered places of a large value, with holes far apart, are where they belong.
func TestSparseWrites(t *testing.T) {
	w, m, n := two(t)
	model := make([]byte, 5<<20)
	f, err := os.OpenFile(m+"/k", os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	r := seeded(7)
	for range 60 {
		off := r.IntN(len(model) - 100_000)
		b := proof(24+r.IntN(90_000), r)
		copy(model[off:], b)
		_, err := f.WriteAt(b, int64(off))
		must(t, err)
	}
	must(t, f.Truncate(int64(len(model))))
	got := make([]byte, len(model))
	_, err = f.ReadAt(got, 0)
	must(t, err)
	if !bytes.Equal(got, model) {
		t.Error("the writer does not read what it wrote")
	}
	must(t, f.Close())
	if !bytes.Equal([]byte(read(t, n+"/k")), model) {
		t.Error("the value is not what was written")
	}
	w.wantKey("k", string(model))
}

// What cannot fit is refused by the call that asks for it, and nothing is held up (W7).
func TestHoleLargerThanTheDisk(t *testing.T) {
	w, _ := one(t)
	w.python(`
def refused(f, *args):
    try: f(*args)
    except OSError as e: assert e.errno in (errno.ENOSPC, errno.EFBIG), e
    else: raise SystemExit("a terabyte fits: %r" % (args,))
open("k", "w").write("old")
refused(os.truncate, "k", 1 << 50)
fd = os.open("k", os.O_RDWR); refused(os.ftruncate, fd, 1 << 50); os.close(fd)
fd = os.open("k", os.O_RDWR); refused(os.pwrite, fd, b"x", 1 << 50)
try: os.close(fd)
except OSError as e: assert e.errno in (errno.ENOSPC, errno.EFBIG), e
fd = os.open("k", os.O_RDWR); refused(os.posix_fallocate, fd, 0, 1 << 50); os.close(fd)
assert open("k").read() == "old"
`)
}
