package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

var t0 = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// podJSON makes a pod of a status as the cluster writes it.
func podJSON(t *testing.T, name, status string) *pod {
	t.Helper()
	p := &pod{}
	text := fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-%s"},"spec":{"nodeName":"n1","containers":[{"name":"task","image":"img:1",
		"resources":{"limits":{"memory":"100Mi"}}}]},"status":%s}`, name, name, status)
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// terminatedJSON is a status of a pod whose container has ended.
func terminatedJSON(code int, reason string, message any) string {
	m, _ := json.Marshal(message)
	if s, ok := message.(string); ok {
		m, _ = json.Marshal(s)
	} else {
		m, _ = json.Marshal(string(m))
	}
	return fmt.Sprintf(`{"phase":"Failed","containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":%d,"reason":%q,"message":%s,
		"startedAt":"2026-01-01T12:00:00Z","finishedAt":"2026-01-01T12:00:05Z"}}}]}`, code, reason, m)
}

func left(class trainyard.Class, code int) trainyard.TaskEnd {
	return trainyard.TaskEnd{Result: trainyard.Result{Class: class, ExitCode: code, Message: "said"}, Started: t0, Ended: t0.Add(4 * time.Second)}
}

func waitingJSON(reason, message string) string {
	return fmt.Sprintf(`{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T12:00:00Z"}],
		"containerStatuses":[{"name":"task","state":{"waiting":{"reason":%q,"message":%q}}}]}`, reason, message)
}

const runningJSON = `{"phase":"Running","podIP":"10.0.0.1","containerStatuses":[{"name":"task","state":{"running":{"startedAt":"2026-01-01T12:00:00Z"}}}]}`

func begun(p *pod) podSight { return podSight{pod: p, begun: true} }

func deleted(p *pod) *pod {
	at := t0.Add(time.Second)
	p.Meta.Deleted = &at
	return p
}

func madeAt(at time.Time, p *pod) *pod {
	p.Meta.Created = at
	return p
}

func disrupted(p *pod, reason string) *pod {
	p.Status.Conditions = append(p.Status.Conditions, condition{Type: "DisruptionTarget", Status: "True", Reason: reason, Message: "words"})
	return p
}

func evicted(p *pod) *pod {
	p.Status.Reason, p.Status.Message = "Evicted", "Usage of EmptyDir volume \"work\" exceeds the limit \"1Mi\"."
	return p
}

func shutdown(p *pod) *pod {
	p.Status.Reason, p.Status.Message = "Terminated", "Pod was terminated in response to imminent node shutdown."
	return p
}

func TestEnds(t *testing.T) {
	pods := func(all ...podSight) []podSight { return all }
	aJob := &job{}
	failedJob := &job{}
	failedJob.Status.Conditions = []condition{{Type: "Failed", Status: "True", Reason: "BackoffLimitExceeded", Message: "Job has reached the specified backoff limit"}}
	completeJob := &job{}
	completeJob.Status.Conditions = []condition{{Type: "Complete", Status: "True"}}
	suspended := &job{}
	suspended.Spec.Suspend = true
	resumed := &job{} // as every Job of a queue is; this one after its first pod was made
	resumed.Status.Conditions = []condition{{Type: "Suspended", Status: "False", Reason: "JobResumed", Changed: t0}}
	givenUp := &job{}
	givenUp.Status.Conditions = slices.Concat(resumed.Status.Conditions, failedJob.Status.Conditions)
	p := func(status string) *pod { return podJSON(t, "p0", status) }
	tests := []struct {
		name  string
		sight sight
		class trainyard.Class // "": it has not ended
		code  int
		words string
	}{
		{"what the program left behind wins", sight{job: failedJob, pods: pods(begun(p(terminatedJSON(3, "Error", left(trainyard.ClassUser, 3)))))}, trainyard.ClassUser, 3, "said"},
		{"success", sight{job: aJob, pods: pods(begun(p(terminatedJSON(0, "Completed", left(trainyard.ClassOK, 0)))))}, trainyard.ClassOK, 0, ""},
		{"killed at its memory limit, as the container's runtime tells", sight{job: aJob, pods: pods(begun(p(terminatedJSON(137, "OOMKilled", ""))))}, trainyard.ClassOutOfMemory, 137, "limit of 100 MB"},
		{"the process was killed at the limit and the program lived to tell of the signal", sight{job: aJob, pods: pods(begun(p(terminatedJSON(137, "OOMKilled", left(trainyard.ClassUser, 137)))))}, trainyard.ClassOutOfMemory, 137, "100 MB"},
		{"a process that fails by itself after one of its children was killed keeps its code", sight{job: aJob, pods: pods(begun(p(terminatedJSON(2, "OOMKilled", left(trainyard.ClassUser, 2)))))}, trainyard.ClassUser, 2, ""},
		{"stopped because we asked", sight{asked: true, job: aJob, pods: pods(begun(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143)))))}, trainyard.ClassCanceled, 143, ""},
		{"deleted by hand", sight{job: failedJob, pods: pods(begun(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))))}, trainyard.ClassNodeLost, -1, "pod p0 on node n1 was deleted, not by trainyard"},
		{"node drained", sight{job: failedJob, pods: pods(begun(disrupted(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143)))), "EvictionByEvictionAPI")))}, trainyard.ClassPreempted, -1, "pod p0 on node n1 was ended because its node was drained (words)"},
		{"node drained, and killed after its grace", sight{job: failedJob, pods: pods(begun(disrupted(deleted(p(terminatedJSON(137, "Error", ""))), "EvictionByEvictionAPI")))}, trainyard.ClassPreempted, 137, "drained"},
		{"node shut down in order", sight{job: failedJob, pods: pods(begun(disrupted(shutdown(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143)))), "TerminationByKubelet")))}, trainyard.ClassPreempted, -1, "pod p0 on node n1 was ended because its node is being shut down (words)"},
		{"node shut down in order, as a cluster without conditions says", sight{job: failedJob, pods: pods(begun(shutdown(p(`{"phase":"Failed"}`))))}, trainyard.ClassPreempted, -1, "its node is being shut down (Pod was terminated in response to imminent node shutdown)"},
		{"evicted by the kubelet, which says so in two places", sight{job: failedJob, pods: pods(begun(disrupted(p(`{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`), "TerminationByKubelet")))}, trainyard.ClassNodeLost, -1, "was evicted: The node was low on resource: memory."},
		{"taken by the kubelet, and why is not known", sight{job: failedJob, pods: pods(begun(disrupted(p(terminatedJSON(137, "Error", "")), "TerminationByKubelet")))}, trainyard.ClassNodeLost, 137, "its node had to be relieved (words)"},
		{"driven away by a taint", sight{job: failedJob, pods: pods(begun(disrupted(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143)))), "DeletionByTaintManager")))}, trainyard.ClassNodeLost, -1, "its node was tainted"},
		{"cleaned up after its node", sight{job: failedJob, pods: pods(podSight{pod: disrupted(deleted(shutdown(p(runningJSON))), "DeletionByPodGC"), begun: true, gone: true})}, trainyard.ClassNodeLost, -1, "its node is gone"},
		{"preempted", sight{job: failedJob, pods: pods(begun(disrupted(deleted(p(terminatedJSON(137, "Error", ""))), "PreemptionByScheduler")))}, trainyard.ClassPreempted, 137, "higher priority"},
		{"ended well although it was being deleted", sight{job: failedJob, pods: pods(begun(deleted(p(terminatedJSON(0, "Completed", left(trainyard.ClassOK, 0))))))}, trainyard.ClassOK, 0, ""},
		{"evicted for the node's sake", sight{job: failedJob, pods: pods(begun(p(`{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`)))}, trainyard.ClassNodeLost, -1, "low on resource"},
		{"evicted for writing more than it may", sight{job: failedJob, pods: pods(begun(p(`{"phase":"Failed","reason":"Evicted","message":"Usage of EmptyDir volume \"work\" exceeds the limit \"1Mi\". "}`)))}, trainyard.ClassDisk, -1, "exceeds the limit"},
		{"told to end for writing more than it may", sight{job: failedJob, pods: pods(begun(evicted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))))}, trainyard.ClassDisk, -1, "exceeds the limit"},
		{"ran over a deadline of the cluster", sight{job: failedJob, pods: pods(begun(p(`{"phase":"Failed","reason":"DeadlineExceeded","message":"Pod was active on the node longer than the specified deadline"}`)))}, trainyard.ClassTimeout, -1, "longer than"},
		{"its node is lost", sight{job: aJob, pods: pods(podSight{pod: deleted(p(runningJSON)), begun: true, lost: true})}, trainyard.ClassNodeLost, -1, "does not answer"},
		{"its pod vanished", sight{job: failedJob, pods: pods(podSight{pod: p(runningJSON), begun: true, gone: true})}, trainyard.ClassNodeLost, -1, "was deleted, not by trainyard"},
		{"its pod vanished, and the Job tells that it was well", sight{job: completeJob, pods: pods(podSight{pod: p(runningJSON), begun: true, gone: true})}, trainyard.ClassOK, 0, ""},
		{"its Job was deleted before a pod was seen", sight{name: "ty-x", jobGone: true}, trainyard.ClassNodeLost, -1, "Job ty-x was deleted"},
		{"suspended by Kueue while it ran", sight{job: suspended, pods: pods(begun(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))))}, trainyard.ClassPreempted, -1, "suspended"},
		{"suspended, and Kueue says why", sight{queue: "team-a", retreat: retreat{why: "Preempted to accommodate another"}, job: suspended, pods: pods(begun(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))))}, trainyard.ClassPreempted, -1, "pod p0 on node n1 was ended because Kueue took its Job back into queue team-a: Preempted to accommodate another"},
		{"stopped in Kueue by somebody else", sight{queue: "team-a", retreat: retreat{"The workload is deactivated", true}, job: suspended, pods: pods(begun(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))))}, trainyard.ClassCanceled, -1, "its Workload in queue team-a of Kueue was stopped, not by trainyard: The workload is deactivated"},
		{"suspended while it ran, and let go again", sight{suspended: true, job: aJob, pods: pods(podSight{pod: p(runningJSON)}, begun(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))))}, trainyard.ClassPreempted, -1, "suspended"},
		{"deleted by hand, of a Job that was suspended before it began", sight{job: resumed, pods: pods(begun(madeAt(t0.Add(-time.Second), deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143)))))))}, trainyard.ClassNodeLost, -1, "was deleted, not by trainyard"},
		{"suspended by Kueue before it began", sight{job: suspended, pods: pods(podSight{pod: deleted(p(terminatedJSON(143, "Error", "")))})}, "", 0, ""},
		{"an image without a shell", sight{job: failedJob, pods: pods(begun(p(terminatedJSON(128, "StartError", "exec: \"/bin/sh\": stat /bin/sh: no such file"))))}, trainyard.ClassEnvironment, 128, "image img:1 cannot run a shell"},
		{"a program that left nothing", sight{job: failedJob, pods: pods(begun(p(terminatedJSON(2, "Error", "no such flag"))))}, trainyard.ClassStart, 2, "no such flag"},
		{"killed from outside", sight{job: failedJob, pods: pods(begun(p(terminatedJSON(137, "Error", ""))))}, trainyard.ClassNodeLost, 137, "killed from outside"},
		{"an image whose name is none", sight{job: aJob, grace: time.Hour, pods: pods(podSight{pod: p(waitingJSON("InvalidImageName", "couldn't parse image name"))})}, trainyard.ClassEnvironment, -1, "couldn't parse"},
		{"an image that the registry does not have", sight{job: aJob, grace: time.Hour, pods: pods(podSight{pod: p(waitingJSON("ImagePullBackOff", "img:1: not found"))})}, trainyard.ClassEnvironment, -1, "image img:1 cannot be pulled (ImagePullBackOff): img:1: not found"},
		{"a registry that does not answer yet", sight{job: aJob, grace: time.Hour, pods: pods(podSight{pod: p(waitingJSON("ErrImagePull", "i/o timeout"))})}, "", 0, ""},
		{"a registry that has not answered for too long", sight{job: aJob, grace: 30 * time.Second, pods: pods(podSight{pod: p(waitingJSON("ErrImagePull", "i/o timeout"))})}, trainyard.ClassEnvironment, -1, "i/o timeout"},
		{"suspended and let go again while nobody looked", sight{vanished: true, queue: "team-a", job: resumed, pods: pods(podSight{pod: p(runningJSON)})}, trainyard.ClassPreempted, -1, "was gone when the server looked again: its Job was suspended"},
		{"so, and the other pod was told nothing for an hour", sight{vanished: true, job: givenUp, pods: pods(podSight{pod: p(terminatedJSON(75, "Error", "nobody sent the program"))})}, trainyard.ClassPreempted, -1, "its Job was suspended"},
		{"so, and the other pod's image is not to be had", sight{vanished: true, job: resumed, grace: time.Second, pods: pods(podSight{pod: p(waitingJSON("InvalidImageName", "img"))})}, trainyard.ClassPreempted, -1, "its Job was suspended"},
		{"so, and its pod is not gone yet", sight{job: resumed, pods: pods(begun(deleted(p(terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))))}, trainyard.ClassPreempted, -1, "pod p0 on node n1 was ended because its Job was suspended"},
		{"suspended while nobody looked", sight{vanished: true, suspended: true, job: suspended}, trainyard.ClassPreempted, -1, "its Job was suspended"},
		{"stopped in Kueue while nobody looked", sight{vanished: true, suspended: true, queue: "team-a", retreat: retreat{"deactivated", true}, job: suspended}, trainyard.ClassCanceled, -1, "was stopped, not by trainyard: deactivated"},
		{"in another pod since nobody looked", sight{vanished: true, job: aJob, pods: pods(podSight{pod: p(runningJSON)})}, trainyard.ClassNodeLost, -1, "was gone when the server looked again"},
		{"in another pod since nobody looked, and to be stopped", sight{vanished: true, asked: true, job: aJob, pods: pods(podSight{pod: p(runningJSON)})}, trainyard.ClassCanceled, -1, "asked to"},
		{"its pod vanished while nobody looked, and the Job tells that it was well", sight{vanished: true, job: completeJob}, trainyard.ClassOK, 0, ""},
		{"its pod vanished while nobody looked, and the Job was suspended and then deleted", sight{name: "ty-x", vanished: true, suspended: true, job: suspended, jobGone: true}, trainyard.ClassNodeLost, -1, "Job ty-x was deleted"},
		{"its pod vanished, and what the Job makes of it is not known", sight{vanished: true, job: aJob}, "", 0, ""},
		{"it runs", sight{job: aJob, pods: pods(begun(p(runningJSON)))}, "", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.sight.ranks, tt.sight.settled = 1, true
			v := judge(&tt.sight, t0.Add(time.Minute))
			switch {
			case tt.class == "" && v.end != nil:
				t.Errorf("it has ended: %+v", v.end.Result)
			case tt.class == "":
			case v.end == nil:
				t.Errorf("it has not ended: %+v", v)
			case v.end.Result.Class != tt.class || v.end.Result.ExitCode != tt.code || !strings.Contains(v.end.Result.Message, tt.words):
				t.Errorf("it ended with %+v, want %s %d %q", v.end.Result, tt.class, tt.code, tt.words)
			}
		})
	}
}

// Until it is known whether a pod that had begun is gone, and then for good, no other is given its work.
func TestNoPodIsGivenWhatAnotherHadBegun(t *testing.T) {
	for _, status := range []string{runningJSON, `{"phase":"Pending"}`} {
		s := &sight{ranks: 1, vanished: true, job: &job{}, pods: []podSight{{pod: podJSON(t, "p1", status)}}}
		if v := judge(s, t0); v.ready || v.early || v.end != nil || v.progress != "looking for the pod in which it ran" {
			t.Errorf("while nothing is known of the pod that had begun it is %+v", v)
		}
		s.vanished = false
		if v := judge(s, t0); !v.ready && !v.early {
			t.Errorf("where none had begun it is %+v", v)
		}
		s.vanished, s.settled = true, true
		if v := judge(s, t0); v.ready || v.early || v.end == nil {
			t.Errorf("when the pod that had begun is known to be gone it is %+v", v)
		}
	}
	late := &job{}
	late.Status.Conditions = []condition{{Type: "Failed", Status: "True"}}
	s := &sight{ranks: 1, vanished: true, job: late, pods: []podSight{{pod: podJSON(t, "p1", terminatedJSON(75, "Error", ""))}}}
	if v := judge(s, t0); v.end != nil {
		t.Errorf("before the news of pods are here it has ended: %+v", v.end)
	}
	one := &sight{ranks: 2, vanished: true, settled: true, job: &job{}, pods: []podSight{begun(podJSON(t, "p0", runningJSON)), {pod: podJSON(t, "p1", runningJSON)}}}
	if v := judge(one, t0); v.ready || v.end != nil || v.state != trainyard.TaskRunning {
		t.Errorf("of a gang of which a rank still runs it is %+v", v)
	}
}

func TestAGangEndsAsItsFirstFailure(t *testing.T) {
	failed := podJSON(t, "p1", terminatedJSON(3, "Error", left(trainyard.ClassUser, 3)))
	pushed := deleted(podJSON(t, "p0", terminatedJSON(143, "Error", trainyard.TaskEnd{Result: trainyard.Result{Class: trainyard.ClassCanceled,
		ExitCode: 143, PeakMB: 7}, Started: t0.Add(-time.Second), Ended: t0.Add(3 * time.Second)})))
	s := &sight{ranks: 2, job: &job{}, pods: []podSight{begun(podJSON(t, "p0", runningJSON)), begun(failed)}}
	if v := judge(s, t0); v.state != trainyard.TaskRunning {
		t.Errorf("while one rank runs it is %+v", v)
	}
	s.pods[0] = begun(pushed)
	v := judge(s, t0)
	if v.end == nil || v.end.Result.Class != trainyard.ClassUser || v.end.Result.ExitCode != 3 || v.end.Result.PeakMB != 7 ||
		!v.end.Started.Equal(t0.Add(-time.Second)) {
		t.Errorf("it ended as %+v", v.end)
	}
}

// A rank that gave way takes the connections of the others with it, and they may say so sooner than it does.
func TestAGangWhoseNodeWasDrainedGaveWay(t *testing.T) {
	failed := podJSON(t, "p1", terminatedJSON(1, "Error", trainyard.TaskEnd{Result: trainyard.Result{Class: trainyard.ClassUser, ExitCode: 1,
		Message: "connection reset"}, Started: t0, Ended: t0.Add(time.Second)}))
	drained := disrupted(deleted(podJSON(t, "p0", terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143)))), "EvictionByEvictionAPI")
	s := &sight{ranks: 2, job: &job{}, pods: []podSight{begun(drained), begun(failed)}}
	if v := judge(s, t0); v.end == nil || v.end.Result.Class != trainyard.ClassPreempted || !strings.Contains(v.end.Result.Message, "drained") {
		t.Errorf("it ended as %+v", v.end)
	}
}

func TestWaits(t *testing.T) {
	tests := []struct {
		name, status, words string
	}{
		{"no room", `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available: 3 Insufficient cpu."}]}`,
			"no node has room: 0/3 nodes are available: 3 Insufficient cpu."},
		{"an image on its way", waitingJSON("ContainerCreating", ""), "starting on node n1: disks and image img:1"},
		{"an image that cannot be pulled yet", waitingJSON("ErrImagePull", "i/o timeout"), "image img:1 cannot be pulled on node n1 (ErrImagePull): i/o timeout"},
		{"the program on its way", runningJSON, "sending the program"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &sight{ranks: 1, grace: time.Hour, job: &job{}, pods: []podSight{{pod: podJSON(t, "p0", tt.status)}}}
			v := judge(s, t0)
			if v.state != trainyard.TaskStaging || v.progress != tt.words {
				t.Errorf("it is %s: %q, want %q", v.state, v.progress, tt.words)
			}
			s.job.Spec.Suspend, s.queue = true, "team-a"
			if v := judge(s, t0); v.progress != "waiting in queue team-a of Kueue" || v.ready {
				t.Errorf("in a queue it says %q", v.progress)
			}
		})
	}
}

