package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// side is one way to have work done on an engine: by its own command, or through Trainyard. Both are given the same work in turn.
type side interface {
	// start has one process run that says the time as its first act, waits until it is over, and returns how long after the submission
	// that was.
	start(ctx context.Context, name string) (time.Duration, error)
	// many has n processes run that do a work, submitted at once, and returns how long it took until all were over.
	many(ctx context.Context, name, work string, n int) (time.Duration, error)
}

// submitters is how many submit at once, on either side.
const submitters = 8

// The work that is given to both sides; bash knows the time without a further process.
const (
	sayTime = "echo $EPOCHREALTIME"
	nothing = "true"
	aSecond = "sleep 1"
)

// stamp is the time that sayTime printed.
func stamp(text string) (time.Time, error) {
	sec, micro, ok := strings.Cut(strings.TrimSpace(text), ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	m, err2 := strconv.ParseInt(micro, 10, 64)
	if err = errors.Join(err, err2); !ok || err != nil {
		return time.Time{}, fmt.Errorf("the process printed %q, and not the time: %v", text, err)
	}
	return time.Unix(s, m*1000), nil
}

// atOnce calls f for 0 to n-1 from all submitters, and returns the first error.
func atOnce(n int, f func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, submitters)
	for w := range errs {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[w] == nil; i = next.Add(1) - 1 {
				errs[w] = f(int(i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ours is work that goes through Trainyard's HTTP API, to a compute of a server of its own.
type ours struct {
	*server
	compute, environment string
	clients              []*client.Client
}

// through makes the side of a compute. With an image jobs have an environment of that image.
func (s *server) through(ctx context.Context, compute, image string) (*ours, error) {
	o := &ours{server: s, compute: compute}
	for range submitters {
		c, err := s.client()
		if err != nil {
			return nil, err
		}
		o.clients = append(o.clients, c)
	}
	if image == "" {
		return o, nil
	}
	_, err := o.clients[0].Put(ctx, map[string]any{"properties": map[string]any{"image": image}}, "environments", "bench", "versions", "1")
	o.environment = trainyard.DefaultScope().Child("environments", "bench") + "/versions/1"
	return o, err
}

func (o *ours) submit(ctx context.Context, c *client.Client, name, text string) error {
	body := command(text, o.compute)
	if o.environment != "" {
		body["properties"].(map[string]any)["environmentId"] = o.environment
	}
	_, err := c.Put(ctx, body, "jobs", name)
	return err
}

func (o *ours) start(ctx context.Context, name string) (time.Duration, error) {
	c, at := o.clients[0], time.Now()
	if err := o.submit(ctx, c, name, sayTime); err != nil {
		return 0, err
	}
	if err := o.finished(ctx, c, name, lookRarely); err != nil {
		return 0, err
	}
	run, err := c.Run(ctx, name)
	if err != nil {
		return 0, err
	}
	var text bytes.Buffer
	if _, _, err := c.CopyLog(ctx, &text, run.Logs[run.MainLog()], 0, 0); err != nil {
		return 0, err
	}
	began, err := stamp(text.String())
	return began.Sub(at), err
}

// lookEvery is between looks whether work is over: often enough not to count, seldom enough not to slow it down.
const lookEvery = 20 * time.Millisecond

// lookSeldom is the same for many jobs, which take seconds and the whole processor: each look takes a millisecond of it, that no engine's own
// command needs. It is not in the figure when it was seen that they are over; each side has a record of when they were.
const lookSeldom = 5 * lookEvery

// lookRarely is the same for one whose own words say when it started.
const lookRarely = 10 * lookEvery

func (o *ours) many(ctx context.Context, name, work string, n int) (time.Duration, error) {
	at := time.Now()
	var turn atomic.Int64
	err := atOnce(n, func(i int) error {
		return o.submit(ctx, o.clients[turn.Add(1)%submitters], fmt.Sprintf("%s-%d", name, i), work)
	})
	if err != nil {
		return 0, err
	}
	for range n { // at the worst each of them is waited for
		last, err := o.ends(ctx, name, n)
		if err != nil {
			return 0, err
		}
		if last.waits == "" {
			return last.at.Sub(at), nil
		}
		if err := o.finished(ctx, o.clients[0], last.waits, lookSeldom); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("the jobs %s-0 to %s-%d do not come to an end", name, name, n-1)
}

// ended is when the last of some jobs was over, as the server wrote it down; if waits is not "" that job is not over yet.
type ended struct {
	at    time.Time
	waits string
}

// ends looks at the newest n jobs of the compute, which must be those of a name.
func (o *ours) ends(ctx context.Context, name string, n int) (ended, error) {
	var e ended
	seen := 0
	for item, err := range o.clients[0].List(ctx, url.Values{"compute": {o.compute}, "$top": {strconv.Itoa(n)}}, "jobs") {
		if err != nil {
			return e, err
		}
		j, err := client.ReadJobStatus(item)
		if err != nil {
			return e, err
		}
		if !strings.HasPrefix(j.Name, name+"-") {
			return e, fmt.Errorf("job %s is among those of %s", j.Name, name)
		}
		switch seen++; {
		case !j.Status.Terminal() && e.waits == "":
			e.waits = j.Name // the newest is the likeliest to be last
		case !j.Status.Terminal():
		case j.Status != trainyard.JobCompleted:
			return e, fmt.Errorf("job %s is %s: %s", j.Name, j.Status, j.Reason.Message)
		default:
			if end := j.Timeline[len(j.Timeline)-1].End; end.After(e.at) {
				e.at = end
			}
		}
		if seen == n {
			return e, nil
		}
	}
	return e, fmt.Errorf("of %d jobs %s there are %d", n, name, seen)
}
