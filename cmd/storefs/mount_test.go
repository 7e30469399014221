package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func TestParseMountOptions(t *testing.T) {
	id := func(n uint32) *uint32 { return &n }
	for _, c := range []struct {
		name  string
		flags []string
		want  mountOptions
	}{
		{"none", nil, mountOptions{}},
		{"flags", []string{"ro,allow_other,noxattr,strict,nocreate"}, mountOptions{readOnly: true, allowOther: true, noXattr: true, strict: true, noCreate: true}},
		{"later ones win", []string{"ro", "maxvalue=1", "rw,maxvalue=64K"}, mountOptions{maxValue: 64 << 10}},
		{"numbers", []string{"uid=0,gid=65534,umask=027"}, mountOptions{uid: id(0), gid: id(65534), umask: id(0o27)}},
		{"names", []string{"uid=root,gid=root"}, mountOptions{uid: id(0), gid: id(0)}},
		{"empty words", []string{",,", ""}, mountOptions{}},
		{"sync with a time", []string{"sync=interval:250ms"}, mountOptions{sync: filestore.Interval, interval: 250 * time.Millisecond}},
		{"sync always", []string{"sync=interval:3,sync=always"}, mountOptions{sync: filestore.Always}},
		{"seconds without a unit", []string{"locktimeout=5"}, mountOptions{lockTimeout: 5 * time.Second}},
		{"passed on", []string{"nosuid,noatime,fsname=a=b"}, mountOptions{fsName: "a=b", extra: []string{"nosuid", "noatime"}}},
		{"gigabytes", []string{"maxvalue=2g"}, mountOptions{maxValue: 2 << 30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseMountOptions(c.flags)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestParseMountOptionsRefuses(t *testing.T) {
	for _, word := range []string{
		"frob", "frob=1", "ro=1", "nosuid=1", "uid", "uid=", "uid=-1", "uid=4294967295", "gid=no-such-group-here", "umask=1000", "umask=x",
		"sync", "sync=always:1s", "sync=interval:", "sync=interval:0", "locktimeout=-1", "locktimeout=x", "maxvalue=0", "maxvalue=-1",
		"maxvalue=1.5M", "maxvalue=K", "maxvalue=9223372036854775807K", "auto_unmount", "subtype=x",
	} {
		_, err := parseMountOptions([]string{"ro", word})
		if u := (*usageError)(nil); !errors.As(err, &u) {
			t.Errorf("%s: %v, not a usage error", word, err)
		}
	}
}

func TestParseMountinfo(t *testing.T) {
	got := parseMountinfo(`22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:30 / /mnt/a\040b rw,nosuid - fuse.storefs /srv/k\134v\011 rw,user_id=0
garbage
40 22 0:31 / /x rw master:3 propagate_from:2 - tmpfs none rw
`)
	want := []mountEntry{{"254:0", "/", "ext4", "/dev/vda"}, {"0:30", "/mnt/a b", "fuse.storefs", "/srv/k\\v\t"}, {"0:31", "/x", "tmpfs", "none"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestResolve(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(p string) string { return filepath.Join(top, p) }
	for _, err := range []error{
		os.MkdirAll(in("d/e"), 0o755), os.Symlink("d/e", in("l")), os.Symlink(in("l"), in("m")), os.Symlink("loop", in("loop")), os.Symlink("gone/x", in("g")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"d/e": "d/e", "l": "d/e", "m": "d/e", "m/new": "d/e/new", "no/such/path": "no/such/path", "g": "gone/x", "d/../l/..": "",
	} {
		if got, err := resolve(in(".") + "/" + path); err != nil || got != in(want) {
			t.Errorf("%s: %s, %v; want %s", path, got, err, in(want))
		}
	}
	if got, err := resolve(in("loop")); err == nil {
		t.Errorf("a loop leads to %s", got)
	}
	if got, err := resolve("/"); err != nil || got != "/" {
		t.Errorf("root: %s, %v", got, err)
	}
}

func TestInside(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true}} {
		if got := inside(c.path, c.dir); got != c.want {
			t.Errorf("inside(%s, %s) is %v", c.path, c.dir, got)
		}
	}
}

func TestModeString(t *testing.T) {
	for _, c := range []struct {
		kind backend.Kind
		mode uint32
		want string
	}{
		{backend.File, 0o640, "-rw-r-----"}, {backend.Dir, 0o1777, "drwxrwxrwt"}, {backend.Symlink, 0o777, "lrwxrwxrwx"},
		{backend.File, 0o4711, "-rws--x--x"}, {backend.File, 0o6000, "---S--S---"},
	} {
		if got := modeString(backend.Entry{Kind: c.kind, Attr: backend.Attr{Mode: c.mode}}); got != c.want {
			t.Errorf("%o: %s, want %s", c.mode, got, c.want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{"a/b-c": "a/b-c", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "ü": "'ü'", "a=b": "'a=b'"} {
		if got := shellWord(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func FuzzUnescape(f *testing.F) {
	f.Add(`a\040b`)
	f.Add("\\ \t\n\\1")
	escape := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`) // as the kernel's mangle does
	f.Fuzz(func(t *testing.T, s string) {
		unescapeMountinfo(s)
		if got := unescapeMountinfo(escape.Replace(s)); got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}
