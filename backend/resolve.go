package backend

import (
	"errors"
	"fmt"
	"slices"
)

// Resolve says what committing b on top of snapshot s as generation g at time now (nanoseconds) changes: one Change for each
// place, in the order first touched. It is the meaning of a batch, for every store. nextIno hands out numbers never used
// before in the store. ErrConflict if an expectation does not hold; any error means that nothing is to be changed.
func Resolve(s Snapshot, b *Batch, g Generation, now int64, nextIno func() Ino) ([]Change, error) {
	if b.Time != 0 {
		now = b.Time
	}
	r := &resolver{base: s, gen: g, now: now, next: nextIno, max: b.MaxValue, over: map[Ref]*Change{}, dirs: map[Ino]Ref{},
		made: map[Ino]Ino{}, names: map[Ino]int{}}
	for _, e := range b.expect {
		if err := r.expect(e); err != nil {
			return nil, err
		}
	}
	for _, o := range b.ops {
		if err := r.apply(o); err != nil {
			return nil, fmt.Errorf("key %q: %w", o.ref.Name, err)
		}
	}
	var out []Change
	for _, ref := range r.order {
		if c := r.over[ref]; c.Old != nil || c.New != nil {
			out = append(out, *c)
		}
	}
	return out, nil
}

// resolver is the base snapshot with the changes so far on top.
type resolver struct {
	base  Snapshot
	gen   Generation
	now   int64
	max   int64
	next  func() Ino
	over  map[Ref]*Change
	order []Ref
	dirs  map[Ino]Ref // where a changed directory was put last
	made  map[Ino]Ino // the numbers of what the batch made, by their aliases
	names map[Ino]int // how many of the changed places in a directory have something
}

func (r *resolver) expect(e expectation) error {
	if e.kind == expectListing {
		at, err := r.base.Parent(e.ino)
		if errors.Is(err, ErrNotFound) {
			return fmt.Errorf("directory %d: %w", e.ino, ErrConflict)
		}
		if err != nil {
			return err
		}
		e.ref = at
	}
	have, err := r.lookup(e.ref)
	if err != nil {
		return err
	}
	ok := have != nil
	switch e.kind {
	case expectFile:
		ok = ok && have.Kind == File
	case expectListing:
		ok = ok && have.Revision == e.revision
	case expectUnchanged:
		ok = ok && have.Ino == e.ino && have.Revision == e.revision
	case expectAttributes:
		ok = ok && have.Ino == e.ino && untimed(difference(*e.attr, have.Attr)).Empty()
	case expectVersion:
		ok = ok && have.Ino == e.ino || have == nil && e.ino == 0
	}
	if !ok {
		return fmt.Errorf("key %q: %w", e.ref.Name, ErrConflict)
	}
	return nil
}

func (r *resolver) apply(o op) error {
	o.ref.Dir, o.to.Dir = r.actual(o.ref.Dir), r.actual(o.to.Dir)
	switch o.kind {
	case opPut:
		return r.write(o, false)
	case opAppend:
		return r.write(o, true)
	case opMkdir, opSymlink:
		return r.make(o)
	case opRemove:
		return r.remove(o)
	case opRename:
		return r.rename(o)
	case opPlace:
		return r.put(o)
	case opTouch:
		return r.revise(o)
	case opReach:
		return r.reach(o.ref.Dir)
	default:
		return r.setAttr(o)
	}
}

