package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Appends from several processes, threads and mounts are all there, each in one piece.
func TestAppendsAreExact(t *testing.T) {
	w, m, n := two(t)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	w.env = append(w.env, "ROUNDS="+itoa(rounds))
	w.sh(`
line() { printf "%s:%0300d:%s\n" $1 $2 $1; }
for p in a b c d; do (
	d=$M; case $p in [bd]) d=$N;; esac
	for i in $(seq $ROUNDS); do line $p $i >> $d/log; { line $p $i; line $p $i; } >> $d/pairs; done
) & done
perl -e 'for (1..$ENV{ROUNDS}) { open F, ">>", "$ENV{M}/log" or die; printf F "e:%0300d:e\n", $_; close F or die }' &
python3 -c '
import os
for i in range(1, int(os.environ["ROUNDS"])+1):
    with open(os.environ["N"]+"/log", "a") as f: f.write("f:%0300d:f\n" % i)' &
for j in $(seq 5); do echo "$j" | cat >> $M/small; done
wait`)
	seen := map[string]int{}
	for line := range strings.Lines(read(t, m+"/log")) {
		seen[line]++
	}
	for _, p := range "abcdef" {
		for i := 1; i <= rounds; i++ {
			line := fmt.Sprintf("%c:%0300d:%c\n", p, i, p)
			if seen[line] != 1 {
				t.Errorf("%d times: %s", seen[line], short(line))
			}
			delete(seen, line)
		}
	}
	if len(seen) != 0 {
		t.Errorf("%d lines that nobody wrote", len(seen))
	}
	lines := strings.Split(strings.TrimSuffix(read(t, n+"/pairs"), "\n"), "\n")
	if len(lines) != 8*rounds {
		t.Fatalf("%d lines in pairs", len(lines))
	}
	for i := 0; i < len(lines); i += 2 {
		if lines[i] != lines[i+1] {
			t.Errorf("pair %d was split", i/2)
		}
	}
	want(t, "small", read(t, n+"/small"), "1\n2\n3\n4\n5\n")
}

