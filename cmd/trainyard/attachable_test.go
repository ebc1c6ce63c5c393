package main

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/login"
	"github.com/trainyard/trainyard/internal/slurm"
	"github.com/trainyard/trainyard/internal/spec"
	targetkube "github.com/trainyard/trainyard/internal/target/kube"
	targetslurm "github.com/trainyard/trainyard/internal/target/slurm"
)

// settingsOfFile reads a compute file of the spec package's, and makes of it what its driver gets.
func settingsOfFile(t *testing.T, file string, opts spec.Options, into any) {
	t.Helper()
	opts.Noun = "compute"
	d, err := spec.Load("../../internal/spec/testdata/attached/"+file, opts)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Compute(trainyard.DefaultScope())
	if err != nil {
		t.Fatal(err)
	}
	properties, err := json.Marshal(c.Spec.Properties)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range attachable() {
		if k.Type != c.Spec.ComputeType {
			continue
		}
		settings, err := k.Settings(properties, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(settings, into); err != nil {
			t.Fatalf("%v in %s", err, settings)
		}
		return
	}
	t.Fatalf("nothing attaches a %s", c.Spec.ComputeType)
}

const fixtureKey = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// keyless leaves out the keys, which in the example are none.
var keyless = []string{"ssh_settings.ssh_private_key_file", "ssh_settings.ssh_public_key_file"}

func TestAMachineGetsEverySettingOfItsFile(t *testing.T) {
	var got login.Settings
	settingsOfFile(t, "virtualmachine.yml", spec.Options{Remove: keyless}, &got)
	want := login.Settings{Address: "192.0.2.7", Port: 2222, User: "ml", Password: "secret of the machine", HostKey: fixtureKey}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("- want, + got:\n%s", diff)
	}
}

