package fsnode

import (
	"maps"
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
	t.mu.Unlock()
	return true
}

// refuseFor is how long a thread whose path was refused is taken to be trying it again, unless it is served before.
const refuseFor = time.Second

// refusal is what is known of a thread that was told to look its path up again.
type refusal struct {
	at     time.Time
	t      *tree       // nil until it has looked something up
	looked backend.Ref // the last name that it has
}

// refuseOnce says whether a request of thread tid may be answered with ESTALE: the kernel looks the path up again once, and what that found
// is new enough, whatever happened since.
func (s *Server) refuseOnce(tid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusedLocked(tid) {
		delete(s.refused, tid)
		return false
	}
	s.noteRefusedLocked(tid)
	return true
}

// noteRefusedLocked notes that thread tid is told to look its path up again.
func (s *Server) noteRefusedLocked(tid uint32) {
	now := time.Now()
	if len(s.refused) > maxKeptTries {
		maps.DeleteFunc(s.refused, func(_ uint32, r refusal) bool { return now.Sub(r.at) >= refuseFor })
	}
	s.refused[tid] = refusal{at: now}
}

// refusedLocked says whether thread tid was told to look its path up again, and was not served since.
func (s *Server) refusedLocked(tid uint32) bool {
	r, ok := s.refused[tid]
	return ok && time.Since(r.at) < refuseFor
}

// looks notes that thread tid looks ref up.
func (t *tree) looks(tid uint32, ref backend.Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.refused[tid]; ok {
		r.t, r.looked = t, ref
		t.refused[tid] = r
	}
}

// againLocked says whether a request of thread tid for what stands at ref may be the end of a second look at its path. It is not if the
// last name that the thread has looked up since it was refused is another: then the second look ended at that one, without a
// request, because nothing stood there or it may not be used.
func (t *tree) againLocked(tid uint32, ref backend.Ref) bool {
	if r := t.retries[tid]; r != nil && r.t == t && r.ref == ref {
		return true
	}
	if r := t.refused[tid]; r.t != nil && (r.t != t || r.looked != ref) {
		delete(t.refused, tid)
	}
	return t.refusedLocked(tid)
}

// served notes that a request of thread tid was answered.
func (s *Server) served(tid uint32) {
	s.mu.Lock()
	delete(s.refused, tid)
	v := s.dropRetryLocked(tid)
	s.mu.Unlock()
	if v != nil {
		v.Close()
	}
}

// forgetSoon makes the kernel forget a name, and waits for that, but not for long: the kernel may hold a lock for the request that we answer
// which somebody waits for who holds the one that is needed here.
func (t *tree) forgetSoon(ref backend.Ref) { soon(func() { t.forgetName(ref) }) }

// soon runs f, which tells the kernel something, and waits for it, but not for long.
func soon(f func()) {
	done := make(chan struct{})
	go func() {
		f()
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

// namedLocked notes that the kernel knows n by the name ref.
func (t *tree) namedLocked(n *node, ref backend.Ref) {
	if t.named[n.at] == n {
		delete(t.named, n.at)
	}
	n.at = ref
	t.named[ref] = n
}

// movedLocked notes a rename that the kernel asked for: it has moved what it knew by these names.
func (t *tree) movedLocked(from, to backend.Ref, exchanged bool) {
	a, b := t.named[from], t.named[to]
	delete(t.named, from)
	delete(t.named, to)
	if a != nil {
		t.namedLocked(a, to)
	}
	if b != nil && exchanged {
		t.namedLocked(b, from)
	}
}
