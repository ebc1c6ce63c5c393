package store

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/trainyard/trainyard"
)

// request is one Update on its way through the writer.
type request struct {
	ctx   context.Context
	fn    func(*Tx) error
	done  chan struct{} // closed when err and panic are final
	err   error
	panic any
}

// mostTogether bounds a batch, so that the first of it does not wait long for the last.
const mostTogether = 512

// Update runs fn in a transaction; when it returns nil, what fn wrote is durable. An error from fn takes back what fn wrote, and nothing
// else, and is returned as it is. fn runs on the one goroutine that writes: it must be quick, do no I/O and not call Update. It may be run
// together with other callers' functions, whose writes it sees through Tx and not through the Store; if they cannot be stored, none are,
// and every caller gets the error. A ctx that ends before fn has begun is an error; after that Update waits for the outcome. A panic in fn
// is the caller's.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	r := &request{ctx: ctx, fn: fn, done: make(chan struct{})}
	select {
	case <-s.closing:
		return errClosed()
	default:
	}
	select {
	case s.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return errClosed()
	}
	select {
	case <-r.done:
	case <-s.closed: // the writer is gone; it may have answered before
		select {
		case <-r.done:
		default:
			return errClosed()
		}
	}
	if r.panic != nil {
		panic(r.panic)
	}
	return r.err
}

func errClosed() error {
	return trainyard.Errorf(trainyard.CodeBusy, "the server is stopping and nothing was stored: try again when it is back")
}

// write is the goroutine that writes.
func (s *Store) write() {
	defer close(s.closed)
	for {
		select {
		case r := <-s.requests:
			s.batch(s.together(r))
		case <-s.closing:
			s.drain()
			return
		}
	}
}

// drain does what was asked for before Close.
func (s *Store) drain() {
	for {
		select {
		case r := <-s.requests:
			s.batch(s.together(r))
		default:
			return
		}
	}
}

// together is r and those who wait behind it.
func (s *Store) together(r *request) []*request {
	batch := []*request{r}
	for len(batch) < mostTogether {
		select {
		case r := <-s.requests:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// batch runs the functions, stores what they wrote in one transaction, and answers.
func (s *Store) batch(batch []*request) {
	ctx, cancel := s.patience()
	defer cancel()
	err := s.attempt(ctx, batch)
	for _, r := range batch {
		if err != nil && r.panic == nil {
			r.err = err
		}
		close(r.done)
	}
}

// attempt returns the error that all of the batch share.
func (s *Store) attempt(ctx context.Context, batch []*request) error {
	if err := s.reconnect(ctx); err != nil {
		return err
	}
	all := newLayer()
	for _, r := range batch {
		s.call(ctx, all, r)
	}
	list, mark := s.statements(all)
	if len(list) > 0 {
		if err := s.db.commit(ctx, s.conn, list); err != nil {
			s.conn.failed = true
			err = s.db.explain(err)
			s.log.Error("nothing was stored", "changes", len(batch), "error", err)
			return err
		}
		s.mark = mark
	}
	s.image.apply(all)
	s.news.publish(all.change(time.Now()))
	return nil
}

// call runs one function and keeps its writes if it succeeds.
func (s *Store) call(ctx context.Context, all *layer, r *request) {
	if r.err = r.ctx.Err(); r.err != nil {
		return
	}
	tx := &Tx{s: s, ctx: ctx, below: all, own: newLayer()}
	defer func() {
		if p := recover(); p != nil {
			r.panic = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
		}
	}()
	if r.err = r.fn(tx); r.err == nil {
		tx.keep()
	}
}

// patience is how long a batch may take: a network connection can hang for ever, a disk cannot be hurried.
func (s *Store) patience() (context.Context, context.CancelFunc) {
	if s.db.patience == 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), s.db.patience)
}

// reconnect takes the place of a connection that broke: what was last sent on it may or may not have been stored, and another server may
// have come since, so it makes sure that the database is still ours and reads the image again.
func (s *Store) reconnect(ctx context.Context) error {
	if s.ousted != nil {
		return s.ousted
	}
	if !s.conn.failed {
		return nil
	}
	if !s.db.lost(s.conn.conn) {
		s.conn.failed = false
		return nil
	}
	s.conn.close()
	if err := s.connect(ctx); err != nil {
		return s.db.explain(err)
	}
	err := s.stillOurs(ctx)
	var change trainyard.Change
	if err == nil {
		change, err = s.load(ctx)
	}
	if err != nil { // let go of the database: it may be another's by now
		_ = s.db.yield(ctx, s.conn.conn)
		s.conn.close()
		s.conn.failed = true
		return s.db.explain(err)
	}
	s.news.publish(change)
	s.log.Warn("connected to the database again", "database", s.db.where)
	return nil
}

func (s *Store) stillOurs(ctx context.Context) error {
	owner, err := s.counter(ctx, counterOwner)
	if err != nil || owner == s.owner {
		return err
	}
	s.ousted = trainyard.Conflict("another trainyard server has taken over the database %s while this one was cut off from it: stop this one", s.db.where)
	return s.ousted
}