// Appends of any size are whole, in writes of any size, to a key that nobody has made, while others append and read.
func TestLargeAppends(t *testing.T) {
	_, m, n := two(t)
	const each = 6
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			dir := []string{m, n}[p%2]
			r := seeded(uint64(p))
			for i := range each {
				b := proof(50_000+r.IntN(900_000), r)
				f, err := os.OpenFile(dir+"/log", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
				if err != nil {
					t.Errorf("append %d: %v", i, err)
					return
				}
				for rest := b; len(rest) > 0; {
					k := min(len(rest), 1+r.IntN(300_000))
					if _, err := f.Write(rest[:k]); err != nil {
						t.Error(err)
					}
					rest = rest[k:]
				}
				if err := f.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	wg.Wait()
	rest, count := []byte(read(t, n+"/log")), 0
	for len(rest) > 0 {
		var size int
		if _, err := fmt.Sscanf(string(rest[:min(10, len(rest))]), "%d", &size); err != nil || size > len(rest) {
			t.Fatalf("piece %d: no whole piece: %v", count, err)
		}
		if err := proven(rest[:size]); err != nil {
			t.Fatalf("piece %d: %v", count, err)
		}
		rest, count = rest[size:], count+1
	}
	if count != 4*each {
		t.Errorf("%d pieces of %d", count, 4*each)
	}
}

// An append handle that stays open for long publishes once, at its close, at the end of the value as it is then.
func TestAppendHandleKeptOpen(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/log", "start\n")
	w.settle(m)
	before := stats(t, m)["storefs_publications_total"]
	f, err := os.OpenFile(m+"/log", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	for i := range 3 {
		fmt.Fprintf(f, "mine %d\n", i)
		w.sh(fmt.Sprintf("echo other %d >> $N/log; echo cli | $BIN put $S unrelated", i))
	}
	want(t, "before close", read(t, n+"/log"), "start\nother 0\nother 1\nother 2\n")
	must(t, f.Close())
	want(t, "after close", read(t, n+"/log"), "start\nother 0\nother 1\nother 2\nmine 0\nmine 1\nmine 2\n")
	if d := stats(t, m)["storefs_publications_total"] - before; d != 1 {
		t.Errorf("%v publications", d)
	}
}

// fsync publishes what an append handle has; what follows is another piece.
func TestAppendFsync(t *testing.T) {
	_, m, n := two(t)
	f, err := os.OpenFile(m+"/log", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(t, err)
	f.WriteString("a1\n")
	must(t, f.Sync())
	want(t, "after fsync", read(t, n+"/log"), "a1\n")
	g, err := os.OpenFile(n+"/log", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	g.WriteString("b1\n")
	must(t, g.Close())
	f.WriteString("a2\n")
	must(t, f.Sync())
	f.WriteString("a3\n")
	must(t, f.Close())
	want(t, "at the end", read(t, n+"/log"), "a1\nb1\na2\na3\n")
}

// O_APPEND with positioned writes appends, as on Linux everywhere; O_APPEND|O_TRUNC replaces; O_APPEND|O_RDWR reads.
func TestAppendFlags(t *testing.T) {
	_, m, n := two(t)
	write(t, m+"/k", "0123456789")
	fd, err := unix.Open(m+"/k", unix.O_RDWR|unix.O_APPEND, 0)
	must(t, err)
	_, err = unix.Pwrite(fd, []byte("ab"), 0)
	must(t, err)
	_, err = unix.Pwrite(fd, []byte("cd"), 3)
	must(t, err)
	b := make([]byte, 100)
	k, err := unix.Pread(fd, b, 0)
	must(t, err)
	want(t, "own view", string(b[:k]), "0123456789abcd")
	must(t, unix.Close(fd))
	want(t, "pwrite", read(t, n+"/k"), "0123456789abcd")

	f, err := os.OpenFile(m+"/k", os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0)
	must(t, err)
	f.WriteString("x")
	f.WriteString("y")
	must(t, f.Close())
	want(t, "with O_TRUNC", read(t, n+"/k"), "xy")

	// O_APPEND set later with fcntl is no append at open: the kernel positions the writes.
	f, err = os.OpenFile(m+"/k", os.O_RDWR, 0)
	must(t, err)
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, unix.O_APPEND)
	must(t, err)
	f.WriteString("z")
	must(t, f.Close())
	want(t, "F_SETFL", read(t, n+"/k"), "xyz")
}

// An append to a key that is removed, replaced or made meanwhile.
func TestAppendMeetsOthers(t *testing.T) {
	w, m, n := two(t)
	for _, c := range []struct{ name, old, script, want string }{
		{"overwritten", "old", `printf new > $N/k`, "new+"},
		{"emptied", "old", `: > $N/k`, "+"},
		{"truncated", "old", `truncate -s 1 $M/k`, "o+"},
		{"renamed over", "old", `printf other > $N/x; mv -f $N/x $N/k`, "other+"},
		{"overwritten by the command line", "old", `printf cli | $BIN put $S k`, "cli+"},
		{"made meanwhile", "", `printf first >> $N/k`, "first+"},
		{"made meanwhile by the command line", "", `printf first | $BIN put $S k`, "first+"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			os.Remove(m + "/k")
			if c.old != "" {
				write(t, m+"/k", c.old)
			}
			f, err := os.OpenFile(m+"/k", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
			must(t, err)
			f.WriteString("+")
			w.sh(c.script)
			must(t, f.Close())
			want(t, "value", read(t, n+"/k"), c.want)
		})
	}
	if !bytes.Equal([]byte(read(t, m+"/k")), []byte("first+")) {
		t.Error("last value is gone")
	}
}

// Opening with O_CREAT finds a file or makes one, whoever removes it meanwhile.
func TestCreatingOpenNeverFindsNothing(t *testing.T) {
	_, m, n := two(t)
	times := 150
	if long {
		times = 20_000
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, dir := range []string{m, n} {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					os.Remove(dir + "/k")
				}
			}
		})
	}
	var writers sync.WaitGroup
	for i, dir := range []string{m, n, m} {
		flag := []int{os.O_APPEND, os.O_TRUNC, os.O_TRUNC}[i]
		writers.Go(func() {
			for range times {
				f, err := os.OpenFile(dir+"/k", os.O_WRONLY|os.O_CREATE|flag, 0o644)
				if err == nil {
					_, err = f.WriteString("x")
					err = errors.Join(err, f.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	wg.Wait()
}
