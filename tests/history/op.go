package history

import "fmt"

// Keys is how many keys there are. They are the files k0, k1 … of the directory "h".
const Keys = 4

// Folder is the directory that the keys are in.
const Folder = "h"

// Key returns the name of a key in Folder.
func Key(i int) string { return fmt.Sprintf("k%d", i) }

// Values are the names of the pieces of each key's value; "" where there is no such key.
type Values [Keys]string

// Verb is what an operation does.
type Verb string

const (
	Read     Verb = "read"     // open, read to the end, close
	Write    Verb = "write"    // open with O_TRUNC, write, close
	Append   Verb = "append"   // open with O_APPEND, write, close
	Modify   Verb = "modify"   // open, read, change in place, close
	Remove   Verb = "remove"   // unlink
	Rename   Verb = "rename"   // over another key
	List     Verb = "list"     // opendir, readdir: which keys there are
	Snapshot Verb = "snapshot" // keep a snapshot and read all keys in it
	Together Verb = "together" // replace several keys in one commit
	Change   Verb = "change"   // a transaction: read several keys, replace some
)

// CommandLine is the Mount of an operation by the command line.
const CommandLine = -1

// Op is an operation, as its client meant it.
type Op struct {
	Verb  Verb
	Mount int   // the number of the mount, or CommandLine
	Key   int   // of all but List, Snapshot, Together and Change
	To    int   // of Rename
	Keys  []int // which Together and Change replace; those that Change reads are all
	Piece string
}

// Outcome is how an operation ended.
type Outcome string

const (
	Done    Outcome = "done"
	Absent  Outcome = "absent"  // there was no such key
	Stale   Outcome = "stale"   // someone else was faster; nothing was changed
	Unknown Outcome = "unknown" // it failed, or its client or daemon was killed: it was done or not
)

// Result is how an operation ended and what it saw.
type Result struct {
	Outcome Outcome
	Seen    Values // of the key or keys that were read; of List, "there"
	Err     string // of Unknown
}

// there is what List sees of a key.
const there = "there"

// Record is an operation with the times, of CLOCK_MONOTONIC in nanoseconds, between which it was done.
type Record struct {
	Client     string
	Op         Op
	Result     Result
	Start, End int64
}

func (r Record) String() string {
	s := fmt.Sprintf("%s %s", r.Client, r.Op.Verb)
	switch r.Op.Verb {
	case List, Snapshot:
	case Together, Change:
		s += fmt.Sprintf(" %v", r.Op.Keys)
	case Rename:
		s += fmt.Sprintf(" %d to %d", r.Op.Key, r.Op.To)
	default:
		s += fmt.Sprintf(" %d", r.Op.Key)
	}
	if r.Op.Piece != "" {
		s += " " + r.Op.Piece
	}
	if r.Op.Mount == CommandLine {
		s += " by command"
	} else {
		s += fmt.Sprintf(" on mount %d", r.Op.Mount)
	}
	return fmt.Sprintf("%s: %s %q %s", s, r.Result.Outcome, r.Result.Seen, r.Result.Err)
}
