package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// imageAfter is how long a job with an image may wait before the nodes of its compute are asked whether it can be had at all. A job that
// is placed at once hears it from the node that prepares it.
const imageAfter = 300 * time.Millisecond

// images are the questions that are open. They do not outlive the server: a job of before hears of its image when it is its turn.
type images struct {
	mu  sync.Mutex
	ask []*imageAsk
}

// imageAsk is one question, to every node of a job's compute that has an engine.
type imageAsk struct {
	job     trainyard.JobKey
	image   string
	open    map[trainyard.NodeID]bool // have not answered
	there   bool                      // one has it, or can pull it, or does not know
	doubt   bool                      // one is not certain that it cannot be had
	because string
}

// of are the images that a node is asked for.
func (q *images) of(id trainyard.NodeID) (out []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.ask {
		if a.open[id] && !slices.Contains(out, a.image) {
			out = append(out, a.image)
		}
	}
	return out
}

// answer takes note of what a node says, and returns the questions that are answered by it.
func (q *images) answer(id trainyard.NodeID, w trainyard.ImageWord) (done []*imageAsk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ask = slices.DeleteFunc(q.ask, func(a *imageAsk) bool {
		if a.image != w.Image || !a.open[id] {
			return false
		}
		delete(a.open, id)
		a.there, a.doubt = a.there || !w.Missing, a.doubt || !w.Certain
		if w.Missing {
			a.because = w.Why
		}
		if len(a.open) == 0 {
			done = append(done, a)
		}
		return len(a.open) == 0
	})
	return done
}

// lookForImage sees to it that a job which waits is told if its image cannot be had.
func (c *Control) lookForImage(j *trainyard.Job) {
	if e := j.Plan.Environment; e != nil && e.Image != "" && e.Context == "" {
		key, comp, image := j.Key(), trainyard.MakeComputeKey(j.Scope, j.Plan.Compute), e.Image
		time.AfterFunc(imageAfter, func() { c.askImage(key, comp, image) })
	}
}

func (c *Control) askImage(key trainyard.JobKey, comp trainyard.ComputeKey, image string) {
	if !c.waits(key) {
		return
	}
	nodes, err := c.Store.Nodes(context.Background(), comp)
	if err != nil {
		return
	}
	a := &imageAsk{job: key, image: image, open: map[trainyard.NodeID]bool{}}
	for _, n := range nodes {
		if n.State.Usable() && len(n.Engines) > 0 {
			a.open[n.ID] = true
		}
	}
	if len(a.open) == 0 {
		return // nobody is there who could know
	}
	to := slices.Collect(maps.Keys(a.open))
	c.images.mu.Lock()
	c.images.ask = append(slices.DeleteFunc(c.images.ask, func(b *imageAsk) bool { return !c.waits(b.job) }), a)
	c.images.mu.Unlock()
	for _, id := range to {
		c.nodes.bump(id)
	}
}

// waits says whether a job is in the queue.
func (c *Control) waits(key trainyard.JobKey) bool {
	j, err := c.Store.Job(context.Background(), key)
	return err == nil && j.Status.State == trainyard.JobQueued
}

// noteImage takes note of what a node says of an image. When all nodes that were asked say that it cannot be had, the jobs that wait for it
// are told; they fail if that is certain, or if there will be no other node: a cluster's next one may reach what these do not.
func (c *Control) noteImage(ctx context.Context, id trainyard.NodeID, w trainyard.ImageWord) error {
	for _, a := range c.images.answer(id, w) {
		if a.there {
			continue
		}
		err := c.Store.Update(ctx, func(tx *store.Tx) error {
			j, err := tx.Job(a.job)
			if err != nil || j.Status.State != trainyard.JobQueued {
				return nil
			}
			comp, err := tx.Compute(trainyard.MakeComputeKey(j.Scope, j.Plan.Compute))
			if err != nil {
				return nil
			}
			if a.doubt && comp.Elastic() {
				j.Status.Warnings = trainyard.Warn(j.Status.Warnings, fmt.Sprintf("while it waits: %s; it waits all the same, for another node of %s may have it", a.because, comp.Name))
				return tx.PutJob(j)
			}
			j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassEnvironment, Message: a.because}
			if err := j.MoveTo(trainyard.JobFailed, trainyard.Reason{Code: string(trainyard.ClassEnvironment), Message: a.because}, c.Now()); err != nil {
				return err
			}
			tx.Event(c.event(j.Scope, "job", j.Name, eventName(j.Status.State), "", a.because))
			return tx.PutJob(j)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
