package control

import (
	"container/list"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

const (
	// imageAfter is how long a job with an image may wait before the nodes of its compute are asked whether it can be had at all. A job that
	// is placed at once hears it from the node that prepares it.
	imageAfter = 300 * time.Millisecond
	// imageAgain is how long after a question it is asked again, while no node has said that it can get the image.
	imageAgain = 30 * time.Second
	// imagesAtOnce is how many images a node is asked for at once. It hears of the next when it has answered for these.
	imagesAtOnce = 16
)

// imageOf is an image that jobs of one compute wait with.
type imageOf struct {
	compute trainyard.ComputeKey
	image   string
}

// images are the questions whether images can be had, and what is known of those that cannot. They do not outlive the server: a job of
// before hears of its image when it is its turn.
type images struct {
	mu    sync.Mutex
	asks  map[imageOf]*imageAsk
	jobs  map[trainyard.JobKey]imageOf        // of asks
	nodes map[trainyard.NodeID]*nodeQuestions // those that have some to answer
}

// nodeQuestions are what a node has not answered.
type nodeQuestions struct {
	list list.List // of *nodeQuestion, as they were put
	told int       // so many of them it knows
}

type nodeQuestion struct {
	image string
	told  bool // it was handed to the node
}

// imageAsk is one question, to every node of a compute that has an engine. It is kept until a node says that it can get the image, or no
// job waits for the answer.
type imageAsk struct {
	jobs  map[trainyard.JobKey]bool          // that waited when they were last looked at
	open  map[trainyard.NodeID]*list.Element // have not answered
	at    time.Time                          // when it was last put to nodes
	asked int                                // so many of them
	said  map[trainyard.NodeID]string        // why it cannot be had there, by those that have answered
	doubt trainyard.NodeID                   // one of them that is not certain; "": all are
	lack  string                             // what is said of it to those who ask why the jobs wait; "": it is not known to be out of reach
}

func newImages() images {
	return images{asks: map[imageOf]*imageAsk{}, jobs: map[trainyard.JobKey]imageOf{}, nodes: map[trainyard.NodeID]*nodeQuestions{}}
}

// open puts a question to a node. One that it has not answered keeps its place.
func (q *images) open(id trainyard.NodeID, of imageOf, a *imageAsk) {
	if a.open[id] != nil {
		return
	}
	n := q.nodes[id]
	if n == nil {
		n = &nodeQuestions{}
		q.nodes[id] = n
	}
	a.open[id] = n.list.PushBack(&nodeQuestion{image: of.image})
}

// close takes a question back from a node.
func (q *images) close(id trainyard.NodeID, a *imageAsk) {
	n := q.nodes[id]
	if n.list.Remove(a.open[id]).(*nodeQuestion).told {
		n.told--
	}
	if n.list.Len() == 0 {
		delete(q.nodes, id)
	}
	delete(a.open, id)
}

// want takes note that a job waits with an image; of none, which is the zero imageOf, it is only noted that an earlier job of this name waits
// no more.
func (q *images) want(key trainyard.JobKey, of imageOf) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if was, ok := q.jobs[key]; ok && was != of {
		q.drop(was, key)
	}
	if of == (imageOf{}) {
		return
	}
	a := q.asks[of]
	if a == nil {
		a = &imageAsk{jobs: map[trainyard.JobKey]bool{}, open: map[trainyard.NodeID]*list.Element{}}
		q.asks[of] = a
	}
	a.jobs[key], q.jobs[key] = true, of
}

// wanting are the jobs that waited for an image when they were last looked at.
func (q *images) wanting(of imageOf) []trainyard.JobKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.asks[of]; a != nil {
		return slices.Collect(maps.Keys(a.jobs))
	}
	return nil
}

// forget takes jobs off a question that wait no more. One for which nobody waits is no question.
func (q *images) forget(of imageOf, jobs []trainyard.JobKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(of, jobs...)
}

