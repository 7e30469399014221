package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// printable returns text as it can be shown on any terminal: what is no UTF-8 and what is not printable becomes an escape of Go, such as \x1b.
// Names are of anybody's choice.
func printable(text string) string {
	if isPrintable(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		text = text[n:]
	}
	return b.String()
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

// printableWriter makes each write, which is a line of a log, printable.
type printableWriter struct{ w io.Writer }

func (p printableWriter) Write(line []byte) (int, error) {
	_, err := io.WriteString(p.w, printable(string(bytes.TrimSuffix(line, []byte("\n"))))+"\n")
	return len(line), err
}
