package integration

import (
	"os"
	"strings"
	"testing"
)

// killings each begin to write k, and a process that wrote dies by a signal.
var killings = []struct{ name, script, comm string }{
	{"SIGKILL of the shell", `bash -c 'exec 3> k; echo part >&3; kill -9 $$'`, "bash"},
	{"SIGTERM of the shell", `bash -c 'exec 3> k; echo part >&3; kill -TERM $$'`, "bash"},
	{"SIGINT of dash", `dash -c 'exec > k; echo part; kill -INT $$'`, "dash"},
	{"SIGHUP", `dash -c 'exec > k; echo part; kill -HUP $$'`, "dash"},
	{"SIGPIPE", `bash -c 'exec 3> k; echo part >&3; trap - PIPE; kill -PIPE $$'`, "bash"},
	{"SIGABRT of perl", `perl -e 'open F, ">", "k"; syswrite F, "part"; kill ABRT => $$; sleep 9'`, "perl"},
	{"SIGSEGV of python", `python3 -c 'import os, signal; f = os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.write(f, b"part"); os.kill(os.getpid(), signal.SIGSEGV)'`, "python"},
	{"killed before anything was written", `bash -c 'exec 3> k; kill -9 $$'`, "bash"},
	{"timeout", `timeout 1 sh -c 'while :; do echo part; sleep 0.02; done' > k`, ""},
	{"timeout -s KILL", `timeout -s KILL 1 sh -c 'while :; do echo part; sleep 0.02; done' > k`, ""},
	{"child killed", `{ sh -c 'echo part; kill -9 $$'; } > k`, "sh"},
	{"child killed, its shell goes on", `{ sh -c 'echo part; kill -9 $$'; echo more; } > k`, "sh"},
	{"grandchild killed", `( ( exec sh -c 'echo part; kill -TERM $$' ) > k )`, ""},
	{"child in the background killed", `{ sh -c 'echo part; kill -9 $$' & wait; } > k`, "sh"},
	{"python child killed by its parent", `python3 -c '
import subprocess, sys
with open("k", "w") as f:
    p = subprocess.Popen(["sh", "-c", "echo part; echo ready >&2; exec sleep 9"], stdout=f, stderr=subprocess.PIPE)
    p.stderr.readline(); p.kill(); p.wait()'`, ""},
	{"all threads die", `python3 -c '
import os, signal, threading, time
def work():
    global f
    f = os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.write(f, b"part")
t = threading.Thread(target=work); t.start(); t.join(); os.kill(os.getpid(), signal.SIGKILL)'`, "python"},
	{"a long value", `bash -c 'exec 3> k; head -c 3000000 /dev/zero >&3; kill -9 $$'`, "bash"},
	{"an append", `bash -c 'exec 3>> k; echo part >&3; kill -9 $$'`, "bash"},
	{"in place", `bash -c 'exec 3<> k; echo part >&3; kill -9 $$'`, "bash"},
	{"CPU limit", `bash -c 'ulimit -t 1; exec 3> k; echo part >&3; exec perl -e "1 while 1"'`, "perl"},
	{"file size limit elsewhere", `bash -c 'exec 3> k; echo part >&3; ulimit -f 1; head -c 9999 /dev/zero > $W/x; exec perl -e "open F, q(>>), q($W/x); syswrite F, 0 x 99999; syswrite F, 0 x 99999"'`, "perl"},
}

