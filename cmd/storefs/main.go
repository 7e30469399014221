// Command storefs keeps keys in a store and shows the store as a directory.
//
// Rules of its output. Standard output carries what was asked for and nothing else. An error is one line on standard
// error: what was being done, to which store and key, why, and where one helps a hint in parentheses. A notice (a store was
// made) goes to standard error too. The exit status is part of the interface: see the constants.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/cmd/storefs/bench"
)

// Exit statuses.
const (
	statusOK       = 0
	statusFailed   = 1  // no such key, or the operation failed
	statusUsage    = 2  // the command line makes no sense: nothing was tried
	statusConflict = 75 // changed by someone else meanwhile: try again (EX_TEMPFAIL of sysexits.h)
)

func main() {
	if isHelper(os.Args[0]) {
		os.Exit(runHelper(os.Args[1:]))
	}
	os.Exit(run(os.Args[1:]))
}

// runHelper executes a command line of mount(8).
func runHelper(args []string) int {
	mount, fake, err := helperArgs(args)
	if err != nil {
		printError(os.Stderr, "mount", err)
		return helperUsage
	}
	if fake {
		return statusOK
	}
	os.Args = append([]string{"storefs"}, mount...) // the daemon is started with the same
	switch status := run(mount); status {
	case statusOK:
		return statusOK
	case statusUsage:
		return helperUsage
	default:
		return helperFailed
	}
}

// run executes one command line and returns the exit status.
func run(args []string) int {
	root := newRoot(args)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return statusOK
	}
	var status statusError
	if errors.As(err, &status) {
		return int(status)
	}
	what := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), root.Name()))
	printError(os.Stderr, what, err)
	return exitStatus(err)
}

// exitStatus returns the status for an error of ExecuteC. What no command returned is cobra's own complaint about the
// command line.
func exitStatus(err error) int {
	var op *opError
	switch {
	case !errors.As(err, &op):
		return statusUsage
	case errors.Is(err, backend.ErrConflict):
		return statusConflict
	}
	return statusFailed
}

// printError writes err as one line: joined errors and names with line ends in them do not make it two.
func printError(w io.Writer, what string, err error) {
	prefix := "storefs: "
	if what != "" {
		prefix += what + ": "
	}
	fmt.Fprintln(w, prefix+oneLine(err.Error()))
}

// oneLine returns text, which may have names in it, without line ends and as it can be printed.
func oneLine(text string) string {
	return printable(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// commands are all commands, with what makes them.
var commands = []struct {
	name string
	make func() *cobra.Command
}{
	{"mount", newMount}, {"umount", newUmount},
	{"get", newGet}, {"put", newPut}, {"rm", newRm}, {"mv", newMv}, {"ls", newLs},
	{"txn", newTxn}, {"snapshot", newSnapshot}, {"diff", newDiff}, {"apply", newApply}, {"watch", newWatch},
	{"export", newExport}, {"import", newImport},
	{"sync", newSync}, {"compact", newCompact}, {"info", newInfo}, {"check", newCheck}, {"repair", newRepair},
	{"guard", newGuard}, {"bench", newBench}, {bench.WorkerCommand, newBenchWorker}, {"version", newVersion},
}

// newRoot returns the command that args are for, with no more of its subcommands than the one they name: to make all of them takes
// longer than most commands run.
func newRoot(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "storefs",
		Short: "A key-value store mounted as a directory",
		Long: `storefs shows a key-value store as a directory. A key is a file: reading it is a read-only
transaction, writing it publishes the whole new value at once.

Exit statuses: 0; 1 no such key, or the operation failed; 2 usage; 75 conflict, try again.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no command given (storefs help lists them)")
			}
			return usagef("unknown command %q (storefs help lists them)", args[0])
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (%s --help lists the flags)", err, cmd.CommandPath())
	})
	root.SetHelpCommand(newHelp(root))
	for _, c := range commands {
		if len(args) > 0 && c.name == args[0] {
			root.AddCommand(c.make())
		}
	}
	if !root.HasSubCommands() {
		for _, c := range commands {
			root.AddCommand(c.make())
		}
		root.InitDefaultCompletionCmd()
	}
	for _, c := range root.Commands() {
		c.DisableFlagsInUseLine = true
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, func(*cobra.Command, []string) error {
				return usagef("name a shell: bash, zsh, fish or powershell")
			}
		}
	}
	return root
}

func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say what a command does",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no such command: %q", strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
}
