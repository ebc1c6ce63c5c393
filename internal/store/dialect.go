package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"

	"github.com/trainyard/trainyard"
)

// database is an open database. What differs between SQLite and PostgreSQL is in this file and nowhere else.
type database struct {
	name    string        // for people
	where   string        // path, or host and database
	dialect goose.Dialect // for migrations
	readers *sql.DB
	writers *sql.DB // gives out the one connection that writes

	patience time.Duration // how long a batch may take, 0: as long as it takes

	claim   func(ctx context.Context, conn *sql.Conn) error               // makes conn the only one that writes, or says who is
	commit  func(ctx context.Context, c *connection, l []statement) error // all statements in one durable transaction, or none
	explain func(err error) error                                         // in words, with what to do
	lost    func(conn *sql.Conn) bool                                     // the connection is gone: what it last did is not known
	yield   func(ctx context.Context, conn *sql.Conn) error               // undoes claim
	release func() error
}

// statement is SQL with its arguments.
type statement struct {
	sql  string
	args []any
}

// openDatabase opens what the DSN names. Nothing is read or written yet but what SQLite needs to call a file its own.
func openDatabase(ctx context.Context, dsn string) (*database, error) {
	switch {
	case strings.HasPrefix(dsn, "sqlite:"):
		return openSQLite(ctx, strings.TrimPrefix(dsn, "sqlite:"))
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		return openPostgres(dsn)
	}
	scheme, _, _ := strings.Cut(dsn, ":")
	return nil, trainyard.Invalid("the database %q… is of no kind that is known: want sqlite:/path/to/trainyard.db or postgres://user@host/database", scheme)
}

// oldestSQLite is the first version without the WAL-reset corruption of 3.7.0 to 3.51.2 (sqlite.org/wal.html, "the WAL reset bug").
var oldestSQLite = [3]int{3, 51, 3}

func openSQLite(ctx context.Context, path string) (*database, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", path, err)
	}
	explain := func(err error) error { return explainSQLite(path, err) }
	lock, err := ownFile(path)
	if err != nil {
		return nil, explain(err)
	}
	db := &database{
		name: "SQLite", where: path, dialect: goose.DialectSQLite3, explain: explain, commit: commitSQLite,
		claim:   func(context.Context, *sql.Conn) error { return nil }, // ownFile has done it
		yield:   func(context.Context, *sql.Conn) error { return nil },
		lost:    func(*sql.Conn) bool { return false },
		release: lock.Close,
	}
	// A checkpoint at 4,000 pages (16 MiB) instead of 1,000 costs less often; the log file is cut back when it was larger.
	common := "_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_pragma=mmap_size(0)&_pragma=synchronous(FULL)"
	db.writers, err = sql.Open("sqlite", fileURI(path)+"?"+common+
		"&_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(67108864)&_pragma=cache_size(-8000)")
	if err == nil {
		db.readers, err = sql.Open("sqlite", fileURI(path)+"?"+common+"&_pragma=query_only(1)")
	}
	if err == nil {
		db.readers.SetMaxOpenConns(4)
		db.readers.SetMaxIdleConns(4)
		err = checkSQLite(ctx, db.writers)
	}
	if err != nil {
		db.close()
		return nil, explain(err)
	}
	return db, nil
}

// ownFile makes the database's folder and file if they are not there, for their owner alone, and takes the lock on "path.lock".
func ownFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := lockFile(lock)
	if err != nil || !held {
		by, _ := os.ReadFile(path + ".lock")
		lock.Close()
		if err != nil {
			return nil, fmt.Errorf("lock %s.lock: %w", path, err)
		}
		return nil, trainyard.Conflict("another trainyard server (process %s) is using %s: stop it, or give this one a data folder of its own with --data",
			strings.TrimSpace(string(by)), path)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		f.Close() // before SQLite opens it: closing it later would drop SQLite's own locks
		err = errors.Join(lock.Truncate(0), writeAt(lock, strconv.Itoa(os.Getpid())+"\n"))
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// fileURI spells a path so that SQLite takes no part of it for anything else.
func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath()
}

