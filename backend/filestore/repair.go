package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

// RepairOptions of Repair. Nil means the defaults.
type RepairOptions struct {
	Report   func(Loss)              // called for everything that could not be saved as it was; nil: only counted
	Progress func(keys, bytes int64) // called with what was saved since the last call; nil: not called
	Disk     *disk.Disk              // as in Options
}

// LossKind says what has become of something that was damaged.
type LossKind string

const (
	Damaged LossKind = "damaged" // a file, of which it is not known what else it held
	Lost    LossKind = "lost"    // a key is not in the new store
	Older   LossKind = "older"   // a key has come back in an older version
	Bare    LossKind = "bare"    // a directory is where it was, but its owner, mode, times and attributes are new
	Moved   LossKind = "moved"   // a directory of which nobody knows where it stood is in lost+found, under its number
)

// Loss is something that Repair could not save as it was. Its Finding says where that stood, and why; of Keys there is one, but none if it is a file that is
// damaged.
type Loss struct {
	Kind       LossKind
	Generation backend.Generation // of Older: that of the version that has come back; of Lost: that of the version that is lost, 0 if that is not known
	Finding
}

func (l Loss) String() string {
	text := string(l.Kind)
	if l.Snapshot != "" {
		text += fmt.Sprintf(" in snapshot %q", l.Snapshot)
	}
	for _, k := range l.Keys {
		text += ": " + k.String()
	}
	if l.Kind == Older {
		text += fmt.Sprintf(" is what it was in generation %d", l.Generation)
	}
	f := l.Finding
	f.Keys, f.Snapshot = nil, ""
	return text + ": " + f.String()
}

// RepairResult is what Repair has saved. The counts are of the newest generation.
type RepairResult struct {
	Generation backend.Generation
	Files      uint64 // symbolic links among them
	Dirs       uint64
	Bytes      uint64 // of values
	Snapshots  int
	Losses     map[LossKind]int // calls of Report
}

// Repair makes a new store in dst, which must be missing or empty (ErrNotEmpty) and not in src, of everything that is whole in src, which it does not change. Of a store without
// damage it makes one with the same content, snapshots and numbers; its generation is one more.
//
// The newest generation is that of HEAD. If that is damaged it is put together from the newest whole one of the spares and snapshots, and from the tables, in which the
// newest record of a key counts. Where a table is damaged older records may come back, even of what was removed since; Older names them.
//
// When it fails nothing is left in dst but empty folders; when it is killed, what it wrote, but no HEAD: that is no store. ErrCorrupt if there is nothing to be saved.
func Repair(ctx context.Context, src, dst string, o *RepairOptions) (RepairResult, error) {
	if o == nil {
		o = &RepairOptions{}
	}
	s, err := inspect(src, &Options{Disk: o.Disk})
	if err != nil {
		return RepairResult{}, fmt.Errorf("open store: %w", err)
	}
	defer s.Close()
	if err := s.mustBeEmpty(dst); err != nil {
		return RepairResult{}, err
	}
	v, err := salvageOf(ctx, s)
	if err != nil {
		return RepairResult{}, err
	}
	defer v.close()
	r := &repairer{ctx: ctx, o: o, v: v, result: RepairResult{Losses: map[LossKind]int{}}}
	if r.newest, err = v.newest(); err == nil && r.newest == nil {
		err = &backend.CorruptError{Path: s.dir, Reason: "there is neither a HEAD nor a table that can be read"}
	}
	if err != nil {
		return RepairResult{}, err
	}
	if err := makeFull(dst, &Options{Command: "storefs repair", Disk: o.Disk}, r.fill); err != nil {
		return r.result, fmt.Errorf("make %s: %w", dst, err)
	}
	return r.result, nil
}

// repairer writes what is whole of a store into another.
type repairer struct {
	ctx    context.Context
	o      *RepairOptions
	v      *salvage
	c      *copier
	newest *view
	result RepairResult
}

func (r *repairer) report(l Loss) {
	r.result.Losses[l.Kind]++
	if r.o.Report != nil {
		r.o.Report(l)
	}
}

// fill fills a new store: the snapshots first, the oldest of them first.
func (r *repairer) fill(c *copier) (*head, error) {
	r.c = c
	c.from = r.v.s
	files, err := r.v.s.files()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		if f.volume {
			r.c.vols = append(r.c.vols, f.id)
		}
	}
	if len(r.v.names) > 0 {
		r.c.exts = map[extent]extent{}
	}
	if r.v.head != nil {
		f := r.v.s.finding(r.v.head)
		if r.newest.base != nil {
			f.Reason += fmt.Sprintf("; what was committed after generation %d is saved as far as it is in a table", r.newest.base.gen)
		}
		r.report(Loss{Kind: Damaged, Finding: f})
	}
	for _, k := range r.v.names {
		if k.err != nil {
			f := r.v.s.finding(k.err)
			f.Path, f.Snapshot = r.v.s.relative(r.v.s.namedPath(k.file)), k.name
			r.report(Loss{Kind: Damaged, Finding: f})
			continue
		}
		if k.name != k.file {
			r.report(Loss{Kind: Damaged, Finding: Finding{Path: r.v.s.relative(r.v.s.namedPath(k.file)), Offset: offName, Snapshot: k.name, Reason: "has another snapshot's name"}})
		}
		h, err := r.generation(r.v.snapshot(k), &head{gen: k.h.gen, time: k.h.time, nextIno: k.h.nextIno})
		if err == nil {
			err = r.c.name(k.name, h, k.made)
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot %q: %w", k.name, err)
		}
		r.result.Snapshots++
	}
	h, err := r.generation(r.newest, r.after())
	if err != nil {
		return nil, err
	}
	r.result.Generation = backend.Generation(h.gen)
	r.result.Files, r.result.Dirs, r.result.Bytes = h.files, h.dirs, h.bytes
	return h, nil
}

