package main

import (
	"fmt"
	"os"
	"time"
)

// progress is a line on standard error that says how far a long command is; nothing if that is no terminal.
type progress struct {
	verb        string
	keys, bytes int64
	next        time.Time
	shown       bool
}

func newProgress(verb string) *progress {
	if !isTerminal(os.Stderr) {
		return nil
	}
	return &progress{verb: verb, next: time.Now().Add(time.Second)}
}

func (p *progress) add(keys, bytes int64) {
	if p == nil {
		return
	}
	p.keys, p.bytes = p.keys+keys, p.bytes+bytes
	if now := time.Now(); now.After(p.next) {
		p.next, p.shown = now.Add(200*time.Millisecond), true
		p.show()
	}
}

func (p *progress) show() {
	fmt.Fprintf(os.Stderr, "\r%s %d entries, %.1f MB\x1b[K", p.verb, p.keys, float64(p.bytes)/1e6)
}

// hide makes room for a line of output.
func (p *progress) hide() {
	if p != nil && p.shown {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

func (p *progress) end() {
	if p != nil && p.shown {
		p.show()
		fmt.Fprintln(os.Stderr)
	}
}
