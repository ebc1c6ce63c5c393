// Package store is what is true: every transaction, all SQL, and an image in memory of all that has not ended, which the scheduler and
// the agents are served from. It decides nothing: which moves are legal is in the root package, what to do is control's. Bytes of
// artifacts and logs are not here but in blob.
//
// Writing: Update hands a function to the one goroutine that writes. Functions that wait at the same time share a transaction and its
// fsync (group commit); each sees the writes of those before it, and one that fails takes only its own writes back. Writes are gathered in
// memory and go to the database together at the end, a row at most once. Only when they are durable do they enter the image, are
// subscribers told and do callers return.
package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/pressly/goose/v3"

	"github.com/trainyard/trainyard"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Config says where the database is. DSN is "sqlite:/path/to/trainyard.db" or "postgres://user@host/database". A nil Log is slog.Default().
type Config struct {
	DSN string
	Key []byte // 32 bytes that seal the passwords and keys of computes; nil: they are stored as they are
	Log *slog.Logger
}

// Store is an open database with its image in memory. All its methods may be called by several goroutines at once.
type Store struct {
	log   *slog.Logger
	db    *database
	reads *pool
	image *image
	news  *news

	requests chan *request
	closing  chan struct{} // closed by Close: no more requests
	closed   chan struct{} // closed by the writer when it has answered all it will
	close    func() error

	// The writer's own.
	conn   *connection
	seq    int64 // last given out
	mark   int64 // no seq above it has been given out by anyone who came before; in the database
	owner  int64 // says that this process has the database
	ousted error // another process has it now
}

// Open opens the database, brings its tables up to date and reads what has not ended into memory. It refuses, in words, a database that a
// newer program wrote and one that another process has open. Close the Store when done.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	db, err := openDatabase(ctx, cfg.DSN)
	if err != nil {
		return nil, err
	}
	s := &Store{
		log: cfg.Log, db: db, reads: &pool{db: db.readers, stmts: map[string]*sql.Stmt{}}, image: newImage(), news: newNews(),
		requests: make(chan *request, 256), closing: make(chan struct{}), closed: make(chan struct{}),
		owner: rand.Int64(),
	}
	if s.image.seal, err = newSealer(cfg.Key); err != nil {
		db.close()
		return nil, err
	}
	s.close = sync.OnceValue(s.shut)
	if err := s.start(ctx); err != nil {
		err = db.explain(err)
		if s.conn != nil {
			s.conn.close()
		}
		db.close()
		return nil, err
	}
	go s.write()
	go s.news.deliver()
	return s, nil
}

// start makes the writer's connection the only one, migrates and loads.
func (s *Store) start(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	s.db.writers.SetMaxOpenConns(1) // migrations took a second one
	if err := s.conn.exec(ctx, statement{upsertCounter, []any{counterOwner, s.owner}}); err != nil {
		return err
	}
	_, err := s.load(ctx)
	return err
}

func (s *Store) connect(ctx context.Context) error {
	conn, err := s.db.writers.Conn(ctx)
	if err != nil {
		return err
	}
	if err := s.db.claim(ctx, conn); err != nil {
		conn.Close()
		return err
	}
	s.conn = newConnection(conn)
	return nil
}

// migrate brings the tables up to date, and refuses those of a newer program.
func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(s.db.dialect, s.db.writers, files, goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the version of its tables: %w", err)
	}
	sources := p.ListSources()
	if know := sources[len(sources)-1].Version; have > know {
		return trainyard.Conflict("the database %s was written by a newer trainyard (its tables are of version %d, this program knows %d): "+
			"start that program, or restore a backup from before", s.db.where, have, know)
	}
	done, err := p.Up(ctx)
	if err != nil {
		return fmt.Errorf("bring its tables up to date: %w", err)
	}
	for _, m := range done {
		s.log.Info("database migrated", "database", s.db.where, "version", m.Source.Version, "took", m.Duration)
	}
	return nil
}

// Close waits for the Updates that have begun, refuses those that come later, and closes the database. It may be called twice.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	close(s.closing)
	<-s.closed
	s.news.stop()
	ctx, cancel := s.patience()
	defer cancel()
	_ = s.db.yield(ctx, s.conn.conn) // if that fails the connection is gone, and the lock with it
	s.conn.close()
	if err := s.db.close(); err != nil {
		return fmt.Errorf("close database %s: %w", s.db.where, err)
	}
	return nil
}
