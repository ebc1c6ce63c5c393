package control

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/loop"
)

// alone is what counts loads, without a store and loops.
func alone(now func() time.Time) *Control {
	c := &Control{Config: Config{Now: now}, served: newServed()}
	c.reconcile = loop.NewKeyed(1, loop.Backoff{}, func(context.Context, string) (time.Duration, error) { return 0, nil })
	return c
}

func TestWhatAReplicaNeededIsKnownWhenItIsGone(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	scope := trainyard.DefaultScope()
	c := alone(func() time.Time { return now })
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
	c := alone(func() time.Time { return now })
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

func TestReplicasWhoseGPUsDoNotTellAreNoReasonToTakeAnyAway(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	busy := func(percent float64) *float64 { return &percent }
	for name, c := range map[string]struct {
		told   []*float64 // of the replicas that are ready; nil: not known
		wanted int        // before
		min    int
		idle   time.Duration
		want   int
	}{
		"all tell of little":                        {told: []*float64{busy(10), busy(10), busy(10)}, wanted: 3, min: 1, want: 1},
		"all are idle":                              {told: []*float64{busy(0), busy(0)}, wanted: 2, min: 1, want: 1},
		"all tell of much":                          {told: []*float64{busy(90), busy(90)}, wanted: 2, min: 1, want: 4},
		"none tells":                                {told: []*float64{nil, nil, nil}, wanted: 3, min: 1, want: 3},
		"none tells, and two are on their way":      {told: []*float64{nil}, wanted: 3, min: 1, want: 3},
		"one of three does not tell":                {told: []*float64{busy(10), busy(10), nil}, wanted: 3, min: 1, want: 2},
		"those that tell ask for more":              {told: []*float64{busy(100), busy(100), nil}, wanted: 3, min: 1, want: 4},
		"one is new and has not told":               {told: []*float64{busy(90), nil}, wanted: 2, min: 1, want: 2},
		"one is on its way":                         {told: []*float64{busy(90)}, wanted: 2, min: 1, want: 2},
		"one is on its way and not needed any more": {told: []*float64{busy(10)}, wanted: 2, min: 1, want: 1},
		"none tells, and somebody asks":             {told: []*float64{nil, nil}, wanted: 2, min: 0, want: 2},
		"none tells, and nobody asks for long":      {told: []*float64{nil, nil}, wanted: 2, min: 0, idle: time.Hour, want: 0},
		"one is busy, though nobody asks for long":  {told: []*float64{busy(40)}, wanted: 1, min: 0, idle: time.Hour, want: 1},
		"none tells, and there is more than enough": {told: []*float64{nil}, wanted: 9, min: 1, want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := alone(func() time.Time { return now })
			d := &trainyard.OnlineDeployment{Scope: trainyard.DefaultScope(), Endpoint: "iris", Name: "blue"}
			most := 5
			d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Metric: "gpu", Target: 50, MinInstances: &c.min, MaxInstances: &most}
			d.Status.Wanted = c.wanted
			ctl.served.keepDeployment(d)
			key := deploymentKey("iris", "blue")
			var loads []trainyard.TaskLoad
			for i, percent := range c.told {
				job := trainyard.MakeJobKey(d.Scope, string(rune('a'+i)))
				ctl.served.addReplica(key, job)
				l := trainyard.TaskLoad{ID: trainyard.MakeTaskID(job, 1, 0), GPU: percent}
				if percent == nil {
					l.GPUWhy = "there is no nvidia-smi"
				}
				loads = append(loads, l)
			}
			ctl.noteLoads(loads)
			ctl.served.deployments[key].load.last = now.Add(-c.idle)
			if got, why, _ := ctl.replicasWanted(key, len(c.told)); got != c.want {
				t.Errorf("it wants %d (%s), want %d", got, why.Message, c.want)
			}
		})
	}
}

// Readings end at one replica before they end at another: the busy one is not forgotten.
func TestReplicasThatFallSilentOneAfterTheOtherAreKept(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for _, order := range [][]string{{"busy", "idle"}, {"idle", "busy"}} {
		c := alone(func() time.Time { return now })
		d := &trainyard.OnlineDeployment{Scope: trainyard.DefaultScope(), Endpoint: "iris", Name: "blue"}
		least, most := 1, 5
		d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Metric: "gpu", Target: 50, MinInstances: &least, MaxInstances: &most}
		d.Status.Wanted = 2
		c.served.keepDeployment(d)
		key := deploymentKey("iris", "blue")
		tell := func(name string, percent *float64) {
			job := trainyard.MakeJobKey(d.Scope, name)
			c.served.addReplica(key, job)
			c.noteLoads([]trainyard.TaskLoad{{ID: trainyard.MakeTaskID(job, 1, 0), GPU: percent}})
		}
		much, none := 90.0, 0.0
		tell("busy", &much)
		tell("idle", &none)
		for _, name := range order {
			tell(name, nil)
			if n, why, _ := c.replicasWanted(key, 2); n != 2 {
				t.Errorf("after %s of %v it wants %d: %s", name, order, n, why.Message)
			}
		}
	}
}

