package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Names of any bytes, in all lengths, are what they are through every mount and the command line.
func TestNamesOfAnyBytes(t *testing.T) {
	w, m, n := two(t)
	names := []string{"a b", " ", "-rf", "--help", `a\b`, "ü", "\xff\xfe", "x\ny", "\t", "*", "?", "[a]", "~", "$HOME", "`id`", "'", `"`, ";", "|", "a:b",
		"...", ".hidden", "..x", "%2f", "%00", "@", "#", "\x01", "\x7f", "日本語", "e\u0301", "é", strings.Repeat("n", 255), strings.Repeat("ü", 127), strings.Repeat("\xff", 255)}
	for b := 1; b < 256; b++ {
		if b != '/' && b != '.' {
			names = append(names, string([]byte{'b', byte(b)}))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for i, name := range names {
		write(t, m+"/"+name, itoa(i))
	}
	wantListing(t, n, names...)
	for i, name := range names {
		want(t, fmt.Sprintf("%q", name), read(t, n+"/"+name), itoa(i))
	}
	listed := strings.Split(strings.TrimSuffix(w.sh(`$BIN ls -0 $S`), "\x00"), "\x00")
	slices.Sort(listed)
	if !slices.Equal(listed, names) {
		t.Errorf("ls -0: %d names of %d", len(listed), len(names))
	}
	for _, name := range []string{"\xff\xfe", "x\ny", "%2f", strings.Repeat("n", 255)} {
		w.wantKey(name, read(t, m+"/"+name))
	}
	for i, name := range names {
		must(t, os.Rename(m+"/"+name, n+"/../m0/d"+itoa(i)))
	}
	w.sh(`rm d*`)
	wantListing(t, n)
	wantErr(t, "256 bytes", os.WriteFile(m+"/"+strings.Repeat("n", 256), nil, 0o644), unix.ENAMETOOLONG)
}

// Keys that a path cannot hold are shown under other names, and led back by them.
func TestKeysThatNoPathHolds(t *testing.T) {
	w, m, n := two(t)
	keys := []string{strings.Repeat("k", 300), "a//b", "./c", "d/..", "e/"}
	made := 0
	for i, key := range keys {
		r := w.runIn(w.dir, itoa(i), binary, "put", w.store, key)
		if r.status != 0 {
			if strings.Count(r.err, "\n") != 1 {
				t.Errorf("put %q: %q", key, r.err)
			}
			continue // refused: then it is not there either
		}
		made++
		w.wantKey(key, itoa(i))
	}
	var files []string
	must(t, filepath.WalkDir(m, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, strings.TrimPrefix(path, m+"/"))
		}
		return err
	}))
	if len(files) != made {
		t.Errorf("%d keys are %d files: %q", made, len(files), files)
	}
	for _, f := range files {
		if read(t, m+"/"+f) != read(t, n+"/"+f) {
			t.Errorf("%q differs", f)
		}
		must(t, os.Remove(n+"/"+f))
	}
	if left := w.sh(`$BIN ls $S`); left != "" {
		t.Errorf("left: %q", left)
	}
}

// Who may change the root may use transactions: what the kernel knows of the control folders follows chmod of the root, by any way.
func TestControlFoldersHaveTheRootsMode(t *testing.T) {
	_, m, n := two(t, "allow_other")
	for i, mode := range []os.FileMode{0o700, 0o711, 0o777, 0o755} {
		for _, dir := range []string{m, n} {
			statIn(t, dir+"/.storefs/txn")
		}
		by, other := m, n
		if i%2 == 1 {
			by, other = n, m
		}
		must(t, os.Chmod(by, mode))
		for _, name := range []string{"txn", "commit", "snapshots"} {
			if got := statIn(t, by+"/.storefs/"+name).Mode().Perm(); got != mode {
				t.Errorf("%s: mode %o, not %o", name, got, mode)
			}
			until(t, "the other mount knows", func() bool { return statIn(t, other+"/.storefs/"+name).Mode().Perm() == mode })
		}
	}
}

// .storefs is there, not listed, and in nobody's way.
func TestControlFolder(t *testing.T) {
	w, m := one(t)
	wantListing(t, m)
	for _, f := range []string{"stats", "errors", "generation", "locks"} {
		if st := statIn(t, m+"/.storefs/"+f); !st.Mode().IsRegular() {
			t.Errorf("%s: %v", f, st.Mode())
		}
		read(t, m+"/.storefs/"+f)
	}
	a := w.sh(`cat .storefs/generation; echo x > k; cat .storefs/generation`)
	lines := strings.Fields(a)
	if len(lines) != 2 || lines[0] >= lines[1] && len(lines[0]) >= len(lines[1]) {
		t.Errorf("generations %q", a)
	}
	w.sh(`mkdir d; echo x > d/.storefs; [ "$(cat d/.storefs)" = x ]; rm -r d k; find . -type f | { ! grep .; }`)
	if _, err := os.Create(m + "/.storefs/new"); err == nil {
		t.Error("a file was made in .storefs")
	}
	r := w.runIn(w.dir, "x", binary, "put", w.store, ".storefs/stats")
	if r.status == 0 {
		if strings.Contains(read(t, m+"/.storefs/stats"), "x\n") {
			t.Error("a key hides the control file")
		}
	}
}

