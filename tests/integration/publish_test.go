package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// idioms each write the value "ab" to k, which was there or not, and must publish it exactly once.
var idioms = []struct{ name, script string }{
	{"bash echo", `echo -n ab > k`},
	{"bash printf twice", `{ printf a; printf b; } > k`},
	{"bash group with external commands", `{ /bin/echo -n a; /usr/bin/printf b; } > k`},
	{"bash group with a pause", `{ printf a; sleep 0.05; printf b; } > k`},
	{"bash subshell", `( printf a; ( printf b ) ) > k`},
	{"bash exec descriptor", `exec 3> k; printf a >&3; printf b >&3; exec 3>&-`},
	{"bash exec descriptor, external commands", `exec 3> k; /usr/bin/printf a >&3; cat /dev/null >&3; /usr/bin/printf b >&3; exec 3>&-`},
	{"bash exec descriptor left open at exit", `exec 3> k; printf a >&3; printf b >&3`},
	{"bash named descriptor", `exec {f}> k; printf ab >&$f; exec {f}>&-`},
	{"bash duplicate closed first", `exec 3> k; exec 4>&3; printf a >&4; exec 4>&-; printf b >&3; exec 3>&-`},
	{"bash original closed first", `exec 3> k; exec 4>&3; printf a >&3; exec 3>&-; printf b >&4; exec 4>&-`},
	{"bash here-document", "cat > k <<END\nab\nEND"},
	{"bash here-string", `tr -d '\n' > k <<< ab`},
	{"bash loop", `for c in a b; do printf $c; done > k`},
	{"bash while read", `printf 'a\nb\n' | while read c; do printf $c; done > k`},
	{"bash pipe", `printf ab | cat > k`},
	{"bash function", `f() { printf a; /usr/bin/printf b; }; f > k`},
	{"bash background child", `{ printf a; /usr/bin/printf b; } > k & wait`},
	{"bash background children in a group", `{ printf a; { sleep 0.05; printf b; } & wait; } > k`},
	{"bash both streams", `{ printf a; printf b >&2; } > k 2>&1`},
	{"bash clobber", `set -C; printf ab >| k`},
	{"bash process substitution", `printf ab | tee >(cat > /dev/null) > k`},
	{"bash tee in a substitution", `printf ab > >(cat > k); while [ "$(cat k 2>/dev/null)" != ab ]; do sleep 0.01; done`},
	{"dash echo", `dash -c 'printf ab > k'`},
	{"dash group", `dash -c '{ printf a; /usr/bin/printf b; } > k'`},
	{"dash exec descriptor", `dash -c 'exec 3> k; printf a >&3; /usr/bin/printf b >&3; exec 3>&-'`},
	{"dash subshell in the background", `dash -c '(printf a; /usr/bin/printf b) > k & wait'`},
	{"sh whole script's output", `sh -c 'exec > k; printf a; /usr/bin/printf b'`},
	{"perl", `perl -e 'open F, ">", "k" or die; print F "ab"; close F or die'`},
	{"perl in pieces", `perl -e '$|=1; open F, ">", "k" or die; select F; $|=1; print F "a"; print F "b"; close F or die'`},
	{"perl no close", `perl -e 'open F, ">", "k" or die; print F "ab"'`},
	{"perl fork", `perl -e 'open F, ">", "k" or die; $p = fork; if (!$p) { syswrite F, "a"; exit 0 } waitpid $p, 0; syswrite F, "b"; close F or die'`},
	{"perl system", `perl -e 'open STDOUT, ">", "k" or die; system "printf a"; system "printf b"; close STDOUT or die'`},
	{"perl -i", `printf aX > k.in; perl -pi -e 's/X/b/' k.in; mv k.in k`},
	{"python", `python3 -c 'open("k", "w").write("ab")'`},
	{"python with", `python3 -c 'with open("k", "w") as f: f.write("a"); f.flush(); f.write("b")'`},
	{"python os.write", `python3 -c 'import os; f = os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.write(f, b"a"); os.write(f, b"b"); os.close(f)'`},
	{"python read and write", `python3 -c 'f = open("k", "w+"); f.write("ab"); f.seek(0); assert f.read() == "ab"; f.close()'`},
	{"python thread writes", `python3 -c '
import threading
f = open("k", "w"); t = threading.Thread(target=lambda: f.write("ab")); t.start(); t.join(); f.close()'`},
	{"python thread opens and closes", `python3 -c '
import threading
def work():
    with open("k", "w") as f: f.write("ab")
t = threading.Thread(target=work); t.start(); t.join()'`},
	{"python opened in a thread that ended", `python3 -c '
import threading, os
fd = []
t = threading.Thread(target=lambda: fd.append(os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC))); t.start(); t.join()
os.write(fd[0], b"a"); os.write(fd[0], b"b"); os.close(fd[0])'`},
	{"python fork, child writes", `python3 -c '
import os
f = os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC)
if os.fork() == 0: os.write(f, b"a"); os._exit(0)
os.wait(); os.write(f, b"b"); os.close(f)'`},
	{"python fork, child closes first", `python3 -c '
import os
f = os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.write(f, b"a")
if os.fork() == 0: os.close(f); os._exit(0)
os.wait(); os.write(f, b"b"); os.close(f)'`},
	{"python subprocess", `python3 -c '
import subprocess
with open("k", "w") as f:
    subprocess.run(["printf", "a"], stdout=f, check=True); subprocess.run(["printf", "b"], stdout=f, check=True)'`},
	{"python sendfile", `printf ab > $W/in; python3 -c '
import os
i = os.open(os.environ["W"]+"/in", os.O_RDONLY); o = os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC)
assert os.sendfile(o, i, 0, 2) == 2; os.close(o)'`},
	{"cp", `printf ab > $W/in; cp $W/in k`},
	{"tee", `printf ab | tee k > /dev/null`},
	{"dd", `printf ab | dd of=k status=none`},
	{"dd in pieces", `printf ab | dd of=k bs=1 status=none`},
	{"dd without truncation", `printf 'ab\n\n' | dd of=k bs=4 conv=notrunc status=none`},
	{"sort -o", `printf ab | sort -o k`},
	{"install", `printf ab > $W/in; install -m 644 $W/in k`},
	{"sed w", `printf 'ab\n' | sed -n 'w k'`},
	{"awk", `awk 'BEGIN { printf "a" > "k"; printf "b" > "k" }'`},
}

