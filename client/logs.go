package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
)

// Headers of a log's answer, beside its bytes.
const (
	headerLogSize   = "Trainyard-Log-Size"   // bytes the log has now
	headerJobStatus = "Trainyard-Job-Status" // state of the job when the bytes were read
)

// logWait is how long the server may keep a request for bytes that are not there yet.
const logWait = 20 * time.Second

// Run is what run history says of a job.
type Run struct {
	ID     string             `json:"runId"`
	Status trainyard.JobState `json:"status"`
	Logs   map[string]string  `json:"logFiles"` // name to URL
}

// Run asks run history for a job: which logs there are and where.
func (c *Client) Run(ctx context.Context, job string) (Run, error) {
	var run Run
	a, err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/history/v1.0" + c.Path() + "/runs/" + url.PathEscape(job) + "/details"})
	if err != nil {
		return run, err
	}
	if err := json.Unmarshal(a.Body, &run); err != nil {
		return run, fmt.Errorf("read the run of job %s: %w", job, err)
	}
	return run, nil
}

// MainLog is the name of the log that a person wants to follow: that of the user's process, of process 0 of several, or of a
// pipeline; "" while there is none.
func (r Run) MainLog() string {
	for _, name := range []string{"user_logs/std_log.txt", "user_logs/std_log_process_0.txt", trainyard.PipelineLog} {
		if _, ok := r.Logs[name]; ok {
			return name
		}
	}
	return ""
}

// CopyLog writes what a log has from offset on to w, and says how far that goes. With wait it lets the server hold the request until there
// is more or the job has ended. status is the job's, empty if the server does not say. A break in the middle is an error together with
// the bytes that were written before it: ask again from the offset returned.
func (c *Client) CopyLog(ctx context.Context, w io.Writer, link string, offset int64, wait time.Duration) (next int64, status trainyard.JobState, err error) {
	r, err := c.follow(Request{}, link)
	if err != nil {
		return offset, "", err
	}
	r.Query.Set("offset", strconv.FormatInt(offset, 10))
	if wait > 0 {
		r.Query.Set("wait", strconv.Itoa(int(wait.Seconds())))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.String()+r.Path+"?"+r.Query.Encode(), nil)
	if err != nil {
		return offset, "", err
	}
	res, err := c.send(req, true)
	if err != nil {
		return offset, "", err
	}
	defer res.Body.Close()
	n, err := io.Copy(w, res.Body)
	if size, e := strconv.ParseInt(res.Header.Get(headerLogSize), 10, 64); e == nil && offset > size {
		return offset, "", trainyard.Errorf(trainyard.CodeInternal, "the log has %d bytes, and %d of it were read before", size, offset)
	}
	return offset + n, trainyard.JobState(res.Header.Get(headerJobStatus)), err
}

// ReadLog writes what there is now of a log from offset on, and returns how far it goes. A log that is not there is empty. It waits out a
// server that restarts, for Config.Patience, and goes on at the byte where it was: no line is lost or doubled. An empty name means the main
// log: that of the user's process, or of process 0 of several.
func (c *Client) ReadLog(ctx context.Context, w io.Writer, job, name string, offset int64) (int64, error) {
	f := follower{c: c, w: w, job: job, name: name, offset: offset}
	for {
		before := f.offset
		if _, err := f.step(ctx, 0); err != nil || f.offset == before {
			return f.offset, err
		}
	}
}

// FollowLog is ReadLog for a log that grows: it ends when the job has ended and all is written. A log that is not there yet is waited for.
// When ended, which may be nil, is closed, the job is known to have ended, and no more is waited for.
func (c *Client) FollowLog(ctx context.Context, w io.Writer, job, name string, offset int64, ended <-chan struct{}) (int64, error) {
	f := follower{c: c, w: w, job: job, name: name, offset: offset}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ended:
			cancel()
		case <-stop:
		}
	}()
	err := f.follow(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return c.ReadLog(ctx, w, job, name, f.offset)
	}
	return f.offset, err
}

// follower is how far one reader of a log has come.
type follower struct {
	c         *Client
	w         io.Writer
	job, name string
	offset    int64
	link      string // where the log is; "" while that is not known
}

