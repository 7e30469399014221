package integration

import (
	"fmt"
	"os"
)

// The test binary plays parts in processes of its own: play runs the one that STOREFS_TEST_ROLE names.

var roles = map[string]func(args []string) error{}

func play(role string, args []string) int {
	f := roles[role]
	if f == nil {
		fmt.Fprintln(os.Stderr, "no role", role)
		return 2
	}
	if err := f(args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		return 1
	}
	return 0
}
