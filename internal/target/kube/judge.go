package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// sight is all that is known of a task at a moment.
type sight struct {
	main     string // of a replica: the container that serves
	answered bool   // it was ready once
	name     string
	ranks    int
	queue    string        // of Kueue
	asked    bool          // we were told to end it
	grace    time.Duration // for an image that cannot be pulled
	job      *job          // the last that was seen, nil before
	jobGone  bool
	settled  bool // news of pods would be here if there were any
	pods     []podSight
	vanished bool // of a pod that had begun there is no news: it went while nobody looked, or the news are on their way

	suspended bool    // the Job was suspended after the task had begun, though it may not be any more
	retreat   retreat // what Kueue says of that

	stop    *time.Time     // as in record, and so are the next two
	allowed *time.Duration // Grace
	scaled  bool
}

// podSight is one pod of it.
type podSight struct {
	*pod
	gone  bool // the last that was seen of it
	begun bool // the program was sent
	lost  bool // it was to be gone, and its node is not there to say so
	told  told // of its end; zero: nothing

	asks   bool // it may be asking what it is to run
	serves bool // it is a replica's: its container is started again when it ends
}

// verdict is what a sight means.
type verdict struct {
	state    trainyard.TaskState
	progress string
	started  time.Time
	ready    bool    // all pods run and wait for the program
	early    bool    // the only one may run, though the kubelet, which looks once a second, has not said so
	end      *ending // over: how
}