// after returns the numbers of a generation after all that there was.
func (r *repairer) after() *head {
	h := &head{time: time.Now().UnixNano()}
	for _, c := range r.v.heads {
		h.gen, h.nextIno = max(h.gen, c.h.gen), max(h.nextIno, c.h.nextIno)
	}
	for _, t := range r.newest.layers() {
		h.gen = max(h.gen, t.info.maxGen)
	}
	h.gen++
	return h
}

// generation writes what can be saved of w, under the numbers of h.
func (r *repairer) generation(w *view, h *head) (*head, error) {
	g := &rescue{repairer: r, w: w}
	if err := r.c.begin(h); err != nil {
		return nil, err
	}
	err := g.write(h)
	var done *head
	if err == nil {
		done, err = r.c.end()
	}
	if err != nil {
		r.c.abandon()
		return nil, err
	}
	return done, nil
}

// rescue is one generation being saved.
type rescue struct {
	*repairer
	w *view
	t *tree
}

func (g *rescue) write(h *head) (err error) {
	like := backend.Entry{Kind: backend.Dir, Ctime: h.time, Revision: backend.Generation(h.gen), Attr: backend.Attr{
		Mode: 0o700, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Atime: h.time, Mtime: h.time}}
	if g.t, err = treeOf(g.ctx, g.w, like, g.c.ino); err != nil {
		return err
	}
	g.damage()
	layers := append([]*layer{{recs: g.t.made}}, g.w.layers()...)
	for recs, err := range groups(layers) {
		if err == nil {
			err = g.ctx.Err()
		}
		if err != nil {
			return err
		}
		if recs[0].from == 0 {
			err = g.c.add(recs[0].rec)
		} else {
			for i := range recs {
				recs[i].from--
			}
			err = g.save(recs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// damage reports what cannot be read of the tables, and what has become of the directories.
func (g *rescue) damage() {
	for _, t := range g.w.main {
		for _, h := range t.holes {
			f := h.finding(g.t.key)
			f.Snapshot = g.w.name
			g.report(Loss{Kind: Damaged, Finding: f})
			if h.known && h.from.dir != 0 && h.from.name != "" && len(g.w.find(h.from)) == 0 {
				g.lose(Lost, h.from, h.why, 0)
			}
		}
	}
	for _, d := range g.t.bare {
		at := g.t.places[d]
		g.directory(Bare, d, key{uint64(at.Dir), at.Name}, "the entry of the directory is lost")
	}
	for _, d := range g.t.moved {
		g.directory(Moved, d, key{d, ""}, fmt.Sprintf("nothing says where directory %d stood", d))
	}
}

// directory reports what has become of a directory of which the record k is lost.
func (g *rescue) directory(kind LossKind, d uint64, k key, why string) {
	f := Finding{Path: "HEAD", Reason: why}
	for _, t := range g.w.main {
		if h, _ := t.doubt(k); h != nil {
			f.Path, f.Offset = h.why.Path, h.why.Offset
			break
		}
	}
	g.lose(kind, key{d, ""}, f, 0)
}

func (g *rescue) lose(kind LossKind, k key, f Finding, gen uint64) {
	f.Snapshot, f.Keys = g.w.name, []Key{g.t.key(k)}
	g.report(Loss{Kind: kind, Generation: backend.Generation(gen), Finding: f})
}

// save writes the newest version of a key that is whole.
func (g *rescue) save(recs []found) error {
	all, h, sure := g.w.versions(recs)
	if len(all) == 0 {
		return nil
	}
	r := all[0]
	switch k := keyOf(r.rec); r.kind() {
	case recTomb, recVolume:
		return nil
	case recParent:
		if at, err := r.parent(); err != nil || g.t.places[k.dir] != at || k.dir != uint64(backend.RootIno) && at == backend.RootRef {
			return nil
		}
		return g.c.add(r.rec)
	}
	return g.entry(all, h, sure)
}

func (g *rescue) entry(all []found, h *hole, sure bool) error {
	k := keyOf(all[0].rec)
	if !g.t.has(k.dir) && k != (key{}) {
		return nil // its directory was removed
	}
	var why *Finding
	for i, r := range all {
		if !r.isEntry() || r.kind() == recDir && i > 0 {
			break
		}
		e, err := r.entry()
		if err != nil {
			return err
		}
		if e.Kind == backend.Dir && g.t.places[uint64(e.Ino)] != e.Ref {
			return nil
		}
		l, err := g.c.value(locatorOf(&e))
		if d := (*damagedValue)(nil); errors.As(err, &d) {
			if why == nil {
				f := g.v.s.finding(d.error)
				why = &f
			}
			continue
		}
		if err != nil {
			return err
		}
		if i > 0 || h != nil && (sure || r.from >= len(g.w.main)) {
			if why == nil {
				why = &h.why
			}
			g.lose(Older, k, *why, r.rev())
			if e.Kind != backend.Dir {
				e.Ino = g.c.ino() // the version may be at another place too
			}
		}
		if g.o.Progress != nil && e.Kind != backend.Dir {
			g.o.Progress(1, e.Size)
		}
		return g.c.add(entryRec(&e, l))
	}
	if why != nil {
		g.lose(Lost, k, *why, all[0].rev())
	}
	return nil
}
