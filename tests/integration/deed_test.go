package integration

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/storefs/storefs/backend"
)

func init() {
	roles["deeds"] = func(args []string) error { return doDeeds(args[0], args[1]) }
}

// deed is one commit's change of the files in a folder, or of the snapshots of it.
type deed struct {
	verb  deedVerb
	name  string // of the file or snapshot
	to    string // of move
	value string // of replace, extend
	all   files  // of together
}

type deedVerb string

const (
	replace  deedVerb = "replace"  // the value of a file, which may be new
	extend   deedVerb = "extend"   // a file, which may be new, by a piece at its end
	remove   deedVerb = "remove"   // a file
	move     deedVerb = "move"     // a file, over another one
	together deedVerb = "together" // replace several at once
	keep     deedVerb = "keep"     // a snapshot is made
	forget   deedVerb = "forget"   // a snapshot is removed
	nothing  deedVerb = "nothing"  // changes none of this
)

// files are the files of a folder and their values.
type files map[string]string

// state is a folder, and snapshots of it by their names.
type state struct {
	files files
	kept  map[string]files
}

// names of the files of a folder; e is a directory that is always there.
var names = []string{"a", "b", "c", "e/a", "e/b"}

// after returns what d makes of s.
func (s state) after(d deed) state {
	f, kept := maps.Clone(s.files), maps.Clone(s.kept)
	switch d.verb {
	case replace:
		f[d.name] = d.value
	case extend:
		f[d.name] += d.value
	case remove:
		delete(f, d.name)
	case move:
		f[d.to] = f[d.name]
		delete(f, d.name)
	case together:
		maps.Copy(f, d.all)
	case keep:
		kept[d.name] = s.files
	case forget:
		delete(kept, d.name)
	}
	return state{f, kept}
}

// next returns a deed of one of the verbs that can be done to s; of another one if it is not possible.
func (s state) next(r *rand.Rand, verbs ...deedVerb) deed {
	d := deed{verb: verbs[r.IntN(len(verbs))], name: names[r.IntN(len(names))]}
	there := slices.Sorted(maps.Keys(s.files))
	switch d.verb {
	case replace:
		d.value = string(proof(sizes[r.IntN(len(sizes))], r))
	case extend:
		d.value = string(proof(24+r.IntN(5000), r))
	case remove:
		if len(there) == 0 {
			return deed{verb: nothing}
		}
		d.name = there[r.IntN(len(there))]
	case move:
		if i := slices.Index(there, d.name); i >= 0 { // to itself rename(2) does nothing
			there = slices.Delete(there, i, i+1)
		}
		if len(there) == 0 {
			return deed{verb: nothing}
		}
		d.name, d.to = there[r.IntN(len(there))], d.name
	case together:
		d.all = files{}
		for _, n := range names[r.IntN(3):] {
			d.all[n] = string(proof(24+r.IntN(200), r))
		}
	case keep:
		if len(s.kept) == 3 {
			return deed{verb: nothing}
		}
		d.name = fmt.Sprintf("s%x", r.Uint64())
	case forget:
		if len(s.kept) == 0 {
			return deed{verb: nothing}
		}
		d.name = slices.Sorted(maps.Keys(s.kept))[r.IntN(len(s.kept))]
	}
	return d
}

// do does d in a folder of a mount with system calls; it returns nil only if every one of them did.
func (d deed) do(folder string) error {
	at := path.Join(folder, d.name)
	switch d.verb {
	case replace:
		return inPieces(at, os.O_TRUNC|os.O_CREATE, []byte(d.value), 50_000)
	case extend:
		return inPieces(at, os.O_APPEND|os.O_CREATE, []byte(d.value), 3000)
	case remove:
		return os.Remove(at)
	case move:
		return os.Rename(at, path.Join(folder, d.to))
	}
	return fmt.Errorf("%s is nothing to do with one call", d.verb)
}

// singles are the verbs that do can do.
var singles = []deedVerb{replace, extend, remove, move}

