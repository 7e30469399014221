package fsnode

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storefs/storefs/backend"
)

// opcode names a FUSE operation whose round trips are counted.
type opcode int

const (
	opLookup opcode = iota
	opForget
	opGetAttr
	opSetAttr
	opMknod
	opMkdir
	opUnlink
	opRmdir
	opRename
	opLink
	opSymlink
	opReadlink
	opGetXattr
	opListXattr
	opSetXattr
	opRemoveXattr
	opCreate
	opOpen
	opRead
	opWrite
	opFlush
	opRelease
	opFsync
	opOpenDir
	opReadDir
	opReadDirPlus
	opReleaseDir
	opFsyncDir
	opStatFs
	opLseek
	opFallocate
	opOther
	opCount
)

var opNames = [opCount]string{"lookup", "forget", "getattr", "setattr", "mknod", "mkdir", "unlink", "rmdir", "rename", "link",
	"symlink", "readlink", "getxattr", "listxattr", "setxattr", "removexattr", "create", "open", "read", "write", "flush", "release",
	"fsync", "opendir", "readdir", "readdirplus", "releasedir", "fsyncdir", "statfs", "lseek", "fallocate", "other"}

// stats are the sums of one mount.
type stats struct {
	ops           [opCount]atomic.Uint64
	publications  atomic.Uint64 // open files whose content was committed
	abandoned     atomic.Uint64 // open files that were dropped because a writer was killed
	failed        atomic.Uint64 // publications that failed
	refused       atomic.Uint64 // opens answered with ESTALE so that the kernel looks again
	direct        atomic.Uint64 // opens that would have been refused twice, served past the page cache
	notifications atomic.Uint64 // names that the kernel was told to forget
}

// write prints everything in Prometheus' text format.
func (s *Server) writeStats(w io.Writer) {
	fmt.Fprintf(w, "storefs_process_pid %d\n", os.Getpid())
	gauge := func(name string, v any) { fmt.Fprintf(w, "%s %v\n", name, v) }
	if snap, err := s.main.snapshot(); err == nil {
		gauge("storefs_generation", snap.Generation())
		snap.Close()
	}
	gauge("storefs_publications_total", s.stats.publications.Load())
	gauge("storefs_abandoned_writes_total", s.stats.abandoned.Load())
	gauge("storefs_failed_publications_total", s.stats.failed.Load())
	gauge("storefs_opens_refused_total", s.stats.refused.Load())
	gauge("storefs_opens_direct_total", s.stats.direct.Load())
	gauge("storefs_notifications_total", s.stats.notifications.Load())
	if c, ok := s.main.store.(backend.Counter); ok {
		n := c.Counters()
		gauge("storefs_commits_total", n.Commits)
		gauge("storefs_lock_waits_total", n.LockWaits)
		gauge("storefs_lock_wait_seconds_total", time.Duration(n.LockWaitTime).Seconds())
		gauge("storefs_spares_made_total", n.Spares)
		gauge("storefs_spills_total", n.Spills)
		gauge("storefs_merges_total", n.Merges)
		gauge("storefs_syncs_total", n.Syncs)
	}
	s.mu.Lock()
	nodes, handles := len(s.nodes), len(s.handles)
	s.mu.Unlock()
	gauge("storefs_nodes", nodes)
	gauge("storefs_open_handles", handles)
	for i := range s.stats.ops {
		fmt.Fprintf(w, "storefs_fuse_requests_total{op=%q} %d\n", opNames[i], s.stats.ops[i].Load())
	}
}

// errorLog keeps the last failed and abandoned publications.
type errorLog struct {
	mu    sync.Mutex
	lines []string // at most maxErrors, oldest first
}

const maxErrors = 200

// record adds a line: time, key, pid, command and why, separated by tabs.
func (l *errorLog) record(key string, pid uint32, cmd, why string) {
	line := fmt.Sprintf("%s\t%q\t%d\t%q\t%s\n", time.Now().Format(time.RFC3339Nano), key, pid, cmd, strings.ReplaceAll(why, "\n", " "))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == maxErrors {
		l.lines = l.lines[1:]
	}
	l.lines = append(l.lines, line)
}

// report notes a publication that failed or was abandoned, for .storefs/errors and the log.
func (s *Server) report(key string, pid uint32, cmd, why string) {
	s.errors.record(key, pid, cmd, why)
	s.o.Log.Printf("%s: %s (process %d, %s)", key, why, pid, cmd)
}

func (l *errorLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}
