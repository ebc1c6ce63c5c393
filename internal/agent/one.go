package agent

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// One is a single task to run where it is, without a node: in a pod, or in an allocation of another scheduler. Task, Driver, Stage and Dir
// are required.
type One struct {
	Task   trainyard.Task
	Driver target.Driver
	Stage  Stager
	Dir    string
	Server string   // URL at which the task reaches the server; "": the one in Task
	Hide   []string // paths that the task may not reach

	// Out gets what the task's first process prints, if it is not nil.
	Out io.Writer
	// Send brings all other logs home, as Link.Append does. Nil: they are dropped.
	Send func(ctx context.Context, name string, offset int64, data []byte) (size int64, err error)
	Log  *slog.Logger
}

// Run stages the task, runs it, brings its results home, and says how that went. When ctx is done the task is ended as a canceled one, and
// Run returns when that is done. It is the agent with a server that wants just this task.
func (o One) Run(ctx context.Context) (trainyard.TaskEnd, error) {
	link := &oneLink{One: o, changed: make(chan struct{})}
	a := New(Config{Node: o.Task.Node, Link: link, Driver: o.Driver, Stage: o.Stage, Dir: o.Dir, Server: o.Server, Hide: o.Hide,
		Alone: true, Log: o.Log})
	stop := context.AfterFunc(ctx, func() {
		link.change(func() { link.Task.Stop = trainyard.ClassCanceled })
	})
	defer stop()
	err := a.Run(context.WithoutCancel(ctx))
	link.mu.Lock()
	defer link.mu.Unlock()
	end := endOf(link.last)
	end.LogBytes = link.wrote
	return end, err
}

// endOf is what is left of a report when all is over.
func endOf(r trainyard.TaskReport) trainyard.TaskEnd {
	e := trainyard.TaskEnd{Spans: r.Spans, Warnings: r.Warnings}
	if r.Result != nil {
		e.Result = *r.Result
	}
	for _, s := range r.Spans {
		if s.Name == trainyard.SpanUser {
			e.Started, e.Ended = s.Start, s.End
		}
	}
	return e
}

// oneLink is a server that wants one task until that has ended.
type oneLink struct {
	One

	mu      sync.Mutex
	rev     int64
	last    trainyard.TaskReport
	changed chan struct{} // closed and replaced with every change
	wrote   int64         // to Out
}

var _ Link = (*oneLink)(nil)

func (l *oneLink) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	l.rev++
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *oneLink) Join(context.Context, trainyard.NodeInfo) (trainyard.NodeLease, error) {
	return trainyard.NodeLease{Epoch: 1, Renew: time.Minute, Expires: time.Hour}, nil
}

func (l *oneLink) Wanted(ctx context.Context, _ trainyard.NodeID, _, after int64) (trainyard.Wanted, error) {
	for {
		l.mu.Lock()
		w := trainyard.Wanted{Epoch: 1, Rev: l.rev}
		if w.Leaving = l.last.State == trainyard.TaskEnded; !w.Leaving {
			w.Tasks = []trainyard.Task{l.Task}
		}
		changed := l.changed
		l.mu.Unlock()
		if w.Rev > after {
			return w, nil
		}
		select {
		case <-ctx.Done():
			return w, ctx.Err()
		case <-changed:
		case <-time.After(20 * time.Second):
			return w, nil
		}
	}
}

func (l *oneLink) Report(_ context.Context, r trainyard.Report) error {
	for _, t := range r.Tasks {
		if t.ID != l.Task.ID {
			continue
		}
		if t.State == trainyard.TaskEnded {
			l.change(func() { l.last = t })
			continue
		}
		l.mu.Lock()
		l.last = t
		l.mu.Unlock()
	}
	return nil
}

func (l *oneLink) Append(ctx context.Context, _ trainyard.NodeID, _ int64, _ trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
	end := offset + int64(len(data))
	if l.Out == nil || name != stdLog(&l.Task) {
		if l.Send == nil {
			return end, nil
		}
		return l.Send(ctx, name, offset, data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset > l.wrote || end <= l.wrote {
		return l.wrote, nil
	}
	n, err := l.Out.Write(data[l.wrote-offset:])
	l.wrote += int64(n)
	return l.wrote, err
}

// Open, List and Put are the stager's, which has a link of its own.
func (l *oneLink) Open(context.Context, string, int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	return nil, trainyard.BlobInfo{}, errNoBlobs
}
func (l *oneLink) List(context.Context, string) ([]trainyard.BlobInfo, error) { return nil, errNoBlobs }
func (l *oneLink) Put(context.Context, string, io.Reader) error               { return errNoBlobs }

var errNoBlobs = trainyard.Errorf(trainyard.CodeUnsupported, "a single task's agent stores nothing")
