package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/tests/daemon"
)

// nobody runs a script as an ordinary user, whose home is the folder home of the world.
func (w *world) nobody(script string) result {
	w.t.Helper()
	return w.runIn(w.dir+"/home", "", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "HOME="+w.dir+"/home", "bash", "-c", script)
}

func ordinaryUser(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	for _, tool := range []string{"setpriv", "fusermount3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	st, err := os.Stat("/dev/fuse")
	must(t, err)
	if st.Mode().Perm()&0o006 != 0o006 {
		must(t, os.Chmod("/dev/fuse", 0o666))
		t.Cleanup(func() { os.Chmod("/dev/fuse", st.Mode().Perm()) })
	}
	open := w.dir
	for range 2 { // t.TempDir makes two folders, for the owner only
		must(t, os.Chmod(open, 0o755))
		open = open[:strings.LastIndexByte(open, '/')]
	}
	must(t, os.Mkdir(w.dir+"/home", 0o755))
	must(t, os.Chown(w.dir+"/home", 65534, 65534))
	w.store = w.dir + "/home/kv"
	w.env = append(w.env, "S="+w.store)
	return w
}

// An ordinary user mounts through fusermount3, and has the same contract.
func TestOrdinaryUserMounts(t *testing.T) {
	w := ordinaryUser(t)
	r := w.nobody(`set -e
mkdir m n; $BIN mount $S m; $BIN mount $S n
t() { "$@" || { echo "not: $*" >&2; exit 1; }; }
echo 1 > m/k; t [ "$(cat n/k)" = 1 ]
exec 7< m/k; echo 2 > n/k; t [ "$(cat <&7)" = 1 ]; exec 7<&-; t [ "$(cat m/k)" = 2 ]
exec 3> m/k; echo a >&3; /bin/echo b >&3; t [ "$(cat n/k)" = 2 ]; exec 3>&-; t [ "$(cat n/k | tr -d '\n')" = ab ]
p=$(awk '$1 == "storefs_publications_total" {print $2}' m/.storefs/stats); { echo x; /bin/echo y; } > m/k; q=$(awk '$1 == "storefs_publications_total" {print $2}' m/.storefs/stats); t [ $((q - p)) = 1 ]
( exec sh -c 'echo partial; kill -9 $$' > m/k ) 2> /dev/null || true; t [ "$(cat n/k | tr -d '\n')" = xy ]
for i in $(seq 20); do echo $i >> m/log; echo $i >> n/log; done; t [ $(wc -l < m/log) = 40 ]
echo 0 > m/c; for i in $(seq 10); do flock m/c sh -c 'n=$(cat m/c); echo $((n+1)) > m/c'; flock n/c sh -c 'n=$(cat n/c); echo $((n+1)) > n/c'; done; t [ "$(cat m/c)" = 20 ]
t [ "$($BIN get $S c)" = 20 ]; echo z | $BIN put $S c; t [ "$(cat n/c)" = z ]
mkdir m/d; mv m/c m/d/c; rm -r n/d; t [ ! -e m/d ]
t [ "$(stat -c %u m/k)" = 65534 ]
cd m; r=0; $BIN umount ../m 2> ../e || r=$?; cd ..; t [ $r = 1 ]; t grep -q 'in use' e
$BIN umount m; $BIN umount n; $BIN check $S`)
	if r.status != 0 {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	w.nobody(`fusermount3 -uz m; fusermount3 -uz n`)
}

// The daemon of an ordinary user is killed, and the mountpoint is taken over.
func TestOrdinaryUserTakesOver(t *testing.T) {
	w := ordinaryUser(t)
	r := w.nobody(`set -e
mkdir m; $BIN mount $S m; echo v > m/k
kill -9 $(awk '$1 == "storefs_process_pid" {print $2}' m/.storefs/stats); until ! cat m/k > /dev/null 2>&1; do :; done
$BIN mount $S m; [ "$(cat m/k)" = v ]; $BIN umount m`)
	if r.status != 0 {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	w.nobody(`fusermount3 -uz m`)
}

// allow_other without user_allow_other in /etc/fuse.conf is refused with a sentence that says what to do.
func TestAllowOtherNeedsConsent(t *testing.T) {
	conf, _ := os.ReadFile("/etc/fuse.conf")
	for line := range strings.Lines(string(conf)) {
		if strings.TrimSpace(line) == "user_allow_other" {
			t.Skip("/etc/fuse.conf has user_allow_other")
		}
	}
	w := ordinaryUser(t)
	r := w.nobody(`mkdir m; $BIN mount -o allow_other $S m`)
	if r.status != 1 || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "user_allow_other") || !strings.Contains(r.err, "/etc/fuse.conf") {
		t.Errorf("status %d: %q", r.status, r.err)
	}
	if daemon.Mounted(w.dir + "/home/m") {
		t.Error("mounted")
	}
	if _, err := os.Stat(w.store); err == nil {
		t.Error("a store was made for a mount that was refused")
	}
}

// A mount of root is for root alone; with allow_other others get what the modes give them.
func TestAllowOther(t *testing.T) {
	w := ordinaryUser(t)
	closed, m := w.mount(), w.mount("allow_other")
	for _, dir := range []string{closed, m} {
		must(t, os.Chmod(dir, 0o755))
	}
	write(t, m+"/private", "secret")
	must(t, os.Chmod(m+"/private", 0o600))
	write(t, m+"/public", "open")
	must(t, os.Mkdir(m+"/drop", 0o777))
	must(t, unix.Chmod(m+"/drop", 0o1777))
	write(t, m+"/drop/roots", "x")
	must(t, os.Mkdir(m+"/group", 0o755))
	must(t, os.Chown(m+"/group", 65534, 1234))
	must(t, unix.Chmod(m+"/group", 0o2775))
	r := w.nobody(`set -e; cd ` + m + `
t() { "$@" || { echo "not: $*" >&2; exit 1; }; }
n() { if "$@" 2> /dev/null; then echo "should fail: $*" >&2; exit 1; fi; }
n cat ` + closed + `/public
t [ "$(cat public)" = open ]; n cat private; n sh -c 'echo x > public'; n sh -c 'echo x >> public'; n touch public; n rm -f public; n mv public p
n sh -c 'echo x > new'; n mkdir new; n ln -s x new; n chmod 777 public; n chown 65534 public; n truncate -s 0 public; n setfattr -n user.a -v b public
echo mine > drop/mine; t [ "$(stat -c %u:%g drop/mine)" = 65534:65534 ]; echo more >> drop/mine; chmod 640 drop/mine
n rm -f drop/roots; n mv drop/roots drop/x
echo g > group/g; t [ "$(stat -c %g group/g)" = 1234 ]; mkdir group/d; t [ "$(stat -c %g:%a group/d | cut -c1-6)" = 1234:2 ]
mv drop/mine drop/own; rm drop/own; t [ "$(cat .storefs/generation)" -gt 0 ]`)
	if r.status != 0 {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	want(t, "private", read(t, m+"/private"), "secret")
	want(t, "public", read(t, m+"/public"), "open")
	wantListing(t, m+"/drop", "roots")
}
