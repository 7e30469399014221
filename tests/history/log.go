package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Now reads the clock that all processes share.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// line is a line of a log. A client that is killed leaves a start without an end.
type line struct {
	Time  int64
	Start *Op     `json:",omitempty"`
	End   *Result `json:",omitempty"`
}

// log is where a client writes what it does, each line with one write: what stands there survives the client.
type log struct{ f *os.File }

// add writes a line, with the time of now if it has none.
func (l log) add(n line) error {
	if n.Time == 0 {
		n.Time = Now()
	}
	b, err := json.Marshal(n)
	if err == nil {
		_, err = l.f.Write(append(b, '\n'))
	}
	return err
}

// killed is the error of an operation whose client was killed.
const killed = "killed"

// ReadLog returns what a client did. It ended, with all that it had begun, before the time ended: an operation without an end has
// an unknown outcome.
func ReadLog(r io.Reader, client string, ended int64) ([]Record, error) {
	var all []Record
	var open *Record
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return all, fmt.Errorf("log of %s: %w", client, err)
		}
		switch {
		case l.Start != nil:
			open = &Record{Client: client, Op: *l.Start, Start: l.Time}
		case open != nil && l.End != nil:
			open.Result, open.End = *l.End, l.Time
			all, open = append(all, *open), nil
		}
	}
	if open != nil {
		open.Result, open.End = Result{Outcome: Unknown, Err: killed}, ended
		all = append(all, *open)
	}
	return all, s.Err()
}
