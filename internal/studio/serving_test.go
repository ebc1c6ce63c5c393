package studio_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/studio"
)

var _ studio.Endpoints = (*world)(nil)

// serving is the part of a world that answers requests.
type serving struct {
	endpoints   []*trainyard.OnlineEndpoint
	deployments []*trainyard.OnlineDeployment
	tails       map[string]string // logs of deployments, by "endpoint/deployment/container"
	counts      []trainyard.ServeStats
	models      []*trainyard.Resource // oldest version first
}

func (w *world) Endpoints(_ context.Context, s trainyard.Scope) (out []*trainyard.OnlineEndpoint, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.endpoints {
		if e.Scope.Fold() == s.Fold() {
			n := *e
			out = append(out, &n)
		}
	}
	return out, nil
}

func (w *world) Endpoint(ctx context.Context, s trainyard.Scope, name string) (*trainyard.OnlineEndpoint, error) {
	all, _ := w.Endpoints(ctx, s)
	for _, e := range all {
		if e.Name == name {
			return e, nil
		}
	}
	return nil, trainyard.NotFound("there is no endpoint %q", name)
}

func (w *world) Deployments(ctx context.Context, s trainyard.Scope, endpoint string) (out []*trainyard.OnlineDeployment, err error) {
	if _, err := w.Endpoint(ctx, s, endpoint); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.deployments {
		if d.Endpoint == endpoint {
			n := *d
			n.Status.Replicas = slices.Clone(d.Status.Replicas)
			out = append(out, &n)
		}
	}
	return out, nil
}

func (w *world) DeploymentLogs(_ context.Context, _ trainyard.Scope, endpoint, name string, _ int, container string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tails[endpoint+"/"+name+"/"+container], nil
}

func (w *world) snapshot() []trainyard.ServeStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.counts)
}

func (w *world) Events(_ context.Context, q trainyard.EventQuery) (out []trainyard.Event, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Seq > q.After && e.Kind == q.Kind && e.Subject == q.Subject && len(out) < q.Top {
			out = append(out, e)
		}
	}
	return out, nil
}

func (w *world) modelPage(q trainyard.ResourceQuery) (page trainyard.Page[*trainyard.Resource]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{}
	skip := q.After
	for i, r := range slices.Backward(w.models) {
		if r.Scope.Fold() != q.Scope.Fold() || q.Name != "" && r.Name != q.Name || q.Name == "" && seen[r.Name] {
			continue
		}
		if seen[r.Name] = true; skip != "" {
			if fmt.Sprint(i) == skip {
				skip = ""
			}
			continue
		}
		if len(page.Items) == q.Top {
			break
		}
		page.Items, page.Next = append(page.Items, r), fmt.Sprint(i)
	}
	if len(page.Items) < q.Top {
		page.Next = ""
	}
	return page
}

// addEndpoint makes an endpoint "iris" whose "blue" serves 90 % of the traffic and "green" 10 %; "shadow" gets copies and does not come up.
func (w *world) addEndpoint() {
	uri := "http://127.0.0.1:7879/endpoints/iris/score"
	deployment := func(name string, wanted int, state trainyard.DeploymentState, why string) *trainyard.OnlineDeployment {
		return &trainyard.OnlineDeployment{Scope: scope, Endpoint: "iris", Name: name, Instances: wanted, Created: start, CreatedBy: "ada",
			Spec: trainyard.DeploymentSpec{EndpointComputeType: trainyard.ServeManaged, InstanceType: "Standard_F2s_v2", Model: scope.Child("models", "iris", "versions", "3"),
				CodeConfiguration: &trainyard.CodeConfiguration{ScoringScript: "score.py"}},
			Status: trainyard.DeploymentStatus{State: state, Generation: 1, Wanted: wanted, WantedWhy: trainyard.Reason{Message: "as many as asked for"},
				Reason: trainyard.Reason{Code: "Waiting", Message: why, Since: start},
				Live: &trainyard.ReplicaPlan{Plan: trainyard.JobPlan{Compute: "serverless-f2s", Environment: &trainyard.EnvironmentPlan{Name: "sklearn", Image: "python:3.12"},
					Serve: &trainyard.Serve{Concurrency: 4, Queue: 500 * time.Millisecond, Timeout: 5 * time.Second}}}}}
	}
	blue := deployment("blue", 2, trainyard.DeploymentSucceeded, "1 of 2 replicas are ready; iris-blue-1-b: the model is loading")
	busy := 87.4
	blue.Status.Replicas = []trainyard.ReplicaStatus{
		{Name: "iris-blue-1-a", Generation: 1, State: "Ready", Node: "node-1", Since: start, MemoryMB: 142, PeakMB: 180, CPU: 12.4, GPU: &busy, OOMKills: 1, Measured: start},
		{Name: "iris-blue-1-b", Generation: 1, State: "Loading", Node: "node-2", Reason: "the model is loading", Since: start.Add(50 * time.Second)}}
	green := deployment("green", 1, trainyard.DeploymentSucceeded, "")
	green.Status.Replicas = []trainyard.ReplicaStatus{{Name: "iris-green-1-a", State: "Ready", Node: "node-1", Since: start}}
	shadow := deployment("shadow", 1, trainyard.DeploymentFailed, "a replica ended with exit code 1: the weights are of another shape")
	shadow.Status.Warnings = []string{"WORKER_COUNT is 1"}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endpoints = append(w.endpoints, &trainyard.OnlineEndpoint{Scope: scope, Name: "iris", Created: start, CreatedBy: "ada", Tags: map[string]string{"team": "flowers"},
		Keys: trainyard.EndpointKeys{Primary: "the-primary-key", Secondary: "the-secondary-key"},
		Spec: trainyard.EndpointSpec{AuthMode: trainyard.AuthKey, Description: "Names flowers", Traffic: map[string]int{"blue": 90, "green": 10},
			MirrorTraffic: map[string]int{"shadow": 25}, ScoringURI: uri, SwaggerURI: strings.Replace(uri, "score", "swagger.json", 1)}})
	w.deployments = append(w.deployments, blue, green, shadow)
	w.tails = map[string]string{"iris/blue/InferenceServer": "--- replica iris-blue-1-a: running ---\n\x1b[32mloaded\x1b[0m in 3 s\n", "iris/shadow/StorageInitializer": "building\n"}
	w.events = append(w.events, trainyard.Event{Seq: 1, Time: start, Scope: scope, Kind: "endpoint", Subject: "iris", What: "created", Who: "ada"},
		trainyard.Event{Seq: 2, Time: start, Scope: scope, Kind: "deployment", Subject: "iris/blue", What: "succeeded", Message: "2 of 2 replicas are ready"})
	w.counts = []trainyard.ServeStats{stats("blue", map[int]int64{200: 1000}, 1000), stats("green", nil, 0), stats("shadow", nil, 0)}
}

