package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
)

// w4 writes values of random sizes under 128 names: over the old one, and where there are files as a new one that is renamed.
func (r *run) w4(ctx context.Context) error {
	if err := r.rewrite(ctx, "overwrite_us", r.place.write); err != nil {
		return err
	}
	if f, ok := r.place.(files); ok {
		return r.rewrite(ctx, "rename_us", f.replace)
	}
	return nil
}

func (r *run) rewrite(ctx context.Context, metric string, write func(string, []byte) error) error {
	const names, longest = 128, 64 << 10
	rng := rand.New(rand.NewPCG(4, 4))
	last := map[string]int{}
	_, err := r.timed(ctx, "w4", "names=128,bytes=65536", metric, 20000, func(int) error {
		key, n := fmt.Sprintf("%d.txt", rng.IntN(names)), 16+rng.IntN(longest-16)
		last[key] = n
		return write(key, sized(n))
	})
	if err != nil {
		return err
	}
	buf := make([]byte, 2*longest)
	for key, n := range last {
		value, err := r.place.read(key, buf)
		if err != nil {
			return err
		}
		r.check(bytes.Equal(value, sized(n)))
	}
	return nil
}