// chain returns the deeds that the role "deeds" does to a folder, with a seed.
func (s state) chain(seed uint64) (all []deed) {
	r := seeded(seed)
	for range 60 {
		if d := s.next(r, singles...); d.verb != nothing {
			all, s = append(all, d), s.after(d)
		}
	}
	return all
}

// doDeeds does the chain of a seed to what is in a folder, and prints a dot whenever a deed was acknowledged.
func doDeeds(folder, seed string) error {
	f, err := filesIn(os.DirFS(folder))
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	for i, d := range (state{files: f}).chain(n) {
		if err := d.do(folder); err != nil {
			return fmt.Errorf("deed %d, %s %s %s: %w", i, d.verb, d.name, d.to, err)
		}
		if _, err := os.Stdout.WriteString("."); err != nil {
			return err
		}
	}
	return nil
}

// filesIn reads all files below a directory.
func filesIn(dir fs.FS) (files, error) {
	f := files{}
	err := fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := fs.ReadFile(dir, name)
		f[name] = string(b)
		return err
	})
	return f, err
}

// filesOf reads the files below a folder of a snapshot, by the library.
func filesOf(s backend.Snapshot, folder string) (files, error) {
	f := files{}
	return f, f.add(s, folder, "")
}

func (f files) add(s backend.Snapshot, folder, prefix string) error {
	dir, err := backend.Walk(s, folder)
	if err != nil {
		return err
	}
	for e, err := range s.List(dir.Ino, "") {
		if err == nil && e.Kind == backend.Dir {
			err = f.add(s, folder+"/"+e.Name, prefix+e.Name+"/")
		} else if err == nil {
			var b []byte
			b, err = backend.ReadFile(s, folder+"/"+e.Name)
			f[prefix+e.Name] = string(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// differs names what is different in wanted; "" if nothing is.
func (f files) differs(wanted files) string {
	var s []string
	for n := range f {
		if _, ok := wanted[n]; !ok {
			s = append(s, fmt.Sprintf("%s is there, %s", n, short(f[n])))
		}
	}
	for n, v := range wanted {
		if got, ok := f[n]; !ok {
			s = append(s, n+" is not there")
		} else if got != v {
			s = append(s, fmt.Sprintf("%s is %s, not %s", n, short(got), short(v)))
		}
	}
	return strings.Join(s, "; ")
}

func (s state) differs(wanted state) string {
	if d := s.files.differs(wanted.files); d != "" {
		return d
	}
	for n := range s.kept {
		if _, ok := wanted.kept[n]; !ok {
			return "snapshot " + n + " is there"
		}
	}
	for n, f := range wanted.kept {
		if got, ok := s.kept[n]; !ok {
			return "snapshot " + n + " is not there"
		} else if d := got.differs(f); d != "" {
			return "snapshot " + n + ": " + d
		}
	}
	return ""
}

// program is a way to do a deed: a command line and its standard input. Each is one process, or ends what it began.
type program struct {
	name    string
	verbs   []deedVerb
	dying   bool // may be done through the mount whose daemon is killed as well
	command func(p place, d deed) (argv []string, stdin string)
}

// place is where a program does its deed: a folder of a store that is mounted. spare is another mountpoint.
type place struct{ store, mount, folder, spare string }

func (p place) path(name string) string { return p.mount + "/" + p.folder + "/" + name }

func (p place) key(name string) string { return p.folder + "/" + name }

const pythonWrites = `
import sys
with open(sys.argv[1], "wb") as f: f.write(sys.stdin.buffer.read())`

const shellWritesAll = `while [ $# -gt 0 ]; do /bin/echo -n "$2" > "$1"; shift 2; done`

// programs do deeds by the command line and through mounts.
var programs = []program{
	{"put", []deedVerb{replace}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "put", p.store, p.key(d.name)}, d.value
	}},
	{"rm", []deedVerb{remove}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "rm", p.store, p.key(d.name)}, ""
	}},
	{"mv", []deedVerb{move}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "mv", p.store, p.key(d.name), p.key(d.to)}, ""
	}},
	{"apply", []deedVerb{together}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "apply", p.store}, d.records(p)
	}},
	{"import", []deedVerb{together}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "import", p.store}, d.archive(p)
	}},
	{"txn of the store", []deedVerb{together}, false, func(p place, d deed) ([]string, string) {
		return append([]string{binary, "txn", p.store, "--", "sh", "-ec", shellWritesAll, "sh"}, d.pairs(p)...), ""
	}},
	{"txn of the mount", []deedVerb{together}, true, func(p place, d deed) ([]string, string) {
		return append([]string{binary, "txn", p.mount, "--", "sh", "-ec", shellWritesAll, "sh"}, d.pairs(p)...), ""
	}},
	{"dd", []deedVerb{replace}, true, func(p place, d deed) ([]string, string) {
		return []string{"dd", "of=" + p.path(d.name), "bs=64k", "status=none"}, d.value
	}},
	{"echo >>", []deedVerb{extend}, true, func(p place, d deed) ([]string, string) {
		return []string{"sh", "-c", `exec /bin/echo -n "$1" >> "$2"`, "sh", d.value, p.path(d.name)}, ""
	}},
	{"python", []deedVerb{replace}, true, func(p place, d deed) ([]string, string) {
		return []string{"python3", "-c", pythonWrites, p.path(d.name)}, d.value
	}},
	{"rm of the mount", []deedVerb{remove}, true, func(p place, d deed) ([]string, string) {
		return []string{"rm", p.path(d.name)}, ""
	}},
	{"mv of the mount", []deedVerb{move}, true, func(p place, d deed) ([]string, string) {
		return []string{"mv", "-f", p.path(d.name), p.path(d.to)}, ""
	}},
	{"compact", []deedVerb{nothing}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "compact", p.store}, ""
	}},
	{"snapshot create", []deedVerb{keep}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "snapshot", "create", p.store, p.folder + "-" + d.name}, ""
	}},
	{"mkdir of a snapshot", []deedVerb{keep}, true, func(p place, d deed) ([]string, string) {
		return []string{"mkdir", p.mount + "/.storefs/snapshots/" + p.folder + "-" + d.name}, ""
	}},
	{"snapshot rm", []deedVerb{forget}, false, func(p place, d deed) ([]string, string) {
		return []string{binary, "snapshot", "rm", p.store, p.folder + "-" + d.name}, ""
	}},
}

