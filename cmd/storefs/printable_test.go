package main

import (
	"bytes"
	"errors"
	"log"
	"testing"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"key \"a b\": ünïcode 世界":      "key \"a b\": ünïcode 世界",
		"\x1b[31mred":                  `\x1b[31mred`,
		"a\tb\r\x00\x7f":               `a\tb\r\x00\x7f`,
		"no UTF-8: \xff\x9b2J":         `no UTF-8: \xff\x9b2J`,
		"C1: \u009b2J":                 `C1: \u009b2J`,
		"right to left: \u202egpj.exe": `right to left: \u202egpj.exe`,
		`back\slash 'quote'`:           `back\slash 'quote'`,
		"replacement \ufffd":           "replacement \ufffd",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

// An error and a line of the log are one printable line, whatever the names in them are.
func TestErrorsAreOneLine(t *testing.T) {
	var b bytes.Buffer
	printError(&b, "get", errors.Join(errors.New("file a\x1b[2J\nb\r"), errors.New("c")))
	if got, want := b.String(), `storefs: get: file a\x1b[2J; b; c`+"\n"; got != want {
		t.Errorf("error %q, not %q", got, want)
	}
	b.Reset()
	log.New(printableWriter{&b}, "storefs: ", 0).Printf("%s: not published", "a\x1b[2J\nstoreds: forged")
	if got, want := b.String(), `storefs: a\x1b[2J\nstoreds: forged: not published`+"\n"; got != want {
		t.Errorf("log %q, not %q", got, want)
	}
}
