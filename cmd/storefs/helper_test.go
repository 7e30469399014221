package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestHelperArgs(t *testing.T) {
	for args, want := range map[string]string{
		"kv m": "mount -- kv m",
		"kv m -o rw,noauto,nofail,x-systemd.automount,sync=always,nosuid -t fuse.storefs": "mount -o rw -o sync=always -o nosuid -- kv m",
		"kv m -nv -o ro":         "mount -o ro -- kv m",
		"kv m -s -o frob,ro":     "mount -o ro -- kv m",
		"-o allow_other kv m":    "mount -o allow_other -- kv m",
		"kv m -N /proc/1/ns/mnt": "mount -- kv m",
	} {
		got, fake, err := helperArgs(strings.Fields(args))
		if err != nil || fake || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, %v, %v", args, got, fake, err)
		}
	}
	for _, args := range []string{"", "kv", "kv m x", "kv m -o", "kv m -o frob", "kv m -q"} {
		_, _, err := helperArgs(strings.Fields(args))
		if u := (*usageError)(nil); !errors.As(err, &u) {
			t.Errorf("%s: %v, not a usage error", args, err)
		}
	}
	if _, fake, err := helperArgs([]string{"kv", "m", "-f"}); err != nil || !fake {
		t.Errorf("-f: %v, %v", fake, err)
	}
}
