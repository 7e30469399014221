package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
)

// opError marks an error that an operation returned, as opposed to a command line that makes no sense.
type opError struct{ err error }

func (e *opError) Error() string { return e.err.Error() }
func (e *opError) Unwrap() error { return e.err }

// operation makes fn the body of a command: its errors have status 1 or 75, unless they are usage errors.
func operation(fn func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := fn(cmd, args)
		var u *usageError
		if err == nil || errors.As(err, &u) {
			return err
		}
		return &opError{err}
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// argCount returns a check that a command has between min and max arguments; max < 0 is no limit. What it says
// on too few or too many is the command's own usage line.
func argCount(min, max int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < min:
			return usagef("too few arguments (usage: %s)", cmd.UseLine())
		case max >= 0 && len(args) > max:
			return usagef("too many arguments (usage: %s)", cmd.UseLine())
		}
		return nil
	}
}

// hinted adds what the user can do about err.
func hinted(err error, format string, args ...any) error {
	return fmt.Errorf("%w (%s)", err, fmt.Sprintf(format, args...))
}

// plain are the errors of the backend that say all there is to say when the key stands before them.
var plain = []error{backend.ErrNotFound, backend.ErrExists, backend.ErrNotEmpty, backend.ErrIsDir, backend.ErrNotDir, backend.ErrConflict}

// keyError says which key err is about. The backend knows places, not paths: it names the last part of a key only.
func keyError(key string, err error) error {
	if err == nil {
		return nil
	}
	if b := (*blockedError)(nil); errors.As(err, &b) {
		return fmt.Errorf("key %q: %w", key, b)
	}
	for _, p := range plain {
		if errors.Is(err, p) {
			return fmt.Errorf("key %q: %w", key, p)
		}
	}
	return fmt.Errorf("key %q: %w", key, err)
}

// pathError drops the system call and the path from an error of package os where both are known from what is
// said before it.
func pathError(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var s *os.SyscallError
	if errors.As(err, &s) {
		return s.Err
	}
	return err
}

// shellWord returns s as a shell takes it, for hints that can be pasted.
func shellWord(s string) string {
	safe := func(r rune) bool {
		return r < 0x80 && (r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("_-+./:,@%", r))
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