func checkSQLite(ctx context.Context, db *sql.DB) error {
	var version, mode string
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil || less(v, oldestSQLite) {
		return fmt.Errorf("this program was built with SQLite %s, which can damage a database: build it with %d.%d.%d or newer",
			version, oldestSQLite[0], oldestSQLite[1], oldestSQLite[2])
	}
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return trainyard.Invalid("the file system does not let SQLite use a write-ahead log: put the data folder on a local disk")
	}
	return touchTables(ctx, db)
}

// touchTables reads the first page of every table, so that a damaged file is called that before anything is done with it.
func touchTables(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT name FROM sqlite_master WHERE type = 'table'")
	tables, err := scanAll(rows, err, func(rows *sql.Rows) (name string, err error) {
		err = rows.Scan(&name)
		return name, err
	})
	for _, name := range tables {
		rows, readErr := db.QueryContext(ctx, `SELECT 1 FROM "`+strings.ReplaceAll(name, `"`, `""`)+`" LIMIT 1`)
		_, readErr = scanAll(rows, readErr, func(*sql.Rows) (any, error) { return nil, nil })
		err = errors.Join(err, readErr)
	}
	return err
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func commitSQLite(ctx context.Context, c *connection, list []statement) error {
	if err := c.exec(ctx, statement{sql: "BEGIN IMMEDIATE"}); err != nil {
		return err
	}
	for i := range list {
		if err := c.exec(ctx, list[i]); err != nil {
			_ = c.exec(ctx, statement{sql: "ROLLBACK"}) // SQLite may have rolled back by itself
			return err
		}
	}
	if err := c.exec(ctx, statement{sql: "COMMIT"}); err != nil {
		_ = c.exec(ctx, statement{sql: "ROLLBACK"})
		return err
	}
	return nil
}

// SQLite's primary result codes (sqlite.org/rescode.html); the low byte of the extended ones.
const (
	sqlitePerm     = 3
	sqliteBusy     = 5
	sqliteReadOnly = 8
	sqliteIOErr    = 10
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteCantOpen = 14
	sqliteNotADB   = 26
	sqliteMask     = 0xff
)

func explainSQLite(path string, err error) error {
	if _, ok := errors.AsType[*trainyard.Error](err); ok {
		return err
	}
	code := 0
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		code = e.Code() & sqliteMask
	}
	say := func(format string, args ...any) error {
		return trainyard.Errorf(trainyard.CodeInternal, format+" (%v)", append(args, err)...)
	}
	dir := filepath.Dir(path)
	switch {
	case code == sqliteFull || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return say("the disk that holds %s is full and nothing was stored: free some space there, then try again", path)
	case code == sqliteReadOnly, code == sqlitePerm, code == sqliteCantOpen, errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return say("the database %s cannot be written: let user id %d write in %s, or choose another folder with --data", path, os.Getuid(), dir)
	case code == sqliteCorrupt, code == sqliteNotADB:
		return say("the database %s is damaged, or no database at all: put a backup in its place, or move it and its -wal file away to begin empty; "+
			"`sqlite3 %s .recover` may save what is in it", path, path)
	case code == sqliteBusy:
		return say("another program has locked %s for longer than 10 s: end it, then try again", path)
	case code == sqliteIOErr:
		return say("the disk that holds %s does not work and nothing was stored: see the system's log", path)
	}
	return fmt.Errorf("database %s: %w", path, err)
}

// advisoryLock is the number of the PostgreSQL advisory lock that the one server of a database holds: "trainyrd" in ASCII.
const advisoryLock int64 = 0x747261696e797264

