package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	quickest    = 20 * time.Millisecond  // between the first probes of a replica that was never ready
	quickOnLine = 200 * time.Millisecond // the same where a driver makes the connections, which costs more
	slowest     = 500 * time.Millisecond // between them when it takes long
	returning   = time.Second            // between the probes of one that was ready and is not
	patient     = time.Second            // news that changes nothing for anybody who sends requests may wait so long
	newsTravels = 200 * time.Millisecond // from the server to the gateways
	newsAtMost  = 2 * time.Second        // to the server, before a replica is ended all the same
	maxAnswer   = 200                    // bytes of an answer that are shown
)

// replica asks one task that serves whether it is well, for as long as the task's process runs. One goroutine runs it.
type replica struct {
	k      *task
	serve  trainyard.Serve
	client http.Client
	began  time.Time

	ready, was bool
	good, bad  int // answers to the readiness probe in a row
	unwell     int // failures of the liveness probe in a row
	nextReady  time.Time
	nextLive   time.Time
}

// watchOver probes the task's replica, if it is one, until stop is called.
func (k *task) watchOver(ctx context.Context) (stop func()) {
	if k.kept.Task.Serve == nil || k.a.cfg.Alone {
		return func() {}
	}
	r := &replica{k: k, serve: *k.kept.Task.Serve}
	for _, p := range []*trainyard.Probe{&r.serve.Liveness, &r.serve.Readiness} {
		p.Path = "/" + strings.TrimPrefix(p.Path, "/")
		p.Period, p.Timeout = cmp.Or(max(p.Period, 0), 10*time.Second), cmp.Or(max(p.Timeout, 0), 2*time.Second)
		p.Successes, p.Failures = max(p.Successes, 1), cmp.Or(max(p.Failures, 0), 30)
	}
	if s := k.serving(); s != nil {
		r.ready, r.was = s.Ready, s.Was
	}
	// A connection of its own for every probe: a server with few threads would keep one for it.
	r.client = http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return k.dial(ctx) }},
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	return func() { cancel(); <-done; k.unready("") }
}

func (r *replica) run(ctx context.Context) {
	var m meter
	for ctx.Err() == nil && r.k.asked() == "" {
		if r.k.state() != trainyard.TaskRunning { // an engine has it, and has not started it
			pause(ctx, slowest)
			continue
		}
		if r.began.IsZero() {
			r.began = r.k.began()
		}
		now := time.Now()
		if !now.Before(r.nextReady) {
			r.askReady(ctx)
		}
		if r.was && !r.k.a.cfg.SelfStaged && !now.Before(r.nextLive) && ctx.Err() == nil {
			r.askLive(ctx) // an engine that stages tasks itself looks after that, too
		}
		m.measure(ctx, r.k)
		wait := time.Until(r.nextReady)
		if r.was {
			wait = min(wait, time.Until(r.nextLive))
		}
		r.wait(ctx, min(wait, time.Until(m.next)))
	}
}

// wait is pause that ends when the task is asked to end.
func (r *replica) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-r.k.stopped:
	case <-t.C:
	}
}

// askReady asks whether the replica may be sent requests.
func (r *replica) askReady(ctx context.Context) {
	err := r.ask(ctx, r.serve.Readiness)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	why := ""
	if err == nil {
		r.good, r.bad = r.good+1, 0
		if r.ready = r.ready || r.good >= r.serve.Readiness.Successes; !r.ready {
			why = fmt.Sprintf("%d of %d answers that it is ready", r.good, r.serve.Readiness.Successes)
		}
	} else {
		r.good, why = 0, err.Error()
		if now.Sub(r.began) >= r.serve.Readiness.Delay {
			r.bad++
		}
		if r.bad >= r.serve.Readiness.Failures {
			r.ready = false
		}
		if r.ready {
			why = "" // not often enough yet to count
		}
	}
	if r.ready && !r.was {
		r.was, r.nextLive = true, now.Add(r.serve.Liveness.Period)
	}
	r.nextReady = now.Add(r.pace(now))
	r.k.tellServing(trainyard.Serving{Ready: r.ready, Was: r.was, Why: why})
}

