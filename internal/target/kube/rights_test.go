//go:build linux

package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// The rights in the manifest are enough and none too many, and the lack of one is said by its name.
func TestTheManifestsRightsAreEnough(t *testing.T) {
	b := newBench(t, nil)
	began := time.Now()
	b.grant("rights")
	text := b.account("rights")

	t.Run("for a task", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.Kubeconfig, c.Namespace = text, "rights" })
		f, err := Probe(t.Context(), b.cfg)
		if err != nil || f.Nodes != 1 || f.Ready != 1 || f.Allocatable.CPUs == 0 || !strings.HasPrefix(f.Version, "v1.") || len(f.Warnings) > 0 {
			t.Errorf("probe finds %+v (%v)", f, err)
		}
		if _, err := b.Capacity(t.Context()); err != nil {
			t.Error(err)
		}
		k := b.task(2, "echo hello; trap 'exit 0' TERM; while :; do sleep 0.05; done")
		b.start(k)
		eventually(t, "it runs", func() bool { return b.log(k) == "hello\n" })
		again := func(task trainyard.Task) { // as a start does that goes on after a crash
			p, err := b.newPlan(task)
			b.must(err)
			j, err := b.makeJob(t.Context(), p)
			b.must(err)
			for range 2 {
				b.must(b.makeParts(t.Context(), p, j))
			}
		}
		again(k)
		if b.nodeAway(t.Context(), "test-node") {
			t.Error("its node is taken to be away")
		}
		b.must(b.Stop(t.Context(), k.ID, time.Second))
		b.ends(k, trainyard.ClassCanceled, "")
		r := b.replica("")
		r.ID = trainyard.MakeTaskID(r.ID.Job(), 2, 0)
		b.start(r)
		b.answers(r, "the model")
		again(r)
		b.must(b.Stop(t.Context(), r.ID, time.Second))
		b.ends(r, trainyard.ClassCanceled, "")
		if got := b.log(k); !strings.HasPrefix(got, "hello\n") {
			t.Errorf("log is %q", got)
		}
		b.must(b.Remove(t.Context(), k.ID))
		b.must(b.Remove(t.Context(), r.ID))
		if _, err := b.keepProgram(t.Context()); err != nil {
			t.Error(err)
		}
		w := b.task(1, "true")
		w.ID = trainyard.MakeTaskID(w.ID.Job(), 3, 0)
		w.Environment = &trainyard.EnvironmentPlan{Image: "trainyard.test/no-such:1"}
		b.start(w)
		b.says(w, "cannot be pulled")
		eventually(t, "events are asked", func() bool { return b.used(began)["list events"] })
		b.must(b.Remove(t.Context(), w.ID))
		b.must(b.Leave(t.Context()))
	})
	t.Run("and all are made use of", func(t *testing.T) {
		used := b.used(began)
		for _, r := range rights(false) {
			name := r.String()
			if other := map[string]string{"create": "get", "get": "create"}[r.verb]; (r.part == "exec" || r.part == "portforward") && other != "" {
				name = right{verb: other, resource: r.resource, part: r.part}.String() // which of the two it takes is the version of Kubernetes'
			}
			if !used[r.String()] && !used[name] {
				t.Errorf("nothing makes use of the right to %s", r)
			}
		}
	})
	t.Run("and those for models may be left out", func(t *testing.T) {
		b.grantBut("jobs-only", deployments, pods+"/portforward")
		c := b.cfg
		c.Kubeconfig, c.Namespace = b.account("jobs-only"), "jobs-only"
		f, err := Probe(t.Context(), c)
		if err != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "get deployments.apps, ") || !strings.HasSuffix(f.Warnings[0], "create pods/portforward: no model can be served there") {
			t.Errorf("probe says %q (%v)", f.Warnings, err)
		}
	})
	t.Run("and their lack is said", func(t *testing.T) {
		c := b.cfg
		c.Kubeconfig, c.Namespace = text, "default"
		_, err := Probe(t.Context(), c)
		if trainyard.CodeOf(err) != trainyard.CodeForbidden || !strings.Contains(err.Error(), "create pods/exec") || !strings.Contains(err.Error(), "watch jobs.batch") {
			t.Errorf("probe says %v", err)
		}
		api, err := c.connect()
		b.must(err)
		d, err := open(&c, environment(t, t.TempDir()), api)
		b.must(err)
		defer d.Close()
		if err := d.Start(t.Context(), b.task(1, "true")); trainyard.CodeOf(err) != trainyard.CodeForbidden || !strings.Contains(err.Error(), `cannot create resource "jobs"`) {
			t.Errorf("start says %v", err)
		}
		eventually(t, "Observe says what is missing", func() bool {
			_, err := d.Observe(t.Context())
			return err != nil && strings.Contains(err.Error(), "cannot list resource")
		})
	})
	if _, err := Probe(t.Context(), Config{Kubeconfig: b.cfg.Kubeconfig, Namespace: "nowhere"}); err == nil || !strings.Contains(err.Error(), `"nowhere" not found`) {
		t.Errorf("of a namespace that is not there probe says %v", err)
	}
}