func TestSlurmGetsEverySettingOfItsFile(t *testing.T) {
	var got targetslurm.Config
	settingsOfFile(t, "slurm.yml", spec.Options{Remove: keyless}, &got)
	want := targetslurm.Config{ServerURL: "https://server.example:7878", Settings: slurm.Settings{
		Partition: "gpu,gpu-long", Account: "vision", QOS: "high", Constraint: "a100&nvlink", Reservation: "week-12", TimeLimit: "2-00:00:00",
		Sbatch: []string{"--mail-type=FAIL", "--licenses=x:1"}, Exclusive: true,
		Commands: "/opt/slurm/bin", ConfPath: "/etc/slurm/slurm.conf", Folder: "/shared/me/trainyard",
		Login: &slurm.Login{Settings: login.Settings{Address: "login.hpc.example", Port: 2200, User: "me", Password: "secret of the login node", HostKey: fixtureKey}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("- want, + got:\n%s", diff)
	}
	everyFieldIsSet(t, got.Settings, "REST") // which is another way
	if err := got.Validate(); err != nil {
		t.Error(err)
	}

	for file, token := range map[string]string{"slurm-rest.yml": "token of slurmrestd", "slurm-rest-token.yml": "token in the file"} {
		var got targetslurm.Config
		settingsOfFile(t, file, spec.Options{}, &got)
		want := targetslurm.Config{Settings: slurm.Settings{Partition: "gpu", Folder: "/shared/me/trainyard",
			REST: &slurm.REST{URL: "https://slurm.hpc.example:6820", User: "me", Token: token}}}
		if !reflect.DeepEqual(got, want) { // its String hides all but the URL
			t.Errorf("%s has other settings than it says", file)
		}
		if err := got.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestKubernetesGetsEverySettingOfItsFile(t *testing.T) {
	var got targetkube.Config
	settingsOfFile(t, "kubernetes.yml", spec.Options{}, &got)
	want := targetkube.Config{
		Context: "far", Namespace: "training", DefaultInstanceType: "small", Image: "registry.example/base:1",
		ImagePullSecrets: []string{"registry", "mirror"}, ImagePullGrace: 600, Queue: "team-a", ServiceAccount: "jobs", PriorityClass: "urgent",
		Annotations: map[string]string{"example.com/team": "vision", "sidecar.istio.io/inject": "false"},
		ServerURL:   "https://server.example:7878", WorkSize: "20Gi",
		InstanceTypes: map[string]targetkube.InstanceType{
			"small": {Resources: targetkube.PodResources{Requests: map[string]string{"cpu": "500m", "memory": "1Gi"}}},
			"gpu": {
				NodeSelector: map[string]string{"accelerator": "a100", "example.com/fast": "true"},
				Tolerations: []targetkube.Toleration{{Key: "nvidia.com/gpu", Operator: "Exists", Effect: "NoSchedule"},
					{Key: "dedicated", Operator: "Equal", Value: "true", Effect: "NoExecute"}},
				Resources: targetkube.PodResources{Requests: map[string]string{"cpu": "4", "memory": "16Gi"},
					Limits: map[string]string{"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}},
			},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(targetkube.Config{}), cmpopts.IgnoreFields(targetkube.Config{}, "Kubeconfig")); diff != "" {
		t.Errorf("- want, + got:\n%s", diff)
	}
	if !strings.Contains(got.Kubeconfig, "https://192.0.2.9:6443") {
		t.Errorf("the kubeconfig is %q, want the text of the file", got.Kubeconfig)
	}
	everyFieldIsSet(t, got, "InCluster", "TTL", "Tasks", "shared", "spare") // instead of a kubeconfig; and what no file has
	if err := got.Validate(); err != nil {
		t.Error(err)
	}

	got = targetkube.Config{}
	settingsOfFile(t, "kubernetes-in-cluster.yml", spec.Options{}, &got)
	if diff := cmp.Diff(targetkube.Config{InCluster: true}, got, cmpopts.IgnoreUnexported(targetkube.Config{})); diff != "" {
		t.Errorf("- want, + got:\n%s", diff)
	}
}

// everyFieldIsSet wants the examples to be complete: a new setting of a driver's belongs into one, or among the fields that no file has.
func everyFieldIsSet(t *testing.T, config any, but ...string) {
	t.Helper()
	v := reflect.ValueOf(config)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() != slices.Contains(but, name) {
			t.Errorf("field %s: whether the example sets it is not as it should be", name)
		}
	}
}

// What "compute attach" is given by flags is in the request that it sends.
func TestAttachSendsWhatItsFlagsSay(t *testing.T) {
	y := newYard(t)
	var sent struct {
		Properties struct {
			ComputeType string         `json:"computeType"`
			Properties  map[string]any `json:"properties"`
		} `json:"properties"`
	}
	y.asked = func(r *http.Request) {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/computes/") {
			return
		}
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(data)))
		sent.Properties.Properties = nil
		if err := json.Unmarshal(data, &sent); err != nil {
			t.Error(err)
		}
	}
	y.write("config", "a kubeconfig")
	for _, tt := range []struct {
		name  string
		flags []string
		want  map[string]any
	}{
		{"a server in the cluster", []string{"kubernetes", "--in-cluster"}, map[string]any{"inCluster": true}},
		{"a kubeconfig", []string{"kubernetes", "--kubeconfig", "config", "--context", "far", "--namespace", "training", "--in-cluster=false", "--server-url", "https://s:1"},
			map[string]any{"kubeconfig": "a kubeconfig", "context": "far", "namespace": "training", "inCluster": false, "serverURL": "https://s:1"}},
		{"a login node", []string{"slurm", "--partition", "gpu", "--account", "vision", "--qos", "high", "--conf", "/etc/slurm.conf", "--folder", "/shared",
			"--address", "login", "--admin-username", "me", "--admin-password", "x", "--ssh-port", "2200", "--host-key", fixtureKey},
			map[string]any{"partition": "gpu", "account": "vision", "qos": "high", "confPath": "/etc/slurm.conf", "folder": "/shared", "address": "login",
				"sshPort": 2200.0, "hostKey": fixtureKey, "administratorAccount": map[string]any{"username": "me", "password": "x"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y.run(0, append([]string{"compute", "attach", "--name", "c", "--no-wait", "--type"}, tt.flags...)...)
			if diff := cmp.Diff(tt.want, sent.Properties.Properties); diff != "" {
				t.Errorf("- want, + sent:\n%s", diff)
			}
		})
	}
	_, note := y.run(1, "compute", "attach", "--name", "c", "--type", "kubernetes", "--namespace", "training")
	if !strings.Contains(note, "--kubeconfig or --in-cluster is missing") || strings.Contains(note, "in_cluster") {
		t.Errorf("it does not name the flags: %s", note)
	}
}
