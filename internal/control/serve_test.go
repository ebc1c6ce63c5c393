package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

var anAdmin = trainyard.User{Name: "admin", Role: trainyard.RoleAdmin}

func (c *Control) newEndpoint(t *testing.T, name string) *trainyard.OnlineEndpoint {
	t.Helper()
	e, created, err := c.PutEndpoint(t.Context(), anAdmin, &trainyard.OnlineEndpoint{Scope: trainyard.DefaultScope(), Name: name})
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	return e
}

func TestEndpointsOfTwoWorkspacesShareNoName(t *testing.T) {
	c := newControl(t)
	c.newEndpoint(t, "wine")
	other := trainyard.DefaultScope()
	other.Workspace = "other"
	if _, _, err := c.PutEndpoint(t.Context(), anAdmin, &trainyard.OnlineEndpoint{Scope: other, Name: "WINE"}); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("the same name in another workspace: %v", err)
	}
	if _, err := c.Endpoint(t.Context(), other, "wine"); !trainyard.IsNotFound(err) {
		t.Errorf("another workspace sees it: %v", err)
	}
	if err := c.DeleteEndpoint(t.Context(), anAdmin, other, "wine"); !trainyard.IsNotFound(err) {
		t.Errorf("another workspace deletes it: %v", err)
	}
}

func TestATokenIsForItsEndpointAlone(t *testing.T) {
	c := newControl(t)
	c.newEndpoint(t, "wine")
	if _, err := c.EndpointToken(t.Context(), anAdmin, trainyard.DefaultScope(), "wine"); !trainyard.IsConflict(err) {
		t.Errorf("an endpoint that is called with keys gives a token: %v", err)
	}
	if keys, err := c.EndpointKeys(t.Context(), anAdmin, trainyard.DefaultScope(), "wine"); err != nil || keys.Primary == "" || keys.Primary == keys.Secondary {
		t.Errorf("keys %v, %v", keys, err)
	}
}

func TestKeysOutliveTheServerAndAreReplaced(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.newEndpoint(t, "wine")
	before, err := c.EndpointKeys(t.Context(), anAdmin, scope, "wine")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RegenerateKey(t.Context(), anAdmin, scope, "wine", "secondary", "a-key-of-my-own"); err != nil {
		t.Fatal(err)
	}
	if err := c.RegenerateKey(t.Context(), anAdmin, scope, "wine", "third", ""); trainyard.CodeOf(err) != trainyard.CodeInvalid {
		t.Errorf("a third key: %v", err)
	}
	again := New(c.Config)
	if err := again.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := again.EndpointKeys(t.Context(), anAdmin, scope, "wine")
	if err != nil || after.Primary != before.Primary || after.Secondary != "a-key-of-my-own" {
		t.Errorf("keys %v, %v, were %v", after, err, before)
	}
	r, err := c.Routes(t.Context(), 0)
	if err != nil || len(r.Endpoints) != 1 || len(r.Endpoints[0].Keys) != 2 || strings.Contains(string(r.Endpoints[0].Keys[0]), before.Primary) {
		t.Errorf("routes %+v, %v", r, err)
	}
}

