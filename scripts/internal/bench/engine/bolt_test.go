package engine

import (
	"errors"
	"path/filepath"

	"go.etcd.io/bbolt"
)

type bolt struct {
	path string
	o    bbolt.Options
	db   *bbolt.DB
}

var (
	bucket     = []byte("kv")
	errNothing = errors.New("no such key")
)

func openBolt(dir string, sync bool) (db, error) {
	o := *bbolt.DefaultOptions
	o.NoSync = !sync
	b := &bolt{path: filepath.Join(dir, "db"), o: o}
	if err := b.open(); err != nil {
		return nil, err
	}
	return b, b.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
}

func (b *bolt) open() (err error) {
	b.db, err = bbolt.Open(b.path, 0o644, &b.o)
	return err
}

func boltGet(tx *bbolt.Tx, key string) (int, error) {
	v := tx.Bucket(bucket).Get([]byte(key))
	if v == nil {
		return 0, errNothing
	}
	var buf [size]byte
	return copy(buf[:], v), nil
}

func (b *bolt) get(key string) (n int, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		n, err = boltGet(tx, key)
		return err
	})
	return n, err
}

func (b *bolt) pinned(fn func(func(string) (int, error)) error) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		return fn(func(key string) (int, error) { return boltGet(tx, key) })
	})
}

func (b *bolt) put(keys []string, value []byte) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		for _, key := range keys {
			if err := tx.Bucket(bucket).Put([]byte(key), value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bolt) scan(first string, n int) (found int, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		for k, _ := c.Seek([]byte(first)); k != nil && found < n; k, _ = c.Next() {
			found++
		}
		return nil
	})
	return found, err
}

func (b *bolt) reopen() error {
	if err := b.db.Close(); err != nil {
		return err
	}
	return b.open()
}

func (b *bolt) close() error { return b.db.Close() }
