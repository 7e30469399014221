package engine

import (
	"fmt"
	"os"
	"testing"
)

// db is what every system does. A value read need not outlive the call.
type db interface {
	get(key string) (length int, err error)
	put(keys []string, value []byte) error // in one commit
	scan(first string, n int) (found int, err error)
	reopen() error
	close() error
}

// pinner is a db that reads several times from one snapshot or read transaction.
type pinner interface {
	pinned(fn func(get func(key string) (int, error)) error) error
}

// systems open a database in a directory. With sync a commit is on stable storage before it returns.
var systems = []struct {
	name string
	open func(dir string, sync bool) (db, error)
}{{"storefs", openStorefs}, {"bbolt", openBolt}, {"sqlite", openSQLite}, {"files", openFiles}}

const (
	keys = 100000
	size = 100
)

var value = make([]byte, size)

func name(i int) string { return fmt.Sprintf("key%07d", i) }

// loaded are the folders of the systems, with all keys in them. Benchmarks overwrite values, and add no keys.
var loaded = map[string]string{}

func TestMain(m *testing.M) {
	status := m.Run()
	for _, dir := range loaded {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// folder returns the folder of a system, which is loaded when it is first asked for.
func folder(system string, open func(string, bool) (db, error)) (string, error) {
	if dir, ok := loaded[system]; ok {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "bench-"+system)
	if err != nil {
		return "", err
	}
	loaded[system] = dir
	d, err := open(dir, false)
	if err != nil {
		return "", err
	}
	if err := load(d); err != nil {
		return "", err
	}
	return dir, d.close()
}

// each runs a benchmark on every system, with all keys in it.
func each(b *testing.B, sync bool, fn func(b *testing.B, d db)) {
	for _, s := range systems {
		b.Run("system="+s.name, func(b *testing.B) {
			dir, err := folder(s.name, s.open)
			if err != nil {
				b.Fatal(err)
			}
			d, err := s.open(dir, sync)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := d.close(); err != nil {
					b.Error(err)
				}
			}()
			b.ReportAllocs()
			fn(b, d)
		})
	}
}

func load(d db) error {
	all := make([]string, keys)
	for i := range all {
		all[i] = name(i)
	}
	for i := 0; i < keys; i += 1000 {
		if err := d.put(all[i:i+1000], value); err != nil {
			return err
		}
	}
	return nil
}

// steps visits keys in an order that looks random.
func steps(b *testing.B, fn func(key string) error) {
	for i := 0; b.Loop(); i++ {
		if err := fn(name(i * 7919 % keys)); err != nil {
			b.Fatal(err)
		}
	}
}

func expect(n, want int, err error) error {
	if err == nil && n != want {
		return fmt.Errorf("%d, not %d", n, want)
	}
	return err
}

// BenchmarkGet reads a value in a snapshot or transaction of its own.
func BenchmarkGet(b *testing.B) {
	each(b, false, func(b *testing.B, d db) {
		steps(b, func(key string) error {
			n, err := d.get(key)
			return expect(n, size, err)
		})
	})
}

// BenchmarkGetPinned reads values in one snapshot or transaction.
func BenchmarkGetPinned(b *testing.B) {
	each(b, false, func(b *testing.B, d db) {
		p, ok := d.(pinner)
		if !ok {
			b.Skip("has no snapshots")
		}
		err := p.pinned(func(get func(string) (int, error)) error {
			steps(b, func(key string) error {
				n, err := get(key)
				return expect(n, size, err)
			})
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkPut commits one value.
func BenchmarkPut(b *testing.B) {
	each(b, false, func(b *testing.B, d db) {
		steps(b, func(key string) error { return d.put([]string{key}, value) })
	})
}

// BenchmarkPutSync commits one value to stable storage.
func BenchmarkPutSync(b *testing.B) {
	each(b, true, func(b *testing.B, d db) {
		steps(b, func(key string) error { return d.put([]string{key}, value) })
	})
}

// BenchmarkPut1000 commits 1 000 values at once.
func BenchmarkPut1000(b *testing.B) {
	each(b, false, func(b *testing.B, d db) {
		batch := make([]string, 1000)
		for i := 0; b.Loop(); i++ {
			for k := range batch {
				batch[k] = name((i*7919 + k*97) % keys)
			}
			if err := d.put(batch, value); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkScan1000 goes through 1 000 keys in their order.
func BenchmarkScan1000(b *testing.B) {
	each(b, false, func(b *testing.B, d db) {
		for i := 0; b.Loop(); i++ {
			n, err := d.scan(name(i*7919%(keys-1000)), 1000)
			if err := expect(n, 1000, err); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpen opens, reads one value and closes.
func BenchmarkOpen(b *testing.B) {
	each(b, false, func(b *testing.B, d db) {
		steps(b, func(key string) error {
			if err := d.reopen(); err != nil {
				return err
			}
			n, err := d.get(key)
			return expect(n, size, err)
		})
	})
}

// Every system gives back what was put, so that the benchmarks measure the same thing.
func TestSystems(t *testing.T) {
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			d, err := s.open(t.TempDir(), true)
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			if err := d.put([]string{"a", "b", "c"}, value); err != nil {
				t.Fatal(err)
			}
			if err := d.reopen(); err != nil {
				t.Fatal(err)
			}
			if n, err := d.get("b"); n != size || err != nil {
				t.Errorf("get: %d, %v", n, err)
			}
			if n, err := d.scan("b", 10); n != 2 || err != nil {
				t.Errorf("scan: %d, %v", n, err)
			}
			if _, err := d.get("nothing"); err == nil {
				t.Error("got what is not there")
			}
		})
	}
}
