package history

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"
)

// Piece returns what one operation writes: a line with its name, its length and a checksum, and a body. The name has no space in it.
func Piece(name string, size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = name[i%len(name)] ^ byte(i>>8&1)
	}
	return append(fmt.Appendf(nil, "%s %d %08x\n", name, size, crc32.ChecksumIEEE(body)), body...)
}

// Names returns the names of the pieces that a value consists of, each whole, with a plus between them: "" for an empty value.
func Names(value []byte) (string, error) {
	var names []string
	for rest := value; len(rest) > 0; {
		line, body, ok := bytes.Cut(rest, []byte("\n"))
		var name string
		var size int
		var sum uint32
		if n, _ := fmt.Sscanf(string(line), "%s %d %x", &name, &size, &sum); !ok || n != 3 {
			return "", fmt.Errorf("torn: no piece begins at byte %d of %d", len(value)-len(rest), len(value))
		}
		if size > len(body) {
			return "", fmt.Errorf("torn: piece %s ends after %d bytes of %d", name, len(body), size)
		}
		if crc32.ChecksumIEEE(body[:size]) != sum {
			return "", fmt.Errorf("torn: piece %s, of %d bytes, is a mix", name, size)
		}
		names, rest = append(names, name), body[size:]
	}
	return strings.Join(names, "+"), nil
}