// Kubernetes calls a pod not ready, and gives no reason, when its node is silent; the kubelet gives one.
func TestASilentNodeIsSaidOfWhatRunsThere(t *testing.T) {
	const running = `{"phase":"Running","podIP":"10.0.0.1","containerStatuses":[{"name":"task","ready":%t,"state":{"running":{"startedAt":"2026-01-01T12:00:00Z"}}}],
		"conditions":[{"type":"Ready","status":"False","reason":%q,"lastTransitionTime":"2026-01-01T12:01:00Z"}]}`
	const words = "Kubernetes has not heard of its node n1 since before 12:01:00 UTC; as a rule it gives up after five minutes what runs there"
	for name, c := range map[string]struct {
		status, words string
	}{
		"silent":               {fmt.Sprintf(running, true, ""), words},
		"the container is not": {fmt.Sprintf(running, false, ""), ""},
		"the kubelet says so":  {fmt.Sprintf(running, true, "ContainersNotReady"), ""},
		"well":                 {runningJSON, ""},
	} {
		if v := judge(&sight{ranks: 1, job: &job{}, pods: []podSight{begun(podJSON(t, "p0", c.status))}}, t0); v.state != trainyard.TaskRunning || v.progress != c.words {
			t.Errorf("%s: it is %s: %q", name, v.state, v.progress)
		}
	}
	if v := judge(&sight{ranks: 1, job: &job{}, asked: true, pods: []podSight{begun(podJSON(t, "p0", fmt.Sprintf(running, true, "")))}}, t0); v.progress != "" {
		t.Errorf("of one that is to end it says %q", v.progress)
	}
}

