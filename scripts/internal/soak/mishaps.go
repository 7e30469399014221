package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/history"
)

// mishap is something that goes wrong.
type mishap struct {
	name string
	do   func(m *mishaps)
}

// all can happen.
var all = []mishap{
	{"daemons killed", (*mishaps).killDaemon},
	{"daemons stopped for a while", (*mishaps).stopDaemon},
	{"clients killed", (*mishaps).killClient},
	{"mounts made anew", (*mishaps).remount},
	{"commands killed", (*mishaps).killCommand},
	{"commands killed", (*mishaps).killPut},
}

// mishaps makes one thing go wrong after another.
type mishaps struct {
	s    *site
	r    *report
	rnd  *rand.Rand
	put  string // what killPut's key holds
	made int
}

// makeMishaps does that until ctx ends.
func makeMishaps(ctx context.Context, s *site, r *report, seed uint64) {
	m := &mishaps{s: s, r: r, rnd: rand.New(rand.NewPCG(seed, 3))}
	for pause(ctx, m.upTo(time.Second)); ctx.Err() == nil; pause(ctx, m.upTo(time.Second)) {
		h := all[m.rnd.IntN(len(all))]
		h.do(m)
		r.fault(h.name)
	}
}

func (m *mishaps) upTo(d time.Duration) time.Duration { return time.Duration(m.rnd.Int64N(int64(d))) }

// any returns a mount that bad things may happen to.
func (m *mishaps) any() *mount { return m.s.mounts[1+m.rnd.IntN(len(m.s.mounts)-1)] }

func (m *mishaps) killDaemon() {
	at := m.any()
	at.daemon.Signal(unix.SIGKILL)
	m.again(at)
}

// again mounts again.
func (m *mishaps) again(at *mount) {
	if err := m.s.mountAt(at); err != nil {
		m.r.violation("mount again: %v", err)
	}
}

func (m *mishaps) stopDaemon() {
	d := m.s.mounts[m.rnd.IntN(len(m.s.mounts))].daemon
	d.Signal(unix.SIGSTOP)
	time.Sleep(100*time.Millisecond + m.upTo(200*time.Millisecond))
	d.Signal(unix.SIGCONT)
}

func (m *mishaps) killClient() {
	c := &m.s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return
	}
	if err := c.run.Kill(m.rnd.IntN(c.run.Clients)); err != nil {
		m.r.violation("kill a client: %v", err)
	}
}

// remount unmounts and mounts, if nobody has a file open there.
func (m *mishaps) remount() {
	at := m.any()
	if _, err := m.s.command(nil, "umount", at.dir); err == nil {
		m.again(at)
	} else if !strings.Contains(err.Error(), "is in use") {
		m.r.violation("%v", err)
	}
}

// killCommand kills a command that changes no key.
func (m *mishaps) killCommand() {
	name := fmt.Sprintf("mishap%d", m.rnd.IntN(2))
	commands := [][]string{{"compact", m.s.store}, {"check", m.s.store}, {"sync", m.s.store}, {"snapshot", "create", m.s.store, name}, {"snapshot", "rm", m.s.store, name},
		{"txn", m.s.store, "--", "sleep", "60"}, {"export", m.s.store}}
	m.s.mortalCommand(m.upTo(200*time.Millisecond), nil, commands[m.rnd.IntN(len(commands))]...)
}

// killPut kills a put, and looks at what is there then.
func (m *mishaps) killPut() {
	m.made++
	name := fmt.Sprintf("put.%d", m.made)
	_, killed, err := m.s.mortalCommand(m.upTo(60*time.Millisecond), history.Piece(name, sizes[m.rnd.IntN(len(sizes))]), "put", m.s.store, "mishap")
	if err != nil && !killed && !full(err) {
		m.r.violation("%v", err)
	}
	out, gerr := m.s.command(nil, "get", m.s.store, "mishap")
	now, nerr := history.Names(out)
	switch {
	case gerr != nil && !strings.Contains(gerr.Error(), "no such key"), nerr != nil:
		m.r.violation("get mishap: %v %v", gerr, nerr)
	case now == name, now == m.put && err != nil:
		m.put = now
		m.r.verified("values compared with a record", 1)
	default:
		m.r.violation("mishap is %q, was %q, put was %q: %v", now, m.put, name, err)
	}
}
