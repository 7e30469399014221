package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// docScripts writes the scripts that stand in docs/transactions.md to a folder, and puts it before PATH.
func docScripts(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	text, err := os.ReadFile("../../docs/transactions.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	found := regexp.MustCompile("(?ms)^```sh\n(#!/bin/sh\n# ([a-z-]+) .*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(found) != 6 {
		t.Fatalf("%d scripts in the document", len(found))
	}
	for _, f := range found {
		if err := os.WriteFile(filepath.Join(dir, f[2]), []byte(f[1]), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// mountTwice mounts a new store at m and n of a new folder, which it returns.
func mountTwice(t *testing.T) string {
	t.Helper()
	needFuse(t)
	dir := t.TempDir()
	t.Cleanup(func() { noMountsLeft(t, dir) })
	shell(t, dir, `mkdir m n && storefs mount kv m && storefs mount kv n`)
	t.Cleanup(func() { shell(t, dir, `storefs umount m && storefs umount n && storefs check kv`) })
	return dir
}

// shell runs a script, which must succeed, in dir, and returns what it writes.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", "set -e; "+script)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	limit := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer limit.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestDocumentedCounter(t *testing.T) {
	docScripts(t)
	dir := mountTwice(t)
	shell(t, dir, `for p in m n m; do (for i in 1 2 3 4 5; do counter $p c >> seen || echo failed >> seen; done) & done; wait`)
	if got := shell(t, dir, `cat m/c; sort -n seen | uniq | wc -l`); got != "15\n15" {
		t.Errorf("counted %q", got)
	}
}

func TestDocumentedTransfer(t *testing.T) {
	docScripts(t)
	dir := mountTwice(t)
	shell(t, dir, `mkdir m/accounts; for a in a b c; do echo 10 > m/accounts/$a; done
		(for i in 1 2 3 4 5; do transfer m a b 3 || test $? = 3; done) & one=$!
		(for i in 1 2 3 4 5; do transfer n b c 4 || test $? = 3; done) & two=$!
		wait $one; wait $two`)
	if got := shell(t, dir, `echo $(($(cat m/accounts/* | paste -sd+))); cat m/accounts/a; ! transfer m a c 1000`); got != "30\n1\ntransfer: a has only 1" {
		t.Errorf("accounts: %q", got)
	}
}

func TestDocumentedQueue(t *testing.T) {
	docScripts(t)
	dir := mountTwice(t)
	shell(t, dir, `for i in $(seq 12); do echo $i | queue-put m; done
		printf '#!/bin/sh\nread n; echo $n >> %s/worked; echo $((n * n))\n' $PWD > square; chmod +x square
		for p in m n m; do queue-work $p $PWD/square & done; wait`)
	if got := shell(t, dir, `sort -n worked | uniq | wc -l; wc -l < worked; cat m/done/* | sort -n | tail -n 1; ls m/queue m/taken | grep -c '^[0-9]' || true`); got != "12\n12\n144\n0" {
		t.Errorf("queue: %q", got)
	}
	shell(t, dir, `echo 1 | queue-put m; queue-work m false; test $(ls m/queue | wc -l) = 1; test $(ls m/done | wc -l) = 12`)
}

func TestDocumentedPublish(t *testing.T) {
	docScripts(t)
	dir := mountTwice(t)
	shell(t, dir, `mkdir v; for v in 1 2 3 4 5; do for p in a b c; do echo $v > v/$p; done; publish m v; done & p=$!
		while kill -0 $p 2> /dev/null; do storefs txn --read-only n -- sh -c 'test ! -e site || test $(cat site/* | sort -u | wc -l) = 1'; done; wait $p`)
	if got := shell(t, dir, `cat n/site/*`); got != "5\n5\n5" {
		t.Errorf("site: %q", got)
	}
}

func TestDocumentedBackup(t *testing.T) {
	docScripts(t)
	dir := mountTwice(t)
	got := shell(t, dir, `mkdir m/d b; echo 1 > m/d/k; touch -d '40 days ago' b/old.tar; backup kv b; ls b
		mkdir m2; storefs mount kv2 m2 2> /dev/null; storefs import kv2 < b/*.tar; cat m2/d/k; storefs umount m2`)
	if want := time.Now().Format(time.DateOnly) + ".tar\n1"; got != want {
		t.Errorf("backup: %q, not %q", got, want)
	}
}

// Money moves between accounts by several processes on two mounts, by command and by directory, while snapshots are summed.
func TestBank(t *testing.T) {
	dir := mountTwice(t)
	seconds := 6
	if testing.Short() {
		seconds = 3
	}
	got := shell(t, dir, fmt.Sprintf(`for a in $(seq 0 7); do echo 100 > m/$a; done; W=$PWD; end=$((SECONDS + %d))
		move='f=$((RANDOM %% 8)); t=$((RANDOM %% 8)); [ $f = $t ] || { a=$(<$f) b=$(<$t); echo $((a - 1)) > $f; echo $((b + 1)) > $t; }'
		for p in 1 2; do for d in m n; do (
			while [ $SECONDS -lt $end ]; do storefs txn --retry 20 $d -- bash -ec "$move" && echo >> $W/moved || echo "txn $?" >> $W/bad; done ) & done; done
		for d in m n; do (
			while [ $SECONDS -lt $end ]; do T=$W/$d/.storefs/txn/t$BASHPID; mkdir $T || echo mkdir >> $W/bad; (cd $T; eval "$move")
				mv $T $W/$d/.storefs/commit/ 2> /dev/null && echo >> $W/moved || rmdir $T; done ) & done
		sums=0
		while [ $SECONDS -lt $end ]; do
			mkdir n/.storefs/snapshots/s; s=$(($(cat n/.storefs/snapshots/s/? | paste -sd+))); rmdir n/.storefs/snapshots/s
			[ $s = 800 ] || echo "sum $s" >> bad; sums=$((sums + 1)); done
		wait; cat bad 2> /dev/null || true; echo $(($(cat m/? | paste -sd+))); test -s moved; test $sums -gt 0`, seconds))
	if got != "800" {
		t.Errorf("bank: %s", got)
	}
}
