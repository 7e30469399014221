package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

// grownSize is the length of a value of w3.
const grownSize = 500

// grown returns a value that begins with the number of its key.
func grown(i int) []byte {
	b := sized(grownSize)
	copy(b, fmt.Sprintf("%08d\n", i))
	return b
}

func (r *run) w3(ctx context.Context) error {
	for _, n := range r.Growth {
		if err := r.growth(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// growth measures among n keys, in a directory of their own.
func (r *run) growth(ctx context.Context, n int) (err error) {
	p, err := r.spec.in(fmt.Sprintf("storefs-bench-w3-%d", n)).open()
	if err != nil {
		return err
	}
	defer func() {
		if !r.Keep {
			err = errors.Join(err, p.remove())
		}
		err = errors.Join(err, p.close())
	}()
	parameters := fmt.Sprintf("keys=%d", n)
	if err := r.load(ctx, p, parameters, n); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	buf := make([]byte, 2*grownSize)
	read := func(int) error {
		i := rng.IntN(n)
		value, err := p.read(keyName(i), buf)
		r.check(len(value) == grownSize && string(value[:8]) == fmt.Sprintf("%08d", i))
		return err
	}
	update := func(int) error {
		i := rng.IntN(n)
		return p.write(keyName(i), grown(i))
	}
	added := 0
	add := func(i int) error { added++; return p.write(keyName(n+i), grown(n+i)) }
	drop := func(i int) error { return p.unlink(keyName(n + i)) }
	if e, ok := p.(engine); ok {
		if err := r.opening(ctx, p, e, parameters); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		metric string
		most   int
		fn     func(int) error
	}{{"read_us", 20000, read}, {"update_us", 20000, update}, {"insert_us", 2000, add}} {
		if _, err := r.timed(ctx, "w3", parameters, part.metric, part.most, part.fn); err != nil {
			return err
		}
	}
	for i := range added {
		if err := drop(i); err != nil {
			return err
		}
	}
	return nil
}

// load makes the keys that are not there.
func (r *run) load(ctx context.Context, p place, parameters string, n int) error {
	if _, err := p.read(keyName(n-1), make([]byte, 2*grownSize)); err == nil {
		return nil
	}
	const step = 10 * perCommit
	began := now()
	for i := 0; i < n; i += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.fill(i, min(n, i+step), grown); err != nil {
			return err
		}
	}
	r.emit("w3", parameters, "load_us", float64(now()-began)/1000/float64(n))
	return nil
}

// opening measures what it costs to begin: to open the store and read one key.
func (r *run) opening(ctx context.Context, p place, e engine, parameters string) error {
	buf := make([]byte, 2*grownSize)
	_, err := r.timed(ctx, "w3", parameters, "open_us", 100, func(int) error {
		if err := e.reopen(); err != nil {
			return err
		}
		_, err := p.read(keyName(0), buf)
		return err
	})
	return err
}
