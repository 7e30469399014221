// Package backend is the contract between a store and what shows it: a tree of keys that changes by
// whole commits and is read through snapshots.
//
// A key is a path: names separated by slashes, each name a place (Ref) in a directory that is named by its
// number (Ino). So a directory is moved by changing one entry, whatever it holds. [Resolve] is the meaning of a [Batch] for
// every store, [Memory] is the specification in its simplest form, and package storetest holds every store to it.
// Package filestore keeps a store in a folder.
//
// Words: a generation is the number of a whole-store commit; an entry's revision is the generation that last changed
// it; a snapshot pins one generation; a stage is a value being written.
package backend
