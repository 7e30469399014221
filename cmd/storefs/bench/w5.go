package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// w5 stores records under new keys and reads each back, in a directory that is empty at first for each size.
func (r *run) w5(ctx context.Context) error {
	for _, size := range r.Sizes {
		if err := r.pairs(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) pairs(ctx context.Context, size int) (err error) {
	p, err := r.spec.in(r.spec.Under + "-w5").open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.remove(), p.close()) }()
	parameters := fmt.Sprintf("bytes=%d,pairs=%d", size, r.Pairs)
	e, isEngine := p.(engine)
	var before int64
	if isEngine {
		if before, err = compacted(e); err != nil {
			return err
		}
	}
	value, buf := random(uint64(size), size), make([]byte, 2*size)
	done, err := r.timed(ctx, "w5", parameters, "pair_us", r.Pairs, func(i int) error {
		value[i%size]++
		if err := p.write(keyName(i), value); err != nil {
			return err
		}
		got, err := p.read(keyName(i), buf)
		r.check(bytes.Equal(got, value))
		return err
	})
	if err != nil || !isEngine {
		return err
	}
	after, err := compacted(e)
	r.emit("w5", parameters, "disk_ratio", float64(after-before)/float64(done*size))
	return err
}

// compacted returns what the store takes on disk when there is nothing in it that it does not need.
func compacted(e engine) (int64, error) {
	if err := e.compact(); err != nil {
		return 0, err
	}
	return e.bytesOnDisk()
}
