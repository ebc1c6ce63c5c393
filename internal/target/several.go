package target

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// Several is the drivers of one place as one: a task goes to the first of Others that says it Contains it, and else to First. It is Plural:
// one whose engine is away, or hangs, is no reason to stop watching the others' tasks.
type Several struct {
	First  Driver
	Others []Driver

	once    sync.Once
	changed chan struct{}
	closing chan struct{}
	waits   sync.WaitGroup

	mu    sync.Mutex
	owner map[trainyard.TaskID]Driver // that was given the task, or was seen to hold it
}

// Patience is how long an engine may be silent before anybody is told: a restart that nobody notices is no news.
const Patience = 1500 * time.Millisecond

var (
	_ Driver   = (*Several)(nil)
	_ Watcher  = (*Several)(nil)
	_ Preparer = (*Several)(nil)
	_ Closer   = (*Several)(nil)
	_ Meter    = (*Several)(nil)
	_ Plural   = (*Several)(nil)

	_ ImageChecker = (*Several)(nil)
	_ Dialer       = (*Several)(nil)
	_ Reached      = (*Several)(nil)
)

func (s *Several) all() []Driver { return append([]Driver{s.First}, s.Others...) }

// of is the driver for a task that has not begun.
func (s *Several) of(t trainyard.Task) Driver {
	for _, d := range s.Others {
		if p, ok := d.(Preparer); ok && p.Contains(t) {
			return d
		}
	}
	return s.First
}

// owners are the drivers that may hold a task: one, or all when nobody knows.
func (s *Several) owners(id trainyard.TaskID) []Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.owner[id]; d != nil {
		return []Driver{d}
	}
	return s.all()
}

// Contains says whether one of Others brings the task's environment.
func (s *Several) Contains(t trainyard.Task) bool { return s.of(t) != s.First }

// Prepare has the task's driver bring its environment.
func (s *Several) Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) error {
	if d, ok := s.of(t).(Preparer); ok {
		return d.Prepare(ctx, t, p)
	}
	return nil
}

// Capacity is First's.
func (s *Several) Capacity(ctx context.Context) (trainyard.Resources, error) {
	return s.First.Capacity(ctx)
}

// Start begins the task with its driver.
func (s *Several) Start(ctx context.Context, t trainyard.Task) error {
	d := s.of(t)
	s.mu.Lock()
	if s.owner == nil {
		s.owner = map[trainyard.TaskID]Driver{}
	}
	s.owner[t.ID] = d
	s.mu.Unlock()
	return d.Start(ctx, t)
}

// Observe lists the tasks of all drivers, one after the other: whole or not at all.
func (s *Several) Observe(ctx context.Context) (out []trainyard.Observation, err error) {
	for _, d := range s.all() {
		list, err := s.ObservePart(ctx, d)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// Parts are First and Others.
func (s *Several) Parts() []Driver { return s.all() }

// ObservePart lists the tasks of one driver, which holds them from now on.
func (s *Several) ObservePart(ctx context.Context, d Driver) ([]trainyard.Observation, error) {
	list, err := d.Observe(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil {
		s.owner = map[trainyard.TaskID]Driver{}
	}
	for _, o := range list {
		s.owner[o.ID] = d
	}
	return list, nil
}

// Holder is the driver that was given the task, or was seen to hold it. If there is none, it is the one that the task would go to.
func (s *Several) Holder(t *trainyard.Task) (d Driver, holds bool) {
	s.mu.Lock()
	d = s.owner[t.ID]
	s.mu.Unlock()
	if d != nil {
		return d, true
	}
	return s.of(*t), false
}

// Stop asks the task to end.
func (s *Several) Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error {
	var errs []error
	for _, d := range s.owners(id) {
		errs = append(errs, d.Stop(ctx, id, grace))
	}
	return errors.Join(errs...)
}

// Remove takes every trace of the task away.
func (s *Several) Remove(ctx context.Context, id trainyard.TaskID) error {
	var errs []error
	for _, d := range s.owners(id) {
		errs = append(errs, d.Remove(ctx, id))
	}
	err := errors.Join(errs...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owner, id)
	return nil
}

// Logs reads the task's log from the driver that has it.
func (s *Several) Logs(ctx context.Context, id trainyard.TaskID, from int64) (r io.ReadCloser, err error) {
	for _, d := range s.owners(id) {
		if r, err = d.Logs(ctx, id, from); err == nil {
			return r, nil
		}
	}
	return nil, err
}

// Reached asks the first driver that has containers.
func (s *Several) Reached(ctx context.Context) (host string, err error) {
	err = trainyard.Errorf(trainyard.CodeUnsupported, "containers here do not reach this node")
	for _, d := range s.all() {
		if r, ok := d.(Reached); ok {
			if host, err = r.Reached(ctx); err == nil {
				return host, nil
			}
		}
	}
	return "", err
}

// Usage asks the driver that has the task.
func (s *Several) Usage(ctx context.Context, id trainyard.TaskID) (u Usage, err error) {
	err = trainyard.Errorf(trainyard.CodeUnsupported, "no driver here measures what %s uses", id.Words())
	for _, d := range s.owners(id) {
		if m, ok := d.(Meter); ok {
			if u, err = m.Usage(ctx, id); err == nil {
				return u, nil
			}
		}
	}
	return Usage{}, err
}

// Dial asks the driver that has the task.
func (s *Several) Dial(ctx context.Context, id trainyard.TaskID) (c net.Conn, err error) {
	err = trainyard.Errorf(trainyard.CodeUnsupported, "no driver here reaches a port of %s", id.Words())
	for _, d := range s.owners(id) {
		if m, ok := d.(Dialer); ok {
			if c, err = m.Dial(ctx, id); err == nil {
				return c, nil
			}
		}
	}
	return nil, err
}

// Changed gets a value when one of the drivers says that something changed.
func (s *Several) Changed() <-chan struct{} {
	s.once.Do(func() {
		s.changed, s.closing = make(chan struct{}, 1), make(chan struct{})
		for _, d := range s.all() {
			if w, ok := d.(Watcher); ok {
				s.waits.Go(func() { s.pass(w.Changed()) })
			}
		}
	})
	return s.changed
}

func (s *Several) pass(from <-chan struct{}) {
	for {
		select {
		case <-s.closing:
			return
		case <-from:
		}
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// CheckImage asks the driver that brings images; without one nothing is known.
func (s *Several) CheckImage(ctx context.Context, image string) (trainyard.ImageWord, error) {
	for _, d := range s.Others {
		if c, ok := d.(ImageChecker); ok {
			return c.CheckImage(ctx, image)
		}
	}
	return trainyard.ImageWord{}, trainyard.Errorf(trainyard.CodeUnsupported, "no driver here brings images")
}

// Notes says what the drivers do not hold here.
func (s *Several) Notes() []string {
	var out []string
	for _, d := range s.all() {
		if n, ok := d.(interface{ Notes() []string }); ok {
			out = append(out, n.Notes()...)
		}
	}
	return out
}

// Close closes all drivers.
func (s *Several) Close() error {
	s.Changed()
	close(s.closing)
	s.waits.Wait()
	var errs []error
	for _, d := range s.all() {
		if c, ok := d.(Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
