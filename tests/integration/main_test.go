// Package integration tries storefs from outside: the real binary, real mounts, real shells, several processes.
// Every sentence of the contract (R1 ... N3) has its tests here, in the file named for its theme.
//
//	STOREFS_REQUIRE_FUSE=1  a machine that cannot mount fails instead of skipping
//	STOREFS_RACE=1          the binary under test is built with the race detector; a race that it reports fails the run
//	STOREFS_LONG=1          the sizes that take minutes
//	STOREFS_KILLS=10000     how many processes TestNothingAcknowledgedDies kills
package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	binary string // the storefs under test
	noFuse string // why nothing can be mounted; "" if it can
	long   = os.Getenv("STOREFS_LONG") == "1"
	raced  = os.Getenv("STOREFS_RACE") == "1"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("STOREFS_TEST_ROLE"); role != "" {
		os.Exit(play(role, os.Args[1:]))
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "storefs-integration-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // other users run the binary too
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("LC_ALL", "C.UTF-8")
	os.Setenv("PATH", dir+":"+realPython()+os.Getenv("PATH"))
	if raced {
		os.Setenv("GORACE", "halt_on_error=0 log_path="+filepath.Join(dir, "race"))
	}
	binary = filepath.Join(dir, "storefs")
	if err := build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		noFuse = err.Error()
	} else {
		f.Close()
	}
	if noFuse != "" && os.Getenv("STOREFS_REQUIRE_FUSE") == "1" {
		fmt.Fprintln(os.Stderr, "STOREFS_REQUIRE_FUSE=1, but", noFuse)
		return 1
	}
	status := m.Run()
	races, _ := filepath.Glob(filepath.Join(dir, "race.*"))
	for _, f := range races {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(os.Stderr, "race in storefs:\n%s\n", text)
		status = 1
	}
	return status
}

func build(to string) error {
	args := []string{"build", "-o", to}
	env := append(os.Environ(), "CGO_ENABLED=0")
	if raced {
		args, env = append(args, "-race"), append(os.Environ(), "CGO_ENABLED=1")
	}
	cmd := exec.Command("go", append(args, "github.com/storefs/storefs/cmd/storefs")...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// realPython returns what to put before PATH so that python3 is the interpreter itself: a shim of a version manager is
// a shell script that costs more than the tests.
func realPython() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return ""
	}
	return filepath.Dir(strings.TrimSpace(string(out))) + ":"
}
