package backend

import (
	"context"
	"io"
	"iter"
)

// Generation numbers a whole-store commit. A store that was never written to is at generation 0;
// each commit is one more.
type Generation uint64

// Store is a tree of keys that changes by whole commits.
//
// Policy: every method may be called by any number of goroutines at once, and any number of Store values,
// in any number of processes, may be open on the same storage. Readers never wait for writers. Every error
// that has a sentinel in this package wraps it. A context that ends while a call waits for a lock makes the
// call return the context's error with nothing changed.
type Store interface {
	// Snapshot pins the newest committed generation. A commit that returned before Snapshot was called,
	// through any Store value on the machine, is in it. Cheap when nothing was committed since the last call.
	Snapshot(ctx context.Context) (Snapshot, error)

	// Commit applies the whole of b as one generation, or nothing of it. When an expectation of b does not
	// hold it returns ErrConflict. An empty batch, and one whose operations change nothing, commits nothing
	// and returns the newest generation. The stages in b stay the caller's, to be closed by the caller
	// after Commit has returned; a successful Commit may have emptied them.
	Commit(ctx context.Context, b *Batch) (Committed, error)

	// Watch yields what was committed after generation from, by anyone, in the order of generations, and waits
	// for more until ctx ends (then it stops without an error). Several commits that were made between two
	// looks may be yielded as their net effect. When the store no longer knows what changed since from it
	// yields ErrHistoryGone once and stops: the caller then knows nothing about anything older than a
	// new snapshot.
	Watch(ctx context.Context, from Generation) iter.Seq2[Change, error]

	// NewStage makes an empty stage for a value of this store.
	NewStage() (Stage, error)

	// Sync returns when everything committed before the call is on stable storage.
	Sync(ctx context.Context) error

	// Close releases what the store holds. Snapshots and values still open stay readable until they are closed.
	Close() error
}

// Snapshot is the whole store at one generation. It never changes. Safe for concurrent use until closed.
type Snapshot interface {
	Generation() Generation

	// Lookup returns the entry at ref, or ErrNotFound.
	Lookup(ref Ref) (Entry, error)

	// Parent returns where the directory dir stands: ErrNotFound if there is no such directory.
	// The root stands at RootRef.
	Parent(dir Ino) (Ref, error)

	// List yields the entries of directory dir whose names are greater than after, in the byte order of
	// names. An unknown dir has no entries.
	List(dir Ino, after string) iter.Seq2[Entry, error]

	// Open returns the value of a file entry of this snapshot. The value stays readable after the snapshot is closed.
	Open(e Entry) (Value, error)

	Close() error
}

// Value is the content of one version of a file. It never changes. Safe for concurrent use until closed.
type Value interface {
	io.ReaderAt
	Size() int64
	Close() error
}

// Stage is a value that is being written: private, read and written at any offset, in bounded memory
// whatever its size. What lies between written ranges reads as zeros. Not safe for concurrent use.
type Stage interface {
	io.ReaderAt
	io.WriterAt
	Size() int64
	Truncate(size int64) error
	// Close discards the stage. A second Close does nothing.
	Close() error
}

// Reserver is what a store implements that can reserve an absent name on the whole machine, for O_EXCL.
type Reserver interface {
	// Reserve takes the reservation of ref without waiting; ErrExists when another holds it. It ends when
	// release is called or the process ends. It does not look at whether ref exists.
	Reserve(ref Ref) (release func(), err error)
}

// Space is what statfs reports, in bytes and in numbers of keys.
type Space struct {
	Total, Free, Available uint64
	Keys                   uint64
	Bytes                  uint64 // of all values together
}

// Spacer is what a store implements that knows how much room it has.
type Spacer interface {
	Space() (Space, error)
}

// Counters are the sums since a Store value was opened, for monitoring.
type Counters struct {
	Commits      uint64 // commits made through this Store value
	LockWaits    uint64 // commits that had to wait for another holder of the commit lock
	LockWaitTime int64  // nanoseconds spent in those waits
	Spares       uint64 // files newly made because no spare was free
	Spills       uint64 // index tables written because HEAD was full
	Merges       uint64 // merges of index tables
	Syncs        uint64 // times the store was made durable
}

// Counter is what a store implements that counts.
type Counter interface {
	Counters() Counters
}

// NamedSnapshot is a generation that is kept under a name.
type NamedSnapshot struct {
	Name       string
	Generation Generation
	Time       int64 // when it was made, in nanoseconds since 1970
}

// Snapshotter is what a store implements that keeps generations under names, for every Store value and beyond Close.
type Snapshotter interface {
	// CreateSnapshot keeps the newest generation under name, which ValidName must hold for; ErrExists if there is one.
	CreateSnapshot(ctx context.Context, name string) (NamedSnapshot, error)
	// RemoveSnapshot lets a generation go; ErrNotFound. Snapshots of it that are open stay readable.
	RemoveSnapshot(ctx context.Context, name string) error
	// OpenSnapshot returns the generation kept under name; ErrNotFound.
	OpenSnapshot(ctx context.Context, name string) (Snapshot, error)
	// Snapshots lists them by name.
	Snapshots(ctx context.Context) ([]NamedSnapshot, error)
}