func (q *images) drop(of imageOf, jobs ...trainyard.JobKey) {
	a := q.asks[of]
	if a == nil {
		return
	}
	for _, key := range jobs {
		delete(a.jobs, key)
		if q.jobs[key] == of { // else the name is another job's by now
			delete(q.jobs, key)
		}
	}
	if len(a.jobs) == 0 {
		for id := range a.open {
			q.close(id, a)
		}
		delete(q.asks, of)
	}
}

// ask puts a question to these nodes, unless it was put less than imageAgain ago: more jobs with the image do not have the registry asked
// more often; nor is it put again while a node that has many to answer does not know of it yet, as what others have said would be lost. It
// returns the nodes that should hear of it now, and when to come again, 0 if there is no such question. With no nodes nobody is there who
// could know, and nothing is said of the image.
func (q *images) ask(of imageOf, nodes []trainyard.NodeID, now time.Time) (tell []trainyard.NodeID, again time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.asks[of]
	if a == nil {
		return nil, 0
	}
	if left := imageAgain - now.Sub(a.at); left > 0 && len(nodes) > 0 {
		return nil, left
	}
	there := make(map[trainyard.NodeID]bool, len(nodes))
	for _, id := range nodes {
		there[id] = true
	}
	known := true
	for id, e := range a.open {
		if !there[id] {
			q.close(id, a)
			a.asked--
		} else if !e.Value.(*nodeQuestion).told {
			known = false
		}
	}
	if len(nodes) == 0 {
		a.at, a.lack = time.Time{}, ""
		return nil, imageAgain
	}
	if !known {
		return nil, imageAgain
	}
	a.at, a.asked, a.doubt, a.said = now, len(nodes), "", make(map[trainyard.NodeID]string, len(nodes))
	for _, id := range nodes {
		q.open(id, of, a)
		if q.nodes[id].list.Len() <= imagesAtOnce {
			tell = append(tell, id)
		}
	}
	return tell, imageAgain
}

// of are the images that a node is asked for just now: the first of those that it has not answered for.
func (q *images) of(id trainyard.NodeID) (out []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.nodes[id]
	if n == nil {
		return nil
	}
	for e := n.list.Front(); e != nil && len(out) < imagesAtOnce; e = e.Next() {
		w := e.Value.(*nodeQuestion)
		if !w.told {
			w.told = true
			n.told++
		}
		out = append(out, w.image)
	}
	return out
}

// verdict is what all nodes that were asked for an image come to: it cannot be had.
type verdict struct {
	of    imageOf
	asked int
	node  trainyard.NodeID // one of them, and why it cannot get it; one with doubts if there is one
	why   string
	doubt bool // it may be had later
	jobs  []trainyard.JobKey
}

// answer takes note of what a node says. A question is settled by a node that can get the image; when none of those that were asked can,
// there is a verdict. One that does not know settles nothing: it is asked again with the others. more says that the node has answered for
// all images that it knows of, and that there are others.
func (q *images) answer(id trainyard.NodeID, of imageOf, w trainyard.ImageWord) (v *verdict, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.asks[of]; a != nil && a.open[id] != nil {
		v = q.settle(id, of, a, w)
	}
	n := q.nodes[id]
	return v, n != nil && n.told == 0
}

func (q *images) settle(id trainyard.NodeID, of imageOf, a *imageAsk, w trainyard.ImageWord) *verdict {
	if !w.Missing && !w.Unknown {
		q.drop(of, slices.Collect(maps.Keys(a.jobs))...)
		return nil
	}
	q.close(id, a)
	if w.Unknown {
		return nil
	}
	if a.said[id] = w.Why; !w.Certain {
		a.doubt = id
	}
	if len(a.said) < a.asked {
		return nil
	}
	v := &verdict{of: of, asked: a.asked, node: id, doubt: a.doubt != "", jobs: slices.Sorted(maps.Keys(a.jobs))}
	if v.doubt {
		v.node = a.doubt
	}
	v.why = a.said[v.node]
	return v
}

// note takes note of what is said of an image from now on.
func (q *images) note(of imageOf, lack string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.asks[of]; a != nil {
		a.lack = lack
	}
}

