package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// Driver runs tasks as Jobs of one namespace. One at a time may be open on a folder.
type Driver struct {
	cfg     *Config
	env     target.Env
	api     *client
	group   string // Env.Group as a label's value
	program *program
	jobs    *mirror[job]
	served  *mirror[job] // the Deployments of replicas
	watched *mirror[pod]

	ctx     context.Context // of everything that outlives a call, until Close
	cancel  context.CancelFunc
	members sync.WaitGroup
	changed chan struct{}

	spare    time.Duration // as the constant, except in tests
	guessing chan struct{} // room for those who try whether a pod runs
	kept     keep          // the program in the cluster
	keys     keys          // of the cluster's tokens
	line     line          // what Kueue says
	warnings warnings      // what the cluster's events say

	mu      sync.Mutex
	closed  bool
	tasks   map[string]*task           // by the name of their objects
	strays  map[string]map[string]*pod // pods by UID of their Job and name, whose Job has not been seen
	pace    time.Duration              // from when a node took the last pod on to when the program could be sent
	unheard int                        // pods in a row that were to ask and had to be sent their tasks
	deaf    time.Time                  // when that was so last of as many as count
	rigid   bool                       // a pod could write nothing: from now on they have a volume
	removed map[string]bool            // UIDs of Jobs that were removed, of which late news may come
}

// task is one task in memory.
type task struct {
	id   trainyard.TaskID
	name string
	dir  string

	op    sync.Mutex // held by whoever starts, begins, stops or removes it
	nudge chan struct{}

	// The rest is guarded by Driver.mu.
	rec      record
	job      *job
	jobGone  bool
	added    time.Time // when we made the Job
	news     time.Time // when something was last heard of the Job
	pods     map[string]*podSeen
	end      *ending
	words    string // of the cluster's events
	notes    []string
	taken    bool               // its Job was suspended after the task had begun
	retreat  retreat            // what Kueue says of that
	tender   context.CancelFunc // not nil: somebody looks after it
	done     chan struct{}      // closed when the tender has returned
	sending  context.CancelFunc // not nil: the program is on its way
	stopping int                // calls of Stop that are about it
	removing bool
	measured time.Time // when its use was last asked for
	silent   gpuSilent // its GPUs do not tell how busy they are
}

// podSeen is a pod as it was last seen.
type podSeen struct {
	pod  *pod
	gone bool
	lost bool
	ran  time.Time // when its container was first seen to run
}

const (
	stale = 30 * time.Second // nothing heard for this long: what is known is not a view of the cluster any more
	tick  = time.Second      // between looks at a task that nothing was heard of

	settling = 3 * time.Second // news of a Job may come before those of its pods
)

var errClosed = errors.New("kube target is closed")

func open(c *Config, env target.Env, api *client) (*Driver, error) {
	p, err := findProgram(env.Program, env.Dir)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: c, env: env, api: api, group: labelValue(cmp.Or(env.Group, "trainyard")), program: p,
		changed: make(chan struct{}, 1), spare: cmp.Or(c.spare, spare), guessing: make(chan struct{}, 8), tasks: map[string]*task{}, strays: map[string]map[string]*pod{}, removed: map[string]bool{},
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	log := env.Log.With("cluster", api.base.Host, "namespace", api.namespace)
	d.jobs = &mirror[job]{api: api, kind: jobs, group: d.group, log: log, version: func(j *job) string { return j.Meta.Version },
		whole: d.seeJobs, one: d.seeJob}
	d.served = &mirror[job]{api: api, kind: deployments, group: d.group, log: log, version: func(j *job) string { return j.Meta.Version },
		whole: d.seeDeployments, one: d.seeDeployment}
	d.watched = &mirror[pod]{api: api, kind: pods, group: d.group, log: log, version: func(p *pod) string { return p.Meta.Version },
		whole: d.seePods, one: d.seePod}
	if err := d.load(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.members.Go(func() { d.jobs.run(d.ctx) })
	d.members.Go(func() { d.served.run(d.ctx) })
	d.members.Go(func() { d.watched.run(d.ctx) })
	return d, nil
}

// Close forgets the tasks, which go on.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.members.Wait()
	d.api.http.CloseIdleConnections()
	return nil
}

// Changed gets a value when something was seen of a task.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

func (d *Driver) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *Driver) nameOf(id trainyard.TaskID) string { return objectName(d.group, id, jobOf(id)) }

// fresh is nil while the view of the cluster is whole and not old.
func (d *Driver) fresh(limit time.Duration) error {
	if err := d.jobs.fresh(limit); err != nil {
		return err
	}
	if err := d.served.fresh(limit); err != nil && (!isForbidden(err) || d.serves()) { // the rights that jobs need were enough once
		return err
	}
	return d.watched.fresh(limit)
}

