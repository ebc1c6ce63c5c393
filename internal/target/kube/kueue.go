package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// Kueue keeps an object of its own for every Job that waits in one of its queues, the Workload, which tells why the Job waits, and why one
// that ran was taken back. Both may be read only with a right that may be left out; without it tasks wait all the same and say less.

const (
	kueueGroup    = "kueue.x-k8s.io"
	kueueJobLabel = "kueue.x-k8s.io/job-uid"    // of Workloads
	queueLabel    = "kueue.x-k8s.io/queue-name" // of Jobs
	workloads     = "workloads"
	localQueues   = "localqueues"

	// queueLook is the least time between two looks at the queue, however many tasks wait in it.
	queueLook = 3 * time.Second
)

// workload is what is read of one.
type workload struct {
	Meta   meta `json:"metadata"`
	Status struct {
		Conditions []condition `json:"conditions"`
		Checks     []struct {
			Name    string `json:"name"`
			State   string `json:"state"`
			Message string `json:"message"`
		} `json:"admissionChecks"`
	} `json:"status"`
}

// line is what Kueue says of all of the namespace's Jobs, read once for all tasks that ask.
type line struct {
	mu     sync.Mutex
	begun  time.Time // when it was last read
	jobs   map[string]*workload
	reason string // why nothing is known
	err    error  // why it could not be read, though it may be next time
}

// place is what Kueue says of one Job.
type place struct {
	*workload        // nil: nothing is known
	reason    string // why
}

// look is what Kueue has said of a Job since then, or a little later. With an error it could not be asked, and may be next time.
func (l *line) look(ctx context.Context, api *client, since time.Time, uid string) (place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun.Before(since) {
		l.begun = time.Now()
		all, err := api.workloads(ctx)
		l.jobs, l.reason, l.err = map[string]*workload{}, "", nil
		for _, w := range all {
			l.jobs[w.Meta.Labels[kueueJobLabel]] = w
		}
		switch {
		case isMissing(err):
			l.reason = "the cluster has no Kueue that could let it go"
		case err != nil && !isForbidden(err): // of that there was a warning when the compute was attached
			l.reason, l.err = fmt.Sprintf("Kueue's reasons cannot be read: %v", err), err
		}
	}
	return place{l.jobs[uid], l.reason}, l.err
}

// waits says in Kueue's words why the Job waits, "" if that is not known.
func (p place) waits() string {
	if p.workload == nil {
		return p.reason
	}
	quota := findCondition(p.Status.Conditions, "QuotaReserved")
	switch {
	case quota == nil:
		return "its turn has not come yet"
	case quota.Status != "True":
		return quota.Message
	}
	var checks []string
	for _, c := range p.Status.Checks {
		if c.State != "Ready" {
			checks = append(checks, strings.TrimSpace(fmt.Sprintf("%s is %s %s", c.Name, strings.ToLower(c.State), c.Message)))
		}
	}
	if len(checks) > 0 {
		return "there is room for it, but not all of the queue's checks have let it pass: " + strings.Join(checks, "; ")
	}
	return "it is let go"
}

// retreat is why a Job was taken back, in Kueue's words: "" if it was not, or if that is not known.
type retreat struct {
	why     string
	forGood bool // somebody stopped it, and it is not to be let go again
}

func (p place) taken() retreat {
	if p.workload == nil {
		return retreat{}
	}
	if c := findCondition(p.Status.Conditions, "Evicted"); c != nil && c.Status == "True" {
		return retreat{why: c.Message, forGood: strings.HasPrefix(c.Reason, "Deactivated")}
	}
	return retreat{}
}

// paused says whether the Job was suspended, which ends its pods.
func (s *sight) paused() bool { return s.suspended || s.job != nil && s.job.Spec.Suspend }

// pausedSince says whether that was after the pod was made, though the Job may have been let go again while nobody looked.
func (s *sight) pausedSince(p *podSight) bool {
	if s.paused() || s.job == nil {
		return s.paused()
	}
	c := findCondition(s.job.Status.Conditions, "Suspended")
	return c != nil && c.Changed.After(p.Meta.Created.Add(resumeLag))
}

