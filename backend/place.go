package backend

import (
	"errors"
	"fmt"
)

// What a transaction publishes: places as they are to be, rather than what was done to them. Only Txn.Publish makes these
// operations, beside expectations that leave no doubt about what is there.

// Numbers that no store hands out have the upper bit; those of a transaction mean something in it, those that are
// aliases in one batch, for what that batch makes.
const (
	txnIno   Ino = 1 << 63
	aliasIno Ino = 1<<63 | 1<<62
)

// place makes e, nil for nothing, what stands at ref. was is what e was when the transaction began, nil if it was made since: then e.Ino
// is an alias, and parts its content. Otherwise the content is that of was, and attributes are changed where e differs from was.
func (b *Batch) place(ref Ref, e, was *Entry, parts []Part) {
	b.ops = append(b.ops, op{kind: opPlace, ref: ref, entry: e, was: was, parts: parts})
}

// touch makes directory e, which was was, another revision of it, with the times that differ.
func (b *Batch) touch(e, was *Entry) { b.ops = append(b.ops, op{kind: opTouch, entry: e, was: was}) }

// reach makes sure that directory dir can be reached from the root.
func (b *Batch) reach(dir Ino) { b.ops = append(b.ops, op{kind: opReach, ref: Ref{Dir: dir}}) }

// expectAttributes makes the commit depend on directory e standing where it does with the attributes that it has, but for times, which change
// with what is in it.
func (b *Batch) expectAttributes(e *Entry) {
	b.expect = append(b.expect, expectation{kind: expectAttributes, ref: e.Ref, ino: e.Ino, attr: &e.Attr})
}

// untimed returns c without the times.
func untimed(c AttrChange) AttrChange {
	c.Mtime, c.Atime = nil, nil
	return c
}

// expectUnchanged makes the commit depend on e standing where it does as it is, attributes included.
func (b *Batch) expectUnchanged(e *Entry) {
	b.expect = append(b.expect, expectation{kind: expectUnchanged, ref: e.Ref, ino: e.Ino, revision: e.Revision})
}

// actual returns the number that alias i stands for; any other number, and an alias that this batch has not made, as it is.
func (r *resolver) actual(i Ino) Ino {
	if n, ok := r.made[i]; ok {
		return n
	}
	return i
}

// numbered returns the number for alias i, a new one at first. Places come in no order: something in a directory may come before it.
func (r *resolver) numbered(i Ino) Ino {
	if i&aliasIno == aliasIno && r.made[i] == 0 {
		r.made[i] = r.next()
	}
	return r.actual(i)
}

// same returns what stands in the base where e stood; ErrConflict unless it is the same version.
func (r *resolver) same(e *Entry) (*Entry, error) {
	now, err := r.base.Lookup(e.Ref)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if err != nil || now.Ino != e.Ino {
		return nil, fmt.Errorf("key %q: %w", e.Name, ErrConflict)
	}
	return &now, nil
}

func (r *resolver) put(o op) error {
	ref := Ref{r.numbered(o.ref.Dir), o.ref.Name}
	if o.entry == nil {
		return r.set(ref, nil, nil)
	}
	e := *o.entry
	e.Ctime = r.now
	if o.was != nil {
		now, err := r.same(o.was)
		if err != nil {
			return err
		}
		e.Attr, e.Locator = merge(now, &e, o.was), now.Locator
		return r.set(ref, &e, nil)
	}
	e.Ino = r.numbered(e.Ino)
	var parts []Part
	if o.parts != nil {
		parts = make([]Part, 0, len(o.parts))
	}
	for _, p := range o.parts {
		if p.Entry != nil {
			now, err := r.same(p.Entry)
			if err != nil {
				return err
			}
			p.Entry = now
		}
		parts = append(parts, p)
	}
	return r.set(ref, &e, parts)
}

// merge returns the attributes of now with what makes e of was.
func merge(now, e, was *Entry) Attr {
	c := difference(was.Attr, e.Attr)
	if e.Kind == Dir && c.Mtime != nil && now.Mtime != was.Mtime { // someone else too has made something in it
		latest := max(now.Mtime, *c.Mtime)
		c.Mtime = &latest
	}
	return c.Apply(now.Attr)
}

// difference returns the change that makes b of a.
func difference(a, b Attr) (c AttrChange) {
	if a.Mode != b.Mode {
		c.Mode = &b.Mode
	}
	if a.UID != b.UID {
		c.UID = &b.UID
	}
	if a.GID != b.GID {
		c.GID = &b.GID
	}
	if a.Mtime != b.Mtime {
		c.Mtime = &b.Mtime
	}
	if a.Atime != b.Atime {
		c.Atime = &b.Atime
	}
	for k, v := range b.Xattrs {
		if have, ok := a.Xattrs[k]; !ok || have != v {
			if c.SetXattr == nil {
				c.SetXattr = map[string]string{}
			}
			c.SetXattr[k] = v
		}
	}
	for k := range a.Xattrs {
		if _, ok := b.Xattrs[k]; !ok {
			c.RemoveXattr = append(c.RemoveXattr, k)
		}
	}
	return c
}

// revise is touch of a batch.
func (r *resolver) revise(o op) error {
	at, err := r.place(o.entry.Ino)
	var now *Entry
	if err == nil {
		now, err = r.lookup(at)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if now == nil {
		return ErrConflict // removed meanwhile
	}
	d := *now
	d.Attr, d.Ctime = merge(now, o.entry, o.was), r.now
	return r.set(at, &d, nil)
}

func (r *resolver) reach(dir Ino) error {
	seen := map[Ino]bool{}
	for dir = r.actual(dir); dir != RootIno; {
		at, err := r.place(dir)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err != nil || seen[dir] {
			return ErrConflict // someone else moved what it was moved into, into it
		}
		seen[dir] = true
		dir = at.Dir
	}
	return nil
}
