package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// containers is a machine for tasks with an image, whose engine hangs while it is held.
type containers struct {
	*machine

	mu    sync.Mutex
	hangs chan struct{} // closed when the engine answers again; nil: it does
	fails error         // what a look comes to; nil: it succeeds
	looks []span        // that were taken
	slow  time.Duration
	dim   string // why the engine itself knows nothing of what runs

	checks, mostChecks int // of images, at once
}

type span struct{ began, ended time.Time }

func (c *containers) Engine() string { return "the made-up engine" }

func (c *containers) Contains(t trainyard.Task) bool {
	return t.Environment != nil && t.Environment.Image != ""
}

func (c *containers) Prepare(context.Context, trainyard.Task, trainyard.Progress) error { return nil }

// ask waits for the engine to answer.
func (c *containers) ask() {
	c.mu.Lock()
	hangs := c.hangs
	c.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
}

// hang has the engine hang until the function returned is called.
func (c *containers) hang() (thaw func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hangs := make(chan struct{})
	c.hangs = hangs
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hangs = nil
		close(hangs)
	}
}

// fail has looks come to an error; nil: they succeed again.
func (c *containers) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = err
}

func (c *containers) Start(ctx context.Context, t trainyard.Task) error {
	c.ask()
	return c.machine.Start(ctx, t)
}

func (c *containers) Observe(ctx context.Context) ([]trainyard.Observation, error) {
	began := time.Now()
	c.mu.Lock()
	slow := c.slow
	c.mu.Unlock()
	if slow > 0 {
		<-time.After(slow)
	}
	c.ask()
	c.mu.Lock()
	c.looks = append(c.looks, span{began, time.Now()})
	err, dim := c.fails, c.dim
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	list, err := c.machine.Observe(ctx)
	for i := range list {
		if list[i].State == trainyard.TaskRunning {
			list[i].Progress = dim
		}
	}
	return list, err
}

func (c *containers) Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error {
	c.ask()
	return c.machine.Stop(ctx, id, grace)
}

func (c *containers) Remove(ctx context.Context, id trainyard.TaskID) error {
	c.machine.mu.Lock()
	has := c.procs[id] != nil
	c.machine.mu.Unlock()
	if has {
		c.ask()
	}
	return c.machine.Remove(ctx, id)
}

// withContainers gives the yard's node an engine.
func withContainers(y *yard) *containers {
	c := &containers{machine: newMachine()}
	y.cfg.Driver = &target.Several{First: y.mac, Others: []target.Driver{c}}
	y.srv.written = nil
	return c
}

func imageTask(name, command string) trainyard.Task {
	t := task(name, command)
	t.Environment = &trainyard.EnvironmentPlan{Image: "python:3"}
	return t
}

// runs says whether a task was reported to run.
func (y *yard) runs(id trainyard.TaskID) bool {
	return slices.Contains(y.srv.states(id), trainyard.TaskRunning)
}

// progress is what was last reported of a task.
func (y *yard) progress(id trainyard.TaskID) (said string) {
	for _, r := range y.srv.told() {
		for _, t := range r.Tasks {
			if t.ID == id {
				said = t.Away
			}
		}
	}
	return said
}

func TestAnEngineThatHangsBlindsNobodyElse(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		y.during(func() {
			long, short := imageTask("long", "ignore"), imageTask("short", "sleep")
			y.srv.want(long, short)
			y.until("they run", func() bool { return y.runs(long.ID) && y.runs(short.ID) })
			<-time.After(30 * time.Second)
			thaw := c.hang()
			<-time.After(time.Second)
			began := time.Now()
			plain, unwanted := task("plain", "hello"), task("unwanted", "ignore")
			y.srv.want(plain, unwanted)
			y.untilEnded(plain.ID)
			y.srv.stop(unwanted.ID, trainyard.ClassCanceled)
			if res := y.untilEnded(unwanted.ID); res.Class != trainyard.ClassCanceled {
				t.Errorf("the process that was to end: %+v", res)
			}
			if took := time.Since(began); took > 6*time.Second { // of the test's own time; its grace is 5 s
				t.Errorf("beside an engine that hangs a process that ends and one that is stopped took %s", took)
			}
			y.until("it is said why", func() bool {
				return strings.HasPrefix(y.progress(long.ID), "the made-up engine has not answered since 00:00:3")
			})
			if said := y.progress(plain.ID) + y.progress(unwanted.ID); said != "" {
				t.Errorf("of the others is said %q", said)
			}
			<-time.After(5 * time.Minute)
			thaw()
			back := time.Now()
			if res := y.untilEnded(short.ID); res.Class != trainyard.ClassOK {
				t.Errorf("the one that ended meanwhile: %+v", res)
			}
			y.until("it is said no more", func() bool { return y.progress(long.ID) == "" })
			late := imageTask("late", "hello")
			y.srv.want(late)
			y.untilEnded(late.ID)
			if took := time.Since(back); took > 2*time.Second {
				t.Errorf("after the engine answered it took %s until all was seen", took)
			}
			y.srv.stop(long.ID, trainyard.ClassCanceled)
			y.untilEnded(long.ID)
		})
		if c.started(imageTask("long", "").ID) != 1 {
			t.Error("it was started twice")
		}
	})
}

