package filestore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/storefs/storefs/backend"
)

// describe describes everything in a generation by its path: what it is, its attributes, and its value.
func describe(n backend.Snapshot) (map[string]string, error) {
	all := map[string]string{}
	return all, describeBelow(n, backend.RootIno, "", all)
}

func describeBelow(n backend.Snapshot, dir backend.Ino, path string, all map[string]string) error {
	for e, err := range n.List(dir, "") {
		if err != nil {
			return err
		}
		text, err := describeEntry(n, e)
		if err != nil {
			return err
		}
		all[path+e.Name] = text
		if e.Kind == backend.Dir {
			if err := describeBelow(n, e.Ino, path+e.Name+"/", all); err != nil {
				return err
			}
		}
	}
	return nil
}

func describeEntry(n backend.Snapshot, e backend.Entry) (string, error) {
	text := describeAttributes(e)
	if e.Kind != backend.File {
		return text, nil
	}
	b, err := read(n, e.Ref)
	return fmt.Sprintf("%s value %x", text, maphash.Bytes(hashSeed, b)), err
}

var hashSeed = maphash.MakeSeed()

func describeAttributes(e backend.Entry) string {
	return fmt.Sprintf("kind %d mode %o owner %d:%d times %d %d xattrs %v target %q size %d", e.Kind, e.Mode, e.UID, e.GID, e.Atime, e.Mtime, e.Xattrs, e.Target, e.Size)
}

