// Package lockmgr makes goroutines and processes take turns, with locks on files that vanish with the process that
// held them.
//
// A [Lock] is exclusive: first the goroutines of a process queue for it, then one of them takes flock(2) on the lock
// file. [TryShared] and [TryExclusive] lock a file that the caller has open; [Lock.TryRange] locks one byte.
// All of them belong to the open file description, so two holders in one process exclude each other as two processes do.
//
// On a file that is renamed or exchanged a lock follows the inode and not the name: the caller checks after each
// acquisition that the name still leads to the file it locked. The file of a Lock is never renamed or removed.
//
// Nothing here is promised on NFS, where flock(2) is a byte-range lock on the whole file and would meet those of TryRange.
package lockmgr
