package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// sticky is a machine with a task that cannot be removed.
type sticky struct {
	*machine
	id    trainyard.TaskID
	hangs bool // and that takes until it is given up

	mu       sync.Mutex
	tries    []time.Time
	now      int // tries that have not ended
	mostOnce int
}

func (s *sticky) Engine() string { return "the made-up engine" }

func (s *sticky) Remove(ctx context.Context, id trainyard.TaskID) error {
	if id != s.id {
		return s.machine.Remove(ctx, id)
	}
	s.mu.Lock()
	s.tries = append(s.tries, time.Now())
	s.now++
	s.mostOnce = max(s.mostOnce, s.now)
	s.mu.Unlock()
	if s.hangs {
		<-ctx.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	return errors.New("device or resource busy")
}

func (s *sticky) counts() (tries, now, mostOnce int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tries), s.now, s.mostOnce
}

// What is left of a task that nobody wants is no reason not to look at the others, or to say that their engine is away.
func TestATaskOfNobodyThatStaysBlindsNobody(t *testing.T) {
	for name, hangs := range map[string]bool{"it cannot be removed": false, "it takes for ever to remove": true} {
		t.Run(name, func(t *testing.T) {
			isolated(t, func(y *yard) {
				stays, goes := task("stays", "ignore"), task("goes", "ignore")
				for _, s := range []trainyard.Task{stays, goes} {
					s.Run.Command = s.Command
					if err := y.mac.Start(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
				s := &sticky{machine: y.mac, id: stays.ID, hangs: hangs}
				y.cfg.Driver = s
				y.during(func() {
					long, short := task("long", "ignore"), task("short", "hello")
					y.srv.want(long)
					y.until("it runs beside what nobody wants", func() bool { return y.runs(long.ID) && y.mac.count() == 2 })
					<-time.After(10 * time.Minute)
					began := time.Now()
					y.srv.want(short)
					y.untilEnded(short.ID)
					if took := time.Since(began); took > time.Second {
						t.Errorf("a task that ends at once took %s", took)
					}
					if y.unsaid(long.ID) > 0 || y.progress(long.ID) != "" || slices.ContainsFunc(y.srv.told(), func(r trainyard.Report) bool { return len(r.Away) > 0 }) {
						t.Errorf("the engine is said to be away: %q, %+v", y.progress(long.ID), y.away())
					}
					y.srv.stop(long.ID, trainyard.ClassCanceled)
					y.untilEnded(long.ID)
				})
				tries, now, mostOnce := s.counts()
				if now != 0 || mostOnce != 1 {
					t.Errorf("when the agent has ended %d tries go on; %d went on at once", now, mostOnce)
				}
				if hangs && tries != 1 || !hangs && (tries < 10 || tries > 20) {
					t.Errorf("in ten minutes it was tried %d times", tries)
				}
			})
		})
	}
}

// What nobody wants is removed as soon as that can be done.
func TestATaskOfNobodyThatStayedGoesInTheEnd(t *testing.T) {
	isolated(t, func(y *yard) {
		stray := task("stray", "ignore")
		stray.Run.Command = stray.Command
		if err := y.mac.Start(t.Context(), stray); err != nil {
			t.Fatal(err)
		}
		y.mac.fail = func(call string) error {
			if call == "remove" {
				return errors.New("device or resource busy")
			}
			return nil
		}
		y.during(func() {
			<-time.After(10 * time.Minute)
			y.mac.mu.Lock()
			y.mac.fail = nil
			y.mac.mu.Unlock()
			began := time.Now()
			y.until("it is gone", func() bool { return y.mac.count() == 0 })
			if took := time.Since(began); took > 65*time.Second {
				t.Errorf("that took %s", took)
			}
		})
	})
}
