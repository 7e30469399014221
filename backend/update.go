package backend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Update runs fn in a transaction on s and publishes it, and again, on a newer generation, as long as others' changes are in conflict with it and
// ctx goes on. fn may run several times: what it does outside the transaction is not undone. An error of fn abandons the
// transaction and is returned as it is.
func Update(ctx context.Context, s Store, fn func(*Txn) error) error {
	for wait := time.Duration(0); ; wait = min(2*wait+100*time.Microsecond, 20*time.Millisecond) {
		err := updateOnce(ctx, s, fn)
		var again *publishError
		if !errors.As(err, &again) {
			return err
		}
		if !errors.Is(again.err, ErrConflict) {
			return again.err
		}
		select { // at random, or those in each other's way would meet again
		case <-ctx.Done():
			return fmt.Errorf("%w, and no time to try again: %w", again.err, ctx.Err())
		case <-time.After(rand.N(wait + 1)):
		}
	}
}

// publishError tells an error of Publish from one of the function that was run.
type publishError struct{ err error }

func (e *publishError) Error() string { return e.err.Error() }

func updateOnce(ctx context.Context, s Store, fn func(*Txn) error) error {
	t, err := Begin(ctx, s)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := fn(t); err != nil {
		return err
	}
	if _, err := t.Publish(ctx); err != nil {
		return &publishError{err}
	}
	return nil
}

// ReadFile returns the whole value of the file at path, as Walk takes it.
func ReadFile(s Snapshot, path string) (data []byte, err error) {
	e, err := Walk(s, path)
	if err != nil {
		return nil, err
	}
	v, err := s.Open(e)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", path, err)
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	data = make([]byte, v.Size())
	if n, err := v.ReadAt(data, 0); n < len(data) {
		return nil, fmt.Errorf("key %q: %w", path, err)
	}
	return data, nil
}

// ReadFile returns the value of the file at path as the transaction shows it.
func (t *Txn) ReadFile(path string) ([]byte, error) {
	s, err := t.Snapshot(context.Background())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return ReadFile(s, path)
}

// WriteFile makes data the value of the file at path. A new file has mode 0644; its directory must exist.
func (t *Txn) WriteFile(path string, data []byte) error {
	st, err := t.NewStage()
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := st.WriteAt(data, 0); err != nil {
		return fmt.Errorf("key %q: %w", path, err)
	}
	return t.at(path, func(b *Batch, ref Ref, _ *Entry) error {
		b.Put(ref, st, &Attr{Mode: 0o644}, AttrChange{})
		return nil
	})
}

// MkdirAll makes the directory at path, and those above it, with mode 0755 where they are missing.
func (t *Txn) MkdirAll(path string) error {
	for i := range len(path) + 1 {
		if i < len(path) && path[i] != '/' {
			continue
		}
		err := t.at(path[:i], func(b *Batch, ref Ref, there *Entry) error {
			switch {
			case there == nil:
				b.Mkdir(ref, Attr{Mode: 0o755})
			case there.Kind != Dir:
				return ErrNotDir
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the file, link or empty directory at path.
func (t *Txn) Remove(path string) error {
	return t.at(path, func(b *Batch, ref Ref, there *Entry) error {
		if there != nil && there.Kind == Dir {
			b.Rmdir(ref)
		} else {
			b.Remove(ref)
		}
		return nil
	})
}

// at commits to the transaction what fill makes of the place at path and what stands there, nil for nothing.
func (t *Txn) at(path string, fill func(b *Batch, ref Ref, there *Entry) error) error {
	ctx := context.Background() // nothing is waited for
	s, err := t.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	ref := RootRef
	if path != "" {
		i := strings.LastIndexByte(path, '/')
		dir, err := Walk(s, path[:max(i, 0)])
		if err != nil {
			return err
		}
		if dir.Kind != Dir {
			return fmt.Errorf("key %q: %w", path, ErrNotDir)
		}
		ref = Ref{dir.Ino, path[i+1:]}
	}
	var there *Entry
	e, err := s.Lookup(ref)
	switch {
	case err == nil:
		there = &e
	case !errors.Is(err, ErrNotFound):
		return err
	}
	b := &Batch{}
	if err = fill(b, ref, there); err == nil {
		_, err = t.Commit(ctx, b)
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", path, err)
	}
	return nil
}
