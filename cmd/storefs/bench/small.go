package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// small measures single operations on values of 1 000 bytes, among a thousand.
func (r *run) small(ctx context.Context) (err error) {
	const n = 1000
	value := random(1, 1000)
	p, err := r.spec.in(r.spec.Under + "-small").open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.remove(), p.close()) }()
	if err := p.fill(0, n, func(int) []byte { return value }); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	type part struct {
		metric string
		most   int
		fn     func(i int) error
	}
	parts := []part{
		{"read_us", 20000, func(int) error {
			got, err := p.read(keyName(0), buf)
			r.check(bytes.Equal(got, value))
			return err
		}},
		{"read_any_us", 20000, func(i int) error {
			got, err := p.read(keyName(i*7919%n), buf)
			r.check(bytes.Equal(got, value))
			return err
		}},
		{"missing_us", 20000, func(int) error { return p.missing("nothing") }},
		{"list_1000_us", 100, func(int) error {
			names, err := p.list()
			r.check(names == n)
			return err
		}},
		{"overwrite_us", 5000, func(i int) error { return p.write(keyName(i%n), value) }},
		{"write_read_us", 5000, func(i int) error {
			if err := p.write(keyName(i%n), value); err != nil {
				return err
			}
			got, err := p.read(keyName(i%n), buf)
			r.check(bytes.Equal(got, value))
			return err
		}},
		{"new_us", 5000, func(i int) error { return p.write(fmt.Sprint("new", i), value) }},
	}
	if f, ok := p.(files); ok {
		parts = append(parts,
			part{"rename_us", 5000, func(i int) error { return f.replace(keyName(i%n), value) }},
			part{"stat_us", 20000, func(int) error { return f.stat(keyName(0)) }})
	}
	for _, part := range parts {
		if _, err := r.timed(ctx, "small", "bytes=1000", part.metric, part.most, part.fn); err != nil {
			return err
		}
	}
	return nil
}