// used are the rights that the account of namespace "rights" has made use of since, as the API server wrote them down.
func (b *bench) used(since time.Time) map[string]bool {
	b.Helper()
	f, err := os.Open(filepath.Join(filepath.Dir(os.Getenv("TRAINYARD_TEST_KUBECONFIG")), "log", "audit.log"))
	b.must(err)
	defer f.Close()
	used := map[string]bool{}
	for lines := json.NewDecoder(f); ; {
		var e struct {
			Verb      string
			Stamp     time.Time `json:"stageTimestamp"`
			ObjectRef struct{ APIGroup, Resource, Subresource string }
			Status    struct{ Code int } `json:"responseStatus"`
		}
		if lines.Decode(&e) != nil { // its end, or a line that is being written
			return used
		}
		if !e.Stamp.Before(since) && e.Status.Code != http.StatusForbidden {
			used[right{verb: e.Verb, group: e.ObjectRef.APIGroup, resource: e.ObjectRef.Resource, part: e.ObjectRef.Subresource}.String()] = true
		}
	}
}

// grant makes a namespace with the rights of the manifest.
func (b *bench) grant(namespace string) {
	b.Helper()
	b.namespace(namespace)
	for _, text := range strings.Split(Manifest(namespace), "\n---\n") {
		var o map[string]any
		b.must(yaml.Unmarshal([]byte(text), &o))
		path := "/apis/rbac.authorization.k8s.io/v1/"
		switch o["kind"] {
		case "ServiceAccount":
			path = "/api/v1/namespaces/" + namespace + "/serviceaccounts"
		case "Role", "RoleBinding":
			path += "namespaces/" + namespace + "/" + strings.ToLower(o["kind"].(string)) + "s"
		default:
			path += strings.ToLower(o["kind"].(string)) + "s"
		}
		b.ensure(path, o)
	}
}

// grantBut is grant, less the rules of resources.
func (b *bench) grantBut(namespace string, resources ...string) {
	b.Helper()
	b.grant(namespace)
	for _, text := range strings.Split(Manifest(namespace), "\n---\n") {
		var o struct {
			Kind  string           `json:"kind"`
			Rules []map[string]any `json:"rules"`
		}
		b.must(yaml.Unmarshal([]byte(text), &o))
		if o.Kind != "Role" {
			continue
		}
		rules := slices.DeleteFunc(slices.Clone(o.Rules), func(r map[string]any) bool {
			return slices.Contains(resources, fmt.Sprint(r["resources"].([]any)...))
		})
		if len(rules) != len(o.Rules)-len(resources) {
			b.Fatalf("of %d rules %d are not of %q", len(o.Rules), len(rules), resources)
		}
		b.must(b.api.patch(b.Context(), "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/roles/trainyard", object{"rules": rules}))
	}
}

