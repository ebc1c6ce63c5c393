package kube

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
)

const sound = `
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}, {name: there, context: {cluster: d, user: u}}]
clusters: [{name: c, cluster: {server: "https://k.test:6443", certificate-authority-data: Y2E=}}]
users: [{name: u, user: {token: secret}}]
`

func TestAKubeconfigIsTakenWithoutRunningOrReadingWhatItNames(t *testing.T) {
	c, err := readKubeconfig(sound, "")
	if err != nil || c.Host != "https://k.test:6443" || c.BearerToken != "secret" || string(c.CAData) != "ca" {
		t.Fatalf("it is read as %+v (%v)", c, err)
	}
	tests := []struct{ name, text, context, words string }{
		{"a command to log in", strings.Replace(sound, "token: secret", "exec: {command: /bin/sh}", 1), "", "logs in with a command"},
		{"an old way to log in", strings.Replace(sound, "token: secret", "auth-provider: {name: oidc}", 1), "", "logs in with a command"},
		{"a file with a token", strings.Replace(sound, "token: secret", "tokenFile: /etc/shadow", 1), "", "/etc/shadow"},
		{"a file with a key", strings.Replace(sound, "token: secret", "client-key: /etc/key", 1), "", "/etc/key"},
		{"a file with an authority", strings.Replace(sound, "certificate-authority-data: Y2E=", "certificate-authority: /ca.pem", 1), "", "--flatten"},
		{"a context that is not there", sound, "nowhere", `no context "nowhere"; it has: here, there`},
		{"a cluster that is not there", sound, "there", `no cluster "d"`},
		{"no base64", strings.Replace(sound, "Y2E=", "?", 1), "", "not base64"},
		{"no YAML", "{", "", "not YAML"},
		{"no URL", strings.Replace(sound, "https://k.test:6443", "k", 1), "", "no URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readKubeconfig(tt.text, tt.context)
			if trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("it says %v, want %q", err, tt.words)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		words  string
	}{
		{"a kubeconfig alone is enough", func(*Config) {}, ""},
		{"nothing", func(c *Config) { c.Kubeconfig = "" }, "kubectl config view"},
		{"two ways", func(c *Config) { c.InCluster = true }, "not both"},
		{"a namespace that cannot be", func(c *Config) { c.Namespace = "A/b" }, `"A/b"`},
		{"an amount that is none", func(c *Config) {
			c.InstanceTypes = map[string]InstanceType{"gpu": {Resources: PodResources{Limits: map[string]string{"cpu": "two"}}}}
		}, `instance type "gpu": cpu is "two"`},
		{"a request above its limit", func(c *Config) {
			c.InstanceTypes = map[string]InstanceType{"gpu": {Resources: PodResources{Requests: map[string]string{"cpu": "1500m", "memory": "2Gi"}, Limits: map[string]string{"cpu": "1", "memory": "2048Mi"}}}}
		}, `instance type "gpu": it requests 1500m of cpu, and its limit is 1`},
		{"a request that is its limit in other words", func(c *Config) {
			c.InstanceTypes = map[string]InstanceType{"gpu": {Resources: PodResources{Requests: map[string]string{"cpu": "1000m", "memory": "2Gi"}, Limits: map[string]string{"cpu": "1"}}}}
		}, ""},
		{"a default that is not there", func(c *Config) { c.DefaultInstanceType = "big" }, "there are: defaultinstancetype"},
		{"a server on this computer", func(c *Config) { c.ServerURL = "http://127.0.0.1:7878" }, ""},
		{"a server that is spoken to in the clear", func(c *Config) { c.ServerURL = "http://198.18.0.1:17951" }, "server_url: \"http://198.18.0.1:17951\" would send tokens"},
		{"less than nothing", func(c *Config) { c.TTL = -1 }, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &Config{Kubeconfig: sound}
			tt.change(c)
			err := c.Validate()
			if tt.words == "" && err != nil || tt.words != "" && (err == nil || !strings.Contains(err.Error(), tt.words)) {
				t.Errorf("it says %v, want %q", err, tt.words)
			}
		})
	}
}

func TestTheNamespaceOfAContextIsUsedWhereNoneIsNamed(t *testing.T) {
	text := strings.Replace(sound, "{cluster: d, user: u}", "{cluster: c, user: u, namespace: team-a}", 1)
	for _, tt := range []struct {
		name string
		c    Config
		want string
	}{
		{"a context with one", Config{Kubeconfig: text, Context: "there"}, "team-a"},
		{"the current context with one", Config{Kubeconfig: strings.Replace(text, "current-context: here", "current-context: there", 1)}, "team-a"},
		{"a context without", Config{Kubeconfig: text}, ""},
		{"one that is named", Config{Kubeconfig: text, Context: "there", Namespace: "mine"}, "mine"},
		{"a kubeconfig that is none", Config{Kubeconfig: "{"}, ""},
	} {
		if tt.c.OfContext(); tt.c.Namespace != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.c.Namespace, tt.want)
		}
	}
}

func TestNamesAreTakenByKubernetesAndTellTasksApart(t *testing.T) {
	seen := map[string]bool{}
	for _, group := range []string{"a", "b"} {
		for _, job := range []string{"x", "X", "Long_Name.With.Everything-" + strings.Repeat("y", 80), "--", "0"} {
			id := trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), job), 1, 0)
			name := objectName(group, id, jobOf(id))
			if seen[name] || len(hostname(name, 9999)) > 63 || !labelPattern.MatchString(name) {
				t.Errorf("job %q is called %q", job, name)
			}
			seen[name] = true
		}
	}
	for _, text := range []string{"fine", "with space", strings.Repeat("z", 100), "-x-"} {
		if v := labelValue(text); len(v) > 63 || strings.ContainsAny(v, " /") || strings.HasPrefix(v, "-") {
			t.Errorf("label of %q is %q", text, v)
		}
	}
}

func TestShmSizes(t *testing.T) {
	for size, want := range map[string]string{"2g": "2Gi", "512m": "512Mi", "64K": "64Ki", "1000b": "1000", "1000": "1000"} {
		if got := shmQuantity(size); got != want {
			t.Errorf("%s is %s, want %s", size, got, want)
		}
	}
}

// What Probe asks for is what the manifest grants, to the last verb.
func TestTheManifestHasTheRightsThatAreAskedFor(t *testing.T) {
	var asked, granted []string
	for _, r := range rights(true) {
		asked = append(asked, r.String())
	}
	for _, text := range strings.Split(Manifest("team"), "\n---\n") {
		var o struct {
			Rules []struct {
				APIGroups        []string `yaml:"apiGroups"`
				Resources, Verbs []string
			}
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		for _, rule := range o.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					name, part, _ := strings.Cut(resource, "/")
					granted = append(granted, right{verb: verb, group: rule.APIGroups[0], resource: name, part: part}.String())
				}
			}
		}
	}
	slices.Sort(asked)
	slices.Sort(granted)
	if !slices.Equal(asked, granted) {
		t.Errorf("asked for are %q, granted %q", asked, granted)
	}
}
