// Package fsnode shows a backend.Store as a mounted directory: what each system call means for the store.
//
// # Nodes
//
// The kernel's page cache and file size belong to an inode. So each version of a key is a node of its own, and no node is
// shared between a reader and a writer: opening a node for writing taints it, and a tainted node is never opened for
// reading. Such an open is refused with ESTALE, which makes the kernel look the name up again, unseen by the program; the
// lookup then hands out another node of the same version, reserved for the thread that was refused (see retry). A
// writer has its node for itself while it is open, so an fstat that carries no handle can be answered for the handle.
//
// # Publication
//
// What is written to an open file is staged until it is published, in one commit: at the last close by the process
// that opened the file, at fsync, or when the kernel releases the file (see writeHandle.flush). A process that dies by a
// signal publishes nothing.
//
// # Lock order
//
//	Server.names   held shared while a publication reads its place and commits, exclusively while places change
//	writeHandle.mu the staged content of one open file
//	Server.mu      nodes, versions, handles, retries; never held over I/O
//
// No lock is held while the kernel is notified: the kernel takes the directory's lock for that, which a LOOKUP that
// waits for one of ours may hold. Notifications of directory entries are never sent from handlers for which
// the kernel holds the lock of that directory (LOOKUP, CREATE, MKDIR, UNLINK, RENAME ...), nor waited for in those for which it
// holds the lock of a file (SETATTR, SETXATTR, FSYNC, FALLOCATE, WRITE): unlink(2) waits for it with the directory's lock held.
package fsnode
