package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"storefs":            main,
		"mount.fuse.storefs": main,
		"mkstore":            mkstore,
	})
}

// TestScripts runs the command as its users do, without a mount. Besides what testscript brings there are
//
//	mkstore DIR [mkdir KEY | symlink KEY TARGET]   makes a store (as mount does), or what only a mount can make in it
//	[!] sound DIR                                  the store is whole, and nothing of a stage is left in it
//	eachline N FILE                                the file has exactly N lines
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"sound":    sound,
			"eachline": eachLine,
		},
	})
}

func mkstore() {
	if err := makeIn(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func makeIn(dir string, what []string) error {
	st, err := filestore.Open(dir, &filestore.Options{Create: len(what) == 0})
	if err != nil {
		return err
	}
	defer st.Close()
	if len(what) < 2 {
		return nil
	}
	return commitEdit(context.Background(), st, func(e *edit) error {
		ref, err := e.ref(what[1])
		switch {
		case err != nil:
		case what[0] == "mkdir":
			e.b.Mkdir(ref, backend.Attr{Mode: 0o755})
		default:
			e.b.Symlink(ref, what[2], backend.Attr{Mode: 0o777})
		}
		return err
	})
}

func sound(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	r, err := filestore.Check(context.Background(), dir, nil)
	if ok := err == nil && r.Problems == 0; ok == neg {
		ts.Fatalf("check of %s: %v, %d damages", args[0], err, r.Problems)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) > 0 {
		ts.Fatalf("left in tmp: %v", left)
	}
}

func eachLine(ts *testscript.TestScript, neg bool, args []string) {
	lines := 0
	for _, c := range ts.ReadFile(args[1]) {
		if c == '\n' {
			lines++
		}
	}
	if want := args[0]; (fmt.Sprint(lines) == want) == neg {
		ts.Fatalf("%s has %d lines, not %s", args[1], lines, want)
	}
}