func TestWhatADeploymentCannotBeIsSaid(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.newEndpoint(t, "wine")
	four, two := 4, 2
	tests := []struct {
		name string
		d    trainyard.OnlineDeployment
		want string
	}{
		{"no endpoint", trainyard.OnlineDeployment{Endpoint: "beer"}, `"beer" does not exist`},
		{"nothing to serve", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "local"}}, "nothing to serve"},
		{"a model that is not there", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "local", Model: "azureml:nosuch:1"}}, "nosuch"},
		{"a type that there is not", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "Lambda"}}, "Managed, Kubernetes"},
		{"no compute", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "Kubernetes"}}, "needs a compute"},
		{"bounds the wrong way round", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "local",
			ScaleSettings: &trainyard.ReplicaScaling{ScaleType: "targetutilization", MinInstances: &four, MaxInstances: &two}}}, "min_instances 4 is more than max_instances 2"},
		{"a container without an engine", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "ContainerInstance"}}, "install Docker"},
		{"a schedule without measure", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "local",
			ScaleSettings: &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Schedules: []trainyard.ReplicaFloor{{From: "08:00", To: "18:00", MinInstances: 1e6}}}}}, "want 0 to 50"},
		{"a schedule in no time zone", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "local",
			ScaleSettings: &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Schedules: []trainyard.ReplicaFloor{{From: "08:00", To: "18:00", TimeZone: "Mars/Olympus"}}}}}, "Mars/Olympus"},
		{"a schedule of no day", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "local",
			ScaleSettings: &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Schedules: []trainyard.ReplicaFloor{{From: "08:00", To: "18:00", Days: []string{"Mon", "friday"}}}}}}, `day "Mon" is not known`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.d
			d.Scope, d.Name = scope, "blue"
			if d.Endpoint == "" {
				d.Endpoint = "wine"
			}
			if _, _, err := c.PutDeployment(t.Context(), anAdmin, &d); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("says %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestKeysAreChosenOnceAndNeverShown(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	in := &trainyard.OnlineEndpoint{Scope: scope, Name: "wine", Keys: trainyard.EndpointKeys{Primary: "chosen"}}
	if _, _, err := c.PutEndpoint(t.Context(), anAdmin, in); err != nil {
		t.Fatal(err)
	}
	read, err := c.Endpoint(t.Context(), scope, "wine") // as a merge begins, with the keys of now
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RegenerateKey(t.Context(), anAdmin, scope, "wine", "Secondary", "another"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.PutEndpoint(t.Context(), anAdmin, read); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.PutEndpoint(t.Context(), anAdmin, read); !trainyard.IsConflict(err) {
		t.Errorf("a change made of what another has changed meanwhile: %v", err)
	}
	if keys, err := c.EndpointKeys(t.Context(), anAdmin, scope, "wine"); err != nil || keys.Primary != "chosen" || keys.Secondary != "another" {
		t.Errorf("keys %v, %v", keys, err)
	}
	for _, bad := range []string{"two words", "a\nline", strings.Repeat("x", 2000)} {
		if err := c.RegenerateKey(t.Context(), anAdmin, scope, "wine", "Primary", bad); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("the key %.10q: %v", bad, err)
		}
	}
	in.Spec.Extra = trainyard.Extra{"Keys": []byte(`{"primaryKey":"seen"}`)}
	if _, _, err := c.PutEndpoint(t.Context(), anAdmin, in); trainyard.CodeOf(err) != trainyard.CodeInvalid {
		t.Errorf("keys under another name, which would be shown: %v", err)
	}
}

func TestTrafficGoesToDeploymentsThatStay(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.newEndpoint(t, "wine")
	for _, name := range []string{"blue", "green"} {
		c.served.keepDeployment(&trainyard.OnlineDeployment{Scope: scope, Endpoint: "wine", Name: name, Status: trainyard.DeploymentStatus{State: trainyard.DeploymentSucceeded}})
	}
	put := func(traffic map[string]int) error {
		_, _, err := c.PutEndpoint(t.Context(), anAdmin, &trainyard.OnlineEndpoint{Scope: scope, Name: "wine", Spec: trainyard.EndpointSpec{Traffic: traffic}})
		return err
	}
	if err := put(map[string]int{"blue": 50, "BLUE": 50}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("half of the traffic for nobody: %v", err)
	}
	if err := put(map[string]int{"blue": 100, "GREEN": 0}); err != nil {
		t.Error(err)
	}
	if err := c.DeleteDeployment(t.Context(), anAdmin, scope, "wine", "blue"); err == nil || !strings.Contains(err.Error(), `--traffic "OTHER=100"`) {
		t.Errorf("the only one with traffic: %v", err)
	}
	if err := put(map[string]int{"blue": 90, "green": 10}); err != nil {
		t.Error(err)
	}
	if err := c.DeleteDeployment(t.Context(), anAdmin, scope, "wine", "green"); err == nil || !strings.Contains(err.Error(), `--traffic "blue=100"`) {
		t.Errorf("one of two with traffic: %v", err)
	}
	_, _, err := c.PutEndpoint(t.Context(), anAdmin, &trainyard.OnlineEndpoint{Scope: scope, Name: "wine", Spec: trainyard.EndpointSpec{Compute: "local"}})
	if err == nil || !strings.Contains(err.Error(), `"wine" runs on managed nodes, and has deployments: it cannot be moved to compute "local"`) {
		t.Errorf("to another compute: %v", err)
	}
	change := func(traffic, mirror map[string]int) trainyard.EndpointSpec {
		t.Helper()
		e, _, err := c.PutEndpoint(t.Context(), anAdmin, &trainyard.OnlineEndpoint{Scope: scope, Name: "wine", Spec: trainyard.EndpointSpec{Traffic: traffic, MirrorTraffic: mirror}})
		if err != nil {
			t.Fatal(err)
		}
		return e.Spec
	}
	if s := change(map[string]int{"blue": 100}, map[string]int{"green": 20}); s.Traffic["blue"] != 100 || s.MirrorTraffic["green"] != 20 {
		t.Errorf("the traffic is %v, mirrored %v", s.Traffic, s.MirrorTraffic)
	}
	if s := change(nil, nil); s.Traffic["blue"] != 100 || s.MirrorTraffic["green"] != 20 {
		t.Errorf("of a change that says nothing of it, the traffic is %v, mirrored %v", s.Traffic, s.MirrorTraffic)
	}
	if s := change(nil, map[string]int{}); s.Traffic["blue"] != 100 || len(s.MirrorTraffic) != 0 {
		t.Errorf("of a change that ends the mirroring, the traffic is %v, mirrored %v", s.Traffic, s.MirrorTraffic)
	}
	change(nil, map[string]int{"green": 20})
	if s := change(map[string]int{"GREEN": 100}, nil); s.Traffic["green"] != 100 || len(s.MirrorTraffic) != 0 {
		t.Errorf("of a change that gives the mirror all, the traffic is %v, mirrored %v", s.Traffic, s.MirrorTraffic)
	}
	change(map[string]int{"blue": 100}, map[string]int{"green": 20})
	if err := c.DeleteDeployment(t.Context(), anAdmin, scope, "wine", "green"); err != nil {
		t.Fatal(err)
	}
	if s := change(nil, nil); s.Traffic["blue"] != 100 || len(s.MirrorTraffic) != 0 {
		t.Errorf("of a change after the mirror was deleted, the traffic is %v, mirrored %v", s.Traffic, s.MirrorTraffic)
	}
	if err := put(map[string]int{"green": 100}); err == nil || !strings.Contains(err.Error(), "it has: blue") {
		t.Errorf("traffic to a deployment that goes: %v", err)
	}
}

