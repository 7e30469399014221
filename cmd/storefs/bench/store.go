package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// store is a place in a store, as a program in Go uses it.
type store struct {
	spec Spec
	st   *filestore.Store
	dir  backend.Ino
}

var (
	background = context.Background()
	newFile    = &backend.Attr{Mode: 0o644}
)

func openStore(s Spec) (place, error) {
	p := &store{spec: s}
	if err := p.open(); err != nil {
		return nil, err
	}
	err := backend.Update(background, p.st, func(t *backend.Txn) error { return t.MkdirAll(s.Under) })
	if err == nil {
		p.dir, err = p.find()
	}
	if err != nil {
		p.st.Close()
		return nil, err
	}
	return p, nil
}

func (p *store) open() (err error) {
	p.st, err = filestore.Open(p.spec.Path, &filestore.Options{Sync: p.spec.Sync, Command: "storefs bench"})
	return err
}

// find returns the number of the directory.
func (p *store) find() (backend.Ino, error) {
	s, err := p.st.Snapshot(background)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	e, err := backend.Walk(s, p.spec.Under)
	return e.Ino, err
}

func (p *store) ref(key string) backend.Ref { return backend.Ref{Dir: p.dir, Name: key} }

func (p *store) read(key string, buf []byte) (value []byte, err error) {
	s, err := p.st.Snapshot(background)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	e, err := s.Lookup(p.ref(key))
	if err != nil {
		return nil, err
	}
	v, err := s.Open(e)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	if int64(len(buf)) < v.Size() {
		buf = make([]byte, v.Size())
	}
	if n, err := v.ReadAt(buf[:v.Size()], 0); int64(n) < v.Size() {
		return nil, err
	}
	return buf[:v.Size()], nil
}

func (p *store) write(key string, value []byte) error {
	return p.commit(func(b *backend.Batch, stage func([]byte) (backend.Stage, error)) error {
		st, err := stage(value)
		if err == nil {
			b.Put(p.ref(key), st, newFile, backend.AttrChange{})
		}
		return err
	})
}

// commit commits what fill puts into a batch, and closes the stages that it has made.
func (p *store) commit(fill func(b *backend.Batch, stage func([]byte) (backend.Stage, error)) error) error {
	var b backend.Batch
	var stages []backend.Stage
	defer func() {
		for _, st := range stages {
			st.Close()
		}
	}()
	err := fill(&b, func(value []byte) (backend.Stage, error) {
		st, err := p.st.NewStage()
		if err != nil {
			return nil, err
		}
		stages = append(stages, st)
		_, err = st.WriteAt(value, 0)
		return st, err
	})
	if err == nil {
		_, err = p.st.Commit(background, &b)
	}
	return err
}

func (p *store) increment(key string) error {
	path := p.spec.Under + "/" + key
	return backend.Update(background, p.st, func(t *backend.Txn) error {
		value, err := t.ReadFile(path)
		if err != nil {
			return err
		}
		if err := addOne(value); err != nil {
			return err
		}
		return t.WriteFile(path, value)
	})
}

func (p *store) unlink(key string) error {
	return p.commit(func(b *backend.Batch, _ func([]byte) (backend.Stage, error)) error {
		b.Remove(p.ref(key))
		return nil
	})
}

func (p *store) missing(key string) error {
	s, err := p.st.Snapshot(background)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Lookup(p.ref(key)); !errors.Is(err, backend.ErrNotFound) {
		return fmt.Errorf("key %q, which is not there: %v", key, err)
	}
	return nil
}

func (p *store) list() (n int, err error) {
	s, err := p.st.Snapshot(background)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	for _, err := range s.List(p.dir, "") {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// perCommit is how many keys fill and remove change at once.
const perCommit = 1000

func (p *store) fill(first, end int, value func(int) []byte) error {
	for ; first < end; first += perCommit {
		err := p.commit(func(b *backend.Batch, stage func([]byte) (backend.Stage, error)) error {
			for i := first; i < min(end, first+perCommit); i++ {
				st, err := stage(value(i))
				if err != nil {
					return err
				}
				b.Put(p.ref(keyName(i)), st, newFile, backend.AttrChange{})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *store) remove() error {
	for {
		names, err := p.some()
		if err != nil {
			return err
		}
		err = p.commit(func(b *backend.Batch, _ func([]byte) (backend.Stage, error)) error {
			for _, name := range names {
				b.Remove(p.ref(name))
			}
			if len(names) < perCommit {
				b.Rmdir(backend.Ref{Dir: backend.RootIno, Name: p.spec.Under})
			}
			return nil
		})
		if err != nil || len(names) < perCommit {
			return err
		}
	}
}

// some returns up to perCommit names that are there.
func (p *store) some() (names []string, err error) {
	s, err := p.st.Snapshot(background)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for e, err := range s.List(p.dir, "") {
		if err != nil || len(names) == perCommit {
			return names, err
		}
		names = append(names, e.Name)
	}
	return names, nil
}

func (p *store) reopen() error {
	if err := p.st.Close(); err != nil {
		return err
	}
	return p.open()
}

func (p *store) compact() error { return p.st.Compact(background) }

func (p *store) bytesOnDisk() (int64, error) {
	i, err := p.st.Info()
	return i.DiskBytes, err
}

func (p *store) close() error { return p.st.Close() }
