package fsnode

import (
	"log"
	"time"

	"github.com/storefs/storefs/lockmgr"
)

// Options of Mount. The zero value is a read-write mount for the user who mounts.
type Options struct {
	ReadOnly   bool
	AllowOther bool // let other users in; the kernel checks permissions
	NoXattr    bool // no extended attributes at all: saves a round trip at each truncating open
	Strict     bool // nothing of names and attributes is cached by the kernel

	UID, GID *uint32 // shown as owner and group of everything
	Umask    *uint32 // taken off all shown modes

	MaxValue    int64         // longest value in bytes; 0: no limit
	MaxStore    int64         // bytes that all values together may have after a write through this mount; 0: no limit
	LockTimeout time.Duration // longest wait for a lock; 0: 30 s

	Locks *lockmgr.Keys // locks of keys, the caller's to close; nil: the kernel keeps them, for each version of its own

	FsName string   // shown as the source of the mount; "": storefs
	Extra  []string // options passed to the kernel or fusermount as they are
	Log    *log.Logger
	Debug  bool // log every request
}
