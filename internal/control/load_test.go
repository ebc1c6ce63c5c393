package control

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestWhatAReplicaNeededIsKnownWhenItIsGone(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	scope := trainyard.DefaultScope()
	c := &Control{Config: Config{Now: func() time.Time { return now }}, served: newServed()}
	c.served.keepDeployment(&trainyard.OnlineDeployment{Scope: scope, Endpoint: "iris", Name: "blue"})
	key := deploymentKey("iris", "blue")
	first, second := trainyard.MakeJobKey(scope, "first"), trainyard.MakeJobKey(scope, "second")
	one, two := trainyard.MakeTaskID(first, 1, 0), trainyard.MakeTaskID(second, 1, 0)
	c.served.addReplica(key, first)
	c.served.addReplica(key, second)
	c.noteLoads([]trainyard.TaskLoad{{ID: one, MemoryMB: 100, PeakMB: 300, OOMKills: 1}, {ID: two, MemoryMB: 200, CPU: 40}})
	if l, heard := c.served.usage(key, two); l.MemoryMB != 200 || l.CPU != 40 || !heard.Equal(now) {
		t.Errorf("the second uses %+v, heard of at %s", l, heard)
	}
	is := func(peak int64, kills int) {
		t.Helper()
		if p, k := c.served.memory(key); p != peak || k != kills {
			t.Errorf("%d MB at most and %d kills, want %d and %d", p, k, peak, kills)
		}
	}
	is(300, 1)
	c.served.dropReplica(first)
	is(300, 1)
	if _, heard := c.served.usage(key, one); !heard.IsZero() {
		t.Error("a replica that is gone still uses something")
	}
	c.served.mu.Lock()
	c.served.deployments[key].load.leave(two, &trainyard.Result{Class: trainyard.ClassOutOfMemory, PeakMB: 3584})
	c.served.mu.Unlock()
	is(3584, 2)
}

func TestTheScalerLooksAsOftenAsItIsAskedTo(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	count := func(poll string) (looks int) {
		d := &deployment{d: &trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{ScaleSettings: &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", PollingInterval: poll}}}}
		for i := range 60 { // gateways report every second, about
			if d.look(now.Add(time.Duration(i)*time.Second - time.Duration(i%3)*10*time.Millisecond)) {
				looks++
			}
		}
		return looks
	}
	for poll, want := range map[string]int{"": 60, "PT1S": 60, "PT5S": 12, "PT30S": 2} {
		if got := count(poll); got != want {
			t.Errorf("with %q it looks %d times a minute, want %d", poll, got, want)
		}
	}
}

func TestAMetricThatNobodyMeasuresIsSaid(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	c := &Control{Config: Config{Now: func() time.Time { return now }}, served: newServed()}
	d := &trainyard.OnlineDeployment{Scope: trainyard.DefaultScope(), Endpoint: "iris", Name: "blue"}
	d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Metric: "cpu"}
	c.served.keepDeployment(d)
	key, job := deploymentKey("iris", "blue"), trainyard.MakeJobKey(d.Scope, "first")
	c.served.addReplica(key, job)
	why := func() string {
		_, why, _ := c.replicasWanted(key, 1)
		return why.Code
	}
	if why() == "NotMeasured" {
		t.Error("it is said before there was time to measure")
	}
	now = now.Add(time.Minute)
	if why() != "NotMeasured" {
		t.Error("nobody measures, and nobody says so")
	}
	c.noteLoads([]trainyard.TaskLoad{{ID: trainyard.MakeTaskID(job, 1, 0), CPU: 10}})
	if why() == "NotMeasured" {
		t.Error("it is said though there is a measurement")
	}
}