// holders hold something until they are killed. The mounts fail when they meet what an earlier one left.
var holders = []program{
	{"flock", []deedVerb{nothing}, true, func(p place, _ deed) ([]string, string) {
		return []string{"flock", p.mount + "/locked/" + p.folder, "sleep", "60"}, ""
	}},
	{"mount -f", []deedVerb{nothing}, false, func(p place, _ deed) ([]string, string) {
		return []string{binary, "mount", "-f", p.store, p.spare}, ""
	}},
	{"mount", []deedVerb{nothing}, false, func(p place, _ deed) ([]string, string) {
		return []string{binary, "mount", p.store, p.spare}, ""
	}},
	{"umount", []deedVerb{nothing}, false, func(p place, _ deed) ([]string, string) {
		return []string{binary, "umount", p.spare}, ""
	}},
}

// records returns the input of storefs apply.
func (d deed) records(p place) string {
	var b strings.Builder
	for n, v := range d.all {
		fmt.Fprintf(&b, "+%d,%d:%s->%s\n", len(p.key(n)), len(v), p.key(n), v)
	}
	return b.String() + "\n"
}

// archive returns the input of storefs import.
func (d deed) archive(p place) string {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for n, v := range d.all {
		err := t.WriteHeader(&tar.Header{Name: p.key(n), Size: int64(len(v)), Mode: 0o644, Typeflag: tar.TypeReg})
		_, werr := t.Write([]byte(v))
		if err := errors.Join(err, werr); err != nil {
			panic(err)
		}
	}
	t.Close()
	return b.String()
}

// pairs returns names and values as arguments.
func (d deed) pairs(p place) (args []string) {
	for n, v := range d.all {
		args = append(args, p.key(n), v)
	}
	return args
}
