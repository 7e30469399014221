package main

import "testing"

// A command is made under the name that it is asked for by.
func TestCommandsHaveTheirNames(t *testing.T) {
	for _, c := range commands {
		if got := c.make().Name(); got != c.name {
			t.Errorf("%q makes %q", c.name, got)
		}
		if root := newRoot([]string{c.name}); len(root.Commands()) != 1 {
			t.Errorf("%q: %d commands", c.name, len(root.Commands()))
		}
	}
}
