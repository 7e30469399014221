package fsnode

import (
	"errors"
	"os/exec"
	"time"

	"github.com/storefs/storefs/backend"
)

// forgetName makes the kernel forget what it knows of a name. Not to be called while it holds the lock of that
// directory for a request that we answer, nor with a lock of ours held.
func (s *Server) forgetName(ref backend.Ref) {
	s.mu.Lock()
	dir := s.dirs[ref.Dir]
	var id uint64
	if dir != nil {
		id = dir.id
	}
	s.mu.Unlock()
	if id != 0 {
		s.stats.notifications.Add(1)
		s.fuse.EntryNotify(id, ref.Name)
	}
}

// forgetAttr makes the kernel forget the attributes of what entry e says, but not its pages.
func (s *Server) forgetAttr(e *backend.Entry) {
	s.mu.Lock()
	var ids []uint64
	if e.Kind == backend.Dir {
		if n := s.dirs[e.Ino]; n != nil {
			ids = append(ids, n.id)
		}
	} else if v := s.versions[e.Ino]; v != nil && v.cur != nil && v.cur.lookups > 0 {
		ids = append(ids, v.cur.id)
	}
	if v := s.versions[e.Ino]; v != nil && e.Revision >= v.e.Revision {
		v.e = *e
	}
	s.mu.Unlock()
	for _, id := range ids {
		s.fuse.InodeNotify(id, -1, 0)
	}
}

// forgetAttrOfOthers is forgetAttr for a change that the kernel makes through node n, and so knows of there.
func (s *Server) forgetAttrOfOthers(n *node, e *backend.Entry) {
	s.mu.Lock()
	v := s.versions[e.Ino]
	other := v != nil && v.cur != nil && v.cur != n
	s.mu.Unlock()
	if other {
		s.forgetAttr(e)
	}
}

// watch tells the kernel about the commits of others.
func (s *Server) watch(from backend.Generation) {
	for s.ctx.Err() == nil {
		for c, err := range s.store.Watch(s.ctx, from) {
			switch {
			case errors.Is(err, backend.ErrHistoryGone):
				from = s.forgetEverything(from)
			case err != nil:
				s.o.Log.Printf("watching the store: %v", err)
				select {
				case <-s.ctx.Done():
				case <-time.After(time.Second):
				}
			default:
				from = max(from, c.Generation)
				if !c.Own {
					s.changed(c)
				}
			}
			if err != nil {
				break
			}
		}
	}
}

// changed tells the kernel about a change that was not made for one of its requests.
func (s *Server) changed(c backend.Change) {
	if c.New != nil {
		s.mu.Lock()
		v := s.versions[c.New.Ino]
		same := v != nil && v.e.Ref == c.Ref
		s.mu.Unlock()
		s.forgetAttr(c.New)
		if same {
			return // only attributes
		}
	}
	s.forgetName(c.Ref)
}

// forgetEverything makes the kernel forget all that it may know, and returns the generation from which changes are watched again.
func (s *Server) forgetEverything(from backend.Generation) backend.Generation {
	snap, err := s.snapshot()
	if err != nil {
		return from
	}
	from = snap.Generation()
	snap.Close()
	s.mu.Lock()
	entries := make([]backend.Entry, 0, len(s.versions))
	for _, v := range s.versions {
		entries = append(entries, v.e)
	}
	s.mu.Unlock()
	for i := range entries {
		if entries[i].Ref != backend.RootRef {
			s.forgetName(entries[i].Ref)
		}
		s.forgetAttr(&entries[i])
	}
	return from
}

// detach unmounts a busy mountpoint as an ordinary user.
func detach(mountpoint string) error {
	return exec.Command("fusermount3", "-u", "-z", mountpoint).Run()
}
