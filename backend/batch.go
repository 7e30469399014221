package backend

// Batch is a list of operations that Commit applies in order, each on what those before it left, and of
// expectations that must hold at the moment of the commit. The zero Batch is empty. Not safe for concurrent use.
type Batch struct {
	// Time is what the changed times are set to, in nanoseconds since 1970; 0 is the time of the commit.
	Time int64
	// MaxValue is the longest value in bytes that the batch may make; 0 is no limit.
	MaxValue int64

	expect []expectation
	ops    []op
	dirs   Ino // how many directories it makes
}

// expectation is what must hold at the commit. The zero kind is that ref has version ino.
type expectation struct {
	kind     expectKind
	ref      Ref
	ino      Ino // of listing: the directory
	revision Generation
	attr     *Attr // of attributes
}

type expectKind uint8

const (
	expectVersion expectKind = iota
	expectFile
	expectListing
	expectUnchanged
	expectAttributes
)

type opKind uint8

const (
	opPut opKind = iota
	opAppend
	opMkdir
	opSymlink
	opRemove
	opRename
	opSetAttr
	opPlace
	opTouch
	opReach
)

type op struct {
	kind   opKind
	ref    Ref
	to     Ref
	stage  Stage
	ifNew  *Attr
	attr   AttrChange
	dir    bool
	target string
	flags  RenameFlags
	alias  Ino    // of opMkdir
	entry  *Entry // of opPlace and opTouch
	was    *Entry
	parts  []Part
	ino    Ino // of what is made; 0 lets the store choose
}

// RenameFlags changes what Rename does with an entry at the new place.
type RenameFlags uint8

const (
	NoReplace RenameFlags = 1 << iota // ErrExists if there is one
	Exchange                          // the two change places; both must exist
)

// Expect makes the commit depend on ref having the version ino, or being absent if ino is 0, before the
// first operation of the batch.
func (b *Batch) Expect(ref Ref, ino Ino) {
	b.expect = append(b.expect, expectation{ref: ref, ino: ino})
}

// ExpectFile makes the commit depend on there being a file at ref, whatever its version.
func (b *Batch) ExpectFile(ref Ref) {
	b.expect = append(b.expect, expectation{kind: expectFile, ref: ref})
}

// ExpectListing makes the commit depend on directory dir having the names that it had when revision was its entry's revision.
func (b *Batch) ExpectListing(dir Ino, revision Generation) {
	b.expect = append(b.expect, expectation{kind: expectListing, ino: dir, revision: revision})
}

// Put replaces the whole value of the file at ref by the content of s, keeping its attributes but for mtime.
// An absent file is made with the attributes *ifNew, with nil it is ErrNotFound. The attribute change set is made on top.
func (b *Batch) Put(ref Ref, s Stage, ifNew *Attr, set AttrChange) {
	b.ops = append(b.ops, op{kind: opPut, ref: ref, stage: s, ifNew: ifNew, attr: set})
}

// Append adds the content of s to the end of the value as it is at the commit. Otherwise as Put.
func (b *Batch) Append(ref Ref, s Stage, ifNew *Attr, set AttrChange) {
	b.ops = append(b.ops, op{kind: opAppend, ref: ref, stage: s, ifNew: ifNew, attr: set})
}

// Number gives what the last operation makes the number i, which must come from FreeIno and be used once.
func (b *Batch) Number(i Ino) { b.ops[len(b.ops)-1].ino = i }

// Mkdir makes an empty directory; ErrExists if there is anything at ref. The number that it returns names the directory in the
// refs of later operations of this batch, and nowhere else: what the store calls it is in what Commit returns.
func (b *Batch) Mkdir(ref Ref, a Attr) Ino {
	b.dirs++
	b.ops = append(b.ops, op{kind: opMkdir, ref: ref, ifNew: &a, alias: aliasIno | b.dirs})
	return aliasIno | b.dirs
}

// Symlink makes a symbolic link; ErrExists if there is anything at ref.
func (b *Batch) Symlink(ref Ref, target string, a Attr) {
	b.ops = append(b.ops, op{kind: opSymlink, ref: ref, target: target, ifNew: &a})
}

// Remove removes a file or symbolic link; ErrIsDir for a directory.
func (b *Batch) Remove(ref Ref) { b.ops = append(b.ops, op{kind: opRemove, ref: ref}) }

// Rmdir removes an empty directory; ErrNotDir for anything else, ErrNotEmpty if it has entries.
func (b *Batch) Rmdir(ref Ref) { b.ops = append(b.ops, op{kind: opRemove, ref: ref, dir: true}) }

// Rename moves what stands at from to to as rename(2) does: a file replaces a file, a directory replaces an
// empty directory. ErrInvalid for a directory moved into itself.
func (b *Batch) Rename(from, to Ref, f RenameFlags) {
	b.ops = append(b.ops, op{kind: opRename, ref: from, to: to, flags: f})
}

// SetAttr changes attributes; the version stays.
func (b *Batch) SetAttr(ref Ref, c AttrChange) {
	b.ops = append(b.ops, op{kind: opSetAttr, ref: ref, attr: c})
}

// Empty says whether b has no operations.
func (b *Batch) Empty() bool { return len(b.ops) == 0 }

// Committed is what a commit did.
type Committed struct {
	Generation Generation
	Changes    []Change
}

// Entry returns what the commit left at ref; false if it removed it or did not touch it.
func (c Committed) Entry(ref Ref) (Entry, bool) {
	for _, ch := range c.Changes {
		if ch.Ref == ref && ch.New != nil {
			return *ch.New, true
		}
	}
	return Entry{}, false
}

// Change is what one commit, or several following each other, did to one place.
type Change struct {
	Generation Generation
	Ref        Ref
	Old        *Entry // what was there before; nil if nothing was, or if it is not known (from Watch)
	New        *Entry // what is there now; nil if nothing is
	Own        bool   // made through the Store value that yields it

	// Parts is the content of New where it is not what New.Locator says: the concatenation of the parts.
	// Only in what Resolve returns.
	Parts []Part
}

// Part is a piece of a value to be committed: a value that is stored already, or a stage.
type Part struct {
	Entry *Entry
	Stage Stage
}

// Size is the length of the part in bytes.
func (p Part) Size() int64 {
	if p.Stage != nil {
		return p.Stage.Size()
	}
	return p.Entry.Size
}