func TestGPUsThatDoNotTellAreSaidWithTheReason(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	c := alone(func() time.Time { return now })
	d := &trainyard.OnlineDeployment{Scope: trainyard.DefaultScope(), Endpoint: "iris", Name: "blue"}
	d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Metric: "gpu"}
	d.Status.Wanted = 1
	c.served.keepDeployment(d)
	key, job := deploymentKey("iris", "blue"), trainyard.MakeJobKey(d.Scope, "first")
	c.served.addReplica(key, job)
	tell := func(percent *float64) string {
		c.noteLoads([]trainyard.TaskLoad{{ID: trainyard.MakeTaskID(job, 1, 0), CPU: 10, GPU: percent, GPUWhy: "its image has no nvidia-smi"}})
		_, why, _ := c.replicasWanted(key, 2)
		return why.Code + ": " + why.Message
	}
	tell(nil)
	now = now.Add(time.Minute)
	const want = "NotMeasured: of its 2 instances that are ready 2 did not tell what they use of gpu where they run (its image has no nvidia-smi), so metric gpu takes none of those " +
		"away, and never asks for more because of them: it stays at 1 instance; scale by concurrency, rate or queue"
	if got := tell(nil); got != want {
		t.Errorf("it says\n%s, want\n%s", got, want)
	}
	c.noteLoads([]trainyard.TaskLoad{{ID: trainyard.MakeTaskID(job, 1, 0), CPU: 10}}) // as an agent of an older version
	if _, why, _ := c.replicasWanted(key, 2); !strings.Contains(why.Message, "where they run (its node's agent is of an older version, ") {
		t.Errorf("of an agent that gives no reason: %s", why.Message)
	}
	half := 50.0
	if got := tell(&half); !strings.HasPrefix(got, "NotMeasured: of its 2 instances that are ready 1 did not tell what they use of gpu where they run, so") {
		t.Errorf("of one that tells and one that does not: %s", got)
	}
	second := trainyard.MakeJobKey(d.Scope, "second")
	c.served.addReplica(key, second)
	c.noteLoads([]trainyard.TaskLoad{{ID: trainyard.MakeTaskID(second, 1, 0), GPU: &half}})
	if got := tell(&half); strings.HasPrefix(got, "NotMeasured") {
		t.Errorf("when all tell: %s", got)
	}
}

func TestReplicasThatNobodyAsksAnyMoreAreTakenAway(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	c := alone(func() time.Time { return now })
	d := &trainyard.OnlineDeployment{Scope: trainyard.DefaultScope(), Endpoint: "iris", Name: "blue"}
	most := 5
	d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Target: 1, MaxInstances: &most}
	c.served.keepDeployment(d)
	key := deploymentKey("iris", "blue")
	report := func(inFlight float64) {
		r := trainyard.GatewayReport{Gateway: "g", Deployments: []trainyard.GatewayCount{{Scope: d.Scope, Endpoint: "iris", Deployment: "blue", Total: 1, InFlight: inFlight}}}
		if err := c.GatewayReport(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	for range 60 {
		report(4)
	}
	report(0) // and then gateways say nothing more of it
	n, _, again := c.replicasWanted(key, 4)
	if n != 4 || again <= 0 || again > stableWindow {
		t.Fatalf("it wants %d, and looks again after %s", n, again)
	}
	d.Status.Wanted = n
	now = now.Add(again)
	if n, why, _ := c.replicasWanted(key, 4); n != 1 {
		t.Errorf("a window later it wants %d: %s", n, why.Message)
	}
}

func TestTheScalerLooksAtWhatReplicasTell(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for metric, looks := range map[string]bool{"cpu": true, "gpu": true, "concurrency": false} {
		c := alone(func() time.Time { return now })
		d := &trainyard.OnlineDeployment{Scope: trainyard.DefaultScope(), Endpoint: "iris", Name: "blue"}
		d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Metric: metric}
		c.served.keepDeployment(d)
		key, job := deploymentKey("iris", "blue"), trainyard.MakeJobKey(d.Scope, "first")
		c.served.addReplica(key, job)
		c.noteLoads([]trainyard.TaskLoad{{ID: trainyard.MakeTaskID(job, 1, 0), CPU: 10}})
		if got := c.served.deployments[key].looked.Equal(now); got != looks {
			t.Errorf("metric %s is looked at: %v", metric, got)
		}
	}
}
