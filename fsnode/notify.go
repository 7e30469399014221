package fsnode

import (
	"errors"
	"os/exec"
	"time"

	"github.com/storefs/storefs/backend"
)

// forgetName makes the kernel forget what it knows of a name. Not to be called while it holds the lock of that
// directory for a request that we answer, nor with a lock of ours held.
func (t *tree) forgetName(ref backend.Ref) {
	t.mu.Lock()
	var ids []uint64
	for _, n := range t.dirs[ref.Dir] {
		ids = append(ids, n.id)
	}
	t.mu.Unlock()
	for _, id := range ids {
		t.stats.notifications.Add(1)
		t.fuse.EntryNotify(id, ref.Name)
	}
}

// forgetAttr makes the kernel forget the attributes of what entry e says, but not its pages.
func (t *tree) forgetAttr(e *backend.Entry) {
	t.mu.Lock()
	var ids []uint64
	if e.Kind == backend.Dir {
		for _, n := range t.dirs[e.Ino] {
			ids = append(ids, n.id)
		}
	} else if v := t.versions[e.Ino]; v != nil && v.cur != nil && v.cur.lookups > 0 {
		ids = append(ids, v.cur.id)
	}
	controlToo := false
	if v := t.versions[e.Ino]; v != nil && e.Revision >= v.e.Revision {
		controlToo = e.Ino == backend.RootIno && t == t.main && (v.e.Mode != e.Mode || v.e.UID != e.UID || v.e.GID != e.GID)
		v.e = *e
	}
	t.mu.Unlock()
	for _, id := range ids {
		t.fuse.InodeNotify(id, -1, 0)
	}
	if controlToo {
		t.forgetControl()
	}
}

// forgetAttrOfOthers is forgetAttr for a change that the kernel makes through node n, and so knows of there.
func (t *tree) forgetAttrOfOthers(n *node, e *backend.Entry) {
	t.mu.Lock()
	v := t.versions[e.Ino]
	other := v != nil && v.cur != nil && v.cur != n
	t.mu.Unlock()
	if other {
		t.forgetAttr(e)
	}
}

// watch tells the kernel about the commits of others.
func (t *tree) watch(from backend.Generation) {
	for t.ctx.Err() == nil {
		for c, err := range t.store.Watch(t.ctx, from) {
			switch {
			case errors.Is(err, backend.ErrHistoryGone):
				from = t.forgetEverything(from)
			case err != nil:
				t.o.Log.Printf("watching the store: %v", err)
				select {
				case <-t.ctx.Done():
				case <-time.After(time.Second):
				}
			default:
				from = max(from, c.Generation)
				if !c.Own {
					t.changed(c)
				}
			}
			if err != nil {
				break
			}
		}
	}
}

// changed tells the kernel about a change that was not made for one of its requests.
func (t *tree) changed(c backend.Change) {
	if c.New != nil {
		t.mu.Lock()
		v := t.versions[c.New.Ino]
		same := v != nil && v.e.Ref == c.Ref
		t.mu.Unlock()
		t.forgetAttr(c.New)
		if same {
			return // only attributes
		}
	}
	t.forgetName(c.Ref)
	if c.New == nil || c.New.Kind != backend.Dir {
		return
	}
	t.mu.Lock()
	n := t.dirNodeLocked(c.New.Ino)
	if n == nil || n.at == c.Ref {
		t.mu.Unlock()
		return
	}
	at := n.at
	t.mu.Unlock()
	t.forgetName(at)
	t.mu.Lock()
	if n.at == at {
		t.namedLocked(n, c.Ref) // whoever is still inside, by a name that led there, has no other
	}
	t.mu.Unlock()
}

// forgetEverything makes the kernel forget all that it may know, and returns the generation from which changes are watched again.
func (t *tree) forgetEverything(from backend.Generation) backend.Generation {
	snap, err := t.snapshot()
	if err != nil {
		return from
	}
	from = snap.Generation()
	snap.Close()
	t.mu.Lock()
	entries := make([]backend.Entry, 0, len(t.versions))
	for _, v := range t.versions {
		entries = append(entries, v.e)
	}
	t.mu.Unlock()
	for i := range entries {
		if entries[i].Ref != backend.RootRef {
			t.forgetName(entries[i].Ref)
		}
		t.forgetAttr(&entries[i])
	}
	return from
}

// detach unmounts a busy mountpoint as an ordinary user.
func detach(mountpoint string) error {
	return exec.Command("fusermount3", "-u", "-z", mountpoint).Run()
}
