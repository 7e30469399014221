package integration

import (
	"strings"
	"testing"
)

// A transaction of SQLite in a connection of its own works, in its rollback journal modes; what it cannot do here
// is refused, and nothing is lost. docs/programs.md tells the same.
func TestToolsSQLite(t *testing.T) {
	var tools []tool
	for _, mode := range []string{"delete", "truncate", "persist"} {
		tools = append(tools, tool{"a transaction a connection, " + mode, "sqlite3", `
sql() { timeout 20 sqlite3 -cmd '.timeout 10000' "$@"; }
sql db "pragma journal_mode=` + mode + `; begin; create table n(x integer); insert into n values (0); commit;" > /dev/null
for i in 1 2 3 4 5; do sql db "update n set x = x + 1"; sql "$O/db" "update n set x = x + 1"; done
is "$(sql db "select x from n; pragma integrity_check")" $'10\nok'; is "$(sql "$O/db" "select x from n; pragma integrity_check")" $'10\nok'
sql db "begin; update n set x = 99; rollback; select x from n" > out; is "$(cat out)" 10; sql db .dump | sql "$O/copy"; is "$(sql copy "select x from n")" 10; sql db vacuum; is "$(sql "$O/db" "select x from n")" 10`})
	}
	runTools(t, append(tools, []tool{
		{"several in an exclusive connection", "sqlite3", `
sqlite3 db "pragma locking_mode=exclusive; create table t(x); insert into t values (1); insert into t values (2);" > /dev/null; is "$(sqlite3 "$O/db" "select sum(x) from t; pragma integrity_check")" $'3\nok'
sqlite3 wal "pragma locking_mode=exclusive; pragma journal_mode=wal; create table t(x); insert into t values (1); insert into t values (2);" > /dev/null; is "$(sqlite3 "$O/wal" "pragma locking_mode=exclusive; select sum(x) from t; pragma integrity_check")" $'exclusive\n3\nok'`},
		{"WAL is refused, and nothing is lost", "sqlite3", `
sqlite3 db "create table t(x integer)"; sqlite3 db "insert into t values (1)"
r=$(sqlite3 db "pragma journal_mode=wal; insert into t values (2)" 2>&1) && exit 1; [[ $r == *"disk I/O error"* ]]
is "$(sqlite3 "$O/db" "pragma locking_mode=exclusive; pragma journal_mode=delete; select x from t; pragma integrity_check")" $'exclusive\ndelete\n1\nok'; is "$(sqlite3 db "select x from t")" 1`},
		{"a lock is held across mounts", "sqlite3 python3", `
sqlite3 db "create table t(x integer)"; python3 - "$O" <<'END'
import sqlite3, sys
a = sqlite3.connect("db", isolation_level=None); b = sqlite3.connect(sys.argv[1] + "/db", isolation_level=None, timeout=0)
a.execute("begin exclusive")
try: b.execute("begin immediate"); assert False, "two at once"
except sqlite3.OperationalError as e: assert "locked" in str(e), e
a.execute("insert into t values (1)"); a.execute("commit"); a.close(); b.close()
c = sqlite3.connect(sys.argv[1] + "/db"); assert c.execute("select x from t").fetchall() == [(1,)]
END`},
	}...))
}

// Two processes on two mounts count in one database. Each transaction either counts, or says that it did not.
func TestToolsSQLiteLosesNothing(t *testing.T) {
	needTools(t, "sqlite3")
	w, _, _ := two(t)
	w.env = append(w.env, "TIMES="+map[bool]string{true: "10", false: "40"}[testing.Short()])
	out := w.sh(`
sqlite3 db "create table n(x integer)"; sqlite3 db "insert into n values (0)"
work() { for i in $(seq $TIMES); do until timeout 20 sqlite3 -cmd '.timeout 5000' $1/db "update n set x = x + 1" 2>> $W/refused; do :; done; done; }
work $M & a=$!; work $N & b=$!; wait $a; wait $b
sqlite3 db "select x from n; pragma integrity_check"; sqlite3 $N/db "select x from n"; sort $W/refused | uniq -c`)
	lines := strings.SplitN(out, "\n", 4)
	wanted := map[bool]string{true: "20", false: "80"}[testing.Short()]
	if len(lines) < 3 || lines[0] != wanted || lines[1] != "ok" || lines[2] != wanted {
		t.Errorf("not %s: %s", wanted, out)
	}
	t.Log(out)
}

// A connection that stays open sees the database as it was when it opened it (R1). It must not write over what
// others have committed since: SQLite or storefs refuses.
func TestToolsSQLiteOldConnection(t *testing.T) {
	w, _, _ := two(t)
	for _, mode := range []string{"delete", "memory", "off"} {
		w.env = append(w.env, "MODE="+mode)
		w.python(`
import sqlite3
mode = os.environ["MODE"]; db = "/db." + mode
def run(c, *stmts):
    for s in stmts: c.execute(s).fetchall()
a = sqlite3.connect(M + db, isolation_level=None); run(a, "pragma journal_mode=" + mode, "begin", "create table t(x integer)", "insert into t values (1)", "commit"); a.close()
old = sqlite3.connect(M + db, isolation_level=None); run(old, "pragma journal_mode=" + mode); assert old.execute("select x from t").fetchall() == [(1,)]
b = sqlite3.connect(N + db, isolation_level=None); run(b, "insert into t values (2)"); b.close()
try: run(old, "insert into t values (3)"); wrote = True
except sqlite3.OperationalError as e: wrote = False; print(mode, "refused:", e)
try: old.close()
except sqlite3.OperationalError as e: print("close:", e)
c = sqlite3.connect(N + db); got = sorted(x for x, in c.execute("select x from t")); ok, = c.execute("pragma integrity_check").fetchone()
assert ok == "ok" and got == ([1, 2, 3] if wrote else [1, 2]), (mode, wrote, got, ok)
`)
	}
}
