package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/storefs/storefs/backend"
)

// A key is any sequence of bytes; the slashes in it make directories of a mount. The names between them are those of files, but for those
// that a path cannot hold. These are shown escaped:
//
//	empty                      .%
//	.                          .%.
//	..                         .%..
//	a NUL x                    .%a%00x      two hexadecimal digits for NUL and % (and for a + that comes first)
//	300 times a                .%+aaa…/.%a… a name of 253 to 255 bytes that begins with .%+ goes on in the next
//	.%.                        .%.%25.      what would be taken for an escaped name
//
// Every other name is itself: also one that begins with .% and is not what this makes of any.
const (
	reserved   = ".storefs" // at the root: there a mount shows its own files
	escapeMark = ".%"
	chunkMark  = ".%+" // a name that goes on in the next one
)

// minChunk is the length of the shortest name with chunkMark that goes on: the next byte, escaped, would not fit.
const minChunk = backend.MaxName - 2

// keyPath returns the path at which key stands in the store: names that backend.ValidName holds for, separated by slashes. No two keys
// have the same.
func keyPath(key string) (string, error) {
	if key == reserved || strings.HasPrefix(key, reserved+"/") {
		return "", fmt.Errorf("key %q: %s at the root is reserved", key, reserved)
	}
	plain := true
	for name := range strings.SplitSeq(key, "/") {
		plain = plain && !needsEscape(name)
	}
	if plain {
		return key, nil
	}
	var names []string
	for name := range strings.SplitSeq(key, "/") {
		names = appendNames(names, name)
	}
	return strings.Join(names, "/"), nil
}

// pathKey returns the key that stands at path.
func pathKey(path string) string {
	if !strings.Contains(path, escapeMark) {
		return path
	}
	names := strings.Split(path, "/")
	var parts []string
	for len(names) > 0 {
		var n int
		parts, n = appendPart(parts, names)
		names = names[n:]
	}
	return strings.Join(parts, "/")
}

// appendNames appends the names that show one part of a key.
func appendNames(names []string, part string) []string {
	if !needsEscape(part) {
		return append(names, part)
	}
	for {
		name, n := escape(escapeMark, part)
		if n == len(part) {
			return append(names, name)
		}
		name, n = escape(chunkMark, part)
		names, part = append(names, name), part[n:]
	}
}

// escape returns mark and as much of part, escaped, as fits a name, and how many bytes of part that is.
func escape(mark, part string) (name string, n int) {
	var b strings.Builder
	b.WriteString(mark)
	for ; n < len(part); n++ {
		c := part[n]
		hex := c == 0 || c == '%' || c == '+' && b.Len() == len(escapeMark)
		switch {
		case hex && b.Len()+3 <= backend.MaxName:
			fmt.Fprintf(&b, "%%%02X", c)
		case !hex && b.Len() < backend.MaxName:
			b.WriteByte(c)
		default:
			return b.String(), n
		}
	}
	return b.String(), n
}

// unescape undoes escape; false for what it does not make.
func unescape(mark, name string) (string, bool) {
	var b strings.Builder
	for rest := name[len(mark):]; rest != ""; {
		n := 1
		switch {
		case rest[0] != '%':
			b.WriteByte(rest[0])
		case strings.HasPrefix(rest, "%00"):
			n = 3
			b.WriteByte(0)
		case strings.HasPrefix(rest, "%25"):
			n = 3
			b.WriteByte('%')
		case strings.HasPrefix(rest, "%2B"):
			n = 3
			b.WriteByte('+')
		default:
			return "", false
		}
		rest = rest[n:]
	}
	again, n := escape(mark, b.String())
	return b.String(), again == name && n == b.Len()
}

// needsEscape says whether a part of a key cannot be a name as it is.
func needsEscape(part string) bool {
	return backend.ValidName(part) != nil || strings.HasPrefix(part, escapeMark) && (isChunk(part) || isEscaped(part))
}

func isChunk(name string) bool { return strings.HasPrefix(name, chunkMark) && len(name) >= minChunk }

// isEscaped says whether name, which is valid, is what escaping makes of a part that needs it.
func isEscaped(name string) bool {
	if !strings.HasPrefix(name, escapeMark) {
		return false
	}
	part, ok := unescape(escapeMark, name)
	return ok && needsEscape(part)
}

// appendPart appends the part of a key that the first names show, and returns how many these are. Where they begin like a long name but do not
// go on as one does, they are parts by themselves.
func appendPart(parts, names []string) ([]string, int) {
	var pieces []string
	for n, name := range names {
		chunk := isChunk(name)
		mark := escapeMark
		if chunk {
			mark = chunkMark
		}
		piece, ok := "", false
		if strings.HasPrefix(name, mark) {
			piece, ok = unescape(mark, name)
		}
		part := strings.Join(pieces, "") + piece
		switch {
		case ok && chunk:
			pieces = append(pieces, piece)
			continue
		case ok && needsEscape(part) && slices.Equal(appendNames(nil, part), names[:n+1]):
			return append(parts, part), n + 1
		case n > 0: // a chunk without an end
			return append(parts, names[:n]...), n
		}
		return append(parts, name), 1
	}
	return append(parts, names...), len(names)
}
