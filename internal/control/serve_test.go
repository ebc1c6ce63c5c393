package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
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
		{"a schedule in no time zone", trainyard.OnlineDeployment{Spec: trainyard.DeploymentSpec{EndpointComputeType: "local",
			ScaleSettings: &trainyard.ReplicaScaling{ScaleType: "TargetUtilization", Schedules: []trainyard.ReplicaFloor{{From: "08:00", To: "18:00", TimeZone: "Mars/Olympus"}}}}}, "Mars/Olympus"},
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
