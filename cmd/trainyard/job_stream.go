package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func (a *app) jobStream() *cobra.Command {
	return a.verb(verb{
		use: "stream [NAME]", short: "Follow a job: why it waits, what it prints, what came of it",
		long: `Follows a job until it ends. The job's own log goes to standard output, everything else to standard error.
The exit status is 0 if the job completed. Ctrl-C stops watching; the job goes on.`,
		example: "  trainyard job stream --name calm_river_7x2kq9d1aa\n  trainyard job stream -n calm_river_7x2kq9d1aa > log.txt",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			end, err := a.stream(ctx, c, n)
			if err != nil {
				return err
			}
			if end.Status != trainyard.JobCompleted {
				return failed{1}
			}
			return nil
		},
	}, trainyard.KindJob)
}

// forever is how long a stream waits for a server that is away: the job does not need it, so neither should who watches.
const forever = 365 * 24 * time.Hour

// environmentLog is where the building of a job's environment is told.
const environmentLog = "system_logs/environment.txt"

// streamer is one job being followed.
type streamer struct {
	*app
	c    *client.Client
	job  string
	away atomic.Bool // the server does not answer

	mu      sync.Mutex
	state   client.JobStatus
	since   time.Time // when the state was first seen
	printed bool      // some of the job's log
	newline bool      // and it ended its last line
}

// stream follows a job to its end and tells what came of it.
func (a *app) stream(ctx context.Context, c *client.Client, job string) (client.JobStatus, error) {
	s := &streamer{app: a, job: job, newline: true}
	s.c = c.Patient(forever, s.noteAway)
	first, err := c.JobStatus(ctx, job)
	if err != nil {
		return first, err
	}
	s.head(first)
	end, err := s.follow(ctx)
	a.done()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		a.note("\nNo longer watching; the job goes on.\n  watch again  trainyard job stream --name %s\n  cancel it    trainyard job cancel --name %s", job, job)
		return end, err
	}
	if err != nil {
		return end, err
	}
	a.summary(end)
	return end, nil
}

func (s *streamer) head(j client.JobStatus) {
	where := "serverless"
	if j.Compute != "" {
		where = strings.TrimPrefix(reference(j.Compute), "azureml:")
	}
	if len(j.Steps) > 0 {
		where = "of " + plural(len(j.Steps), "step")
	} else {
		where = "on " + where
	}
	s.note("job %s %s", s.paintErr(bold, clean(j.Name)), clean(where))
	if j.Studio != "" {
		s.note("  %s", s.paintErr(grey, clean(j.Studio)))
	}
}

// follow writes logs and tells changes until the job has ended.
func (s *streamer) follow(ctx context.Context) (client.JobStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	var end client.JobStatus
	var watch, log error
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(ended)
		defer begin()
		end, watch = s.c.WatchJob(ctx, s.job, s.seen, func(j client.JobStatus) bool {
			s.noteBack()
			if started(j.Status) {
				begin()
			}
			return j.Status.Terminal()
		})
		if watch != nil {
			cancel()
		}
	})
	all.Go(func() { s.followBuild(ctx, begun) })
	all.Go(func() {
		if _, log = s.c.FollowLog(ctx, logWriter{s}, s.job, "", 0, ended); log != nil {
			cancel()
		}
	})
	ticking := make(chan struct{})
	go s.tick(ctx, ticking)
	all.Wait()
	cancel()
	<-ticking
	if s.printed && s.outTTY {
		s.note("")
	}
	if !s.newline {
		s.note("")
	}
	if watch != nil && (log == nil || errors.Is(log, context.Canceled)) {
		return end, watch
	}
	return end, log
}

// started says whether a job is past its preparations.
func started(s trainyard.JobState) bool {
	switch s {
	case trainyard.JobRunning, trainyard.JobFinalizing, trainyard.JobCompleted, trainyard.JobFailed, trainyard.JobCanceled:
		return true
	}
	return false
}

// followBuild shows how the environment is built, if it is, until begun is closed.
func (s *streamer) followBuild(ctx context.Context, begun <-chan struct{}) {
	// What went wrong here is told by those who follow the job itself; the whole build log can be had with "job logs".
	_, _ = s.c.FollowLog(ctx, &indent{s: s}, s.job, environmentLog, 0, begun)
}

// seen tells a change of the job's state or of its reason.
func (s *streamer) seen(j client.JobStatus) {
	s.mu.Lock()
	before := s.state
	s.state = j
	if before.Status != j.Status {
		s.since = s.now()
	}
	s.mu.Unlock()
	if j.Status.Terminal() {
		return // the summary says it
	}
	defer s.waiting(before, j)
	if len(j.Steps) > 0 && before.Status == j.Status {
		return // its log tells of its steps
	}
	why := j.Reason.Message
	if why == "" && before.Status == j.Status {
		return
	}
	s.note("%s %s", s.paintErr(stateColor(string(j.Status)), fmt.Sprintf("%-10s", j.Status)), clean(why))
}