// resumeLag is more than passes until a Job that is let go says so: the Job controller makes its pods first.
const resumeLag = 5 * time.Second

func (s *sight) whyPaused() string {
	switch {
	case s.retreat.forGood:
		return fmt.Sprintf("its Workload in queue %s of Kueue was stopped, not by trainyard: %s", s.queue, s.retreat.why)
	case s.retreat.why != "":
		return fmt.Sprintf("Kueue took its Job back into queue %s: %s", s.queue, s.retreat.why)
	}
	return "its Job was suspended, as Kueue does to give room to others"
}

// say keeps why the task waits.
func (d *tender) say(words string) {
	d.mu.Lock()
	changed := d.task.words != words
	d.task.words = words
	d.mu.Unlock()
	if changed {
		d.signal()
	}
}

// lookAgain are the pauses between looks that fail. What a look would have said decides whether the task is tried again, so its end waits
// for them: as long as an API server that is started again is away.
var lookAgain = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

// whyTaken asks Kueue why it took back a Job whose task had begun, until there is an answer: it says so before it does it, and no more when
// it is let go again. It says whether the answer may still come.
func (d *tender) whyTaken(ctx context.Context) (open bool) {
	d.mu.Lock()
	t := d.task
	t.taken = t.taken || t.job != nil && t.job.Spec.Suspend && len(t.rec.Begun) > 0
	taken, uid := t.taken, t.rec.UID
	d.mu.Unlock()
	switch {
	case !taken || d.explained || d.cfg.Queue == "":
		return false
	case time.Now().Before(d.nextLook):
		return true
	}
	bounded, cancel := context.WithTimeout(ctx, haltPatience)
	defer cancel()
	p, err := d.line.look(bounded, d.api, time.Now(), uid)
	if err != nil && d.looks < len(lookAgain) {
		d.nextLook = time.Now().Add(lookAgain[d.looks])
		d.looks++
		return true
	}
	d.explained = true
	if err != nil {
		d.env.Log.Warn("ask Kueue why it took a Job back", "task", t.id, "tries", d.looks+1, "err", err)
		return false
	}
	why := p.taken()
	d.mu.Lock()
	t.retreat = why
	d.mu.Unlock()
	return false
}

// kueuePath is the path of a kind of Kueue's in the version that the cluster likes best.
func (c *client) kueuePath(ctx context.Context, kind string, below ...string) (string, error) {
	var group struct {
		Preferred struct {
			Version string `json:"version"`
		} `json:"preferredVersion"`
	}
	if err := c.get(ctx, "/apis/"+kueueGroup, nil, &group); err != nil {
		return "", err
	}
	return strings.Join(append([]string{"/apis", kueueGroup, group.Preferred.Version, "namespaces", c.namespace, kind}, below...), "/"), nil
}

func (c *client) workloads(ctx context.Context) ([]*workload, error) {
	path, err := c.kueuePath(ctx, workloads)
	if err != nil {
		return nil, err
	}
	var p page[workload]
	err = c.get(ctx, path, nil, &p)
	return p.Items, err
}

// queueThere says what is wrong with the queue that tasks are to wait in, if that may be looked at.
func (c *client) queueThere(ctx context.Context, queue string) error {
	if queue == "" {
		return nil
	}
	path, err := c.kueuePath(ctx, localQueues, queue)
	if isMissing(err) {
		return trainyard.Invalid("tasks are to wait in queue %q of Kueue, and the cluster has no Kueue; install it, or leave the queue out", queue)
	}
	if err == nil {
		err = c.call(ctx, http.MethodGet, path, nil, nil, nil)
	}
	switch {
	case isMissing(err):
		return trainyard.Invalid("namespace %s has no LocalQueue %q of Kueue; its administrator makes one, or name another queue", c.namespace, queue)
	case isForbidden(err): // a warning says so
		return nil
	}
	return err
}
