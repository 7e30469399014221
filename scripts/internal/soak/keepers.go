package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/history"
)

// keeper works in a folder of its own on the first mount and keeps a record of what was acknowledged. It fills the disk, and empties it.
type keeper struct {
	s      *site
	r      *report
	rnd    *rand.Rand
	folder string // below a mount or snapshot
	record record
	kept   map[string]record // by the names of snapshots
	made   int
}

// record is the names of the pieces of each value.
type record map[string]string

// keepers runs some.
func keepers(ctx context.Context, s *site, r *report, seed uint64) {
	var all sync.WaitGroup
	for i := range 3 {
		k := &keeper{s: s, r: r, rnd: rand.New(rand.NewPCG(seed, uint64(i))), folder: fmt.Sprintf("keeper%d", i), record: record{}, kept: map[string]record{}}
		all.Go(func() { k.work(ctx) })
	}
	all.Wait()
}

func (k *keeper) work(ctx context.Context) {
	if err := os.Mkdir(k.path(""), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		k.r.violation("%s: %v", k.folder, err)
		return
	}
	for ctx.Err() == nil {
		k.one()
	}
	k.compare(k.s.mounts[0].dir, k.record)
	for name := range k.kept {
		k.forget(name)
	}
	k.empty()
}

func (k *keeper) path(key string) string { return filepath.Join(k.s.mounts[0].dir, k.folder, key) }

// sizes of what is written: what HEAD holds, what goes into volumes, and what becomes a volume.
var sizes = []int{20, 500, 3000, 3000, 20_000, 20_000, 150_000, 500_000, 3_000_000}

func (k *keeper) one() {
	key := fmt.Sprintf("k%d", k.rnd.IntN(40))
	k.made++
	name := fmt.Sprintf("%s.%d", k.folder, k.made)
	piece := history.Piece(name, sizes[k.rnd.IntN(len(sizes))])
	switch n := k.rnd.IntN(40); {
	case n < 16:
		k.put(key, os.O_TRUNC, piece, name)
	case n < 22:
		after := name
		if old := k.record[key]; old != "" {
			after = old + "+" + name
		}
		k.put(key, os.O_APPEND, piece, after)
	case n < 34:
		k.look(k.path(key), k.record[key])
	case n < 36 && k.record[key] != "":
		k.remove(key)
	case n < 38 && k.record[key] != "":
		k.rename(key, key+"'")
	case n == 38 && len(k.kept) < 2:
		k.keep()
	case n == 39:
		for name, then := range k.kept {
			k.compare(filepath.Join(k.s.mounts[0].dir, ".storefs/snapshots", name), then)
			k.forget(name)
			break
		}
	}
}

// put writes a piece and closes. After is what the value is then. If the disk is full it is that, or still the old one.
func (k *keeper) put(key string, flag int, piece []byte, after string) {
	k.r.did("by keepers: write")
	f, err := os.OpenFile(k.path(key), os.O_WRONLY|os.O_CREATE|flag, 0o644)
	if err == nil {
		_, err = f.Write(piece)
		if err == nil && k.rnd.IntN(10) == 0 {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		k.record[key] = after
		return
	}
	k.failed("write of "+key, err)
	if now, err := k.names(k.path(key)); err != nil || now != after && now != k.record[key] {
		k.r.violation("%s of %s on a full disk is %q, %v; was %q, would be %q", key, k.folder, now, err, k.record[key], after)
	} else if now == "" {
		delete(k.record, key)
	} else {
		k.record[key] = now
	}
	k.empty()
}

// failed counts a full disk. Anything else is a violation.
func (k *keeper) failed(what string, err error) {
	if errors.Is(err, unix.ENOSPC) {
		k.r.fault("writes that found the disk full")
	} else {
		k.r.violation("%s: %s: %v", k.folder, what, err)
	}
}

// names reads a value; "" if there is none.
func (k *keeper) names(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return history.Names(b)
}

func (k *keeper) look(path, want string) {
	k.r.did("by keepers: read")
	if got, err := k.names(path); err != nil || got != want {
		k.r.violation("%s is %q, %v; acknowledged was %q", path, got, err, want)
		return
	}
	k.r.verified("values compared with a record", 1)
}

// remove works on a full disk too.
func (k *keeper) remove(key string) {
	k.r.did("by keepers: remove")
	if err := os.Remove(k.path(key)); err != nil {
		k.r.violation("%s: remove %s: %v", k.folder, key, err)
	}
	delete(k.record, key)
}

func (k *keeper) rename(from, to string) {
	k.r.did("by keepers: rename")
	if err := os.Rename(k.path(from), k.path(to)); err != nil {
		k.failed("rename of "+from, err)
		return
	}
	k.record[to] = k.record[from]
	delete(k.record, from)
}

// keep makes a snapshot.
func (k *keeper) keep() {
	k.r.did("by keepers: snapshot")
	name := fmt.Sprintf("%s.%d", k.folder, k.made)
	if err := os.Mkdir(filepath.Join(k.s.mounts[0].dir, ".storefs/snapshots", name), 0o755); err != nil {
		k.failed("snapshot", err)
		return
	}
	k.kept[name] = maps.Clone(k.record)
}

// forget removes a snapshot.
func (k *keeper) forget(name string) {
	if err := os.Remove(filepath.Join(k.s.mounts[0].dir, ".storefs/snapshots", name)); err != nil {
		k.r.violation("%s: remove snapshot %s: %v", k.folder, name, err)
	}
	delete(k.kept, name)
}

// compare looks at everything below root.
func (k *keeper) compare(root string, want record) {
	dir, err := os.ReadDir(filepath.Join(root, k.folder))
	if err != nil {
		k.r.violation("%s: %v", k.folder, err)
		return
	}
	var got []string
	for _, e := range dir {
		got = append(got, e.Name())
	}
	if there := slices.Sorted(maps.Keys(want)); !slices.Equal(slices.Sorted(slices.Values(got)), there) {
		k.r.violation("in %s/%s are %v, not %v", root, k.folder, got, there)
		return
	}
	for key, names := range want {
		k.look(filepath.Join(root, k.folder, key), names)
	}
}

// empty removes nearly everything, and waits until there is room again.
func (k *keeper) empty() {
	for name := range k.kept {
		k.forget(name)
	}
	for _, key := range slices.Sorted(maps.Keys(k.record)) {
		if k.rnd.IntN(10) > 0 {
			k.remove(key)
		}
	}
	time.Sleep(time.Duration(k.rnd.IntN(500)) * time.Millisecond) // the others do the same
}
