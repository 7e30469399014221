package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// counterSize is the length of a counter's value.
const counterSize = 100

// counter returns n in counterSize digits, so that no part of it is a value.
func counter(n int) []byte { return fmt.Appendf(nil, "%0*d", counterSize, n) }

var errTorn = errors.New("what was read is no counter")

func parseCounter(value []byte) (int, error) {
	n, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil || len(value) != counterSize {
		return 0, errTorn
	}
	return int(n), nil
}

// addOne changes a counter in place.
func addOne(value []byte) error {
	n, err := parseCounter(value)
	if err == nil {
		copy(value, counter(n+1))
	}
	return err
}

// random returns n bytes that do not compress. The same seed gives the same bytes.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)}).Read(b)
	return b
}

// sized returns n bytes that begin with n.
func sized(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
	}
	copy(b, fmt.Sprintf("%08d\n", n))
	return b
}