func openPostgres(dsn string) (*database, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, trainyard.Invalid("the database address is not one: want postgres://user:password@host:port/database (%v)", errors.Unwrap(err))
	}
	cfg.RuntimeParams["application_name"] = "trainyard"
	where := cfg.Host + "/" + cfg.Database
	db := &database{
		name: "PostgreSQL", where: where, dialect: goose.DialectPostgres, commit: commitPostgres,
		readers: stdlib.OpenDB(*cfg), writers: stdlib.OpenDB(*cfg),
		claim:   func(ctx context.Context, conn *sql.Conn) error { return claimPostgres(ctx, conn, where) },
		explain: func(err error) error { return explainPostgres(where, err) },
		yield:   yieldPostgres,
		lost:    lostPostgres, patience: 30 * time.Second,
		release: func() error { return nil }, // the lock goes with the connection
	}
	db.readers.SetMaxOpenConns(8)
	db.readers.SetMaxIdleConns(4)
	return db, nil
}

// claimPatience is how long a server that was killed may go on holding its lock: PostgreSQL takes a moment to see that it is gone.
const claimPatience = 2 * time.Second

func claimPostgres(ctx context.Context, conn *sql.Conn, where string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(claimPatience); ; {
		var held bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", advisoryLock).Scan(&held); err != nil || held {
			return err
		}
		if time.Now().After(deadline) {
			return trainyard.Conflict("another trainyard server is using the database %s: stop it, or give this one a database of its own", where)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// yieldPostgres gives the lock back at once; closing the connection would, but only a moment later.
func yieldPostgres(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", advisoryLock)
	return err
}

// commitPostgres sends everything in one go: a transaction costs one round trip.
func commitPostgres(ctx context.Context, c *connection, list []statement) error {
	return c.conn.Raw(func(driver any) error {
		conn := driver.(*stdlib.Conn).Conn()
		batch := &pgx.Batch{}
		batch.Queue("BEGIN")
		for _, s := range list {
			batch.Queue(s.sql, s.args...)
		}
		batch.Queue("COMMIT")
		err := sendBatch(ctx, conn, batch)
		if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
			_, undo := conn.Exec(ctx, "ROLLBACK")
			err = errors.Join(err, undo)
		}
		return err
	})
}

func sendBatch(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error {
	res := conn.SendBatch(ctx, batch)
	var last pgconn.CommandTag
	for range batch.Len() {
		tag, err := res.Exec()
		if err != nil {
			return errors.Join(err, res.Close())
		}
		last = tag
	}
	if err := res.Close(); err != nil {
		return err
	}
	if last.String() != "COMMIT" {
		return fmt.Errorf("the transaction ended with %s", last)
	}
	return nil
}

func lostPostgres(conn *sql.Conn) bool {
	closed := true
	err := conn.Raw(func(driver any) error {
		closed = driver.(*stdlib.Conn).Conn().IsClosed()
		return nil
	})
	return err != nil || closed
}

func explainPostgres(where string, err error) error {
	if _, ok := errors.AsType[*trainyard.Error](err); ok {
		return err
	}
	say := func(format string, args ...any) error {
		return trainyard.Errorf(trainyard.CodeInternal, format+" (%v)", append(args, err)...)
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		return say("the database %s cannot be reached or broke off: see that PostgreSQL runs there and that the address is right, then try again", where)
	case !ok:
		return fmt.Errorf("database %s: %w", where, err)
	case e.Code == "53100":
		return say("the disk of the database %s is full and nothing was stored: free some space there, then try again", where)
	case e.Code == "25006":
		return say("the database %s takes no writes: it is a standby or set to read only; give the address of the primary", where)
	case strings.HasPrefix(e.Code, "28"), e.Code == "3D000", e.Code == "42501":
		return say("the database %s does not let us in: see user, password and database name, and that the user may create tables", where)
	case strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "53"):
		return say("the database %s broke off or turned us away: try again when it is up and has room for connections", where)
	case e.Code == "XX001", e.Code == "XX002":
		return say("the database %s is damaged: restore a backup", where)
	}
	return fmt.Errorf("database %s: %w", where, err)
}

// close lets go of everything; the lock is last.
func (db *database) close() error {
	var errs []error
	for _, pool := range []*sql.DB{db.readers, db.writers} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	return errors.Join(append(errs, db.release())...)
}