// keyring says who tokens are of.
type keyring map[string]trainyard.User

func (k keyring) Mint(trainyard.User, string, time.Duration) (string, error) { return "", nil }
func (k keyring) Check(token string) (trainyard.User, error)                 { return k[token], nil }

// minted gives tokens that it knows again.
type minted struct{ made map[string]trainyard.User }

func (m minted) Mint(u trainyard.User, _ string, _ time.Duration) (string, error) {
	token := fmt.Sprint("token-", len(m.made))
	m.made[token] = u
	return token, nil
}

func (m minted) Check(token string) (trainyard.User, error) { return m.made[token], nil }

func TestNewKeysMakeOlderTokensGoodNoMore(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.Tokens = minted{map[string]trainyard.User{}}
	put := func(mode string) {
		t.Helper()
		if _, _, err := c.PutEndpoint(t.Context(), anAdmin, &trainyard.OnlineEndpoint{Scope: scope, Name: "wine", Spec: trainyard.EndpointSpec{AuthMode: mode}}); err != nil {
			t.Fatal(err)
		}
	}
	token := func() string {
		t.Helper()
		got, err := c.EndpointToken(t.Context(), anAdmin, scope, "wine")
		if err != nil {
			t.Fatal(err)
		}
		return got.AccessToken
	}
	good := func(token string) bool {
		until, err := c.CheckToken(t.Context(), "wine", token)
		if err == nil && until.After(c.Now().Add(time.Minute)) {
			t.Errorf("a gateway may take it as good until %s", until)
		}
		return err == nil
	}
	put(trainyard.AuthAMLToken)
	first := token()
	put(trainyard.AuthAMLToken)
	if !good(first) {
		t.Error("a change that has nothing to do with keys takes a token back")
	}
	if err := c.RegenerateKey(t.Context(), anAdmin, scope, "wine", "Primary", ""); err != nil {
		t.Fatal(err)
	}
	if second := token(); good(first) || !good(second) {
		t.Errorf("after new keys: the old one %v, the new one %v", good(first), good(second))
	}
	third := token()
	put(trainyard.AuthKey)
	put(trainyard.AuthAMLToken)
	if good(third) {
		t.Error("a token outlives a change of auth_mode")
	}
	fourth := token()
	if err := c.DeleteEndpoint(t.Context(), anAdmin, scope, "wine"); err != nil {
		t.Fatal(err)
	}
	put(trainyard.AuthAMLToken)
	if good(fourth) {
		t.Error("a token for an endpoint that was deleted is good for the next one by that name")
	}
	if _, err := c.CheckToken(t.Context(), "", fourth); trainyard.CodeOf(err) != trainyard.CodeForbidden {
		t.Errorf("an endpoint's token for the whole server: %v", err)
	}
}

