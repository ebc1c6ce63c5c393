package studio

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

const (
	window   = 256 << 10              // of a log that is shown at once, in bytes
	logPause = 100 * time.Millisecond // between two pieces, so that a job that prints much is shown in fewer, larger ones
)

// piece is what a browser is sent of a log.
type piece struct {
	Name  string `json:"name"`
	Reset bool   `json:"reset,omitempty"` // forget what was shown: this begins at Start
	Start int64  `json:"start"`
	Done  string `json:"done"` // HTML that follows what is shown and stays
	Open  string `json:"open"` // HTML of the last line, which replaces the last Open
	next  int64  // offset to go on from after this
}

// id is what the browser tells when it comes back.
func (p *piece) id() string { return logID(p.Name, p.next) }

func logID(name string, at int64) string { return name + ":" + strconv.FormatInt(at, 10) }

// parseLogID reads what logID wrote; ok is false for anything else.
func parseLogID(s string) (name string, at int64, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return "", 0, false
	}
	at, err := strconv.ParseInt(s[i+1:], 10, 64)
	return s[:i], at, err == nil && at >= 0
}

// follower sends a log to a channel from an offset on, until the job is over.
type follower struct {
	d     *door
	scope trainyard.Scope
	job   string
	name  string
	start int64 // where to begin; -1: a window before the end
	out   chan<- piece
}

// run closes nothing; it returns nil when all of the log was sent, or ctx is done.
func (f *follower) run(ctx context.Context) error {
	s := &screen{at: max(f.start, 0)}
	reset := f.start < 0
	for {
		read := s.at + int64(len(s.line))
		size, err := f.d.Logs.WaitLog(ctx, f.scope, f.job, f.name, read)
		if err != nil || ctx.Err() != nil {
			return quiet(ctx, err)
		}
		over, err := f.over(ctx)
		if err != nil {
			return quiet(ctx, err)
		}
		if reset || size-read > window {
			if s, err = f.d.tail(ctx, f.scope, f.job, f.name, max(size-window, 0)); err != nil {
				return quiet(ctx, err)
			}
			read, reset = s.at, true
		}
		data, err := f.d.readLog(ctx, f.scope, f.job, f.name, read, window)
		if err != nil {
			return quiet(ctx, err)
		}
		whole := over && int64(len(data)) < window
		if len(data) > 0 || reset || whole {
			p := piece{Name: f.name, Reset: reset, Start: s.at, Done: s.write(data)}
			p.Open, p.next = s.open(), s.at
			if whole {
				p.Open = s.rest()
			}
			select {
			case f.out <- p:
				reset = false
			case <-ctx.Done():
				return nil
			}
		}
		if whole {
			return nil
		}
		pause(ctx, logPause)
	}
}

// over says whether the job has ended. It is asked before the log is read: what is read after that is all.
func (f *follower) over(ctx context.Context) (bool, error) {
	j, err := f.d.Jobs.Job(ctx, f.scope, f.job)
	if err != nil {
		return false, err
	}
	return j.Status.State.Terminal(), nil
}

// quiet is err, unless it came because nobody waits any more.
func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// readLog reads at most most bytes of a log; one that is not there is empty.
func (d *door) readLog(ctx context.Context, scope trainyard.Scope, job, name string, from, most int64) ([]byte, error) {
	r, _, err := d.Logs.ReadLog(ctx, scope, job, name, from)
	if trainyard.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, most))
}

// tail is a screen that begins at the first line at or after from; at from itself, if lines are very long.
func (d *door) tail(ctx context.Context, scope trainyard.Scope, job, name string, from int64) (*screen, error) {
	if from <= 0 {
		return &screen{}, nil
	}
	head, err := d.readLog(ctx, scope, job, name, from-1, lineAtMost)
	if err != nil {
		return nil, err
	}
	if i := bytes.IndexByte(head, '\n'); i >= 0 {
		return &screen{at: from + int64(i)}, nil
	}
	i := 1
	for i < len(head) && i < utf8.UTFMax+1 && !utf8.RuneStart(head[i]) {
		i++
	}
	return &screen{at: from - 1 + int64(i)}, nil
}

// mainLog is the log of a job's first process, or a pipeline's own, whether it is there or not.
func mainLog(j *trainyard.Job) string {
	if j.Plan.Pipeline != nil {
		return trainyard.PipelineLog
	}
	if max(j.Plan.Nodes, 1)*max(j.Plan.Processes, 1) > 1 {
		return "user_logs/std_log_process_0.txt"
	}
	return "user_logs/std_log.txt"
}

// chooseLog is the log to show to somebody who asked for none: what the job says, and before it runs what prepares it. A job that never
// ran shows what there is.
func chooseLog(j *trainyard.Job, files []trainyard.BlobInfo) string {
	main := mainLog(j)
	has := func(name string) bool {
		return slices.ContainsFunc(files, func(f trainyard.BlobInfo) bool { return f.Key == name })
	}
	switch j.Status.State {
	case trainyard.JobRunning, trainyard.JobFinalizing:
		return main
	}
	if has(main) {
		return main
	}
	newest := -1
	for i, f := range files {
		if strings.HasPrefix(f.Key, "system_logs/") && (newest < 0 || f.Modified.After(files[newest].Modified)) {
			newest = i
		}
	}
	if newest >= 0 {
		return files[newest].Key
	}
	if len(files) > 0 && j.Status.State.Terminal() {
		return files[0].Key
	}
	return main
}
