package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMountedScripts runs the scripts that mount. Whatever one leaves mounted is unmounted, and fails the test.
func TestMountedScripts(t *testing.T) {
	needFuse(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/mounted",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TMPDIR", filepath.Join(e.WorkDir, "tmp"))
			e.Defer(func() { noMountsLeft(t, e.WorkDir) })
			return os.MkdirAll(filepath.Join(e.WorkDir, "tmp"), 0o755)
		},
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"sound":    sound,
			"eachline": eachLine,
		},
	})
}

// needFuse skips on a machine that cannot mount, unless STOREFS_REQUIRE_FUSE says that it must.
func needFuse(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
	case os.Getenv("STOREFS_REQUIRE_FUSE") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

func noMountsLeft(t *testing.T, dir string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for _, m := range parseMountinfo(string(text)) {
		if strings.HasPrefix(m.point, dir+"/") {
			t.Errorf("left mounted: %s", m.point)
			detach(m.point)
		}
	}
}