// An engine that has lost a node says so of what runs there, and so does the agent, also when the engine itself was away in between.
func TestWhatAnEngineDoesNotKnowItselfIsSaidAgainWhenItIsBack(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		y.during(func() {
			long := imageTask("long", "ignore")
			y.srv.want(long)
			y.until("it runs", func() bool { return y.runs(long.ID) })
			c.mu.Lock()
			c.dim = "nothing was heard of its node"
			c.mu.Unlock()
			y.until("it is said", func() bool { return y.progress(long.ID) == c.dim })
			c.fail(errors.New("the engine is away"))
			<-time.After(2 * time.Minute)
			c.fail(nil)
			<-time.After(10 * time.Second)
			if said := y.progress(long.ID); said != c.dim || y.unsaid(long.ID) != 0 {
				t.Errorf("when the engine is back it says %q, after it was taken back %d times", said, y.unsaid(long.ID))
			}
			c.mu.Lock()
			c.dim = ""
			c.mu.Unlock()
			y.until("it is said no more", func() bool { return y.progress(long.ID) == "" })
			y.srv.stop(long.ID, trainyard.ClassCanceled)
			y.untilEnded(long.ID)
		})
	})
}

// Whoever cancels a task while its engine hangs is told of the engine until it answers: being asked to end is no word of it.
func TestATaskThatIsToEndWhileItsEngineHangsGoesOnToSayWhy(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		y.during(func() {
			ran, began := imageTask("ran", "ignore"), imageTask("began", "ignore")
			y.stg.prepare = func(ctx context.Context, t trainyard.Task, _ trainyard.Progress) error {
				if t.ID == began.ID {
					<-ctx.Done()
				}
				return ctx.Err()
			}
			y.srv.want(ran, began)
			y.until("one runs", func() bool { return y.runs(ran.ID) && len(y.srv.states(began.ID)) > 0 })
			thaw := c.hang()
			y.until("it is said why", func() bool { return y.progress(ran.ID) != "" && y.progress(began.ID) != "" })
			y.srv.stop(ran.ID, trainyard.ClassCanceled)
			<-time.After(time.Minute)
			if said := y.unsaid(ran.ID); said != 0 {
				t.Errorf("it was taken back %d times that the engine does not answer", said)
			}
			thaw()
			y.srv.stop(began.ID, trainyard.ClassCanceled)
			for _, id := range []trainyard.TaskID{ran.ID, began.ID} {
				if res := y.untilEnded(id); res.Class != trainyard.ClassCanceled || y.progress(id) != "" {
					t.Errorf("%s: %+v, %q is said of it", id, res, y.progress(id))
				}
			}
		})
	})
}

// unsaid is how often a report that its engine is away was followed by one that it is not.
func (y *yard) unsaid(id trainyard.TaskID) (times int) {
	was := ""
	for _, r := range y.srv.told() {
		for _, t := range r.Tasks {
			if t.ID != id {
				continue
			}
			if was != "" && t.Away == "" {
				times++
			}
			was = t.Away
		}
	}
	return times
}

