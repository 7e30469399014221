package filestore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOnlyThroughDisk reads the source: a system call on a file that goes past package disk could fail untested.
func TestOnlyThroughDisk(t *testing.T) {
	past := map[string][]string{ // what is no call on a file
		"os":       {"Getpid", "Geteuid", "Getegid"},
		"filepath": {"Abs", "Base", "Dir", "Join"},
		"unix":     nil,
		"syscall":  nil,
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, calls := token.NewFileSet(), 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			calls++
			if f, ok := call.Fun.(*ast.SelectorExpr); ok {
				x, _ := f.X.(*ast.Ident)
				if x == nil {
					return true
				}
				if allowed, ok := past[x.Name]; ok && !slices.Contains(allowed, f.Sel.Name) {
					t.Errorf("%s: %s.%s does not go through package disk", set.Position(call.Pos()), x.Name, f.Sel.Name)
				}
			}
			return true
		})
	}
	if calls < 500 {
		t.Errorf("only %d calls found in the source", calls)
	}
}