func TestAGangBeginsWhenAllAreUp(t *testing.T) {
	s := &sight{ranks: 2, job: &job{}, pods: []podSight{{pod: podJSON(t, "p0", runningJSON)}}}
	if v := judge(s, t0); v.ready || v.progress != "waiting for the cluster to make its pods" {
		t.Errorf("with one of two pods: %+v", v)
	}
	s.pods = append(s.pods, podSight{pod: podJSON(t, "p1", runningJSON)})
	if v := judge(s, t0); !v.ready {
		t.Errorf("with two of two pods: %+v", v)
	}
	s.asked = true
	if v := judge(s, t0); v.ready {
		t.Error("a task that is to end begins")
	}
}

func TestWhatKueueSays(t *testing.T) {
	tests := []struct {
		name, status string
		waits        string
		taken        retreat
	}{
		{"nothing yet", `{}`, "its turn has not come yet", retreat{}},
		{"no room", `{"conditions":[{"type":"QuotaReserved","status":"False","reason":"Pending","message":"insufficient unused quota for cpu"}]}`,
			"insufficient unused quota for cpu", retreat{}},
		{"checks", `{"conditions":[{"type":"QuotaReserved","status":"True"}],"admissionChecks":[{"name":"budget","state":"Ready"},{"name":"nodes","state":"Pending","message":"two are made"}]}`,
			"there is room for it, but not all of the queue's checks have let it pass: nodes is pending two are made", retreat{}},
		{"admitted", `{"conditions":[{"type":"QuotaReserved","status":"True"},{"type":"Admitted","status":"True"}]}`, "it is let go", retreat{}},
		{"taken back", `{"conditions":[{"type":"QuotaReserved","status":"False","message":"Preempted"},{"type":"Evicted","status":"True","message":"Preempted to accommodate a workload"}]}`,
			"Preempted", retreat{why: "Preempted to accommodate a workload"}},
		{"stopped", `{"conditions":[{"type":"QuotaReserved","status":"False","message":"The workload is deactivated"},{"type":"Evicted","status":"True","reason":"Deactivated","message":"The workload is deactivated"}]}`,
			"The workload is deactivated", retreat{"The workload is deactivated", true}},
		{"let go again", `{"conditions":[{"type":"QuotaReserved","status":"True"},{"type":"Evicted","status":"False","message":"before"}]}`, "it is let go", retreat{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &workload{}
			if err := json.Unmarshal([]byte(tt.status), &w.Status); err != nil {
				t.Fatal(err)
			}
			if p := (place{workload: w}); p.waits() != tt.waits || p.taken() != tt.taken {
				t.Errorf("it waits because %q and was taken because %+v", p.waits(), p.taken())
			}
		})
	}
	if p := (place{reason: "there is none"}); p.waits() != "there is none" || p.taken() != (retreat{}) {
		t.Errorf("of what is not known it says %q, %+v", p.waits(), p.taken())
	}
}
