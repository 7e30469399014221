package fsnode

import (
	"time"

	"github.com/storefs/storefs/backend"
)

// nowhere is where a directory that was removed stands.
var nowhere = backend.Ref{Name: "."}

// led says whether the names by which the kernel reached directory dir still lead there in snap. They do not for a moment after a
// directory was moved or replaced through another mount; the request is then answered with ESTALE, which makes the kernel look up
// every name of the path. It is said once for each change: who is inside with its working directory has no names to look up.
func (t *tree) led(snap backend.Snapshot, dir backend.Ino, tid uint32) bool {
	gen := snap.Generation()
	var passed []*node
	for d := dir; d != backend.RootIno; {
		t.mu.Lock()
		n := t.dirNodeLocked(d)
		if n == nil || n.placed == gen {
			t.mu.Unlock()
			break
		}
		at := n.at
		t.mu.Unlock()
		now, err := snap.Parent(d)
		if err != nil {
			now = nowhere
		}
		if now != at {
			t.mu.Lock()
			n.at = now
			t.mu.Unlock()
			t.forgetSoon(at)
			if t.refuseOnce(tid) {
				return false
			}
		}
		if now == nowhere {
			break
		}
		passed = append(passed, n)
		d = now.Dir
	}
	t.mu.Lock()
	for _, n := range passed {
		n.placed = gen
	}
	delete(t.refused, tid)
	t.mu.Unlock()
	return true
}

// refuseOnce says whether a request of thread tid may be answered with ESTALE: the kernel looks the path up again once, and what that found
// is new enough, whatever happened since.
func (s *Server) refuseOnce(tid uint32) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, again := s.refused[tid]; again && now.Sub(at) < time.Second {
		delete(s.refused, tid)
		return false
	}
	if len(s.refused) > maxKeptTries {
		clear(s.refused)
	}
	s.refused[tid] = now
	return true
}

// forgetSoon makes the kernel forget a name, and waits for that, but not for long: the kernel may hold a lock for the request that we answer
// which somebody waits for who holds the one that is needed here.
func (t *tree) forgetSoon(ref backend.Ref) {
	done := make(chan struct{})
	go func() {
		t.forgetName(ref)
		close(done)
	}()
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// ledNow is led for the newest generation.
func (t *tree) ledNow(dir backend.Ino, tid uint32) bool {
	if dir == backend.RootIno {
		return true
	}
	snap, err := t.snapshot()
	if err != nil {
		return true // what comes next will say why
	}
	defer snap.Close()
	return t.led(snap, dir, tid)
}

// movedLocked notes where the kernel knows a directory after a rename that it asked for.
func (t *tree) movedLocked(e *backend.Entry) {
	if e != nil && e.Kind == backend.Dir {
		if n := t.dirNodeLocked(e.Ino); n != nil {
			n.at = e.Ref
		}
	}
}
