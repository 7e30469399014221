package main

import (
	"errors"
	"io"

	"github.com/storefs/storefs/backend"
)

// spool holds any number of values that wait for a commit, in bounded memory: all short ones in one stage of the store.
type spool struct {
	st    backend.Store
	short backend.Stage
	end   int64
	long  []backend.Stage
	buf   []byte
}

// spoolMax is the longest value that is not a stage of its own, which the store would take over as it is.
const spoolMax = 1 << 20

func newSpool(st backend.Store) (*spool, error) {
	s, err := st.NewStage()
	if err != nil {
		return nil, err
	}
	return &spool{st: st, short: s, buf: make([]byte, copyBuffer)}, nil
}

// add reads a value of size bytes.
func (s *spool) add(r io.Reader, size int64) (backend.Stage, error) {
	to, off := s.short, s.end
	if size > spoolMax {
		var err error
		if to, err = s.st.NewStage(); err != nil {
			return nil, err
		}
		s.long, off = append(s.long, to), 0
	}
	n, err := io.CopyBuffer(io.NewOffsetWriter(to, off), readOnly{io.LimitReader(r, size)}, s.buf)
	switch {
	case err != nil:
		return nil, err
	case n < size:
		return nil, io.ErrUnexpectedEOF
	case size > spoolMax:
		return to, nil
	}
	s.end += size
	return &piece{io.NewSectionReader(s.short, off, size)}, nil
}

func (s *spool) Close() error {
	err := s.short.Close()
	for _, st := range s.long {
		err = errors.Join(err, st.Close())
	}
	return err
}

// piece is a stage that is a part of another one.
type piece struct{ *io.SectionReader }

func (*piece) WriteAt([]byte, int64) (int, error) { return 0, backend.ErrInvalid }
func (*piece) Truncate(int64) error               { return backend.ErrInvalid }
func (*piece) Close() error                       { return nil }