// Directories, empty ones too, exist on their own, in the store and in what the command line makes.
func TestDirectoriesStandAlone(t *testing.T) {
	w, m, n := two(t)
	w.sh(`mkdir -p a/b/c; rmdir $N/a/b/c; [ -d a/b ]; rmdir a/b; [ -d $N/a ]; echo x | $BIN put $S p/q/r; [ "$(cat p/q/r)" = x ]; $BIN rm $S p/q/r`)
	w.sh(`$BIN umount $N`)
	must(t, os.RemoveAll(m+"/p"))
	wantListing(t, m, "a")
	again := w.mount()
	wantListing(t, again, "a")
	must(t, os.Remove(again+"/a"))
	wantListing(t, m)
	_ = n
}

// Symbolic links, relative, absolute, long, dangling, to directories; over keys that change.
func TestSymbolicLinks(t *testing.T) {
	w, m, n := two(t)
	w.sh(`echo v > k; mkdir d; echo w > d/x; ln -s k l; ln -s ../k d/up; ln -s d dl; ln -s $M/k abs; ln -s l ll`)
	for path, value := range map[string]string{"l": "v\n", "d/up": "v\n", "dl/x": "w\n", "abs": "v\n", "ll": "v\n"} {
		want(t, path, read(t, n+"/"+path), value)
	}
	w.sh(`echo next > l; ln -sf d/x l2; ln -sfn nowhere dl`)
	want(t, "through a link", read(t, n+"/k"), "next\n")
	target := strings.Repeat("t/", 2000) + "t"
	must(t, os.Symlink(target, m+"/long"))
	got, err := os.Readlink(n + "/long")
	must(t, err)
	want(t, "long target", got, target)
	if st, err := os.Lstat(n + "/long"); err != nil || st.Size() != int64(len(target)) || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("lstat: %v, %v", st, err)
	}
	got, err = os.Readlink(n + "/dl")
	must(t, err)
	want(t, "replaced link", got, "nowhere")
}

// What is in a directory all the time is listed exactly once, while other keys come and go, and after seekdir.
func TestListingWhileKeysComeAndGo(t *testing.T) {
	w, m, n := two(t)
	const stay = 400
	must(t, os.Mkdir(m+"/d", 0o755))
	for i := range stay {
		write(t, fmt.Sprintf("%s/d/stay-%03d", m, i), "x")
	}
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			p := fmt.Sprintf("%s/d/go-%d", []string{m, n}[i%2], i%50)
			err := os.WriteFile(p, []byte("y"), 0o644)
			if err == nil && i%3 != 0 {
				err = os.Remove(p)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	for range 10 {
		for _, dir := range []string{m, n} {
			f := open(t, dir+"/d")
			seen := map[string]int{}
			for {
				names, err := f.Readdirnames(7)
				for _, name := range names {
					if strings.HasPrefix(name, "stay-") {
						seen[name]++
					}
				}
				if err == io.EOF {
					break
				}
				must(t, err)
			}
			must(t, f.Close())
			for i := range stay {
				if c := seen[fmt.Sprintf("stay-%03d", i)]; c != 1 {
					t.Fatalf("stay-%03d was listed %d times", i, c)
				}
			}
		}
	}
	close(stop)
	must(t, <-done)
	w.sh(`perl -e '
opendir D, "d" or die; my (@at, @names);
while (1) { my $t = telldir D; my $n = readdir D; last unless defined $n; push @at, $t; push @names, $n }
for (1 .. 5) { open F, ">", "d/aaa$_"; close F; unlink "d/go-$_" }
for my $i (reverse grep { $_ % 37 == 0 } 0 .. $#at) {
	next unless $names[$i] =~ /^stay/;
	seekdir D, $at[$i]; my $n = readdir D; die "at $i: $n, not $names[$i]" unless $n eq $names[$i];
}
rewinddir D; my %seen; while (defined(my $n = readdir D)) { $seen{$n}++ }
die "rewinddir: " . keys %seen unless $seen{"aaa1"} && 400 == grep { /^stay/ && $seen{$_} == 1 } keys %seen;
'`)
}