// pace is how soon to ask again. A start that has taken long may take a little longer.
func (r *replica) pace(now time.Time) time.Duration {
	switch period := r.serve.Readiness.Period; {
	case r.ready:
		return period
	case r.was:
		return min(period, returning)
	case r.k.address() == "":
		return min(period, max(quickOnLine, min(slowest, now.Sub(r.began)/40)))
	default:
		return min(period, max(quickest, min(slowest, now.Sub(r.began)/40)))
	}
}

// askLive asks whether a replica that was ready lives, and ends one that does not.
func (r *replica) askLive(ctx context.Context) {
	p := r.serve.Liveness
	err := r.ask(ctx, p)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	r.nextLive = now.Add(p.Period)
	switch {
	case err == nil:
		r.unwell = 0
		return
	case now.Sub(r.began) < p.Delay:
		return
	}
	if r.unwell++; r.unwell >= p.Failures {
		r.k.stopBecause(trainyard.ClassUnwell, fmt.Sprintf("its liveness probe failed %d times in a row, so it was ended; the last time: %v", r.unwell, err))
	}
}

// ask makes one request. Any answer below 400 is a yes; an error is a sentence for people.
func (r *replica) ask(ctx context.Context, p trainyard.Probe) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, errors.New("no answer"))
	defer cancel()
	host := r.k.address()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cmp.Or(host, "replica")+p.Path, nil)
	if err != nil {
		return fmt.Errorf("GET %s: %w", p.Path, err)
	}
	req.Header.Set("User-Agent", "trainyard-probe")
	res, err := r.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("GET %s: no answer within %s", p.Path, p.Timeout)
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return fmt.Errorf("GET %s: %w", p.Path, err)
	}
	defer res.Body.Close()
	if res.StatusCode < 400 {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return fmt.Errorf("GET %s was answered %s: %s", p.Path, res.Status, strings.ToValidUTF8(strings.TrimSpace(string(text)), "?"))
}

// serving is how the replica was last said to be; nil for what is none.
func (k *task) serving() *trainyard.Serving {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.report.Serving
}

// unasked is how a replica is that was not asked yet; nil for what is none.
func (k *task) unasked() *trainyard.Serving {
	if k.kept.Task.Serve == nil || k.a.cfg.Alone {
		return nil
	}
	at := k.address()
	return &trainyard.Serving{Address: at, Direct: at != "" && k.a.cfg.Direct}
}

// began is when the process began, as far as is known.
func (k *task) began() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.latest().seen; s != nil && !s.Started.IsZero() {
		return s.Started
	}
	return time.Now()
}

// tellServing reports how the replica is, if that is news. What a later agent must know is written down.
func (k *task) tellServing(s trainyard.Serving) {
	s.Address = k.address()
	s.Direct = s.Address != "" && k.a.cfg.Direct
	k.mu.Lock()
	old := k.report.Serving
	if old != nil && *old == s || s.Ready && k.kept.Stop != "" {
		k.mu.Unlock()
		return
	}
	within := time.Duration(atOnce)
	if old != nil {
		words := *old
		if words.Why = s.Why; words == s {
			within = patient
		}
	}
	turned := old == nil || old.Ready != s.Ready || old.Was != s.Was
	k.kept.Serving = &s
	k.mu.Unlock()
	k.change(within, func(r *trainyard.TaskReport) { r.Serving = &s })
	if !turned {
		return
	}
	if err := k.save(); err != nil {
		k.a.log.Warn("write down how the replica is", "task", k.id, "err", err)
	}
	k.a.log.Info("replica", "task", k.id, "ready", s.Ready, "address", s.Address, "why", s.Why)
}

// unready says that the replica may be sent no more requests.
func (k *task) unready(why string) {
	s := k.serving()
	if s == nil || !s.Ready {
		return
	}
	k.tellServing(trainyard.Serving{Was: s.Was, Why: why})
}

// retire sees to it that a replica gets no more requests before it is ended, as far as that can be had.
func (k *task) retire(ctx context.Context) {
	why := k.asked()
	if s := k.serving(); s == nil || !s.Ready {
		return
	}
	k.unready("it is being ended: " + k.ended("").Message)
	if why == trainyard.ClassNodeLost || why == trainyard.ClassUnwell {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, newsAtMost)
	defer cancel()
	if k.a.reports.heard(ctx, k.id) {
		pause(ctx, newsTravels)
	}
}
