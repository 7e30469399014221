package backend_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
	"pgregory.net/rapid"
)

func drawAttrChange(rt *rapid.T) backend.AttrChange {
	name := rapid.SampledFrom([]string{"user.a", "user.b", "user.c"})
	mode := rapid.Ptr(rapid.Uint32Range(0, 0o7777), true)
	at := rapid.Ptr(rapid.Int64(), true)
	return backend.AttrChange{
		Mode: mode.Draw(rt, "mode"), UID: mode.Draw(rt, "uid"), GID: mode.Draw(rt, "gid"),
		Atime: at.Draw(rt, "atime"), Mtime: at.Draw(rt, "mtime"),
		SetXattr:    rapid.MapOf(name, rapid.StringN(0, 2, 2)).Draw(rt, "set"),
		RemoveXattr: rapid.SliceOfN(name, 0, 3).Draw(rt, "remove"),
	}
}

func sameAttr(a, b backend.Attr) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.Atime == b.Atime && a.Mtime == b.Mtime &&
		maps.Equal(a.Xattrs, b.Xattrs) && (a.Xattrs == nil) == (b.Xattrs == nil)
}

func TestAttrChangeMerge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawAttrChange(rt).Apply(backend.Attr{Mode: 0o644})
		c, d := drawAttrChange(rt), drawAttrChange(rt)
		was := maps.Clone(a.Xattrs)
		one, two := c.Merge(d).Apply(a), d.Apply(c.Apply(a))
		if !sameAttr(one, two) {
			rt.Errorf("merged %+v, one after the other %+v", one, two)
		}
		if !maps.Equal(a.Xattrs, was) {
			rt.Error("Apply changed its argument")
		}
		if c.Empty() && !sameAttr(c.Apply(a), a) {
			rt.Error("an empty change changes")
		}
	})
}

func TestValidName(t *testing.T) {
	for name, valid := range map[string]bool{
		"": false, ".": false, "..": false, "...": true, ".a": true, "a/b": false, "/": false, "\x00": false, "a\x00": false,
		" ": true, "\n": true, "\xff": true, ".storefs": true,
		strings.Repeat("x", backend.MaxName): true, strings.Repeat("x", backend.MaxName+1): false,
	} {
		err := backend.ValidName(name)
		var detail *backend.NameError
		switch {
		case valid && err != nil:
			t.Errorf("%q: %v", name, err)
		case !valid && (!errors.Is(err, backend.ErrName) || !errors.As(err, &detail) || detail.Name != name):
			t.Errorf("%q: error %v", name, err)
		}
	}
}
