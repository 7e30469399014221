package filestore

import (
	"bytes"
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

// TestFormatDocument decodes the worked example of docs/format.md.
func TestFormatDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	var file []byte
	for _, m := range regexp.MustCompile(`(?m)^    [0-9a-f]{8}: ((?:[0-9a-f]{2} )+)`).FindAllSubmatch(text, -1) {
		b, err := hex.DecodeString(strings.ReplaceAll(string(m[1]), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		file = append(file, b...)
	}
	n, err := decodeNamed(file, "example")
	if err != nil {
		t.Fatal(err)
	}
	h, err := decodeHead(file[namedFixed:], "example")
	if err != nil {
		t.Fatal(err)
	}
	if n.length != uint64(len(file)-namedFixed) || n.name != checksum([]byte("monday")) || n.gen != 1 || h.gen != 1 || h.seq != 4 || len(h.recs) != 3 {
		t.Errorf("%+v, %+v", n, h)
	}
	if again := append(n.encode(nil), h.encode(nil)...); !bytes.Equal(again, file) {
		t.Error("encoded again it is something else")
	}
	i, ok := h.find(1, "greeting")
	if !ok {
		t.Fatal("no greeting")
	}
	e, err := h.recs[i].entry()
	if err != nil || e.Kind != backend.File || e.Mode != 0o644 || string(locatorOf(&e).inline) != "hello\n" {
		t.Errorf("%+v, %v", e, err)
	}
}
