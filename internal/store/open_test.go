package store

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestADatabaseOfANewerProgramIsRefused(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		s.Close()
		driver, source := "pgx", dsn
		if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
			driver, source = "sqlite", path
		}
		db, err := sql.Open(driver, source)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (4711, " + map[string]string{"pgx": "TRUE", "sqlite": "1"}[driver] + ")"); err != nil {
			t.Fatal(err)
		}
		_, err = Open(bg, Config{DSN: dsn})
		wantError(t, err, trainyard.CodeConflict, "newer trainyard", "4711", "backup")
	})
}

func TestOpenIsRepeatableAndSeqsNeverComeBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		var last int64
		for range 3 {
			s := open(t, dsn)
			j := aJob("j", "c", 1, 1)
			add(t, s, j)
			if j.Seq <= last {
				t.Errorf("seq %d after %d", j.Seq, last)
			}
			last = j.Seq
			must(t, s, func(tx *Tx) error { return tx.DeleteJob(key("j")) })
			s.Close()
		}
	})
}

func TestWhatIsNotADatabaseIsRefusedInWords(t *testing.T) {
	for _, dsn := range []string{"", "mysql://root:secret@host/db", "/just/a/path"} {
		_, err := Open(bg, Config{DSN: dsn})
		wantError(t, err, trainyard.CodeInvalid, "sqlite:/path")
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(bg, 10e9)
	defer cancel()
	_, err := Open(ctx, Config{DSN: "postgres://user:secret@127.0.0.1:1/db?connect_timeout=2"})
	wantError(t, err, trainyard.CodeInternal, "127.0.0.1/db", "cannot be reached")
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows a password: %v", err)
	}
}

func TestADamagedFileIsRefusedInWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trainyard.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is not a database. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(bg, Config{DSN: "sqlite:" + path})
	wantError(t, err, trainyard.CodeInternal, path, "damaged", "backup", ".recover")

	// A file that begins well and has lost its middle.
	dsn := sqliteDSN(t)
	s := open(t, dsn)
	for i := range 20 {
		add(t, s, aNode(fmt.Sprintf("%s%d", strings.Repeat("x", 300), i), "c", 1))
	}
	s.Close()
	path = strings.TrimPrefix(dsn, "sqlite:")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(content); i++ {
		content[i] = 0xa5
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(bg, Config{DSN: dsn})
	wantError(t, err, trainyard.CodeInternal, path, "damaged", "backup")
}

func TestPathsMayHoldAnything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c=d&e#f%20g'h")
	if runtime.GOOS == "windows" {
		dir = filepath.Join(t.TempDir(), "a b&e#f%20g'h")
	}
	path := filepath.Join(dir, "trainyard.db")
	s := open(t, "sqlite:"+path)
	add(t, s, aJob("j", "c", 1, 1))
	s.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %s", info.Mode())
	}
	again := opened(t, "sqlite:"+path)
	if _, err := again.Job(bg, key("j")); err != nil {
		t.Error(err)
	}
}

func TestSQLiteIsSetUpAsPromised(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000", "mmap_size": "0"} {
		var got string
		if err := s.conn.conn.QueryRowContext(bg, "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", pragma, got, err, want)
		}
	}
	if _, err := s.db.readers.Exec("DELETE FROM jobs"); err == nil {
		t.Error("a reader can write")
	}
}
