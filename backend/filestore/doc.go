// Package filestore keeps a store in a directory:
//
//	HEAD        the newest generation: replaced by exchanging names, never written to
//	HEAD.<n>    spares: files that were HEAD or will be
//	lock        the commit lock
//	durable     which HEAD file is on stable storage, as far as is known; see durable.go
//	index/<id>  tables: immutable sorted records
//	data/<id>   volumes: values
//	snapshots/  generations that are kept under names, one file each; made with the first
//	tmp/        stages, tables and snapshots being written, each locked by its owner; snapshots that were removed while they were read
//	locks/      locks of keys: package lockmgr's, never touched here
//
// Whatever else is in the directory is somebody's own, and left alone.
//
// A commit puts its records into HEAD, in memory, writes that to a spare and exchanges the names of the two. Records that
// would make HEAD longer than its bound move to a new table. A key's newest record is in HEAD, or else in the newest table that has one.
//
// # Records
//
// All numbers are little endian, except in the names of volume records. Checksums are CRC-32C. A record is
//
//	+----------+----------+------------+------+--------+------------+---------+
//	| length 4 | dir    8 | name len 2 | name | type 1 | revision 8 | content |
//	+----------+----------+------------+------+--------+------------+---------+
//
// where length counts what follows it. Records are ordered by dir, then by the bytes of the name. The types and their contents:
//
//	0 removed    nothing
//	1 file       attributes, then the value itself (at most 1024 bytes)
//	2 file       attributes, then  | size 8 | n 4 |  and n extents, in the order of the value
//	3 directory  attributes
//	4 symlink    attributes, then the target
//	5 parent     | dir 8 | name |  where directory `dir` of the record stands; the record's name is empty
//	6 volume     | length 8 |  of a volume that holds one extent; dir is 0, the name 'v' and the number, 8 bytes big endian
//
//	attributes
//	+-------+--------+---------+-------+-------+---------+---------+-----------------+
//	| ino 8 | mode 2 | mtime 8 | uid v | gid v | atime w | ctime w | number xattrs v |
//	+-------+--------+---------+-------+-------+---------+---------+-----------------+
//	and for each xattr, in the order of names:  | len 2 | name | len 4 | value |
//
//	extent
//	+----------+----------+----------+--------------------+
//	| volume 8 | offset 8 | length 8 | checksum of table 4 |
//	+----------+----------+----------+--------------------+
//
// v is a number of variable length: 7 bits a byte, the lowest first, the upper bit set in all bytes but the last, none more than needed. w is how much
// later than mtime the time is: 2d as a v, or 2d-1 if it is d earlier.
//
// At offset in the volume lie length bytes, then the table: one checksum for each block of 64 KiB, the last one maybe shorter.
//
// The root directory's entry is record (0, ""), so (1, "") says that directory 1 stands at (0, "").
//
// # HEAD
//
//	  0 +---------------------+-----------+---------+
//	    | "storefs\0"       8 | version 4 | zero  4 |
//	 16 +---------------------+-----------+---------+
//	    | generation        8 | sequence          8 |   sequence: of HEAD files; the generation of commits
//	 32 +---------------------+---------------------+
//	    | length            8 | boot id          16 |   length: of all, to the end of the checksum
//	 56 +---------------------+---------------------+
//	    | time of commit    8 | next ino          8 |
//	 72 +---------------------+---------------------+
//	    | next id           8 | history           8 |   history: newest removal that is no longer recorded
//	 88 +---------------------+---------------------+
//	    | files             8 | directories       8 |
//	104 +---------------------+---------------------+
//	    | bytes of values   8 | one-value volumes 8 |
//	120 +----------+----------+----------+----------+
//	    | tables 4 | volumes 4| records 4| bytes  4 |   bytes: of the records
//	136 +----------+----------+----------+----------+
//	    | tables, oldest first: id 8, length 8, records 8, lowest and highest revision 8 + 8
//	    | shared volumes by id: id 8, committed length 8, bytes of it that nothing names 8
//	    | records
//	    +------------+
//	    | checksum 4 |
//	    +------------+
//
// The file may be longer than that. Bytes of a volume beyond its committed length do not exist.
//
// # Tables
//
//	+--------+-----+--------+-------+--------+------------+
//	| block  | ... | block  | index | filter | footer 104 |
//	+--------+-----+--------+-------+--------+------------+
//
//	block   records, then their checksum 4; about 4 KiB, more if one record is longer
//	index   for each block | offset 8 | length 4 | highest revision 8 | dir 8 | name len 2 | name |  of its first record
//	filter  a Bloom filter of 10 bits a key, 7 probes: bloom.go
//	footer  | "storefsT" 8 | version 4 | zero 4 | id 8 | records 8 | lowest, highest revision 8 + 8 | blocks 8 |
//	        | index offset 8 | index length 8 | filter length 8 | index checksum 4 | filter checksum 4 | zero 12 | checksum 4 |
//
// # Named snapshots
//
//	 0 +---------------------+-----------+---------+
//	   | "storefsS"        8 | version 4 | zero  4 |
//	16 +---------------------+-----------+---------+
//	   | generation        8 | sequence        8   |   these three: as in the HEAD that follows
//	32 +---------------------+---------------------+
//	   | next id           8 | time made         8 |
//	48 +---------------------+----------+----------+
//	   | length of HEAD    8 | name   4 | checksum |   name: checksum of the snapshot's name; checksum: 4, of the 60 bytes before
//	64 +---------------------+----------+----------+
//	   | HEAD
//
// # Who may do what
//
// Names in the directory, and spares, change under the commit lock only. A process that reads HEAD holds a shared flock
// on that file (a pin); nobody writes to a file that is so locked, or that `durable` names, and nobody removes what it names.
//
// Nor does anybody remove what a file in snapshots/ names. While one is there that is damaged, nothing goes that it might name. Who
// reads a snapshot holds a shared flock on its file; removing it moves the file to tmp/removed-<hex>, where it holds what it names until
// nobody has it locked.
//
// Every system call on a file goes through package disk, in which tests make it fail.
//
// What is assumed of the file system: a write that was synced is there after a power failure; rename is atomic; an inode
// number is not given to another file while the first is open.
package filestore