// account is a kubeconfig for the manifest's account of a namespace.
func (b *bench) account(namespace string) string {
	b.Helper()
	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	b.must(b.api.create(b.Context(), "/api/v1/namespaces/"+namespace+"/serviceaccounts/trainyard/token", object{"apiVersion": "authentication.k8s.io/v1",
		"kind": "TokenRequest", "spec": object{}}, &token))
	var k map[string]any
	b.must(yaml.Unmarshal([]byte(b.cfg.Kubeconfig), &k))
	k["users"].([]any)[0].(map[string]any)["user"] = map[string]any{"token": token.Status.Token}
	text, err := yaml.Marshal(k)
	b.must(err)
	return string(text)
}

// insideVariable is set in the pod that TestInTheCluster starts, where this test program runs again; it names the stand-in.
const insideVariable = "TRAINYARD_TEST_INSIDE"

// A server in a pod of the cluster needs no kubeconfig: its pod's service account, with the manifest's rights, runs tasks.
func TestInTheCluster(t *testing.T) {
	if program := os.Getenv(insideVariable); program != "" {
		runInside(t, program)
		return
	}
	b := newBench(t, nil)
	b.grant("inside")
	program, err := builtProgram()
	b.must(err)
	self, err := os.Executable()
	b.must(err)
	if !strings.HasPrefix(self, os.TempDir()) {
		t.Fatalf("the test program %s is not below %s, which pods see", self, os.TempDir())
	}
	api := b.api.base
	// This cluster has no proxy for the address of the service "kubernetes".
	env := []object{{"name": "KUBERNETES_SERVICE_HOST", "value": api.Hostname()}, {"name": "KUBERNETES_SERVICE_PORT", "value": api.Port()},
		{"name": insideVariable, "value": program}}
	name := "server-" + strconv.Itoa(os.Getpid())
	pod := "/api/v1/namespaces/inside/pods"
	b.ensure(pod, object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name}, "spec": object{
		"serviceAccountName": "trainyard", "restartPolicy": "Never",
		"volumes": []object{{"name": "host", "hostPath": object{"path": os.TempDir()}}},
		"containers": []object{{"name": "server", "image": baseImage, "env": env, "volumeMounts": []object{{"name": "host", "mountPath": os.TempDir()}},
			"command": []string{self, "-test.run", "^TestInTheCluster$", "-test.v", "-test.timeout", "2m"}}},
	}})
	var said struct {
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	eventually(t, "the pod with the server has ended", func() bool {
		b.must(b.api.get(t.Context(), pod+"/"+name, nil, &said))
		return said.Status.Phase == "Succeeded" || said.Status.Phase == "Failed"
	})
	r, err := b.api.send(t.Context(), http.MethodGet, pod+"/"+name+"/log", nil, "", nil)
	b.must(err)
	defer r.Close()
	out, err := io.ReadAll(r)
	b.must(err)
	if said.Status.Phase != "Succeeded" || !strings.Contains(string(out), "--- PASS: TestInTheCluster") {
		t.Errorf("inside it is %s:\n%s", said.Status.Phase, out)
	}
}

func runInside(t *testing.T, program string) {
	small := InstanceType{Resources: PodResources{Requests: map[string]string{"cpu": "10m", "memory": "16Mi"}}}
	c := Config{InCluster: true, Namespace: "inside", Image: baseImage, InstanceTypes: map[string]InstanceType{DefaultInstanceType: small}, shared: os.TempDir()}
	if f, err := Probe(t.Context(), c); err != nil || f.Ready != 1 || len(f.Warnings) > 0 {
		t.Fatalf("probe finds %+v (%v)", f, err)
	}
	api, err := c.connect()
	if err != nil {
		t.Fatal(err)
	}
	env := target.Env{Dir: t.TempDir(), Group: "inside-" + strconv.Itoa(os.Getpid()), Program: program, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	d, err := open(&c, env, api)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, Driver: d, cfg: c, dir: env.Dir}
	defer d.Close()
	k := b.task(1, "echo hello")
	b.start(k)
	b.ends(k, trainyard.ClassOK, "")
	if got := b.log(k); got != "hello\n" {
		t.Errorf("log is %q", got)
	}
	b.must(d.Remove(t.Context(), k.ID))
}
