package integration

import (
	"os/exec"
	"strings"
	"testing"
)

// tool is a bash script that uses programs in the mount, in a folder of its own: $D there, $O the same one in the other mount,
// $W one elsewhere.
// Its status says whether they did what they do on any file system. What is wrong ends it, by `set -e`.
type tool struct {
	name   string
	needs  string // the programs, separated by spaces
	script string
}

// preamble are words for the scripts. same A B compares trees: content, types, modes, owners, times of files, targets.
const preamble = `set -eEuo pipefail
trap 'printf "line %s: %.100s\n" "$LINENO" "$BASH_COMMAND" >&2' ERR
is() { [ "$1" = "$2" ] || { echo "<$1> is not <$2>" >&2; exit 1; }; }
fails() { ! "$@" 2> "$W/stderr" || { echo "worked: $*" >&2; exit 1; }; }
tree() { ( cd "$1" && find . -mindepth 1 \( -type d -printf '%P %y %m %U:%G\n' -o -printf '%P %y %m %U:%G %T@ %l\n' \) | sort ); }
same() { diff -r --no-dereference "$1" "$2" && diff <(tree "$1") <(tree "$2"); }
files() { # a tree of all kinds, in a new folder $1
	mkdir -p "$1/dir/deep/er" "$1/empty" "$1/name with spaces"
	echo small > "$1/small"; : > "$1/nothing"; head -c 300000 /dev/urandom > "$1/dir/large"
	for i in $(seq 20); do echo "$i" > "$1/dir/deep/f$i"; done
	echo 'ünï' > "$1/name with spaces/$(printf 'n\303\244me\n2')"
	ln -s ../small "$1/dir/link"; ln -s nowhere "$1/dangling"
	chmod 600 "$1/small"; chmod 755 "$1/dir/deep/f1"; chmod 2750 "$1/empty"
	touch -d '2001-02-03 04:05:06.789' "$1/small"; touch -h -d 2002-02-02 "$1/dangling" "$1/dir/link"
}
O=$N/$D W=$W/$D D=$M/$D
mkdir "$D" "$W"; cd "$D"
`

// runTools runs each tool on two mounts of one store, the other one strict so that stat there is exact. Afterwards the
// store is sound, and no publication failed or was abandoned.
func runTools(t *testing.T, tools []tool) {
	w, m := one(t)
	n := w.mount("strict")
	for i, c := range tools {
		t.Run(c.name, func(t *testing.T) {
			needTools(t, c.needs)
			w := w.in(t)
			before := read(t, m+"/.storefs/errors") + read(t, n+"/.storefs/errors")
			w.env = append(w.env, "D=t"+itoa(i), "HOME="+w.dir)
			if r := w.try(preamble + c.script); r.status != 0 {
				t.Fatalf("status %d\n%s%s", r.status, r.out, r.err)
			}
			if after := read(t, m+"/.storefs/errors") + read(t, n+"/.storefs/errors"); after != before {
				t.Errorf("publications that failed or were abandoned:\n%s", after)
			}
			if r := w.run(binary, "check", w.store); r.status != 0 {
				t.Errorf("check: status %d: %s%s", r.status, r.out, r.err)
			}
		})
	}
}

// needTools skips the test unless all the programs are installed. scripts/internal/test-packages lists their packages.
func needTools(t *testing.T, programs string) {
	t.Helper()
	for p := range strings.FieldsSeq(programs) {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}
