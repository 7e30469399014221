package filestore

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore/disk"
)

func sampleRecs() []rec {
	e := backend.Entry{Ref: ref("name"), Kind: backend.File, Ino: 7, Attr: backend.Attr{Mode: 0o4755, UID: 1, GID: 2, Atime: -3, Mtime: 4,
		Xattrs: map[string]string{"user.a": "x", "user.b": ""}}, Ctime: 5, Size: 5, Revision: 9}
	long := e
	long.Name, long.Size = "other", 70000
	dir := e
	dir.Name, dir.Kind = "dir", backend.Dir
	link := e
	link.Name, link.Kind, link.Target = "sym", backend.Symlink, "to"
	return []rec{
		volumeRec(12, 3456, 9), entryRec(&dir, &locator{}), tombRec(1, "gone", 8), entryRec(&e, &locator{inline: []byte("value")}),
		entryRec(&long, &locator{exts: []extent{{1, 2, 60000, 4}, {5, 6, 10000, 7}}}), entryRec(&link, &locator{}), parentRec(7, ref("dir"), 9),
	}
}

func FuzzRecord(f *testing.F) {
	for _, r := range sampleRecs() {
		f.Add([]byte(r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := cutRec(b)
		if err != nil {
			return
		}
		if len(r)+len(rest) != len(b) {
			t.Fatal("lengths")
		}
		var again rec
		switch k := r.kind(); {
		case k == recParent:
			ref, err := r.parent()
			if err != nil {
				return
			}
			again = parentRec(r.dir(), ref, r.rev())
		case k == recVolume:
			id, n, err := r.volume()
			if err != nil {
				return
			}
			again = volumeRec(id, n, r.rev())
		case r.isEntry():
			e, err := r.entry()
			if err != nil {
				return
			}
			again = entryRec(&e, locatorOf(&e))
		default:
			return
		}
		if !bytes.Equal(again, r) {
			t.Fatalf("%x\n%x", []byte(r), []byte(again))
		}
	})
}

func FuzzHead(f *testing.F) {
	h := &head{gen: 3, seq: 4, nextID: 5, tabs: []tabInfo{{1, 2, 3, 4, 5}}, vols: []volInfo{{2, 3, 1}}}
	h.merge(sampleRecs())
	f.Add(h.encode(nil))
	f.Add((&head{}).encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		if n, err := headLength(b, "x"); err == nil && n <= len(b) { // let the fuzzer past the checksum
			le.PutUint32(b[n-4:], checksum(b[:n-4]))
		}
		h, err := decodeHead(b, "x")
		if err != nil {
			return
		}
		if again := h.encode(nil); !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("%x\n%x", b, again)
		}
		for i, r := range h.recs {
			if k, ok := h.find(r.dir(), string(r.name())); !ok || k != i {
				t.Fatal("not found:", i)
			}
		}
	})
}

// encodeTable returns the bytes of a table.
func encodeTable(t testing.TB, recs []rec) []byte {
	var d *disk.Disk
	f, err := d.Open(filepath.Join(t.TempDir(), "t"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := newTableWriter(f, bufio.NewWriter(nil), 1)
	for _, r := range recs {
		if err := w.add(r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.finish(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzTable takes block, index and footer apart.
func FuzzTable(f *testing.F) {
	b := encodeTable(f, sampleRecs())
	end := len(b) - footerSize
	m, x, err := decodeFooter(b[end:], uint64(end))
	if err != nil {
		f.Fatal(err)
	}
	_ = m
	f.Add(b[:x.indexOff-4], b[x.indexOff:x.indexOff+x.indexLen], b[end:])
	f.Fuzz(func(t *testing.T, block, index, foot []byte) {
		if recs, err := decodeBlock(block); err == nil {
			if again := bytes.Join(byteSlices(recs), nil); !bytes.Equal(again, block) {
				t.Fatal("block")
			}
		}
		for n := range uint64(4) {
			if ix, err := decodeIndex(index, n, uint64(len(block))); err == nil && !bytes.Equal(encodeIndex(ix), index) {
				t.Fatal("index")
			}
		}
		if n := len(foot); n >= 4 {
			foot = bytes.Clone(foot)
			le.PutUint32(foot[n-4:], checksum(foot[:n-4]))
		}
		decodeFooter(foot, uint64(len(block)+len(index)))
	})
}

func byteSlices(recs []rec) [][]byte {
	var out [][]byte
	for _, r := range recs {
		out = append(out, r)
	}
	return out
}

func FuzzNamed(f *testing.F) {
	n := named{gen: 1, seq: 2, nextID: 3, made: 4, length: headFixed + 4, name: 5}
	f.Add(n.encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNamed(b, "x")
		if err != nil {
			return
		}
		if again := n.encode(nil); !bytes.Equal(again, b[:namedFixed]) {
			t.Errorf("%x became %x", b[:namedFixed], again)
		}
	})
}
