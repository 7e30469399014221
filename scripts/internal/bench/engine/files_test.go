package engine

import (
	"os"
	"path/filepath"
	"slices"
)

// plain keeps a file a key; a value is replaced through a new file.
type plain struct {
	dir  string
	sync bool
}

func openFiles(dir string, sync bool) (db, error) { return &plain{dir, sync}, nil }

func (p *plain) path(key string) string { return filepath.Join(p.dir, key) }

func (p *plain) get(key string) (int, error) {
	v, err := os.ReadFile(p.path(key))
	return len(v), err
}

func (p *plain) put(keys []string, value []byte) error {
	for _, key := range keys {
		if err := p.replace(p.path(key), value); err != nil {
			return err
		}
	}
	if !p.sync {
		return nil
	}
	d, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (p *plain) replace(path string, value []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	if err == nil && p.sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (p *plain) scan(first string, n int) (int, error) {
	d, err := os.Open(p.dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	slices.Sort(names)
	i, _ := slices.BinarySearch(names, first)
	return min(n, len(names)-i), nil
}

func (p *plain) reopen() error { return nil }

func (p *plain) close() error { return nil }
