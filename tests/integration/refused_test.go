package integration

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storefs/storefs/tests/daemon"
)

// tree tells one state of a folder from another. Who held a store's lock last is no part of it.
func tree(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(h, path, d.Type())
		if d.Type().IsRegular() && d.Name() != "lock" {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			h.Write(b)
		}
		return nil
	})
	must(t, err)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Stores and mountpoints that are none: one line on standard error that names what is wrong, a status that is not 0, and nothing changed.
func TestMountRefuses(t *testing.T) {
	good := newWorld(t)
	must(t, os.Mkdir(good.dir+"/first", 0o755))
	good.mountAt(good.dir + "/first")
	write(t, good.dir+"/first/k", "v")
	good.must("umount", good.run(binary, "umount", good.dir+"/first"))
	for _, c := range []struct{ name, prepare, store, point, says string }{
		{"store is a file", `echo x > store`, "store", "m", "store"},
		{"store is a device", `true`, "/dev/null", "m", "/dev/null"},
		{"another program's folder", `mkdir store; echo x > store/f`, "store", "m", "store"},
		{"folder with a file named HEAD", `mkdir store; echo x > store/HEAD`, "store", "m", "store"},
		{"git repository", `git init -q --bare store`, "store", "m", "store"},
		{"store below a file", `echo x > f`, "f/store", "m", "f/store"},
		{"truncated HEAD", `cp -r $GOOD store; rm -f store/HEAD.*; truncate -s 100 store/HEAD`, "store", "m", "store"},
		{"empty HEAD", `cp -r $GOOD store; rm -f store/HEAD.*; : > store/HEAD`, "store", "m", "store"},
		{"no HEAD", `cp -r $GOOD store; rm -f store/HEAD*; ls store | grep -q .`, "store", "m", "store"},
		{"damaged HEAD", `cp -r $GOOD store; rm -f store/HEAD.*; printf XXXX | dd of=store/HEAD bs=1 seek=64 conv=notrunc status=none`, "store", "m", "store"},
		{"missing store, nocreate", `true`, "store -o nocreate", "m", "store"},
		{"missing store, ro", `true`, "store -o ro", "m", "store"},
		{"mountpoint is a file", `echo x > f`, "$GOOD", "f", "not a directory"},
		{"mountpoint is missing", `true`, "$GOOD", "no", "no such directory"},
		{"mountpoint is not empty", `mkdir full; echo x > full/f`, "$GOOD", "full", "not empty"},
		{"mountpoint is the store", `cp -r $GOOD store`, "store", "store", "the store itself"},
		{"mountpoint is in the store", `cp -r $GOOD store; mkdir store/d`, "store", "store/d", "inside the store"},
		{"mountpoint is in the store, by a link", `cp -r $GOOD store; mkdir store/d; ln -s store/d l`, "store", "l", "inside the store"},
		{"store in the mountpoint", `true`, "m/store", "m", "inside the mountpoint"},
		{"unknown option", `true`, "$GOOD -o frobnicate", "m", "frobnicate"},
		{"bad size", `true`, "$GOOD -o maxvalue=big", "m", "maxvalue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.store = w.dir + "/none"
			w.env = append(w.env, "GOOD="+good.store)
			must(t, os.Mkdir(w.dir+"/m", 0o755))
			w.must(c.prepare, w.runIn(w.dir, "", "bash", "-c", c.prepare))
			before, goodBefore := tree(t, w.dir), tree(t, good.store)
			r := w.runIn(w.dir, "", "bash", "-c", "exec $BIN mount "+c.store+" "+c.point)
			if r.status == 0 {
				w.run(binary, "umount", w.dir+"/"+c.point)
				t.Fatalf("mounted: %q %q", r.out, r.err)
			}
			if r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, c.says) || !strings.HasPrefix(r.err, "storefs: ") {
				t.Errorf("status %d: %q %q", r.status, r.out, r.err)
			}
			if tree(t, w.dir) != before || tree(t, good.store) != goodBefore {
				t.Error("something was changed")
			}
			if daemon.Mounted(w.dir + "/m") {
				t.Error("something is mounted")
			}
		})
	}
}

