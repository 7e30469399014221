package engine

import (
	"database/sql"
	"path/filepath"

	_ "modernc.org/sqlite"
)

type sqlite struct {
	dsn           string
	db            *sql.DB
	one, many, up *sql.Stmt
}

// openSQLite opens a database in WAL mode: synchronous=full or off.
func openSQLite(dir string, sync bool) (db, error) {
	mode := "off"
	if sync {
		mode = "full"
	}
	s := &sqlite{dsn: "file:" + filepath.Join(dir, "db") + "?_pragma=journal_mode(wal)&_pragma=synchronous(" + mode + ")"}
	return s, s.open()
}

func (s *sqlite) open() (err error) {
	if s.db, err = sql.Open("sqlite", s.dsn); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(1)
	if _, err = s.db.Exec("CREATE TABLE IF NOT EXISTS kv (k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID"); err != nil {
		return err
	}
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.one, "SELECT v FROM kv WHERE k = ?"}, {&s.many, "SELECT k FROM kv WHERE k >= ? ORDER BY k LIMIT ?"},
		{&s.up, "INSERT OR REPLACE INTO kv VALUES (?, ?)"},
	} {
		if *p.stmt, err = s.db.Prepare(p.text); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqlite) get(key string) (int, error) {
	var v sql.RawBytes
	rows, err := s.one.Query(key)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if !rows.Next() {
		return 0, errNothing
	}
	if err := rows.Scan(&v); err != nil {
		return 0, err
	}
	return len(v), rows.Err()
}

func (s *sqlite) pinned(fn func(func(string) (int, error)) error) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	in := &sqlite{one: tx.Stmt(s.one)}
	return fn(in.get)
}

func (s *sqlite) put(keys []string, value []byte) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	up := tx.Stmt(s.up)
	for _, key := range keys {
		if _, err := up.Exec(key, value); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *sqlite) scan(first string, n int) (found int, err error) {
	rows, err := s.many.Query(first, n)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var key sql.RawBytes
		if err := rows.Scan(&key); err != nil {
			return found, err
		}
		found++
	}
	return found, rows.Err()
}

func (s *sqlite) reopen() error {
	if err := s.close(); err != nil {
		return err
	}
	return s.open()
}

func (s *sqlite) close() error { return s.db.Close() }