func TestAnAgentThatBeginsBesideAnEngineThatHangs(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		held, process := imageTask("held", "ignore"), task("process", "sleep")
		y.during(func() {
			y.srv.want(held, process)
			y.until("they run", func() bool { return y.runs(held.ID) && y.runs(process.ID) })
		})
		thaw := c.hang()
		y.cfg.Driver = &target.Several{First: y.mac, Others: []target.Driver{c}} // it knows no more who has what
		stop := y.begin()
		if res := y.untilEnded(process.ID); res.Class != trainyard.ClassOK {
			t.Errorf("the process: %+v", res)
		}
		y.until("it is said why", func() bool { return strings.Contains(y.progress(held.ID), "has not answered since") })
		if y.srv.result(held.ID) != nil || c.started(held.ID)+y.mac.started(held.ID) != 1 {
			t.Error("the container was taken for lost, or begun again")
		}
		thaw()
		y.srv.stop(held.ID, trainyard.ClassCanceled)
		y.untilEnded(held.ID)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A driver that takes its time has a multiple of that without a look, up to a second; the others are looked at as ever.
func TestASlowEngineIsNotAskedAllTheTime(t *testing.T) {
	for took, atMost := range map[time.Duration]float64{100 * time.Millisecond: 0.26, 2 * time.Second: 0.9} {
		isolated(t, func(y *yard) {
			c := withContainers(y)
			defer c.off()
			c.slow = took
			y.during(func() {
				busy := imageTask("busy", "ignore")
				y.srv.want(busy)
				y.until("it runs", func() bool { return y.runs(busy.ID) })
				began, looks := time.Now(), 0
				c.mu.Lock()
				looks = len(c.looks)
				c.mu.Unlock()
				for time.Since(began) < time.Minute {
					c.hint()
					<-time.After(5 * time.Millisecond)
				}
				c.mu.Lock()
				looks = len(c.looks) - looks
				c.mu.Unlock()
				if share := float64(looks) * took.Seconds() / time.Minute.Seconds(); share > atMost || looks < 10 {
					t.Errorf("looks that take %s were taken %d times in a minute, which is %.2f of it", took, looks, share)
				}
				y.srv.stop(busy.ID, trainyard.ClassCanceled)
				y.untilEnded(busy.ID)
			})
		})
	}
}

// away is what was last reported of engines that do not answer.
func (y *yard) away() []trainyard.EngineAway {
	told := y.srv.told()
	if len(told) == 0 {
		return nil
	}
	return told[len(told)-1].Away
}

// Without a task too: whoever looks at the node reads why no job would begin there.
func TestTheNodeTellsThatAnEngineDoesNotAnswer(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		y.during(func() {
			<-time.After(30 * time.Second)
			thaw := c.hang()
			y.until("the node says so", func() bool {
				a := y.away()
				return len(a) == 1 && strings.HasPrefix(a[0].Why, "the made-up engine has not answered since 00:00:3") && !a[0].Since.IsZero()
			})
			first := y.away()[0].Why
			<-time.After(5 * time.Minute)
			if a := y.away(); len(a) != 1 || a[0].Why != first {
				t.Errorf("five minutes later it says %+v", a)
			}
			thaw()
			y.until("it says so no more", func() bool { return len(y.away()) == 0 })
			c.fail(trainyard.Invalid("the made-up engine does not answer: connection refused"))
			y.until("the node says what it is answered", func() bool {
				a := y.away()
				return len(a) == 1 && strings.HasPrefix(a[0].Why, "the made-up engine has not answered since 00:05:3") && strings.HasSuffix(a[0].Why, " UTC: connection refused")
			})
			c.fail(nil)
			y.until("it says so no more", func() bool { return len(y.away()) == 0 })
		})
	})
}

// deaf is an engine whose driver goes on for a while from what it heard before.
type deaf struct {
	*containers
	since time.Time
	err   error
}

func (d *deaf) Unheard() (time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, d.err
}

func (d *deaf) hear(since time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since, d.err = since, err
}

func TestTheNodeTellsOfAnEngineThatIsNotHeardThoughLooksSucceed(t *testing.T) {
	isolated(t, func(y *yard) {
		d := &deaf{containers: withContainers(y)}
		defer d.off()
		y.cfg.Driver = d
		y.during(func() {
			<-time.After(30 * time.Second)
			d.hear(time.Now(), trainyard.Invalid("the watch ended"))
			y.until("the node says so", func() bool {
				a := y.away()
				return len(a) == 1 && a[0].Why == "the made-up engine has not answered since 00:00:30 UTC: the watch ended"
			})
			d.hear(time.Time{}, nil)
			y.until("it says so no more", func() bool { return len(y.away()) == 0 })
		})
	})
}