// The same bad stores are refused by the commands that need no mount.
func TestCommandsRefuseBadStores(t *testing.T) {
	w := newWorld(t)
	w.must("", w.runIn(w.dir, "", "bash", "-c", `mkdir bad other; echo x > other/f; : > bad/HEAD; echo x > file`))
	w.store = w.dir + "/none"
	for _, where := range []string{"bad", "other", "file", "missing"} {
		for _, c := range []string{"get % k", "put % k file", "rm % k", "mv % a b", "ls %", "info %", "check %"} {
			args := strings.Fields(strings.ReplaceAll(c, "%", where))
			before := tree(t, w.dir)
			r := w.run(binary, args...)
			if r.status != 1 || r.out != "" && args[0] != "check" || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, where) {
				t.Errorf("%s: status %d: %q %q", strings.Join(args, " "), r.status, r.out, r.err)
			}
			if tree(t, w.dir) != before {
				t.Errorf("%s changed something", strings.Join(args, " "))
			}
		}
	}
}

// A store of a newer version is refused with a sentence that says so, whatever comes after the version.
func TestNewerVersionIsRefused(t *testing.T) {
	w := newWorld(t)
	must(t, os.Mkdir(w.dir+"/m", 0o755))
	w.mountAt(w.dir + "/m")
	write(t, w.dir+"/m/k", "v")
	w.must("umount", w.run(binary, "umount", w.dir+"/m"))
	spares, _ := filepath.Glob(w.store + "/HEAD.*")
	kept := map[string]string{}
	for _, s := range append(spares, w.store+"/HEAD") {
		kept[s] = read(t, s)
		if b := []byte(read(t, s)); strings.HasPrefix(string(b), "storefs\x00") {
			b[8] = 99 // the format version follows the magic word
			b[40]++   // and what a newer one says comes after it
			must(t, os.WriteFile(s, b, 0o644))
		}
	}
	before := tree(t, w.store)
	for _, args := range [][]string{{"mount", w.store, w.dir + "/m"}, {"get", w.store, "k"}, {"check", w.store}} {
		r := w.run(binary, args...)
		if r.status == 0 || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "newer") && !strings.Contains(r.err, "version") {
			t.Errorf("%s: status %d: %q %q", args[0], r.status, r.out, r.err)
		}
	}
	if tree(t, w.store) != before {
		t.Error("the store was changed")
	}
	for s, b := range kept {
		must(t, os.WriteFile(s, []byte(b), 0o644))
	}
	w.wantKey("k", "v")
}

// A mountpoint is not mounted twice, by one storefs or by several at once; a store may be, elsewhere.
func TestDoubleMountIsRefused(t *testing.T) {
	w, m := one(t)
	write(t, m+"/k", "v")
	r := w.run(binary, "mount", w.store, m)
	if r.status == 0 || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "already") {
		t.Errorf("status %d: %q", r.status, r.err)
	}
	r = w.run(binary, "mount", w.dir+"/another", m)
	if r.status == 0 || !strings.Contains(r.err, "already") {
		t.Errorf("another store: status %d: %q", r.status, r.err)
	}
	if _, err := os.Stat(w.dir + "/another"); err == nil {
		t.Error("a store was made for a mount that was refused")
	}
	r = w.run(binary, "mount", m+"/store", w.dir+"/x")
	if r.status == 0 {
		t.Error("a store inside a mount")
	}
	want(t, "the mount", read(t, m+"/k"), "v")
	must(t, os.Mkdir(w.dir+"/race", 0o755))
	results := make(chan result)
	for range 4 {
		go func() { results <- w.run(binary, "mount", w.store, w.dir+"/race") }()
	}
	won := 0
	for range 4 {
		if r := <-results; r.status == 0 {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d of 4 mounts at once succeeded", won)
	}
	w.must("umount", w.run(binary, "umount", w.dir+"/race"))
}