func (f *follower) follow(ctx context.Context) error {
	pause := 50 * time.Millisecond
	for {
		before := f.offset
		status, err := f.step(ctx, logWait)
		if err != nil {
			return err
		}
		if status.Terminal() && f.offset == before {
			return nil
		}
		pause = min(2*pause, time.Second)
		if f.link != "" {
			pause = 0 // the server has held the request, or there was something
		}
		if status == "" { // it does not say how the job is: ask run history
			f.link, pause = "", time.Second
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// step writes what comes next, if anything does, and says how the job was before.
func (f *follower) step(ctx context.Context, wait time.Duration) (status trainyard.JobState, err error) {
	err = f.c.persist(ctx, true, func() error {
		fresh := f.link == ""
		if fresh {
			run, err := f.c.once().Run(ctx, f.job)
			if err != nil {
				return err
			}
			if f.name == "" {
				f.name = run.MainLog()
			}
			if f.link, status = run.Logs[f.name], run.Status; f.link == "" {
				return nil
			}
		}
		next, state, err := f.c.CopyLog(ctx, f.w, f.link, f.offset, wait)
		f.offset, status = next, cmp.Or(state, status)
		if code := trainyard.CodeOf(err); !fresh && (code == trainyard.CodeUnknown || code == trainyard.CodeForbidden) {
			f.link, err = "", nil // its signature is too old: ask for another
		}
		return err
	})
	return status, err
}

// once is the client without repeats and without words for its errors, for calls inside persist.
func (c *Client) once() *Client { return c.Patient(-1, nil) }

// JobStatus is what became of a job, as the job's own page says it.
type JobStatus struct {
	Name       string
	ID         string
	Type       string
	Compute    string // ARM id or name, as the job has it
	Display    string
	Experiment string
	Status     trainyard.JobState
	Reason     trainyard.Reason
	Timeline   []trainyard.Span
	Warnings   []string
	ExitCode   *int
	Failure    *trainyard.Failure
	Studio     string // address of its page
	Outputs    map[string]*trainyard.JobOutput
	Steps      []JobStep // of a pipeline
}

// JobStep is how a step of a pipeline is.
type JobStep struct {
	Name   string             `json:"name"`
	Job    string             `json:"job"`
	Status trainyard.JobState `json:"status"`
	Why    string             `json:"why"`
}

// JobStatus reads a job.
func (c *Client) JobStatus(ctx context.Context, name string) (JobStatus, error) {
	data, err := c.Get(ctx, "jobs", name)
	if err != nil {
		return JobStatus{}, err
	}
	return ReadJobStatus(data)
}

// ReadJobStatus reads a job's ARM resource.
func ReadJobStatus(data json.RawMessage) (JobStatus, error) {
	var r struct {
		ID         string `json:"id"`
		Name       string `json:"name"`
		Properties struct {
			JobType        string                          `json:"jobType"`
			ComputeID      string                          `json:"computeId"`
			DisplayName    string                          `json:"displayName"`
			ExperimentName string                          `json:"experimentName"`
			Status         trainyard.JobState              `json:"status"`
			Reason         trainyard.Reason                `json:"reason"`
			Timeline       []trainyard.Span                `json:"timeline"`
			Warnings       []string                        `json:"warnings"`
			ExitCode       *int                            `json:"exitCode"`
			Failure        *trainyard.Failure              `json:"failure"`
			Outputs        map[string]*trainyard.JobOutput `json:"outputs"`
			Steps          []JobStep                       `json:"steps"`
			Services       map[string]struct {
				Endpoint string `json:"endpoint"`
			} `json:"services"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return JobStatus{}, fmt.Errorf("read job: %w", err)
	}
	p := r.Properties
	return JobStatus{Name: r.Name, ID: r.ID, Type: p.JobType, Compute: p.ComputeID, Display: p.DisplayName, Experiment: p.ExperimentName,
		Status: p.Status, Reason: p.Reason, Timeline: p.Timeline, Warnings: p.Warnings, ExitCode: p.ExitCode, Failure: p.Failure,
		Studio: p.Services["Studio"].Endpoint, Outputs: p.Outputs, Steps: p.Steps}, nil
}

// WatchJob looks at a job again and again, tells seen each time it has changed its state or its reason or a step has, and returns when until says so of
// what it saw. It waits out a server that restarts, for Config.Patience.
func (c *Client) WatchJob(ctx context.Context, name string, seen func(JobStatus), until func(JobStatus) bool) (JobStatus, error) {
	var last JobStatus
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 500*time.Millisecond) {
		now, err := c.JobStatus(ctx, name)
		if err != nil {
			return last, err
		}
		if now.Status != last.Status || now.Reason.Message != last.Reason.Message || !slices.Equal(now.Steps, last.Steps) {
			pause = 20 * time.Millisecond
			if seen != nil {
				seen(now)
			}
		}
		if last = now; until(now) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(pause):
		}
	}
}