// Engine is what the driver runs tasks with, for people.
func (d *Driver) Engine() string { return "the Kubernetes API" }

// Unheard is why one of the watches hears nothing, of all that do the one that has waited longest.
func (d *Driver) Unheard() (since time.Time, err error) {
	watches := []func() (time.Time, error){d.jobs.unheard, d.watched.unheard}
	if d.serves() {
		watches = append(watches, d.served.unheard)
	}
	for _, look := range watches {
		if from, why := look(); why != nil && (err == nil || from.Before(since)) {
			since, err = from, why
		}
	}
	return since, err
}

// serves says whether there is a replica.
func (d *Driver) serves() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.rec.Main != "" {
			return true
		}
	}
	return false
}

// Observe lists all tasks from memory, which the watches keep. It fails while the cluster has not been heard.
func (d *Driver) Observe(ctx context.Context) ([]trainyard.Observation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.fresh(stale); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	now := time.Now()
	out := make([]trainyard.Observation, 0, len(d.tasks))
	for _, t := range d.tasks {
		if t.rec.UID != "" {
			out = append(out, d.observe(t, now))
		}
	}
	return out, nil
}

// observe is how a task looks. The caller holds d.mu.
func (d *Driver) observe(t *task, now time.Time) trainyard.Observation {
	o := trainyard.Observation{ID: t.id, Notes: slices.Clone(t.notes)}
	if t.end != nil {
		result := t.end.Result
		o.State, o.Started, o.Ended, o.Result = trainyard.TaskEnded, t.end.Started, t.end.Ended, &result
		o.PeakMB, o.Spans, o.Killed = result.PeakMB, t.end.Spans, t.end.Killed
		for _, w := range t.end.Warnings {
			o.Notes = trainyard.Warn(o.Notes, w)
		}
		return o
	}
	v := judge(d.sight(t), now)
	if t.rec.Main != "" && v.state == trainyard.TaskRunning {
		v.progress = "" // of what runs it says that nobody can look
	}
	o.State, o.Started, o.Progress = v.state, v.started, v.progress
	switch {
	case v.end != nil && (!v.end.Started.IsZero() || len(t.rec.Begun) > 0): // its log is still on its way
		o.State = trainyard.TaskRunning
	case v.end != nil:
		o.State = trainyard.TaskStaging
	case v.state == trainyard.TaskStaging && t.words != "":
		o.Progress += ": " + t.words
	}
	return o
}

// sight is what judge looks at. The caller holds d.mu.
func (d *Driver) sight(t *task) *sight {
	s := &sight{main: t.rec.Main, answered: t.rec.Answered, name: t.name, ranks: t.rec.Ranks, queue: d.cfg.Queue, asked: t.rec.Stop != nil, grace: d.cfg.pullGrace(),
		stop: t.rec.Stop, allowed: t.rec.Grace, scaled: t.rec.Scaled,
		job: t.job, jobGone: t.jobGone, suspended: t.taken, retreat: t.retreat, vanished: t.vanished(), settled: time.Since(t.news) > settling && d.watched.fresh(0) == nil}
	for _, p := range t.pods {
		s.pods = append(s.pods, podSight{pod: p.pod, gone: p.gone, lost: p.lost, begun: t.rec.Begun[p.pod.Meta.UID], told: t.rec.Told[p.pod.Meta.UID], serves: t.rec.Main != "",
			asks: t.job != nil && t.job.asks() && (p.ran.IsZero() || time.Since(p.ran) < sendAfter)})
	}
	return s
}

// Logs reads the task's log up to the length it has now. It is that of the first of its ranks.
func (d *Driver) Logs(ctx context.Context, id trainyard.TaskID, from int64) (io.ReadCloser, error) {
	d.mu.Lock()
	t := d.tasks[d.nameOf(id)]
	known := t != nil && t.rec.UID != ""
	d.mu.Unlock()
	if !known {
		return nil, trainyard.NotFound("%s has no log here: it was not started, or it was removed", id.Words())
	}
	f, err := os.Open(filepath.Join(t.dir, logFile))
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(io.LimitReader(nil, 0)), nil
	}
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", id.Words(), err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(min(max(from, 0), size), io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("log of %s: %w", id.Words(), err)
	}
	return &logReader{Reader: io.LimitReader(f, max(0, size-max(from, 0))), file: f}, nil
}

// logReader reads a file up to a limit.
type logReader struct {
	io.Reader
	file *os.File
}

func (r *logReader) Close() error { return r.file.Close() }
