package bench

import (
	"bytes"
	"context"
	"fmt"
)

// w2 is a page of HTML of 10 KB and 200 lines.
func (r *run) w2(ctx context.Context) error {
	page := []byte("<!DOCTYPE html>\n")
	for i := 1; len(page) < 10<<10; i++ {
		page = fmt.Appendf(page, "<p id=\"l%03d\">%s\n", i, bytes.Repeat([]byte("page "), 8))
	}
	const key = "page"
	const parameters = "bytes=10240"
	page = page[:10<<10]
	if err := r.place.write(key, page); err != nil {
		return err
	}
	if _, err := r.timed(ctx, "w2", parameters, "write_us", 50000, func(int) error { return r.place.write(key, page) }); err != nil {
		return err
	}
	buf := make([]byte, 2*len(page))
	_, err := r.timed(ctx, "w2", parameters, "read_us", 20000, func(int) error {
		value, err := r.place.read(key, buf)
		r.check(bytes.Equal(value, page))
		return err
	})
	return err
}
