// Package disk makes the system calls of a store on its files, each with a name, so that a test can make any one of them
// fail, and knows what a power failure may leave of them.
//
// Package filestore makes no system call on a file but through a [Disk]: whatever is added there goes through it too, and a
// call that is not here yet becomes one more [Op]. A test of filestore reads its source and finds what goes past.
//
// A nil *Disk makes the calls and nothing else. One with a [Hook] hands each of them to the hook instead.
//
// Every call that the kernel interrupted (EINTR) is made again, except Close, which has closed the file. Errors of the kernel are an
// *os.PathError, or an *os.LinkError of calls with two names.
package disk