// lacks is why a job that waits may not get its image when it is its turn; "" if that is not known.
func (q *images) lacks(key trainyard.JobKey) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.asks[q.jobs[key]]; a != nil {
		return a.lack
	}
	return ""
}

// imageFor is the image that a job runs with, and where; zero if it has none that is there to be asked for.
func imageFor(j *trainyard.Job) imageOf {
	if e := j.Plan.Environment; e != nil && e.Image != "" && e.Context == "" {
		return imageOf{trainyard.MakeComputeKey(j.Scope, j.Plan.Compute), e.Image}
	}
	return imageOf{}
}

// lookForImage sees to it that a job which waits is told if its image cannot be had.
func (c *Control) lookForImage(j *trainyard.Job) {
	of := imageFor(j)
	c.images.want(j.Key(), of)
	if of != (imageOf{}) {
		c.looks.AddAfter(of, imageAfter)
	}
}

// askForImage asks the nodes of a compute for an image, and again after a while, for as long as a job waits that does not know.
func (c *Control) askForImage(ctx context.Context, of imageOf) (again time.Duration, err error) {
	nodes, err := c.Store.Nodes(ctx, of.compute)
	if err != nil {
		return 0, err
	}
	var to []trainyard.NodeID
	for _, n := range nodes {
		if n.State.Usable() && len(n.Engines) > 0 {
			to = append(to, n.ID)
		}
	}
	gone := slices.DeleteFunc(c.images.wanting(of), c.Store.Waits)
	c.images.forget(of, gone)
	tell, again := c.images.ask(of, to, c.Now())
	for _, id := range tell {
		c.nodes.bump(id)
	}
	return again, nil
}

// noteImage takes note of what a node says of an image. When all nodes that were asked say that it cannot be had, the jobs that wait for it
// say so. They fail at once if that is certain, since the registry knows no such image or refuses it, and also where it is not, on a compute
// whose nodes are never others than these: this machine, an attached one. A cluster's jobs wait on: its next node may reach what these do
// not, and they are not failed for a registry that is out of reach for an hour while they have no room anyway.
func (c *Control) noteImage(ctx context.Context, n *trainyard.Node, w trainyard.ImageWord) error {
	v, more := c.images.answer(n.ID, imageOf{n.Compute, w.Image}, w)
	if more {
		c.nodes.bump(n.ID)
	}
	if v == nil {
		return nil
	}
	comp, err := c.Store.Compute(ctx, v.of.compute)
	if trainyard.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if v.doubt && comp.Elastic() {
		c.images.note(v.of, v.words(comp))
		return nil
	}
	if err := c.failForImage(ctx, v); err != nil {
		return err
	}
	c.images.forget(v.of, v.jobs)
	return nil
}

// words are what is said of an image that cannot be had now by jobs of a cluster, which wait all the same.
func (v *verdict) words(comp *trainyard.Compute) string {
	text := fmt.Sprintf("the image cannot be had at the moment: node %s says: %s", v.node, v.why)
	if v.asked > 1 {
		text = fmt.Sprintf("none of its %d nodes can get the image at the moment: node %s says: %s", v.asked, v.node, v.why)
	}
	if maxNodes(comp) > v.asked {
		text += "; another node of " + comp.Name + " may have it"
	}
	return text
}

// failForImage ends the jobs that wait for an image which cannot be had. Of a name that was used again meanwhile it is another job's.
func (c *Control) failForImage(ctx context.Context, v *verdict) error {
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		for _, key := range v.jobs {
			j, err := tx.Job(key)
			if err != nil || j.Status.State != trainyard.JobQueued || imageFor(j) != v.of {
				continue
			}
			why := fmt.Sprintf("node %s was asked while it waited: %s", v.node, v.why)
			j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassEnvironment, Message: why}
			if err := j.MoveTo(trainyard.JobFailed, trainyard.Reason{Code: string(trainyard.ClassEnvironment), Message: why}, c.Now()); err != nil {
				return err
			}
			tx.Event(c.event(j.Scope, "job", j.Name, eventName(j.Status.State), "", why))
			if err := tx.PutJob(j); err != nil {
				return err
			}
		}
		return nil
	})
}
