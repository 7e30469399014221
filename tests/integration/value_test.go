package integration

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A value that proves itself: its length and the checksum of its body, then the body. Whoever reads it can tell a legal state
// from a mix, a part, or zeros.

// proof returns such a value of n bytes in all, at least 24.
func proof(n int, r *rand.Rand) []byte {
	body := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, n-20)
	for i := 0; i < len(body); i += 512 {
		body[i] = byte('A' + r.IntN(26))
	}
	return append(fmt.Appendf(nil, "%010d %08x\n", n, crc32.ChecksumIEEE(body)), body...)
}

// proven returns what is wrong with a value that was read; nil if it is whole.
func proven(b []byte) error {
	if len(b) < 20 {
		return fmt.Errorf("%d bytes: %q", len(b), b)
	}
	n, err := strconv.Atoi(string(b[:10]))
	if err != nil {
		return fmt.Errorf("no header: %q", b[:20])
	}
	if n != len(b) {
		return fmt.Errorf("%d bytes of %d", len(b), n)
	}
	if sum := fmt.Sprintf("%08x", crc32.ChecksumIEEE(b[20:])); sum != string(b[11:19]) {
		return fmt.Errorf("%d bytes are a mix (%d zeros)", n, bytes.Count(b, []byte{0}))
	}
	return nil
}

// sizes of values: inline in HEAD, at the edges of pages, in volumes, larger than the kernel's requests.
var sizes = []int{24, 100, 3000, 4096, 5000, 20000, 65536, 130001, 600000}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func itoa(n int) string { return strconv.Itoa(n) }

func replaceAll(s, old, new string) string { return strings.ReplaceAll(s, old, new) }