// waiting tells why steps of a pipeline are in a queue, when that is something new.
func (s *streamer) waiting(before, j client.JobStatus) {
	for i, step := range j.Steps {
		if step.Status == trainyard.JobQueued && step.Why != "" && (i >= len(before.Steps) || before.Steps[i].Why != step.Why) {
			s.note("%s step %s: %s", s.paintErr(stateColor(string(step.Status)), fmt.Sprintf("%-10s", step.Status)), clean(step.Name), clean(step.Why))
		}
	}
}

// tick keeps the progress line of a job that waits.
func (s *streamer) tick(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.mu.Lock()
		j, since, printed := s.state, s.since, s.printed
		s.mu.Unlock()
		if !printed && j.Status != "" && !started(j.Status) {
			s.status("%s for %s … %s", j.Status, long(s.now().Sub(since).Round(time.Second)), j.Reason.Message)
		}
	}
}

func (s *streamer) noteAway(err error) {
	if !s.away.Swap(true) {
		s.note("%s the job goes on, and so does this when the server answers again", s.paintErr(yellow, "The server is away:"))
	}
	if away, ok := errors.AsType[*client.Unreachable](err); ok {
		err = away.Reason()
	}
	s.status("waiting for the server: %v", err)
}

func (s *streamer) noteBack() {
	if s.away.Swap(false) {
		s.note("%s", s.paintErr(grey, "The server is back."))
	}
}

// logWriter writes the job's log as it is to standard output.
type logWriter struct{ s *streamer }

func (w logWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.s.noteBack()
	w.s.mu.Lock()
	w.s.printed, w.s.newline = true, p[len(p)-1] == '\n'
	w.s.mu.Unlock()
	c := w.s.console
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	return c.out.Write(p)
}

// indent writes the lines of a build, set off from the job's own, to standard error.
type indent struct {
	s    *streamer
	rest string
}

func (w *indent) Write(p []byte) (int, error) {
	w.rest += string(p)
	for {
		line, rest, whole := strings.Cut(w.rest, "\n")
		if !whole {
			return len(p), nil
		}
		w.rest = rest
		w.s.note("  %s", w.s.paintErr(grey, "| "+clean(line)))
	}
}

// summary tells what came of a job: result, exit code, how long what took, where things are.
func (a *app) summary(j client.JobStatus) {
	mark, code := "✓", green
	if j.Status != trainyard.JobCompleted {
		mark, code = "✗", red
	}
	text := string(j.Status)
	if total := elapsed(j.Timeline); total > 0 {
		text += " in " + long(total)
	}
	if j.ExitCode != nil && (*j.ExitCode != 0 || j.Status == trainyard.JobCompleted) {
		text += fmt.Sprintf(", exit code %d", *j.ExitCode)
	}
	a.note("%s", a.paintErr(code, mark+" "+text))
	why := j.Reason.Message
	if j.Failure != nil && j.Failure.Message != "" {
		why = j.Failure.Message
	}
	if why != "" && j.Status != trainyard.JobCompleted && !strings.HasSuffix(text, why) {
		a.note("  %s", clean(why))
	}
	a.bars(a.console.err, j.Timeline)
	for _, name := range sortedNames(j.Outputs) {
		if o := j.Outputs[name]; o != nil && name != "default" {
			a.note("  output %s  %s", name, clean(o.URI))
		}
	}
	a.warn(j.Warnings)
	a.note("  %s", a.paintErr(grey, "everything it left: trainyard job download --name "+j.Name+" --all"))
}

// elapsed is the time from a timeline's first moment to its last.
func elapsed(spans []trainyard.Span) time.Duration {
	if len(spans) == 0 {
		return 0
	}
	last := spans[0].Start
	for _, s := range spans {
		if s.End.After(last) {
			last = s.End
		}
	}
	return last.Sub(spans[0].Start)
}

// bars draws a timeline: each part's length and share.
func (a *app) bars(w io.Writer, spans []trainyard.Span) {
	total := elapsed(spans)
	if total <= 0 {
		return
	}
	const most = 24
	attempt := 1
	for i, s := range joined(spans) {
		d := s.End.Sub(s.Start)
		if i > 0 && s.Name == trainyard.SpanQueue { // back in the queue: what follows is another try
			attempt++
			fmt.Fprintf(w, "  attempt %d\n", attempt)
		}
		if d < time.Millisecond && s.Note == "" {
			continue
		}
		n := int(float64(most)*float64(d)/float64(total) + 0.5)
		line := fmt.Sprintf("  %-12s %8s  %-*s  %s", s.Name, long(d), most, strings.Repeat("█", n)+strings.Repeat("·", max(0, most-n)), clean(s.Note))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// joined puts neighbouring spans of one name together.
func joined(spans []trainyard.Span) []trainyard.Span {
	var out []trainyard.Span
	for _, s := range spans {
		if n := len(out); n > 0 && out[n-1].Name == s.Name {
			out[n-1].End, out[n-1].Note = s.End, cmp.Or(s.Note, out[n-1].Note)
			continue
		}
		out = append(out, s)
	}
	return out
}
