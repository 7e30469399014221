package filestore

import (
	"time"

	"github.com/storefs/storefs/backend/filestore/disk"
)

// SyncMode says when commits are made durable, that is safe from a power failure. They survive the death of every process
// in each mode.
type SyncMode uint8

const (
	Interval SyncMode = iota // soon after the commit, at most Options.Interval later, and at Close
	Always                   // before Commit returns
	Never                    // when Sync or CreateSnapshot is called, and before files that an older generation needs are removed
)

func (m SyncMode) String() string { return [...]string{"interval", "always", "never"}[m%3] }

// Options of Open. Nil means the defaults.
type Options struct {
	Create      bool          // make the store if the directory is missing or empty
	ReadOnly    bool          // change nothing in the directory, not even to lock it
	Sync        SyncMode      // zero: Interval
	Interval    time.Duration // zero: 1 s
	LockTimeout time.Duration // how long a commit waits for the lock; zero: 30 s
	Command     string        // what others are told who wait for the lock; zero: the program's name
	ManualMerge bool          // tables are merged by Compact alone, never in the background or by Close
	Disk        *disk.Disk    // makes the system calls on the files; nil makes them plainly, others are for tests

	// fill returns what a new store holds in the place of the empty first generation that it is given. nil: that one.
	fill func(*Store, *head) (*head, error)
	// bootID stands in for /proc/sys/kernel/random/boot_id in tests.
	bootID string
	// sizes are smaller in tests; nil: ordinarySizes.
	sizes *sizes
	// noExchange has tests go the way of a file system that cannot exchange names.
	noExchange bool
}

// sizes are those at which something changes its form.
type sizes struct {
	head   int    // record bytes at which HEAD is spilled into a table
	stage  int64  // bytes in memory; a longer stage is in a file
	solo   int64  // a stage in a file that is at least so long becomes a volume of its own
	volume uint64 // one as long is not appended to
	dead   uint64 // a shorter volume is appended to even if nothing in it is alive
}

func ordinarySizes() *sizes {
	return &sizes{head: headBound, stage: stageMemory, solo: soloMin, volume: volumeCap, dead: deadMin}
}

const (
	headBound   = 32 << 10
	stageMemory = 256 << 10
	soloMin     = 1 << 20
	volumeCap   = 256 << 20
	deadMin     = 1 << 20
)

const (
	cacheBytes   = 8 << 20
	idleVolumes  = 64
	closeMerge   = 4 << 20 // Close merges tables that are no longer than this together
	fewTrash     = 16      // removed files that wait for a sync in the modes that have no clock
	keepRemovals = 1000    // generations for which a removal stays recorded at least, for Watch
)
