package history

import (
	"strings"
	"testing"
	"time"
)

func TestPiecesProveThemselves(t *testing.T) {
	a, b := Piece("a.1", 10), Piece("b.2", 5000)
	both := append(append([]byte{}, a...), b...)
	for _, c := range []struct {
		name, want string
		value      []byte
		torn       bool
	}{
		{"nothing", "", nil, false},
		{"one", "a.1", a, false},
		{"two", "a.1+b.2", both, false},
		{"the first half", "", a[:len(a)-3], true},
		{"the second half", "", a[3:], true},
		{"a hole", "", append(append([]byte{}, a[:len(a)-2]...), b...), true},
		{"zeros", "", make([]byte, 100), true},
		{"a mix", "", append(append([]byte{}, b[:3000]...), Piece("c.3", 5000)[3000:]...), true},
		{"no end", "", append(append([]byte{}, b...), 'x'), true},
	} {
		got, err := Names(c.value)
		if (err != nil) != c.torn || err == nil && got != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// script makes records of lines "start end mount verb key [to] outcome [piece]", where what was seen of the key is the piece of a read.
func script(t *testing.T, text string) (all []Record) {
	t.Helper()
	for text := range strings.Lines(strings.TrimSpace(text)) {
		var r Record
		w := strings.Fields(text)
		number := func(s string) int { return int(s[0] - '0') }
		r.Start, r.End = int64(number(w[0])), int64(number(w[1]))
		r.Op = Op{Mount: number(w[2]), Verb: Verb(w[3])}
		rest := w[4:]
		switch r.Op.Verb {
		case List, Snapshot, Change:
		case Together:
			r.Op.Keys, rest = []int{number(rest[0]), number(rest[1])}, rest[2:]
		case Rename:
			r.Op.Key, r.Op.To, rest = number(rest[0]), number(rest[1]), rest[2:]
		default:
			r.Op.Key, rest = number(rest[0]), rest[1:]
		}
		r.Result.Outcome, rest = Outcome(rest[0]), rest[1:]
		for i, v := range rest {
			switch r.Op.Verb {
			case Read:
				r.Result.Seen[r.Op.Key] = v
			case List, Snapshot, Change:
				r.Result.Seen[i] = strings.Trim(v, "-")
			case Modify:
				r.Op.Piece, r.Result.Seen[r.Op.Key] = rest[0], rest[1]
			default:
				r.Op.Piece = v
			}
		}
		if r.Op.Verb == Change { // keys 0 and 1, by c
			r.Op.Keys, r.Op.Piece = []int{0, 1}, "c"
		}
		all = append(all, r)
	}
	return all
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		legal bool
		text  string
	}{
		{"a read sees what was written before", true, "1 2 0 write 0 done a\n3 4 1 read 0 done a"},
		{"a stale read", false, "1 2 0 write 0 done a\n3 4 0 write 0 done b\n5 6 1 read 0 done a"},
		{"a stale read beside the write", true, "1 2 0 write 0 done a\n3 6 0 write 0 done b\n4 5 1 read 0 done a"},
		{"two reads that disagree on the order", false, "1 2 0 write 0 done a\n3 9 0 write 0 done b\n4 5 1 read 0 done b\n6 7 1 read 0 done a"},
		{"a lost append", false, "1 2 0 append 0 done a\n3 4 1 append 0 done b\n5 6 0 read 0 done b"},
		{"an append twice", false, "1 2 0 append 0 done a\n3 4 0 read 0 done a+a"},
		{"appends", true, "1 4 0 append 0 done a\n2 3 1 append 0 done b\n5 6 0 read 0 done b+a"},
		{"a key that comes back", false, "1 2 0 write 0 done a\n3 4 1 remove 0 done\n5 6 1 read 0 done a"},
		{"a removed key", true, "1 2 0 write 0 done a\n3 4 1 remove 0 done\n5 6 1 read 0 absent"},
		{"removed twice", false, "1 2 0 write 0 done a\n3 6 1 remove 0 done\n3 6 0 remove 0 done"},
		{"a killed writer that was heard of", true, "1 2 0 write 0 done a\n3 4 0 write 0 unknown b\n5 6 1 read 0 done b"},
		{"a killed writer that was not", true, "1 2 0 write 0 done a\n3 4 0 write 0 unknown b\n5 6 1 read 0 done a"},
		{"a killed writer that comes late", false, "1 2 0 write 0 done a\n3 4 0 write 0 unknown b\n5 6 1 read 0 done a\n7 8 1 read 0 done b"},
		{"modified", true, "1 2 0 write 0 done a\n3 4 0 modify 0 done b a\n5 6 1 read 0 done b"},
		{"modified what was replaced", false, "1 2 0 write 0 done a\n3 4 1 write 0 done b\n5 6 0 modify 0 done c a"},
		{"modified over another's change", false, "1 2 0 write 0 done a\n3 8 0 modify 0 done c a\n4 5 1 write 0 done b\n9 9 1 read 0 done c"},
		{"modifying noticed a change", true, "1 2 0 write 0 done a\n3 8 0 modify 0 stale\n4 5 1 write 0 done b\n6 7 1 read 0 done b"},
		{"a moved value", true, "1 2 0 write 0 done a\n3 4 1 rename 0 1 done\n5 6 1 list done - there - -\n7 8 0 read 1 done a"},
		{"a value at two places", false, "1 2 0 write 0 done a\n3 8 1 rename 0 1 done\n4 5 1 read 1 done a\n6 7 0 read 0 done a"},
		{"a listing of a value at two places", false, "1 2 0 write 0 done a\n3 8 1 rename 0 1 done\n4 5 1 list done there there - -"},
		{"an open file that is moved", true, "1 2 0 write 0 done a\n3 8 0 write 0 done b\n4 5 0 rename 0 1 done\n6 7 0 read 1 done a\n9 9 0 read 1 done b"},
		{"an open file that is moved through another mount", false, "1 2 0 write 0 done a\n3 8 0 write 0 done b\n4 5 1 rename 0 1 done\n6 7 0 read 1 done a\n9 9 0 read 1 done b"},
		{"an open file that is unlinked", true, "1 2 0 write 0 done a\n3 8 0 write 0 done b\n4 5 0 remove 0 done\n9 9 0 read 0 absent"},
		{"half of what was published together", false, "1 2 0 write 0 done a\n3 8 0 together 0 1 done b\n4 5 1 snapshot done b - - -"},
		{"a snapshot of two moments", false, "1 2 0 write 0 done a\n3 4 0 write 0 done b\n5 6 0 write 1 done c\n3 7 1 snapshot done a c - -"},
		{"a snapshot", true, "1 2 0 write 0 done a\n3 4 0 write 0 done b\n5 6 0 write 1 done c\n3 7 1 snapshot done b c - -"},
		{"a transaction on what was read", true, "1 2 0 write 0 done a\n3 4 0 change done a - - -\n5 6 0 read 1 done c"},
		{"a transaction on what was replaced", false, "1 2 0 write 0 done a\n3 4 0 write 0 done b\n5 6 0 change done a - - -"},
		{"write skew", false, "1 2 0 write 3 done a\n3 6 0 change done - - - a\n3 6 1 change done - - - a"},
		{"a transaction that found a conflict", true, "1 2 0 write 0 done a\n3 4 0 change stale\n5 6 0 read 0 done a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v := Check(script(t, c.text), time.Minute); v.Legal != c.legal || v.Unknown {
				t.Errorf("legal: %v, unknown: %v\n%s", v.Legal, v.Unknown, v.Why)
			}
		})
	}
}

// A client that is killed leaves a start without an end.
func TestLogOfTheKilled(t *testing.T) {
	text := `{"Time":1,"Start":{"Verb":"write","Mount":0,"Key":1,"Piece":"a.1"}}
{"Time":3,"End":{"Outcome":"done"}}
{"Time":5,"Start":{"Verb":"append","Mount":1,"Key":2,"Piece":"a.2"}}
`
	all, err := ReadLog(strings.NewReader(text), "a", 9)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if r := all[1]; r.Result.Outcome != Unknown || r.Start != 5 || r.End != 9 || r.Op.Piece != "a.2" || r.Client != "a" {
		t.Error(r)
	}
	if bad := Failures(all); len(bad) > 0 {
		t.Error(bad)
	}
}
