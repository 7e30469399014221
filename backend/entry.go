package backend

import (
	"maps"
	"math/rand/v2"
	"strings"
)

// Ino names a directory for as long as it exists, and one version of a file's content: replacing the content
// gives a new number, changing attributes or the place keeps it. Never reused within a store.
type Ino uint64

// FreeIno returns a number for something that is to be made later. It is drawn at random from 2^60 that stores do not hand out by
// themselves, so nobody else has it.
func FreeIno() Ino { return 1<<61 | Ino(rand.Uint64N(1<<60)) }

// RootIno is the root directory.
const RootIno Ino = 1

// Ref is a place in the tree: a name in a directory.
type Ref struct {
	Dir  Ino
	Name string
}

// RootRef is where the root directory stands.
var RootRef = Ref{}

// MaxName is the longest name in bytes.
const MaxName = 255

// MaxTarget is the longest target of a symbolic link in bytes.
const MaxTarget = 4095

// Kind says what an entry is.
type Kind uint8

const (
	File Kind = iota + 1
	Dir
	Symlink
)

// Attr are the attributes that a program can set. Times are nanoseconds since 1970.
type Attr struct {
	Mode         uint32 // permission bits, set-id bits and the sticky bit: 07777
	UID, GID     uint32
	Atime, Mtime int64
	Xattrs       map[string]string // nil when there are none; not to be changed in place
}

// Entry is what stands at a place in one generation.
type Entry struct {
	Ref
	Kind Kind
	Ino  Ino
	Attr
	Ctime    int64
	Size     int64      // bytes of the value, or of the target; 0 for a directory
	Target   string     // of a symbolic link
	Revision Generation // the generation that last changed this entry

	// Locator says where the value is. Set and read by the store alone.
	Locator any
}

// AttrChange says which attributes to set. A nil field leaves the attribute as it is.
type AttrChange struct {
	Mode, UID, GID *uint32
	Atime, Mtime   *int64
	SetXattr       map[string]string
	RemoveXattr    []string // absent names are no error
}

// Empty says whether c changes nothing.
func (c AttrChange) Empty() bool {
	return c.Mode == nil && c.UID == nil && c.GID == nil && c.Atime == nil && c.Mtime == nil &&
		len(c.SetXattr) == 0 && len(c.RemoveXattr) == 0
}

// Apply returns a with the change made; a itself stays as it is.
func (c AttrChange) Apply(a Attr) Attr {
	if c.Mode != nil {
		a.Mode = *c.Mode & 0o7777
	}
	if c.UID != nil {
		a.UID = *c.UID
	}
	if c.GID != nil {
		a.GID = *c.GID
	}
	if c.Atime != nil {
		a.Atime = *c.Atime
	}
	if c.Mtime != nil {
		a.Mtime = *c.Mtime
	}
	if len(c.SetXattr) > 0 || len(c.RemoveXattr) > 0 {
		x := maps.Clone(a.Xattrs)
		if x == nil {
			x = map[string]string{}
		}
		for _, n := range c.RemoveXattr {
			delete(x, n)
		}
		maps.Copy(x, c.SetXattr)
		if len(x) == 0 {
			x = nil
		}
		a.Xattrs = x
	}
	return a
}

// Merge returns the change that makes c and then d.
func (c AttrChange) Merge(d AttrChange) AttrChange {
	if d.Mode != nil {
		c.Mode = d.Mode
	}
	if d.UID != nil {
		c.UID = d.UID
	}
	if d.GID != nil {
		c.GID = d.GID
	}
	if d.Atime != nil {
		c.Atime = d.Atime
	}
	if d.Mtime != nil {
		c.Mtime = d.Mtime
	}
	if len(d.SetXattr) > 0 || len(d.RemoveXattr) > 0 {
		set := maps.Clone(c.SetXattr)
		if set == nil {
			set = map[string]string{}
		}
		for _, n := range d.RemoveXattr {
			delete(set, n)
		}
		maps.Copy(set, d.SetXattr)
		c.SetXattr = set
		c.RemoveXattr = append(append([]string(nil), c.RemoveXattr...), d.RemoveXattr...)
	}
	return c
}

// ValidName returns an error that wraps ErrName unless a directory can hold the name: 1 to MaxName bytes, neither
// "." nor "..", no '/' and no NUL in it.
func ValidName(name string) error {
	switch {
	case name == "":
		return &NameError{name, "is empty"}
	case len(name) > MaxName:
		return &NameError{name, "is longer than 255 bytes"}
	case name == "." || name == "..":
		return &NameError{name, "names a directory's own entry"}
	case strings.ContainsRune(name, '/'):
		return &NameError{name, "has a slash in it"}
	case strings.IndexByte(name, 0) >= 0:
		return &NameError{name, "has a NUL byte in it"}
	}
	return nil
}
