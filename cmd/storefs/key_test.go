package main

import (
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

func TestKeyPath(t *testing.T) {
	a := strings.Repeat("a", 255)
	for key, want := range map[string]string{
		"k": "k", "a/b": "a/b", "": ".%", "/": ".%/.%", "a/": "a/.%", "/a": ".%/a", "a//b": "a/.%/b", ".": ".%.", "../x": ".%../x",
		"a\x00b": ".%a%00b", "100%": "100%", "\x00%": ".%%00%25", ".%": ".%.%25", ".%.": ".%.%25.", ".%x": ".%x", ".%zz%": ".%zz%", "+\x00": ".%%2B%00",
		"\x00+": ".%%00+", a: a, a + "a": chunkMark + a[:252] + "/.%aaaa", a + "\x00": chunkMark + a[:252] + "/.%aaa%00",
		".%.%25.": ".%.%25.%2525.", ".%41": ".%41", "...": "...", "b/.storefs": "b/.storefs",
	} {
		got, err := keyPath(key)
		if err != nil || got != want {
			t.Errorf("key %q: path %q, %v; want %q", key, got, err, want)
		}
		if back := pathKey(got); back != key {
			t.Errorf("key %q: path %q: key %q", key, got, back)
		}
	}
	for _, key := range []string{".storefs", ".storefs/x"} {
		if p, err := keyPath(key); err == nil {
			t.Errorf("key %q: path %q", key, p)
		}
	}
}

// Every key comes back, and every path is one that a mount can show.
func FuzzKeyPath(f *testing.F) {
	for _, s := range []string{"", "/", "a//b", ".", "..", "a\x00b", ".%", ".%.", ".%.%25", ".%+", strings.Repeat("a", 256), strings.Repeat("%\x00", 300),
		strings.Repeat(".%+", 100), strings.Repeat("+", 600), chunkMark + strings.Repeat("C", 252) + "/\x00\x00", strings.Repeat("C", 252) + "++++"} {
		f.Add(s)
		if p, err := keyPath(s); err == nil {
			f.Add(p)
		}
	}
	f.Fuzz(func(t *testing.T, key string) {
		path, err := keyPath(key)
		if err != nil {
			if !strings.HasPrefix(key, reserved) {
				t.Fatalf("key %q: %v", key, err)
			}
			return
		}
		for name := range strings.SplitSeq(path, "/") {
			if err := backend.ValidName(name); err != nil {
				t.Fatalf("key %q: path %q: %v", key, path, err)
			}
		}
		if back := pathKey(path); back != key {
			t.Fatalf("key %q: path %q: key %q", key, path, back)
		}
	})
}

// A name that a program made through a mount has a key that leads to it; what is not the end of a long name may not.
func FuzzPathKey(f *testing.F) {
	for _, s := range []string{"a", ".%", ".%.", ".%.%25", ".%41", ".%%2b", ".%+x", ".%%2B", "%00", ".%%00", ".%a%00/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for name := range strings.SplitSeq(path, "/") {
			if backend.ValidName(name) != nil || isChunk(name) {
				return
			}
		}
		if again, err := keyPath(pathKey(path)); err == nil && again != path {
			t.Fatalf("path %q: key %q: path %q", path, pathKey(path), again)
		}
	})
}
