package backend

// What a transaction publishes: places as they are to be, rather than what was done to them. Only Txn.Publish makes these
// operations, after expectations that leave no doubt about what is there.

// place makes e, nil for nothing, what stands at ref, with parts as its content. If parts is nil the content is that of the version e.Ino that
// stands, before the batch, where e.Ref says. Directories in refs and entries may be numbered by a transaction.
func (b *Batch) place(ref Ref, e *Entry, parts []Part) {
	b.ops = append(b.ops, op{kind: opPlace, ref: ref, entry: e, parts: parts})
}

// touch sets the times of the directory that ref is in; ErrNotFound if it is gone.
func (b *Batch) touch(ref Ref) { b.ops = append(b.ops, op{kind: opTouch, ref: ref}) }

// reach makes sure that directory dir can be reached from the root; ErrConflict if not.
func (b *Batch) reach(dir Ino) { b.ops = append(b.ops, op{kind: opReach, ref: Ref{Dir: dir}}) }

// txnIno marks the numbers that a transaction gives to what it makes. They mean nothing outside.
const txnIno Ino = 1 << 63

// realIno returns the number that the store gives to what a transaction numbered.
func (r *resolver) realIno(i Ino) Ino {
	if i&txnIno == 0 {
		return i
	}
	if r.real[i] == 0 {
		r.real[i] = r.next()
	}
	return r.real[i]
}

func (r *resolver) put(o op) error {
	ref := Ref{r.realIno(o.ref.Dir), o.ref.Name}
	if o.entry == nil {
		return r.set(ref, nil, nil)
	}
	e := *o.entry
	parts := o.parts
	if parts == nil && e.Kind == File {
		now, err := r.base.Lookup(e.Ref)
		if err != nil || now.Ino != e.Ino {
			return ErrConflict
		}
		e.Locator = now.Locator
	}
	for i, p := range parts {
		if p.Entry == nil {
			continue
		}
		now, err := r.base.Lookup(p.Entry.Ref)
		if err != nil || now.Ino != p.Entry.Ino {
			return ErrConflict
		}
		parts[i].Entry = &now
	}
	e.Ino = r.realIno(e.Ino)
	return r.set(ref, &e, parts)
}

func (r *resolver) reach(dir Ino) error {
	dir = r.realIno(dir)
	for range 1 << 12 { // no path is as long
		if dir == RootIno {
			return nil
		}
		at, err := r.place(dir)
		if err != nil {
			return ErrConflict
		}
		dir = at.Dir
	}
	return ErrConflict
}