// stats are counts of answers, all of which took between 10 and 25 milliseconds.
func stats(deployment string, codes map[int]int64, n int64) trainyard.ServeStats {
	s := trainyard.ServeStats{Scope: scope, Endpoint: "iris", Deployment: deployment, Requests: n, Codes: codes, Latency: make([]int64, len(trainyard.LatencyBounds)+1)}
	s.Latency[slices.Index(trainyard.LatencyBounds[:], 25*time.Millisecond)] = n
	return s
}

func (w *world) addModel(name, version, properties string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.models = append(w.models, &trainyard.Resource{Scope: scope, Kind: trainyard.KindModel, Name: name, Version: version, Created: start, CreatedBy: "ada",
		Tags: map[string]string{"stage": "dev"}, Properties: []byte(properties)})
}

// addHostile makes an endpoint and a model whose every word is hostile.
func (w *world) addHostile(name string) {
	w.t.Helper()
	w.endpoints = []*trainyard.OnlineEndpoint{{Scope: scope, Name: name, Location: hostile, CreatedBy: hostile, Created: start, Tags: map[string]string{hostile: hostile},
		Spec: trainyard.EndpointSpec{AuthMode: hostile, Description: hostile, ScoringURI: hostile, SwaggerURI: "javascript:alert(1)", Traffic: map[string]int{hostile: 100},
			MirrorTraffic: map[string]int{hostile: 20}}}}
	w.deployments = []*trainyard.OnlineDeployment{{Scope: scope, Endpoint: name, Name: hostile, CreatedBy: hostile, Created: start, Tags: map[string]string{hostile: hostile},
		Spec: trainyard.DeploymentSpec{EndpointComputeType: hostile, InstanceType: hostile, Description: hostile, Model: hostile, EnvironmentID: hostile,
			CodeConfiguration: &trainyard.CodeConfiguration{ScoringScript: hostile}},
		Status: trainyard.DeploymentStatus{State: hostile, Reason: trainyard.Reason{Code: hostile, Message: hostile + "\n" + hostile}, WantedWhy: trainyard.Reason{Message: hostile},
			Warnings: []string{hostile}, Replicas: []trainyard.ReplicaStatus{{Name: hostile, State: hostile, Node: hostile, Reason: hostile}}}}}
	w.tails = map[string]string{name + "/" + hostile + "/InferenceServer": hostile + "\n\x1b[31m" + hostile}
	w.counts = []trainyard.ServeStats{{Scope: scope, Endpoint: name, Deployment: hostile, Requests: 1, Codes: map[int]int64{200: 1}}}
	w.events = append(w.events, trainyard.Event{Seq: 5, Time: start, Kind: "endpoint", Subject: name, What: hostile, Who: hostile, Message: hostile})
	quoted, err := json.Marshal(hostile)
	if err != nil {
		w.t.Fatal(err)
	}
	w.addModel(name, hostile, fmt.Sprintf(`{"modelType": %s, "modelUri": %[1]s, "jobName": %[1]s, "description": %[1]s}`, quoted))
}