// Each idiom publishes exactly once, and nobody sees anything but the old value and the new one.
func TestIdiomsPublishOnce(t *testing.T) {
	w, m, n := two(t)
	for _, c := range idioms {
		for _, there := range []bool{true, false} {
			if testing.Short() && there {
				continue
			}
			name := c.name + ", new key"
			if there {
				name = c.name + ", overwriting"
			}
			t.Run(name, func(t *testing.T) {
				w := w.in(t)
				must(t, os.RemoveAll(m+"/k"))
				if there {
					write(t, m+"/k", "old")
				}
				w.settle(m)
				seen := watch(n+"/k", "old", "ab", "ab\n", "ab\n\n")
				before := stats(t, m)
				w.sh(c.script)
				w.settle(m)
				after := stats(t, m)
				for _, bad := range seen() {
					t.Error("visible on the way:", bad)
				}
				if got := strings.TrimSpace(read(t, n+"/k")); got != "ab" {
					t.Errorf("value %q", got)
				}
				if d := after["storefs_publications_total"] - before["storefs_publications_total"]; d != 1 && c.name != "perl -i" {
					t.Errorf("%v publications", d)
				}
				if d := after["storefs_commits_total"] - before["storefs_commits_total"]; d != 1 && c.name != "perl -i" && c.name != "install" { // they rename, and change the mode
					t.Errorf("%v commits", d)
				}
				if d := after["storefs_abandoned_writes_total"] - before["storefs_abandoned_writes_total"]; d != 0 {
					t.Errorf("%v abandoned: %s", d, read(t, m+"/.storefs/errors"))
				}
			})
		}
	}
}