// ending is how a task ended, as it is kept.
type ending struct {
	Result   trainyard.Result `json:"result"`
	Started  time.Time        `json:"started,omitzero"`
	Ended    time.Time        `json:"ended,omitzero"`
	Spans    []trainyard.Span `json:"spans,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
	Killed   time.Duration    `json:"killed,omitempty"` // as in trainyard.Observation, of pods whose program left no word of it
	written  int64            // bytes of its log; kept nowhere
}

// judge looks at nothing but the sight and now.
func judge(s *sight, now time.Time) verdict {
	if s.main != "" {
		return judgeReplica(s, now)
	}
	if end := s.over(now); end != nil {
		return verdict{state: trainyard.TaskEnded, started: end.Started, end: end}
	}
	v := verdict{state: trainyard.TaskStaging}
	running, waiting := 0, 0
	for i := range s.pods {
		p := &s.pods[i]
		c := p.container()
		if p.ended() || c == nil || c.State.Running == nil {
			continue
		}
		running++
		if !p.begun {
			if !p.asks {
				waiting++
			}
			continue
		}
		v.state = trainyard.TaskRunning
		if since := p.silent(); !since.IsZero() && v.progress == "" && !s.asked { // what is to end does, whether it answers or not
			v.progress = fmt.Sprintf("Kubernetes has not heard of its node %s since before %s; as a rule it gives up after five minutes what runs there",
				p.Spec.Node, since.UTC().Format(time.TimeOnly+" MST"))
		}
		if v.started.IsZero() || c.State.Running.Started.Before(v.started) {
			v.started = c.State.Running.Started
		}
	}
	open := !s.asked && s.job != nil && !s.jobGone && !s.job.Spec.Suspend && !s.vanished
	v.ready = open && running == s.ranks && waiting > 0 && s.addressed()
	v.early = open && s.ranks == 1 && running == 0 &&
		slices.ContainsFunc(s.pods, func(p podSight) bool { return p.starting() && !p.begun && !p.asks })
	if v.state == trainyard.TaskStaging {
		v.progress = s.waits(running)
	}
	return v
}

// silent is since when its node is known not to answer, zero if it does. Nothing of ours keeps a pod from being ready whose container is: it is
// Kubernetes that calls such pods not ready, with no reason of its own, when nothing was heard of their node for a while (50 s unless told).
func (p *podSight) silent() time.Time {
	c, ready := p.container(), p.condition("Ready")
	if c == nil || !c.Ready || ready == nil || ready.Status != "False" || ready.Reason != "" {
		return time.Time{}
	}
	return ready.Changed
}

// starting says whether the pod's node is at work on it.
func (p *podSight) starting() bool {
	c := p.container()
	return !p.ended() && p.Spec.Node != "" && p.Meta.Deleted == nil &&
		(c == nil || c.State.Waiting != nil && c.State.Waiting.Reason == "ContainerCreating")
}

// addressed says whether every pod that is alive has an address.
func (s *sight) addressed() bool {
	return !slices.ContainsFunc(s.pods, func(p podSight) bool { return !p.ended() && p.Status.IP == "" })
}

// over is how the task ended, nil if it has not.
func (s *sight) over(now time.Time) *ending {
	done := s.job != nil && finished(s.job) != nil
	final := done || s.jobGone // no pod that is missing will come
	var ends []ended
	begun, live, anew, well := false, false, false, 0 // anew: there is a pod in the place of one that had begun
	for i := range s.pods {
		p := &s.pods[i]
		switch {
		case s.vanished && !p.begun:
			anew = true
		case p.ended() && (p.begun || final):
			e := s.endOf(p)
			if e.Result.Class == trainyard.ClassOK {
				well++
			}
			ends = append(ends, e)
		case p.ended(): // before it began: another takes its place
		case p.begun:
			begun, live = true, true
		default:
			live = true
			if e := s.unpullable(p, now); e != nil {
				return e
			}
		}
	}
	bad := well < len(ends)
	switch {
	case bad && !begun, len(ends) > 0 && !live && (well >= s.ranks || final):
		return s.join(ends)
	case !begun && s.replaced(anew):
		return &ending{Result: s.replacedResult(), Ended: now, Warnings: []string{"what was printed after the server went away may be missing from the log: its pod is gone"}}
	case len(ends) == 0 && !live && final && s.settled:
		return s.never(now)
	}
	return nil
}

// replaced says whether a pod that had begun went while nobody looked, and the Job is to have another in its place: it was suspended, by which
// no Job has failed.
func (s *sight) replaced(anew bool) bool {
	return s.vanished && s.settled && (anew || s.job != nil && s.job.Spec.Suspend && !s.jobGone)
}

func (s *sight) replacedResult() trainyard.Result {
	r := trainyard.Result{Class: trainyard.ClassNodeLost, ExitCode: -1, Message: "its pod was gone when the server looked again"}
	switch {
	case s.asked:
		r.Class, r.Message = trainyard.ClassCanceled, "ended because it was asked to"
	case s.paused() && s.retreat.forGood:
		r.Class, r.Message = trainyard.ClassCanceled, r.Message+": "+s.whyPaused()
	case s.paused(), s.job != nil && findCondition(s.job.Status.Conditions, "Suspended") != nil:
		r.Class, r.Message = trainyard.ClassPreempted, r.Message+": "+s.whyPaused()
	}
	return r
}

// never is the end of a task of which no pod was seen.
func (s *sight) never(now time.Time) *ending {
	r := trainyard.Result{Class: trainyard.ClassNodeLost, ExitCode: -1}
	switch c := finished(s.job); {
	case s.asked:
		r.Class, r.Message = trainyard.ClassCanceled, "ended before it began"
	case c != nil && c.Type == "Complete":
		r.Class, r.ExitCode = trainyard.ClassOK, 0
	case c != nil && c.Reason == "DeadlineExceeded":
		r.Class, r.Message = trainyard.ClassTimeout, "Kubernetes ended Job "+s.name+": "+c.Message
	case c != nil:
		r.Message = fmt.Sprintf("Job %s failed and left no pod: %s", s.name, c.Message)
	default:
		r.Message = fmt.Sprintf("Job %s was deleted from the cluster, not by trainyard", s.name)
	}
	return &ending{Result: r, Ended: now}
}

// ended is how one rank ended. pushed says that something else ended it: another rank, or whoever deleted the pod.
type ended struct {
	ending
	pushed bool
}

// join makes one end of those of all ranks: one that gave way is the reason, for the others may have failed for want of it; if none did, the
// first that failed by itself.
func (s *sight) join(all []ended) *ending {
	slices.SortStableFunc(all, func(a, b ended) int { return a.Ended.Compare(b.Ended) })
	pick := slices.IndexFunc(all, func(e ended) bool { return e.Result.Class == trainyard.ClassPreempted })
	if pick < 0 {
		pick = slices.IndexFunc(all, func(e ended) bool { return e.Result.Class != trainyard.ClassOK && !e.pushed })
	}
	if pick < 0 {
		pick = slices.IndexFunc(all, func(e ended) bool { return e.Result.Class != trainyard.ClassOK })
	}
	out := all[max(pick, 0)].ending
	for _, e := range all {
		if !e.Started.IsZero() && (out.Started.IsZero() || e.Started.Before(out.Started)) {
			out.Started = e.Started
		}
		if e.Ended.After(out.Ended) {
			out.Ended = e.Ended
		}
		out.Result.PeakMB = max(out.Result.PeakMB, e.Result.PeakMB)
		out.Killed = max(out.Killed, e.Killed)
		if out.Spans == nil {
			out.Spans = e.Spans
		}
		for _, w := range e.Warnings {
			if !slices.Contains(out.Warnings, w) {
				out.Warnings = append(slices.Clone(out.Warnings), w)
			}
		}
	}
	return &out
}

// ended says whether nothing of the pod runs any more, as far as anybody can tell.
func (p *podSight) ended() bool {
	c := p.container()
	return p.gone || p.lost || !p.serves && c != nil && c.State.Terminated != nil || p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded"
}

// endOf is how a pod that has ended did.
func (s *sight) endOf(p *podSight) ended {
	e := ended{pushed: p.Meta.Deleted != nil}
	t := &terminated{ExitCode: -1}
	if c := p.container(); c != nil && c.State.Terminated != nil {
		t = c.State.Terminated
		e.Started, e.Ended = t.Started, t.Finished
	}
	if left, ok := readEnd(t.Message); ok {
		e.ending = left
		if e.Ended.IsZero() {
			e.Ended = t.Finished
		}
	} else {
		e.Result = s.unsaid(p, t)
		if t.ExitCode == 137 && e.Result.Class == trainyard.ClassCanceled {
			e.Killed = p.told.Killed
		}
	}
	r := &e.Result
	if t.Reason == "OOMKilled" && (r.Class == trainyard.ClassUser && r.ExitCode == 137 || r.Class == trainyard.ClassOutOfMemory) {
		*r = outOfMemory(r, p.limitMB())
	}
	if r.Class == trainyard.ClassCanceled && !s.asked {
		*r = trainyard.Result{Class: s.taken(p), ExitCode: -1, Message: s.disruption(p), PeakMB: r.PeakMB}
		if p.Status.Reason == "Evicted" && ownFault(p.Status.Message) {
			r.Class = trainyard.ClassDisk
		}
		e.pushed = r.Class != trainyard.ClassDisk
	}
	return e
}

// readEnd reads what the program left behind.
func readEnd(message string) (ending, bool) {
	var left trainyard.TaskEnd
	if !strings.HasPrefix(message, "{") || json.Unmarshal([]byte(message), &left) != nil || left.Result.Class == "" {
		return ending{}, false
	}
	return ending{Result: left.Result, Started: left.Started, Ended: left.Ended, Spans: left.Spans, Warnings: left.Warnings,
		written: left.LogBytes}, true
}

// unsaid is the end of a pod whose program left no result.
func (s *sight) unsaid(p *podSight, t *terminated) trainyard.Result {
	r := trainyard.Result{Class: s.taken(p), ExitCode: t.ExitCode, Message: s.disruption(p)}
	words := strings.TrimSpace(t.Message)
	switch {
	case t.Reason == "OOMKilled":
		return outOfMemory(&r, p.limitMB())
	case s.asked:
		r.Class, r.Message = trainyard.ClassCanceled, "ended because it was asked to"
	case s.job != nil && p.gone && t.ExitCode < 0 && isComplete(s.job):
		r.Class, r.ExitCode, r.Message = trainyard.ClassOK, 0, ""
	case p.Status.Reason == "DeadlineExceeded":
		r.Class, r.Message = trainyard.ClassTimeout, "Kubernetes ended pod "+p.Meta.Name+": "+p.Status.Message
	case p.Status.Reason == "Evicted" && ownFault(p.Status.Message):
		r.Class = trainyard.ClassDisk
	case r.Message != "":
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		r.Class, r.Message = trainyard.ClassEnvironment, fmt.Sprintf("image %s cannot run a shell: %s", p.image(), words)
	case t.ExitCode == 137 || t.ExitCode == 143:
		r.Message = fmt.Sprintf("pod %s was killed from outside (exit code %d)", p.Meta.Name, t.ExitCode)
	default:
		r.Class = trainyard.ClassStart
		r.Message = strings.TrimSpace(fmt.Sprintf("pod %s ended with exit code %d and left no result %s", p.Meta.Name, t.ExitCode, words))
	}
	return r
}

// outOfMemory is r, killed at a limit.
func outOfMemory(r *trainyard.Result, limit int64) trainyard.Result {
	out := trainyard.Result{Class: trainyard.ClassOutOfMemory, ExitCode: 137, PeakMB: r.PeakMB, LimitMB: cmp.Or(r.LimitMB, limit)}
	out.PeakMB = cmp.Or(out.PeakMB, out.LimitMB)
	out.Message = fmt.Sprintf("killed at its memory limit of %d MB", out.LimitMB)
	return out
}

// ownFault says whether the kubelet evicted a pod for what it did, and not for the node's sake.
func ownFault(message string) bool {
	for _, words := range []string{"ephemeral local storage usage exceeds", "ephemeral storage limit", "exceeds the limit", "exceeds the total limit"} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}

// disruptions are what took a pod away, by the reason of its condition DisruptionTarget.
var disruptions = map[string]string{
	"PreemptionByScheduler":  "it gave way to a pod of higher priority",
	"DeletionByTaintManager": "its node was tainted, as one that does not answer is",
	"EvictionByEvictionAPI":  "its node was drained",
	"DeletionByPodGC":        "its node is gone",
	"TerminationByKubelet":   "its node had to be relieved",
}

// kubeletEnds are what the kubelet took a whole pod away for, and in order, by the reason in the pod's status.
var kubeletEnds = map[string]string{
	"Terminated": "its node is being shut down",
	"Preempting": "it gave way to a pod that its node cannot do without",
}

// taken is the class of a pod's end that was not its own: it gave way to others, or its node is lost to it. Only the second counts against
// the attempts of a job, so what says that somebody wants the node for something else is preemption: the scheduler, an eviction by the API
// (kubectl drain and what takes nodes away that are not needed), a node that is shut down in order. These are lost nodes:
//   - what the kubelet evicts because memory or disk ran short: a job that eats its node would go round for ever;
//   - what a NoExecute taint drives away: Kubernetes taints a node that does not answer, too, and what it then says of the pod is the same as for
//     a taint by hand, so a job that kills its nodes could not be told from one that gave way;
//   - what is cleaned up after its node was gone.
func (s *sight) taken(p *podSight) trainyard.Class {
	switch {
	case s.pausedSince(p) && s.retreat.forGood:
		return trainyard.ClassCanceled
	case s.pausedSince(p), p.gaveWay():
		return trainyard.ClassPreempted
	}
	return trainyard.ClassNodeLost
}

// gaveWay says whether the pod was taken away in order, for the sake of something else.
func (p *podSight) gaveWay() bool {
	if p.Status.Reason == "Evicted" {
		return false
	}
	switch r := p.disrupted(); r.Reason {
	case "PreemptionByScheduler", "EvictionByEvictionAPI":
		return true
	case "", "TerminationByKubelet":
		return kubeletEnds[p.Status.Reason] != ""
	}
	return false
}

// disrupted is the pod's condition DisruptionTarget, an empty one if it does not hold.
func (p *podSight) disrupted() condition {
	if c := p.condition("DisruptionTarget"); c != nil && c.Status == "True" {
		return *c
	}
	return condition{}
}

// disruption says what took the pod away, "" if nothing did.
func (s *sight) disruption(p *podSight) string {
	where := ""
	if p.Spec.Node != "" {
		where = " on node " + p.Spec.Node
	}
	what := "pod " + p.Meta.Name + where
	c := p.disrupted()
	why := disruptions[c.Reason]
	if p.gaveWay() {
		why = cmp.Or(kubeletEnds[p.Status.Reason], why)
	}
	switch said := strings.TrimRight(cmp.Or(c.Message, p.Status.Message), ". "); {
	case p.Status.Reason == "Evicted":
		return what + " was evicted: " + p.Status.Message
	case why != "" && said != "":
		return fmt.Sprintf("%s was ended because %s (%s)", what, why, said)
	case why != "":
		return fmt.Sprintf("%s was ended because %s", what, why)
	case c.Status != "":
		return fmt.Sprintf("%s was ended: %s", what, said)
	case p.lost:
		return what + " is lost: the node does not answer"
	case s.pausedSince(p):
		return what + " was ended because " + s.whyPaused()
	case s.jobGone:
		return fmt.Sprintf("%s was ended because Job %s was deleted from the cluster, not by trainyard", what, s.name)
	case p.Meta.Deleted != nil || p.gone:
		return what + " was deleted, not by trainyard"
	case p.Status.Reason != "":
		return fmt.Sprintf("%s was ended: %s %s", what, p.Status.Reason, p.Status.Message)
	}
	return ""
}