// lookup returns what stands at ref now, nil for nothing.
func (r *resolver) lookup(ref Ref) (*Entry, error) {
	if c, ok := r.over[ref]; ok {
		return c.New, nil
	}
	e, err := r.base.Lookup(ref)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// set puts e (nil: nothing) at ref. parts is e's content if e.Locator does not say it.
func (r *resolver) set(ref Ref, e *Entry, parts []Part) error {
	c, ok := r.over[ref]
	if !ok {
		old, err := r.lookup(ref)
		if err != nil {
			return err
		}
		c = &Change{Ref: ref, Old: old, Generation: r.gen}
		r.over[ref] = c
		r.order = append(r.order, ref)
	}
	if c.New != nil && ok {
		r.names[ref.Dir]--
	}
	if e != nil {
		r.names[ref.Dir]++
		e.Ref, e.Revision = ref, r.gen
		if e.Kind == Dir {
			r.dirs[e.Ino] = ref
		}
	}
	c.New, c.Parts = e, parts
	return nil
}

func (r *resolver) parts(ref Ref) []Part {
	if c, ok := r.over[ref]; ok {
		return c.Parts
	}
	return nil
}

// place returns where directory dir stands now; ErrNotFound if it is gone.
func (r *resolver) place(dir Ino) (Ref, error) {
	if ref, ok := r.dirs[dir]; ok {
		if e := r.over[ref].New; e != nil && e.Ino == dir {
			return ref, nil
		}
	}
	ref, err := r.base.Parent(dir)
	if err != nil {
		return ref, err
	}
	if c, ok := r.over[ref]; ok && (c.New == nil || c.New.Ino != dir) {
		return ref, ErrNotFound
	}
	return ref, nil
}

// touch sets the times of the directory that ref is in, and checks that there is one.
func (r *resolver) touch(ref Ref) error {
	at, err := r.place(ref.Dir)
	if err != nil {
		return err
	}
	e, err := r.lookup(at)
	if err != nil || e == nil {
		return errors.Join(err, ErrNotFound)
	}
	d := *e
	d.Mtime, d.Ctime = r.now, r.now
	return r.set(at, &d, nil)
}

func (r *resolver) create(o op, kind Kind) (*Entry, error) {
	if err := ValidName(o.ref.Name); err != nil {
		return nil, err
	}
	if err := r.touch(o.ref); err != nil {
		return nil, err
	}
	a := *o.ifNew
	a.Mode &= 0o7777
	if a.Mtime == 0 {
		a.Mtime = r.now
	}
	if a.Atime == 0 {
		a.Atime = r.now
	}
	return &Entry{Kind: kind, Ino: r.numberOf(o), Attr: a, Ctime: r.now}, nil
}

func (r *resolver) write(o op, appending bool) error {
	old, err := r.lookup(o.ref)
	if err != nil {
		return err
	}
	var e *Entry
	var parts []Part
	switch {
	case old == nil && o.ifNew == nil:
		return ErrNotFound
	case old == nil:
		if e, err = r.create(o, File); err != nil {
			return err
		}
	case old.Kind == Dir:
		return ErrIsDir
	case old.Kind != File:
		return ErrExists
	default:
		c := *old
		e = &c
		e.Ino, e.Mtime, e.Ctime, e.Locator = r.numberOf(o), r.now, r.now, nil
		if appending {
			if parts = slices.Clone(r.parts(o.ref)); parts == nil && old.Size > 0 {
				parts = []Part{{Entry: old}}
			}
		}
	}
	if o.stage.Size() > 0 {
		parts = append(parts, Part{Stage: o.stage})
	}
	if parts == nil {
		parts = []Part{}
	}
	e.Size = 0
	for _, p := range parts {
		e.Size += p.Size()
	}
	if r.max > 0 && e.Size > r.max {
		return fmt.Errorf("%d bytes, at most %d: %w", e.Size, r.max, ErrTooLarge)
	}
	e.Attr = o.attr.Apply(e.Attr)
	return r.set(o.ref, e, parts)
}

func (r *resolver) make(o op) error {
	old, err := r.lookup(o.ref)
	if err != nil {
		return err
	}
	if old != nil {
		return ErrExists
	}
	kind := Dir
	if o.kind == opSymlink {
		kind = Symlink
		if o.target == "" || len(o.target) > MaxTarget {
			return fmt.Errorf("target of %d bytes: %w", len(o.target), ErrInvalid)
		}
	}
	e, err := r.create(o, kind)
	if err != nil {
		return err
	}
	e.Target, e.Size = o.target, int64(len(o.target))
	if kind == Dir {
		r.made[o.alias] = e.Ino
	}
	return r.set(o.ref, e, nil)
}

func (r *resolver) remove(o op) error {
	old, err := r.lookup(o.ref)
	if err != nil {
		return err
	}
	switch {
	case old == nil:
		return ErrNotFound
	case o.ref == RootRef:
		return ErrInvalid
	case o.dir && old.Kind != Dir:
		return ErrNotDir
	case !o.dir && old.Kind == Dir:
		return ErrIsDir
	case o.dir:
		if err := r.empty(old.Ino); err != nil {
			return err
		}
	}
	if err := r.touch(o.ref); err != nil {
		return err
	}
	return r.set(o.ref, nil, nil)
}

// empty returns ErrNotEmpty if directory dir has an entry.
func (r *resolver) empty(dir Ino) error {
	if r.names[dir] > 0 {
		return ErrNotEmpty
	}
	for e, err := range r.base.List(dir, "") {
		if err != nil {
			return err
		}
		if _, changed := r.over[e.Ref]; !changed {
			return ErrNotEmpty
		}
	}
	return nil
}

// inside returns ErrInvalid if directory dir is d or stands somewhere below it.
func (r *resolver) inside(dir, d Ino) error {
	for dir != RootIno {
		if dir == d {
			return ErrInvalid
		}
		at, err := r.place(dir)
		if err != nil {
			return err
		}
		dir = at.Dir
	}
	return nil
}

func (r *resolver) rename(o op) error {
	from, err := r.lookup(o.ref)
	if err != nil {
		return err
	}
	to, err := r.lookup(o.to)
	if err != nil {
		return err
	}
	if err := ValidName(o.to.Name); err != nil {
		return err
	}
	switch {
	case from == nil:
		return ErrNotFound
	case o.ref == RootRef:
		return ErrInvalid
	case o.flags&NoReplace != 0 && to != nil:
		return ErrExists
	case o.flags&Exchange != 0 && to == nil:
		return ErrNotFound
	case o.ref == o.to:
		return nil
	}
	if from.Kind == Dir {
		if err := r.inside(o.to.Dir, from.Ino); err != nil {
			return err
		}
	}
	if o.flags&Exchange != 0 {
		if to.Kind == Dir {
			if err := r.inside(o.ref.Dir, to.Ino); err != nil {
				return err
			}
		}
	} else if to != nil {
		if err := r.replaceable(from, to); err != nil {
			return err
		}
	}
	if err := errors.Join(r.touch(o.ref), r.touch(o.to)); err != nil {
		return err
	}
	// touch may have changed the entries themselves: a directory and its child exchanged is refused above, so it has not.
	moved, movedParts := *from, r.parts(o.ref)
	moved.Ctime = r.now
	var back *Entry
	var backParts []Part
	if o.flags&Exchange != 0 {
		c := *to
		c.Ctime = r.now
		back, backParts = &c, r.parts(o.to)
	}
	if err := r.set(o.ref, back, backParts); err != nil {
		return err
	}
	return r.set(o.to, &moved, movedParts)
}

func (r *resolver) replaceable(from, to *Entry) error {
	switch {
	case from.Kind == Dir && to.Kind != Dir:
		return ErrNotDir
	case from.Kind != Dir && to.Kind == Dir:
		return ErrIsDir
	case to.Kind == Dir:
		return r.empty(to.Ino)
	}
	return nil
}

func (r *resolver) setAttr(o op) error {
	old, err := r.lookup(o.ref)
	if err != nil {
		return err
	}
	if old == nil {
		return ErrNotFound
	}
	if o.attr.Empty() {
		return nil
	}
	e := *old
	e.Attr = o.attr.Apply(e.Attr)
	e.Ctime = r.now
	return r.set(o.ref, &e, r.parts(o.ref))
}

// numberOf returns the number of what o makes.
func (r *resolver) numberOf(o op) Ino {
	if o.ino != 0 {
		return o.ino
	}
	return r.next()
}
