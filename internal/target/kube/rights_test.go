//go:build linux

package kube

import (
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
)

// The rights in the manifest are enough, and the lack of one is said by its name.
func TestTheManifestsRightsAreEnough(t *testing.T) {
	b := newBench(t, nil)
	b.namespace("rights")
	for _, text := range strings.Split(Manifest("rights"), "\n---\n") {
		var o map[string]any
		b.must(yaml.Unmarshal([]byte(text), &o))
		path := "/apis/rbac.authorization.k8s.io/v1/"
		switch o["kind"] {
		case "ServiceAccount":
			path = "/api/v1/namespaces/rights/serviceaccounts"
		case "Role", "RoleBinding":
			path += "namespaces/rights/" + strings.ToLower(o["kind"].(string)) + "s"
		default:
			path += strings.ToLower(o["kind"].(string)) + "s"
		}
		b.ensure(path, o)
	}
	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	b.must(b.api.create(t.Context(), "/api/v1/namespaces/rights/serviceaccounts/trainyard/token", object{"apiVersion": "authentication.k8s.io/v1",
		"kind": "TokenRequest", "spec": object{}}, &token))
	var k map[string]any
	b.must(yaml.Unmarshal([]byte(b.cfg.Kubeconfig), &k))
	k["users"].([]any)[0].(map[string]any)["user"] = map[string]any{"token": token.Status.Token}
	text, err := yaml.Marshal(k)
	b.must(err)

	t.Run("for a task", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.Kubeconfig, c.Namespace = string(text), "rights" })
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
		b.must(b.Stop(t.Context(), k.ID, time.Second))
		b.ends(k, trainyard.ClassCanceled, "")
		r := b.replica("")
		r.ID = trainyard.MakeTaskID(r.ID.Job(), 2, 0)
		b.start(r)
		b.answers(r, "the model")
		b.must(b.Stop(t.Context(), r.ID, time.Second))
		b.ends(r, trainyard.ClassCanceled, "")
		if got := b.log(k); !strings.HasPrefix(got, "hello\n") {
			t.Errorf("log is %q", got)
		}
		b.must(b.Remove(t.Context(), k.ID))
	})
	t.Run("and their lack is said", func(t *testing.T) {
		c := b.cfg
		c.Kubeconfig, c.Namespace = string(text), "default"
		_, err := Probe(t.Context(), c)
		if trainyard.CodeOf(err) != trainyard.CodeForbidden || !strings.Contains(err.Error(), "create pods/exec") || !strings.Contains(err.Error(), "watch jobs.batch") {
			t.Errorf("probe says %v", err)
		}
		api, err := c.connect()
		b.must(err)
		d, err := open(&c, environment(t, t.TempDir()), api)
		b.must(err)
		defer d.Close()
		if err := d.Start(t.Context(), b.task(1, "true")); trainyard.CodeOf(err) != trainyard.CodeForbidden || !strings.Contains(err.Error(), `cannot create resource "secrets"`) {
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