func TestAJobThatIsOverCallsNoEndpoint(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.Tokens = keyring{"its": {Name: "job j", Role: trainyard.RoleJob, Scope: scope, Job: "j"}}
	c.newEndpoint(t, "wine")
	j := &trainyard.Job{Scope: scope, Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local"}}
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CheckToken(t.Context(), "wine", "its"); err != nil {
		t.Errorf("a job that lives: %v", err)
	}
	if err := c.CancelJob(t.Context(), anAdmin, scope, "j"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CheckToken(t.Context(), "wine", "its"); trainyard.CodeOf(err) != trainyard.CodeUnknown {
		t.Errorf("a job that is over: %v", err)
	}
}

func TestWhatSleepsSleepsOnAfterARestart(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	none := 0
	d := &trainyard.OnlineDeployment{Scope: scope, Endpoint: "wine", Name: "blue"}
	d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", MinInstances: &none}
	d.Status.Live = &trainyard.ReplicaPlan{Generation: 1}
	c.served.keepDeployment(d)
	if n, why, _ := c.replicasWanted("wine/blue", 0); n != 0 {
		t.Errorf("a restart wakes it: %d, %s", n, why.Message)
	}
}

// A tag is the user's to write: a job with a replica's is not the deployment's to delete.
func TestAJobWithAReplicasTagIsNoReplica(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.newEndpoint(t, "wine")
	c.served.keepDeployment(&trainyard.OnlineDeployment{Scope: scope, Endpoint: "wine", Name: "blue", Status: trainyard.DeploymentStatus{State: trainyard.DeploymentSucceeded}})
	j := &trainyard.Job{Scope: scope, Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local", Tags: map[string]string{replicaTag: "wine/blue"}}}
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteEndpoint(t.Context(), anAdmin, scope, "wine"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.reconcileDeployment(t.Context(), "wine/blue"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Job(t.Context(), scope, "j"); err != nil {
		t.Errorf("the user's job: %v", err)
	}
	if _, err := c.Endpoint(t.Context(), scope, "wine"); !trainyard.IsNotFound(err) {
		t.Errorf("the endpoint is still there: %v", err)
	}
}

// The token of a replica's job changes its own run. A model that took itself out of its deployment would live on when that is deleted.
func TestAReplicaStaysWhoseItIs(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	d := &trainyard.OnlineDeployment{Scope: scope, Endpoint: "wine", Name: "blue"}
	c.served.keepDeployment(d)
	plan := &trainyard.ReplicaPlan{Generation: 1, Spec: trainyard.JobSpec{JobType: "Replica", Command: "true"},
		Plan: trainyard.JobPlan{Compute: trainyard.LocalCompute, Nodes: 1, Processes: 1, Serve: &trainyard.Serve{Endpoint: "wine", Deployment: "blue", Generation: 1}}}
	k := &keeper{c: c, ctx: t.Context(), key: "wine/blue", d: d, now: time.Now()}
	if err := k.start(plan); err != nil {
		t.Fatal(err)
	}
	name := k.live[0].job.Name
	token := trainyard.User{Name: "job " + name, Role: trainyard.RoleJob, Scope: scope, Job: name}
	for _, tags := range []map[string]string{nil, {"a": "b"}, {replicaTag: "beer/x"}} {
		saved, _, err := c.SubmitJob(t.Context(), token, &trainyard.Job{Scope: scope, Name: name, Spec: trainyard.JobSpec{JobType: "Command", Tags: tags}})
		if err != nil || saved.Spec.Tags[replicaTag] != "wine/blue" || !saved.Spec.IsArchived {
			t.Errorf("with tags %v: %+v, %v", tags, saved, err)
		}
	}
}

// A compute that goes cancels the jobs that it has; a replica that came after that would wait for ever on nothing.
func TestNoReplicaIsMadeOnAComputeThatGoes(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	comp := &trainyard.Compute{Scope: scope, Name: "goes", Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster}}
	if _, _, err := c.PutCompute(t.Context(), anAdmin, comp); err != nil {
		t.Fatal(err)
	}
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		comp, err := tx.Compute(trainyard.MakeComputeKey(scope, "goes"))
		if err != nil {
			return err
		}
		comp.Deleting = true
		return tx.PutCompute(comp)
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &trainyard.OnlineDeployment{Scope: scope, Endpoint: "wine", Name: "blue"}
	c.served.keepDeployment(d)
	k := &keeper{c: c, ctx: t.Context(), key: "wine/blue", d: d, now: time.Now()}
	plan := &trainyard.ReplicaPlan{Plan: trainyard.JobPlan{Compute: "goes", Nodes: 1, Processes: 1, Serve: &trainyard.Serve{Endpoint: "wine", Deployment: "blue"}}}
	if err := k.start(plan); err != nil || !strings.Contains(k.blocked, "is being deleted") || len(k.live) > 0 {
		t.Errorf("blocked %q, %v, %d replicas", k.blocked, err, len(k.live))
	}
}

func TestTheScoringURIOfServersThatHavePathsOfTheirOwn(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.newEndpoint(t, "vision")
	keep := func(name string, bare bool) {
		d := &trainyard.OnlineDeployment{Scope: scope, Endpoint: "vision", Name: name, Status: trainyard.DeploymentStatus{State: trainyard.DeploymentSucceeded}}
		d.Status.Live = &trainyard.ReplicaPlan{Generation: 1, Plan: trainyard.JobPlan{Serve: &trainyard.Serve{Bare: bare}}}
		c.served.keepDeployment(d)
	}
	for _, step := range []struct {
		what, ends string
		change     func() map[string]int // the endpoint's traffic after it
	}{
		{"no deployment", "/endpoints/vision/score", func() map[string]int { return nil }},
		{"Triton alone", "/endpoints/vision/", func() map[string]int { keep("blue", true); return nil }},
		{"a script beside it, and no traffic", "/endpoints/vision/score", func() map[string]int { keep("green", false); return map[string]int{} }},
		{"traffic for Triton alone", "/endpoints/vision/", func() map[string]int { return map[string]int{"blue": 100, "green": 0} }},
		{"traffic for both", "/endpoints/vision/score", func() map[string]int { return map[string]int{"blue": 50, "green": 50} }},
	} {
		e, _, err := c.PutEndpoint(t.Context(), anAdmin, &trainyard.OnlineEndpoint{Scope: scope, Name: "vision", Spec: trainyard.EndpointSpec{Traffic: step.change()}})
		if err != nil || !strings.HasSuffix(e.Spec.ScoringURI, step.ends) {
			t.Errorf("%s: %v, %v, want it to end with %s", step.what, e, err, step.ends)
		}
	}
}

func TestWhatAReplicaAsksForIsNotWhatItMayUse(t *testing.T) {
	small, large := &trainyard.ContainerAmounts{CPU: "0.1", Memory: "128Mi"}, &trainyard.ContainerAmounts{CPU: "1", Memory: "1Gi"}
	host := newControl(t)
	smallIs, largeIs := trainyard.Resources{CPUs: 0.1, MemoryMB: 128}, trainyard.Resources{CPUs: 1, MemoryMB: 1024}
	none := trainyard.Resources{}
	for name, c := range map[string]struct {
		kind             string
		requests, limits *trainyard.ContainerAmounts
		asks, may        trainyard.Resources
		refused          string
	}{
		"Kubernetes, both":           {trainyard.ServeKubernetes, small, large, smallIs, largeIs, ""},
		"Kubernetes, requests alone": {trainyard.ServeKubernetes, small, nil, smallIs, none, ""},
		"Kubernetes, limits alone":   {trainyard.ServeKubernetes, nil, large, none, largeIs, ""},
		"managed, both":              {trainyard.ServeManaged, small, large, none, largeIs, ""},
		"managed, requests alone":    {trainyard.ServeManaged, small, nil, none, smallIs, ""},
		"the wrong way round":        {trainyard.ServeKubernetes, large, small, largeIs, smallIs, "resources.requests.cpu is more than resources.limits.cpu"},
		"no amount":                  {trainyard.ServeKubernetes, &trainyard.ContainerAmounts{CPU: "much"}, nil, none, none, `cpu "much" is no amount`},
	} {
		r := &deploying{resolver: resolver{c: host, j: &trainyard.Job{}}, d: &trainyard.OnlineDeployment{}}
		r.d.Spec.EndpointComputeType = c.kind
		r.d.Spec.ContainerResources = &trainyard.ContainerNeeds{Requests: c.requests, Limits: c.limits}
		r.limits()
		if r.j.Plan.Requests != c.asks || r.j.Plan.Limits != c.may {
			t.Errorf("%s: asks for %+v, may use %+v", name, r.j.Plan.Requests, r.j.Plan.Limits)
		}
		if said := fmt.Sprint(r.errs); c.refused == "" && len(r.errs) > 0 || !strings.Contains(said, c.refused) {
			t.Errorf("%s: says %s", name, said)
		}
	}
}