// settle returns when no file of the mount is open but the one it asks through.
func (w *world) settle(dir string) {
	w.t.Helper()
	until(w.t, "all files of "+dir+" are released", func() bool { return stats(w.t, dir)["storefs_open_handles"] <= 1 })
}

// watch reads path again and again until the function that it returns is called, which tells what was seen besides
// the allowed values and no file at all.
func watch(path string, allowed ...string) func() []string {
	stop, done := make(chan struct{}), make(chan []string)
	go func() {
		bad := map[string]bool{}
		for {
			b, err := os.ReadFile(path)
			ok := os.IsNotExist(err)
			for _, a := range allowed {
				ok = ok || err == nil && string(b) == a
			}
			if !ok {
				bad[fmt.Sprintf("%s, %v", short(string(b)), err)] = true
			}
			select {
			case <-stop:
				var all []string
				for b := range bad {
					all = append(all, b)
				}
				done <- all
				return
			case <-time.After(200 * time.Microsecond): // leave the processors to what is watched
			}
		}
	}()
	return func() []string {
		close(stop)
		return <-done
	}
}

// A child that outlives the process that opened the file: that one's last close publishes what there is (W2), and what the child
// adds is published when it ends.
func TestChildOutlivesTheOpener(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "old")
	seen := watch(n+"/k", "old", "a", "ab")
	w.sh(`mkfifo $W/go; ( { printf a; ( read x < $W/go; printf b ) & } > k ) > /dev/null; echo > $W/go`)
	until(t, "the child's part is published", func() bool { return read(t, n+"/k") == "ab" })
	w.settle(m)
	for _, bad := range seen() {
		t.Error("visible on the way:", bad)
	}
	if got := stats(t, m)["storefs_publications_total"]; got > 3 {
		t.Errorf("%v publications", got)
	}
}

// Many threads of one process write one key: each close returns after its own value, or a later one, is published, and each
// value is published once.
func TestThreadsOfOneProcess(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "0 start")
	w.settle(m)
	before := stats(t, m)["storefs_publications_total"]
	w.python(`
import threading
def work(p):
    for i in range(50):
        fd = os.open(M+"/k%d" % (p % 2), os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.write(fd, b"%d.%d" % (p, i)); os.close(fd)
        own = "own%d" % p
        with open(M+"/"+own, "w") as f: f.write(str(i))
        with open(N+"/"+own) as f:
            if f.read() != str(i): bad.append(own)
bad = []
ts = [threading.Thread(target=work, args=(p,)) for p in range(6)]
for t in ts: t.start()
for t in ts: t.join()
assert not bad, bad
`)
	w.settle(m)
	if d := stats(t, m)["storefs_publications_total"] - before; d != 600 {
		t.Errorf("%v publications of 600 writes", d)
	}
	for i := range 2 {
		if got := read(t, n+"/k"+itoa(i)); !strings.HasSuffix(got, ".49") {
			t.Errorf("last value %q", got)
		}
	}
}

// What is not published is not there for others: no name, no bytes, no size.
func TestUnpublishedIsPrivate(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/k", "old")
	w.python(`
fd = os.open(M+"/k", os.O_WRONLY|os.O_TRUNC); os.write(fd, b"x"*300000)
new = os.open(M+"/new", os.O_WRONLY|os.O_CREAT); os.write(new, b"y"*300000)
assert os.fstat(fd).st_size == 300000 and os.fstat(new).st_size == 300000
if os.fork() == 0:   # a child is not the writer's equal, but holds the files
    os.close(fd); os.close(new); os._exit(0)
os.wait()
import subprocess
for d in M, N:
    out = subprocess.run("cat k; stat -c %s k; ls; cat new", shell=True, cwd=d, capture_output=True, text=True)
    assert out.stdout == "old3\nk\n", (d, out.stdout)
assert subprocess.run([os.environ["BIN"], "ls", os.environ["S"]], capture_output=True, text=True).stdout == "k\n"
os.close(fd); os.close(new)
for d in M, N:
    assert os.stat(d+"/new").st_size == 300000 and len(open(d+"/k").read()) == 300000
`)
	wantListing(t, n, "k", "new")
}
