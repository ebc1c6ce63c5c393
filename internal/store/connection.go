package store

import (
	"context"
	"database/sql"
	"sync"
)

// querier reads: the writer's own connection inside a transaction function, the readers' pool elsewhere.
type querier interface {
	query(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

// connection is the one that writes, with its prepared statements. Only the writer uses it.
type connection struct {
	conn   *sql.Conn
	stmts  map[string]*sql.Stmt
	failed bool // something went wrong since it was last looked at
}

func newConnection(conn *sql.Conn) *connection {
	return &connection{conn: conn, stmts: map[string]*sql.Stmt{}}
}

func (c *connection) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if s := c.stmts[text]; s != nil {
		return s, nil
	}
	s, err := c.conn.PrepareContext(ctx, text)
	if err != nil {
		c.failed = true
		return nil, err
	}
	c.stmts[text] = s
	return s, nil
}

func (c *connection) exec(ctx context.Context, s statement) error {
	stmt, err := c.prepare(ctx, s.sql)
	if err != nil {
		return err
	}
	if _, err = stmt.ExecContext(ctx, s.args...); err != nil {
		c.failed = true
	}
	return err
}

func (c *connection) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	stmt, err := c.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		c.failed = true
	}
	return rows, err
}

func (c *connection) close() error {
	for _, s := range c.stmts {
		s.Close()
	}
	return c.conn.Close()
}

// pool is the readers, with prepared statements.
type pool struct {
	db *sql.DB

	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

// mostStatements bounds the prepared statements of the pool: queries are put together from parts, and there are few combinations.
const mostStatements = 300

func (p *pool) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	stmt, err := p.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return p.db.QueryContext(ctx, text, args...)
	}
	return stmt.QueryContext(ctx, args...)
}

func (p *pool) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stmts[text]
	if s != nil || len(p.stmts) >= mostStatements {
		return s, nil
	}
	s, err := p.db.PrepareContext(ctx, text)
	if err == nil {
		p.stmts[text] = s
	}
	return s, err
}

// scanAll reads every row with scan.
func scanAll[T any](rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
