package lockmgr

import (
	"encoding/binary"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Who waits looks again when it is woken. It may hear of the end of another process a moment before that gives up its locks, so it
// looks once more after keyPollMin, and then ever less often: down to keyPollIdle, or keyPollMax where nothing wakes it.
//
// A process that has handed on a lock maxTurns times, or has nobody waiting, leaves it to other processes that wait: until one of them
// has it, and for no longer than keyRest.
const (
	keyPollMin  = time.Millisecond
	keyPollMax  = 10 * time.Millisecond
	keyPollIdle = 250 * time.Millisecond
	keyRest     = 3 * time.Millisecond
	restLook    = 100 * time.Microsecond
	maxTurns    = 4
)

// attendLocked has the attendant of f, a goroutine that it has while somebody waits or this process rests, look.
func (k *Keys) attendLocked(f *keyFile) {
	if f.wake == nil {
		f.wake = make(chan struct{}, 1)
		go k.attend(f, f.wake)
	}
	f.call()
}

// call tells the attendant, if there is one, that something may have changed.
func (f *keyFile) call() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (k *Keys) attend(f *keyFile, wake <-chan struct{}) {
	pause := keyPollMin
	for {
		rest, longest := k.serve(f)
		if longest == 0 {
			return
		}
		pause = min(pause, longest)
		if rest == 0 {
			rest = pause
		}
		next := time.NewTimer(rest)
		select {
		case <-wake:
			pause = keyPollMin
		case <-next.C:
			pause *= 2
		}
		next.Stop()
	}
}

// serve gives locks that are free to those who wait. The attendant is to look again when it is called, and after rest if that is not 0;
// else after longest at the latest; if that is 0 it has nothing more to do.
func (k *Keys) serve(f *keyFile) (rest, longest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(f.waiting) > 0 {
		k.markLocked(f)
	}
	if rest := f.restLeft(); rest > 0 {
		return rest, keyRest
	}
	f.resting = time.Time{}
	var blocked []KeyHolder // what those who hold nothing cannot have
	for _, w := range slices.Clone(f.waiting) {
		same := KeyHolder{Range: w.want.Range, Exclusive: w.want.Exclusive}
		if f.owners[w.want.ID] == nil && slices.Contains(blocked, same) {
			continue
		}
		switch ok, err := k.tryLocked(w); {
		case ok:
			f.served(f.owners[w.want.ID].f)
			w.end(nil)
		case err != nil:
			w.end(err)
		case f.owners[w.want.ID] == nil:
			blocked = append(blocked, same)
		}
	}
	switch {
	case len(f.waiting) == 0:
		k.unmarkLocked(f)
		f.wake = nil
		k.tidyLocked(f)
		return 0, 0
	case f.notices != 0:
		return 0, keyPollIdle
	}
	return 0, keyPollMax
}

// takeTurnsLocked decides, when something of f was given up through d, whether those who wait in other processes get it first.
func (k *Keys) takeTurnsLocked(f *keyFile, d *os.File) {
	if f.mark != nil {
		d = f.mark
	}
	switch {
	case !rangeTaken(int(d.Fd()), waitByte):
		f.turns = 0
	case len(f.waiting) == 0 || f.turns >= maxTurns:
		f.turns, f.resting, f.seen = 0, time.Now().Add(keyRest), readTurn(d)
		k.attendLocked(f)
	}
}

// turnAt is where the lock file says when one that waited was served last, in any process.
const turnAt = regions * regionSize

// served notes that one that waited has got its lock, through d.
func (f *keyFile) served(d *os.File) {
	f.turns++
	var now [8]byte
	binary.NativeEndian.PutUint64(now[:], uint64(time.Now().UnixNano()))
	_, _ = d.WriteAt(now[:], turnAt) // an error only makes others rest longer
}

func readTurn(d *os.File) uint64 {
	var at [8]byte
	_, _ = d.ReadAt(at[:], turnAt)
	return binary.NativeEndian.Uint64(at[:])
}

// restLeft returns how long to leave what is free to others before looking again; 0 when that is over.
func (f *keyFile) restLeft() time.Duration {
	left := time.Until(f.resting)
	switch {
	case left <= 0:
		return 0
	case len(f.waiting) == 0:
		return left
	case f.mark == nil || !rangeTaken(int(f.mark.Fd()), waitByte) || readTurn(f.mark) != f.seen:
		return 0
	}
	if _, taken := inTheWay(f.mark, Range{}, true); taken {
		return 0
	}
	return restLook
}

// markLocked shows other processes that somebody waits, and has them wake us. What it cannot do now it does another time.
func (k *Keys) markLocked(f *keyFile) {
	if f.mark != nil {
		return
	}
	m, err := OpenFile(f.path, os.O_RDONLY, 0) // not for writing: closing it wakes nobody
	if err != nil {
		return
	}
	if ok, _ := setRange(int(m.Fd()), unix.F_RDLCK, waitByte); !ok || !named(m, f.path) {
		m.Close() // it is being removed
		return
	}
	f.mark = m
	k.listenLocked(f)
}

func (k *Keys) unmarkLocked(f *keyFile) {
	if f.mark == nil {
		return
	}
	k.unlistenLocked(f)
	f.mark.Close()
	f.mark = nil
	if len(f.owners) > 0 {
		return
	}
	if d, err := OpenFile(f.path, os.O_RDWR, 0); err == nil {
		f.removeUnused(d)
		d.Close()
	}
}