// contentsOf describes the newest generation of a store, and each of its snapshots, whose names end with a colon.
func contentsOf(t testing.TB, dir string) map[string]map[string]string {
	t.Helper()
	s, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := snap(t, s)
	defer n.Close()
	all := map[string]map[string]string{}
	if all[""], err = describe(n); err != nil {
		t.Fatal(err)
	}
	for _, name := range namesOf(t, s) {
		n, err := s.OpenSnapshot(bg, name)
		if err == nil {
			all[name], err = describe(n)
			n.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// repaired repairs a store and returns where, what was lost, and the result. The new store is whole.
func repaired(t testing.TB, src string) (string, []Loss, RepairResult) {
	t.Helper()
	before := filesOf(t, src)
	dst := filepath.Join(memoryDir(t), "repaired")
	var all []Loss
	r, err := Repair(bg, src, dst, &RepairOptions{Report: func(l Loss) { all = append(all, l) }})
	if err != nil {
		t.Fatal("repair:", err)
	}
	if !maps.Equal(before, filesOf(t, src)) {
		t.Error("the source has changed")
	}
	c := checkStore(t, dst)
	if c.Generation != r.Generation || c.Files != r.Files || c.Dirs != r.Dirs || c.Bytes != r.Bytes || c.Snapshots != r.Snapshots {
		t.Errorf("repair says %+v, check %+v", r, c)
	}
	return dst, all, r
}

// filesOf returns what is below a directory, with the content of files.
func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		all[path] = d.Type().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[path] = fmt.Sprintf("%x", sha256.Sum256(b))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sample fills a store with all kinds of content, in several tables and a HEAD with records, and three snapshots.
func sample(t testing.TB, s *Store) {
	t.Helper()
	attr := &backend.Attr{Mode: 0o4751, UID: 7, GID: 8, Atime: 1, Mtime: 2, Xattrs: map[string]string{"user.a": "x", "user.b": strings.Repeat("y", 300)}}
	c := deepDir(t, s)
	var b backend.Batch
	b.Put(backend.Ref{Dir: c, Name: "attributes"}, stageOf(t, s, pattern(500, 1)), attr, backend.AttrChange{})
	b.Symlink(ref("link"), "a/b/c", backend.Attr{Mode: 0o777})
	b.Mkdir(ref("empty"), backend.Attr{Mode: 0o2770, GID: 9})
	commit(t, s, &b)
	put(t, s, "solo", pattern(soloMin+1234, 2))
	for i := range 3 {
		appendTo(t, s, "pieces", pattern(9000>>(2*i), uint64(i)))
	}
	keep(t, s, "first")
	for i := range 60 {
		putIn(t, s, backend.Ref{Dir: c, Name: fmt.Sprintf("k%02d", i)}, pattern(i*50, uint64(i)))
	}
	keep(t, s, "second")
	var r backend.Batch
	r.Remove(backend.Ref{Dir: c, Name: "k07"})
	r.Rename(backend.Ref{Dir: c, Name: "k08"}, ref("moved"), 0)
	r.Rename(ref("a"), ref("z"), 0)
	commit(t, s, &r)
	put(t, s, "solo", pattern(soloMin+99, 3))
	for i := range 200 {
		put(t, s, fmt.Sprintf("n%03d", i), pattern(200, uint64(i)))
	}
	keep(t, s, "third")
	for i := range 20 {
		put(t, s, fmt.Sprintf("n%03d", i), pattern(1100+i, uint64(i)))
	}
	appendTo(t, s, "pieces", pattern(70000, 5))
	appendTo(t, s, "pieces", pattern(100, 6))
}

func TestRepairOfASoundStore(t *testing.T) {
	dir := closed(t, func(s *Store) { sample(t, s) })
	dst, losses, r := repaired(t, dir)
	if len(losses) > 0 {
		t.Error(losses)
	}
	if r.Snapshots != 3 || r.Files < 200 {
		t.Errorf("%+v", r)
	}
	want, got := contentsOf(t, dir), contentsOf(t, dst)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !maps.Equal(want[name], got[name]) {
			t.Errorf("%q differs", name)
		}
	}
	// It can be gone on with, also by a snapshot's removal.
	s := openTest(t, dst, Options{})
	put(t, s, "new", pattern(5000, 1))
	for _, n := range namesOf(t, s) {
		if err := s.RemoveSnapshot(bg, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Compact(bg); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	onlyNeeded(t, s)
}

func TestRepairNeedsAnEmptyFolder(t *testing.T) {
	dir := closed(t, func(s *Store) { put(t, s, "k", nil) })
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dst := range []string{full, dir} {
		if _, err := Repair(bg, dir, dst, nil); !errors.Is(err, backend.ErrNotEmpty) {
			t.Error(dst, err)
		}
	}
	if _, err := Repair(bg, full, filepath.Join(t.TempDir(), "d"), nil); !errors.Is(err, backend.ErrFormat) {
		t.Error("from no store:", err)
	}
	if _, err := Repair(bg, filepath.Join(full, "none"), filepath.Join(t.TempDir(), "d"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error("from nothing:", err)
	}
}

// lossesOf returns those of a kind, by key.
func lossesOf(all []Loss, kind LossKind) map[string]Loss {
	m := map[string]Loss{}
	for _, l := range all {
		if l.Kind == kind {
			k := ""
			if len(l.Keys) > 0 {
				k = l.Keys[0].Path
			}
			m[k] = l
		}
	}
	return m
}

func glob(t testing.TB, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	return files
}

func remove(t testing.TB, files ...string) {
	t.Helper()
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
}

// differ returns the keys of which a generation has something else than another.
func differ(want, got map[string]string) []string {
	all := map[string]bool{}
	for k, d := range want {
		if got[k] != d {
			all[k] = true
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			all[k] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func wantKeys(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, not %q", what, got, want)
	}
}

func TestRepairWithoutHEAD(t *testing.T) {
	dir := closed(t, func(s *Store) {
		for i := range 40 {
			put(t, s, fmt.Sprintf("k%02d", i), pattern(50*i, uint64(i)))
		}
		spill(t, s)
		put(t, s, "k01", []byte("newer"))
		put(t, s, "k02", []byte("newest"))
	})
	want := contentsOf(t, dir)[""]
	flip(t, filepath.Join(dir, "HEAD"), 300)
	dst, losses, _ := repaired(t, dir)
	// The newest spare is from before the last commit.
	wantKeys(t, "HEAD flipped", differ(want, contentsOf(t, dst)[""]), "k02")
	if d := lossesOf(losses, Damaged)[""]; len(losses) != 1 || d.Path != "HEAD" {
		t.Error(losses)
	}
	remove(t, append(glob(t, dir, "HEAD*"), filepath.Join(dir, "durable"))...)
	dst, losses, _ = repaired(t, dir)
	wantKeys(t, "tables alone", differ(want, contentsOf(t, dst)[""]), "k01", "k02")
	if len(losses) != 1 {
		t.Error(losses)
	}
	remove(t, glob(t, dir, "index/*")...)
	if _, err := Repair(bg, dir, filepath.Join(t.TempDir(), "d"), nil); !errors.Is(err, backend.ErrCorrupt) {
		t.Error("of nothing:", err)
	}
}

// What was merged and is still there does not bring back what was removed.
func TestRepairFromTablesKnowsWhatWasMerged(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s, err := Open(dir, &Options{Create: true, ManualMerge: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 40 {
		put(t, s, fmt.Sprintf("k%02d", i), pattern(50*i, uint64(i)))
	}
	spill(t, s)
	for i := range 20 {
		var b backend.Batch
		b.Remove(ref(fmt.Sprintf("k%02d", i)))
		commit(t, s, &b)
	}
	for range keepRemovals + 1 { // for so long removals stay on record
		put(t, s, "k20", []byte("x"))
	}
	spill(t, s)
	old := filesOf(t, filepath.Join(dir, "index"))
	content := map[string][]byte{}
	for f, what := range old {
		if len(what) == 64 {
			content[f], _ = os.ReadFile(f)
		}
	}
	if err := s.Compact(bg); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := contentsOf(t, dir)[""]
	for f, b := range content { // as if its remover had died
		if err := os.WriteFile(f, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, append(glob(t, dir, "HEAD*"), filepath.Join(dir, "durable"))...)
	dst, _, _ := repaired(t, dir)
	wantKeys(t, "tables alone", differ(want, contentsOf(t, dst)[""]))
}

func TestRepairOfATableWithoutIndex(t *testing.T) {
	for _, c := range []struct {
		name string
		hurt func(t *testing.T, path string, size, index int64)
		lost int // blocks
	}{
		{"index", func(t *testing.T, path string, size, index int64) { flip(t, path, index+20) }, 0},
		{"filter", func(t *testing.T, path string, size, index int64) { flip(t, path, size-footerSize-3) }, 0},
		{"footer", func(t *testing.T, path string, size, index int64) { flip(t, path, size-5) }, 0},
		{"all after the blocks", func(t *testing.T, path string, size, index int64) { os.Truncate(path, index) }, 0},
		{"the last byte", func(t *testing.T, path string, size, index int64) { os.Truncate(path, index-1) }, 1},
		{"index and a value", func(t *testing.T, path string, size, index int64) {
			flip(t, path, index+1)
			flip(t, path, 2*tableBlock)
		}, 1},
		{"footer and a value", func(t *testing.T, path string, size, index int64) { flip(t, path, size-1); flip(t, path, 2*tableBlock) }, 1},
		{"index and a length", func(t *testing.T, path string, size, index int64) { flip(t, path, index+1); flip(t, path, 3) }, 1},
		{"index and a block of zeros", func(t *testing.T, path string, size, index int64) {
			flip(t, path, index+20)
			b, _ := os.ReadFile(path)
			clear(b[2*tableBlock : 3*tableBlock])
			os.WriteFile(path, b, 0o666)
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := closed(t, func(s *Store) {
				for i := range 200 {
					put(t, s, fmt.Sprintf("k%03d", i), pattern(100+i%100, uint64(i)))
				}
				spill(t, s)
				if err := s.Compact(bg); err != nil {
					t.Fatal(err)
				}
			})
			want := contentsOf(t, dir)[""]
			path := glob(t, dir, "index/*")[0]
			s, err := inspect(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			id, _ := fileID(filepath.Base(path))
			l, err := s.survey(bg, id)
			if err != nil || len(l.blocks) < 6 {
				t.Fatal(l, err)
			}
			l.close()
			x := l.blocks[len(l.blocks)-1]
			c.hurt(t, path, int64(l.info.length), int64(x.off)+int64(x.n))
			dst, losses, _ := repaired(t, dir)
			missing := differ(want, contentsOf(t, dst)[""])
			if n := len(lossesOf(losses, Damaged)); n != min(c.lost, 1) {
				t.Errorf("losses %v", losses)
			}
			if most := c.lost * tableBlock / 150; len(missing) > most || c.lost > 0 && len(missing) == 0 {
				t.Errorf("%d keys missing, at most %d: %v", len(missing), most, missing)
			}
		})
	}
}

func TestRepairTakesAnOlderVersion(t *testing.T) {
	dir := closed(t, func(s *Store) {
		put(t, s, "k", pattern(3000, 1))
		put(t, s, "other", pattern(3000, 2))
		keep(t, s, "then")
		spill(t, s)
		put(t, s, "k", pattern(4000, 3))
		put(t, s, "new", pattern(4000, 4))
	})
	n := contentsOf(t, dir)
	flip(t, filepath.Join(dir, "data/0000000000000001"), 6100) // of the newer k
	flip(t, filepath.Join(dir, "data/0000000000000001"), -100) // of new
	dst, losses, r := repaired(t, dir)
	got := contentsOf(t, dst)
	wantKeys(t, "now", differ(n[""], got[""]), "k", "new")
	wantKeys(t, "then", differ(n["then"], got["then"]))
	if got[""]["k"] != n["then"]["k"] {
		t.Error("k:", got[""]["k"])
	}
	if o := lossesOf(losses, Older)["k"]; o.Generation != 1 || o.Path != "data/0000000000000001" || !strings.Contains(o.String(), "generation 1") {
		t.Error(o)
	}
	if l := lossesOf(losses, Lost)["new"]; l.Path != "data/0000000000000001" {
		t.Error(l)
	}
	if r.Losses[Older] != 1 || r.Losses[Lost] != 1 || len(losses) != 2 {
		t.Error(losses)
	}
	// The two versions are two, also by their numbers.
	s := openTest(t, dst, Options{})
	now := snap(t, s)
	defer now.Close()
	a, err := now.Lookup(ref("k"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := openNamed(t, s, "then").Lookup(ref("k"))
	if err != nil || a.Ino == b.Ino {
		t.Error(a.Ino, b.Ino, err)
	}
}

// A directory whose entry is lost is where it says itself that it was; one that is known by what is in it alone is in lost+found.
func TestRepairOfDirectories(t *testing.T) {
	fill := func(s *Store) {
		c := deepDir(t, s)
		put(t, s, lostFound, []byte("the user's own"))
		spill(t, s)
		for i := range 100 {
			putIn(t, s, backend.Ref{Dir: c, Name: fmt.Sprint("k", i)}, pattern(100, uint64(i)))
		}
		spill(t, s)
	}
	dir := closed(t, fill)
	want := contentsOf(t, dir)[""]
	remove(t, glob(t, dir, "index/*")[0])
	dst, losses, _ := repaired(t, dir)
	got := contentsOf(t, dst)[""]
	moved := slices.Collect(maps.Keys(lossesOf(losses, Moved)))
	if len(moved) != 1 || !strings.HasPrefix(moved[0], lostFound+"/") {
		t.Fatal(losses)
	}
	for i := range 100 {
		if k := fmt.Sprint("k", i); got[moved[0]+"c/"+k] != want["a/b/c/"+k] {
			t.Errorf("%s%s: %s", moved[0], k, got[moved[0]+"c/"+k])
		}
	}

	// Only the entry of b is lost, which stands in a block of its own.
	dir = closed(t, func(s *Store) {
		x := strings.Repeat("x", tableBlock)
		var b backend.Batch
		a := b.Mkdir(ref("a"), backend.Attr{Mode: 0o755, Xattrs: map[string]string{"user.x": x}})
		in := b.Mkdir(backend.Ref{Dir: a, Name: "b"}, backend.Attr{Mode: 0o711, Xattrs: map[string]string{"user.x": x}})
		b.Put(backend.Ref{Dir: in, Name: "k"}, stageOf(t, s, pattern(2000, 1)), newFile, backend.AttrChange{})
		commit(t, s, &b)
		spill(t, s)
	})
	want = contentsOf(t, dir)[""]
	path := glob(t, dir, "index/*")[0]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(strings.Index(string(b), "\x01\x00b"+string(rune(recDir))))
	flip(t, path, at)
	remove(t, glob(t, dir, "HEAD.*")...) // they still have the entry
	dst, losses, _ = repaired(t, dir)
	got = contentsOf(t, dst)[""]
	wantKeys(t, "bare", differ(want, got), "a/b")
	if l := lossesOf(losses, Bare); len(l) != 1 || l["a/b/"].Path != "index/"+filepath.Base(path) || l["a/b/"].Offset == 0 {
		t.Error(losses)
	}
	if !strings.HasPrefix(got["a/b"], fmt.Sprintf("kind %d mode 700 ", backend.Dir)) {
		t.Error(got["a/b"])
	}
}

// A store that is being written to is repaired as it is at one moment.
func TestRepairOfALiveStore(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := openTest(t, dir, Options{Interval: 1})
	for i := range 50 {
		put(t, s, fmt.Sprint("k", i), pattern(i*7%3000, 0))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 400 {
			var b backend.Batch // all of them, or one would not belong to the others
			for k := range 5 {
				b.Put(ref(fmt.Sprint("k", k)), stageOf(t, s, pattern(1500+k, uint64(i))), nil, backend.AttrChange{})
			}
			commit(t, s, &b)
		}
	}()
	for n := 0; ; n++ {
		dst := filepath.Join(memoryDir(t), "repaired")
		_, err := Repair(bg, dir, dst, &RepairOptions{Report: func(l Loss) { t.Error(l) }})
		if err != nil {
			t.Fatal(err)
		}
		checkStore(t, dst)
		select {
		case <-done:
			t.Log(n, "repairs")
			return
		default:
		}
	}
}

func TestRepairDoesNotHoldValuesInMemory(t *testing.T) {
	const size = 64 << 20
	dir := closed(t, func(s *Store) {
		st, err := s.NewStage()
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if err := st.Truncate(size); err != nil {
			t.Fatal(err)
		}
		var b backend.Batch
		b.Put(ref("big"), st, newFile, backend.AttrChange{})
		commit(t, s, &b)
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Repair(bg, dir, filepath.Join(memoryDir(t), "d"), nil); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > size/8 {
		t.Errorf("%d MB were allocated", n>>20)
	}
}

// After a power failure it is the generation that recovery takes.
func TestRepairAfterAPowerFailure(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s, err := Open(dir, &Options{Create: true, bootID: bootA, Sync: Never})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", pattern(3000, 1))
	if err := s.Sync(bg); err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", pattern(3000, 2))
	s.Close()
	flip(t, s.volumePath(1), -100)
	dst, losses, _ := repaired(t, dir)
	if len(lossesOf(losses, Damaged)) != 1 || len(losses) != 1 {
		t.Error(losses)
	}
	wantValue(t, openTest(t, dst, Options{}), "k", pattern(3000, 1))
}

func TestRepairRefusesANewerFormat(t *testing.T) {
	dir := closed(t, func(s *Store) { put(t, s, "k", nil) })
	asNewerFormat(t, filepath.Join(dir, "HEAD"))
	dst := filepath.Join(t.TempDir(), "d")
	if _, err := Repair(bg, dir, dst, nil); !errors.Is(err, backend.ErrFormat) {
		t.Error(err)
	}
	if _, err := os.Stat(dst); err == nil {
		t.Error("it made something")
	}
}

// A repair that fails leaves nothing that opens, or is in the way of another try.
func TestFailedRepairIsNoStore(t *testing.T) {
	dir := closed(t, func(s *Store) { sample(t, s) })
	dst := filepath.Join(memoryDir(t), "d")
	for _, keys := range []int64{1, 100, 500} {
		ctx, cancel := context.WithCancel(bg)
		_, err := Repair(ctx, dir, dst, &RepairOptions{Progress: func(k, _ int64) {
			if keys -= k; keys <= 0 {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, f := range relativeFiles(t, dst) {
			if f != "lock" && f != "durable" {
				t.Error("left:", f)
			}
		}
		for _, o := range []Options{{}, {ReadOnly: true}} {
			if s, err := Open(dst, &o); err == nil {
				t.Error("it opens")
				s.Close()
			}
		}
	}
	if _, err := Repair(bg, dir, dst, &RepairOptions{Report: func(l Loss) { t.Error(l) }}); err != nil {
		t.Error(err)
	}
	checkStore(t, dst)
}
