package kube

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
)

// seeJobs takes a whole list of Jobs: one that is not in it is gone, unless it was made after the list was asked for.
func (d *Driver) seeJobs(all []*job, asked time.Time) { d.seeAll(all, asked, false) }

// seeDeployments and seeDeployment do the same for replicas.
func (d *Driver) seeDeployments(all []*job, asked time.Time) { d.seeAll(all, asked, true) }

func (d *Driver) seeDeployment(j *job, gone bool) {
	j.serves = true
	d.seeJob(j, gone)
}

func (d *Driver) seeAll(all []*job, asked time.Time, serves bool) {
	there := map[string]bool{}
	for _, j := range all {
		there[j.Meta.UID] = true
		j.serves = serves
		d.seeJob(j, false)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.rec.UID != "" && (t.rec.Main != "") == serves && !there[t.rec.UID] && t.added.Before(asked) {
			t.jobGone, t.news = true, time.Now()
			t.look()
		}
	}
	if !serves {
		maps.DeleteFunc(d.removed, func(uid string, _ bool) bool { return !there[uid] })
	}
}

// seeJob takes news of one Job. One of an unknown task makes the task known: it was made by who had this folder before.
func (d *Driver) seeJob(j *job, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removed[j.Meta.UID] {
		if gone {
			delete(d.removed, j.Meta.UID)
		}
		return
	}
	if j.Meta.Annotations[idAnnotation] == "" {
		return
	}
	t := d.tasks[j.Meta.Name]
	if t == nil {
		if gone {
			return
		}
		ranks, _ := strconv.Atoi(j.Meta.Annotations[ranksAnnotation]) // ours, and at least one
		t = d.newTask(record{ID: trainyard.TaskID(j.Meta.Annotations[idAnnotation]), Name: j.Meta.Name, UID: j.Meta.UID, Ranks: max(1, ranks),
			Main: j.Meta.Annotations[mainAnnotation]})
	}
	if t.rec.UID == "" { // Start is about it, or died over it and comes again
		t.job, t.jobGone, t.news = j, gone, time.Now()
		return
	}
	if t.rec.UID != j.Meta.UID {
		return
	}
	if t.job != nil && t.job.Spec.Suspend != j.Spec.Suspend {
		t.words = "" // why it waited
	}
	t.taken = t.taken || j.Spec.Suspend && len(t.rec.Begun) > 0
	t.job, t.jobGone, t.news = j, gone, time.Now()
	d.adopt(t)
	d.tend(t)
	t.look()
	d.signal()
}

// adopt gives a task the pods that were seen before its Job. The caller holds d.mu.
func (d *Driver) adopt(t *task) {
	for name, p := range d.strays[t.owner()] {
		t.pods[name] = t.seen(p)
	}
	delete(d.strays, t.owner())
}

// seePods takes a whole list of pods: one that is not in it is gone.
func (d *Driver) seePods(all []*pod, _ time.Time) {
	there := map[string]bool{}
	d.mu.Lock()
	clear(d.strays)
	d.mu.Unlock()
	for _, p := range all {
		there[p.Meta.UID] = true
		d.seePod(p, false)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		for _, p := range t.pods {
			if !there[p.pod.Meta.UID] {
				p.gone = true
				t.look()
			}
		}
	}
}

// seePod takes news of one pod.
func (d *Driver) seePod(p *pod, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owner := p.Meta.Labels[ownerLabel]
	if owner == "" {
		owner = replicas + p.Meta.Labels[taskLabel]
	}
	if d.removed[owner] {
		return
	}
	t := d.tasks[p.Meta.Labels[taskLabel]]
	if t == nil || t.owner() != owner {
		d.stray(owner, p, gone)
		return
	}
	if c := p.container(); t.rec.Main != "" && !t.rec.Answered && c != nil && c.Ready {
		t.rec.Answered = true // written down with what comes next; the pod says it again after a restart
	}
	seen := t.seen(p)
	seen.gone = gone
	t.pods[p.Meta.Name] = seen
	t.look()
	d.signal()
}

// seen is a pod as it is now. The caller holds d.mu.
func (t *task) seen(p *pod) *podSeen {
	s := &podSeen{pod: p}
	if before := t.pods[p.Meta.Name]; before != nil && before.pod.Meta.UID == p.Meta.UID {
		s.ran = before.ran
	}
	if c := p.container(); s.ran.IsZero() && c != nil && c.State.Running != nil {
		s.ran = time.Now()
	}
	return s
}

// stray keeps a pod whose Job is not known, for when it is. The caller holds d.mu.
func (d *Driver) stray(owner string, p *pod, gone bool) {
	if !gone {
		if d.strays[owner] == nil {
			d.strays[owner] = map[string]*pod{}
		}
		d.strays[owner][p.Meta.Name] = p
		return
	}
	delete(d.strays[owner], p.Meta.Name)
	if len(d.strays[owner]) == 0 {
		delete(d.strays, owner)
	}
}

// replicas is put before the name of a replica, whose pods do not carry the UID of its Deployment.
const replicas = "replica/"

// owner is what the task's pods say of whose they are.
func (t *task) owner() string {
	if t.rec.Main != "" {
		return replicas + t.name
	}
	return t.rec.UID
}

// look has the tender look at the task now.
func (t *task) look() {
	select {
	case t.nudge <- struct{}{}:
	default:
	}
}

// first is the pod whose log is the task's: the latest of the first rank.
func (t *task) first() *podSeen {
	var out *podSeen
	for _, p := range t.pods {
		if index(p.pod) == 0 && (out == nil || p.pod.Meta.Created.After(out.pod.Meta.Created)) {
			out = p
		}
	}
	return out
}

// vanished says whether there is no news of a pod that had begun: it went while nobody looked, or they are on their way. A replica's pods come
// and go. The caller holds Driver.mu.
func (t *task) vanished() bool {
	seen := 0
	for _, p := range t.pods {
		if t.rec.Begun[p.pod.Meta.UID] {
			seen++
		}
	}
	return t.rec.Main == "" && seen < len(t.rec.Begun)
}

// index is the pod's number in its Job.
func index(p *pod) int {
	for _, text := range []string{p.Meta.Labels[indexLabel], p.Meta.Annotations[indexLabel]} { // the label since 1.28
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	}
	return 0
}

// byIndex are the pods that are alive, in order.
func byIndex(all []podSight) []podSight {
	out := slices.DeleteFunc(slices.Clone(all), func(p podSight) bool { return p.ended() })
	slices.SortFunc(out, func(a, b podSight) int { return index(a.pod) - index(b.pod) })
	return out
}