// A writer that dies by a signal publishes nothing, whether the key was there or not, and is named in .storefs/errors.
func TestKilledWriterPublishesNothing(t *testing.T) {
	w, m, n := two(t)
	for i, c := range killings {
		if testing.Short() && c.name == "CPU limit" {
			continue
		}
		for _, there := range []bool{true, false} {
			if testing.Short() && there != (i%2 == 0) || !there && c.name == "in place" {
				continue
			}
			t.Run(c.name+map[bool]string{true: ", old value", false: ", new key"}[there], func(t *testing.T) {
				w := w.in(t)
				must(t, os.RemoveAll(m+"/k"))
				if there {
					write(t, m+"/k", "old")
				}
				w.settle(m)
				before := stats(t, m)
				w.try("(\n" + c.script + "\n) 2> /dev/null")
				w.settle(m)
				after := stats(t, m)
				for _, dir := range []string{m, n} {
					b, err := os.ReadFile(dir + "/k")
					if there && string(b) != "old" || !there && !os.IsNotExist(err) {
						t.Errorf("%s: %s, %v", dir, short(string(b)), err)
					}
				}
				if d := after["storefs_publications_total"] - before["storefs_publications_total"]; d != 0 {
					t.Errorf("%v publications", d)
				}
				if d := after["storefs_abandoned_writes_total"] - before["storefs_abandoned_writes_total"]; d != 1 {
					t.Errorf("%v abandoned", d)
				}
				lines := strings.Split(strings.TrimSpace(read(t, m+"/.storefs/errors")), "\n")
				fields := strings.Split(lines[len(lines)-1], "\t")
				if len(fields) != 5 || fields[1] != `"k"` || !strings.Contains(fields[3], c.comm) || !strings.Contains(fields[4], "abandoned") {
					t.Errorf("last line of errors: %q", lines[len(lines)-1])
				}
			})
		}
	}
}

// A process that ends by itself, with whatever status, publishes what was written; so does one whose unconcerned child is killed.
func TestWriterThatEndsPublishes(t *testing.T) {
	w, m, _ := two(t)
	for _, c := range []struct{ name, script string }{
		{"status 3", `bash -c 'exec 3> k; echo -n whole >&3; exit 3'`},
		{"child with status 3", `{ sh -c 'echo -n whole; exit 3'; } > k`},
		{"child with status 255", `{ perl -e 'print "whole"; exit 255'; } > k`},
		{"python exception", `python3 -c 'f = open("k", "w"); f.write("whole"); f.flush(); raise SystemExit(1)'`},
		{"signal that was caught", `bash -c 'trap "echo -n ole >&3; exit 1" TERM; exec 3> k; echo -n wh >&3; kill -TERM $$; sleep 1'`},
		{"_exit", `python3 -c 'import os; f = os.open("k", os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.write(f, b"whole"); os._exit(9)'`},
		{"killed child that never wrote to it", `bash -c 'exec 3> k; echo -n wh >&3; sh -c "kill -9 \$\$"; echo -n ole >&3'`},
		{"killed child that had closed it", `bash -c 'exec 3> k; echo -n wh >&3; sh -c "exec 3>&-; kill -9 \$\$"; echo -n ole >&3'`},
		{"killed reader", `echo -n whole > k; bash -c 'exec 3< k; kill -9 $$'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			write(t, m+"/k", "old")
			w.settle(m)
			before := stats(t, m)
			w.try("( " + c.script + " ) 2> /dev/null")
			w.settle(m)
			after := stats(t, m)
			w.wantKey("k", "whole")
			if d := after["storefs_publications_total"] - before["storefs_publications_total"]; d != 1 {
				t.Errorf("%v publications", d)
			}
			if d := after["storefs_abandoned_writes_total"] - before["storefs_abandoned_writes_total"]; d != 0 {
				t.Errorf("%v abandoned", d)
			}
		})
	}
}

// What was published before the signal stays.
func TestKilledAfterPublication(t *testing.T) {
	w, m, _ := two(t)
	w.try(`bash -c 'echo one > k; exec 3> k2; echo two >&3; exec 3>&-; kill -9 $$' 2> /dev/null`)
	w.wantKey("k", "one\n")
	w.wantKey("k2", "two\n")
	w.try(`python3 -c '
import os, signal
f = os.open("k", os.O_WRONLY|os.O_TRUNC); os.write(f, b"synced"); os.fsync(f); os.write(f, b" and more"); os.kill(os.getpid(), signal.SIGKILL)'`)
	w.settle(m)
	w.wantKey("k", "synced")
}
