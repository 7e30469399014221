package integration

import (
	"maps"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// cannotHold are entries of posixtest that do not hold on a store, and why.
var cannotHold = map[string]string{
	"Link":                "hard links do not exist here (N2): link(2) is EPERM",
	"LinkUnlinkRename":    "needs hard links (N2)",
	"FcntlFlockLocksFile": "record locks belong to the process, as POSIX says and ext4 does: its second lock is its own",
}

// The conformance tests of go-fuse, each on a mount of its own.
func TestPosix(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		t.Run(name, func(t *testing.T) {
			if why, ok := cannotHold[name]; ok {
				t.Skip(why)
			}
			_, m := one(t)
			posixtest.All[name](t, m)
		})
	}
	for name := range cannotHold {
		if posixtest.All[name] == nil {
			t.Errorf("%s is listed, and is no test any more", name)
		}
	}
}
