package kube

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/trainyard/trainyard"
)

//go:embed manifests/rbac.yaml
var rbac string

// Manifest is what an administrator of the cluster applies so that trainyard can use a namespace: the namespace's service account
// "trainyard" with the least rights that do.
func Manifest(namespace string) string {
	if namespace == "" {
		namespace = "default"
	}
	return strings.ReplaceAll(rbac, "NAMESPACE", namespace)
}

// Found is what Probe finds.
type Found struct {
	Version     string // of Kubernetes
	Nodes       int    // all of them; 0 if they may not be looked at
	Ready       int    // those that take pods
	Allocatable trainyard.Resources
	Warnings    []string // rights that are wanted and not needed
}

// right is something that must be allowed in the namespace, or in the cluster.
type right struct {
	verb, group, resource, part string
	cluster                     bool
	optional                    string // what is missing without it
}

func (r right) String() string {
	name := r.resource
	if r.part != "" {
		name += "/" + r.part
	}
	if r.group != "" {
		name += "." + r.group
	}
	return r.verb + " " + name
}

// rights are those of manifests/rbac.yaml; queued says whether those of Kueue's are wanted.
func rights(queued bool) []right {
	var all []right
	add := func(optional, group, resource, part string, verbs ...string) {
		for _, v := range verbs {
			all = append(all, right{verb: v, group: group, resource: resource, part: part, cluster: resource == nodes, optional: optional})
		}
	}
	add("", "batch", jobs, "", "get", "list", "watch", "create", "delete")
	add("", "", pods, "", "list", "watch", "delete")
	add("", "", pods, "log", "get")
	add("", "", pods, "exec", "get", "create")
	add("", "", secrets, "", "create", "patch", "delete")
	add("", "", services, "", "create", "patch", "delete")
	const serves = "no model can be served there"
	add(serves, "apps", deployments, "", "get", "list", "watch", "create", "patch", "delete")
	add(serves, "", pods, "portforward", "get", "create")
	add("the program is sent into every pod, and many jobs at once take longer", "", configMaps, "", "list", "create", "delete")
	add("why the cluster makes no pod, as when a quota is used up, is not said", "", events, "", "list")
	add("what the cluster has is not known", "", nodes, "", "list")
	add("a node that does not answer is not told from one that is slow", "", nodes, "", "get")
	if queued {
		add("why a task waits in Kueue's queue, or was taken back into it, is not said", kueueGroup, workloads, "", "list")
		add("whether the queue is there is not known", kueueGroup, localQueues, "", "get")
	}
	return all
}

// Probe connects as c says and looks whether tasks could run. The error names what is missing.
func Probe(ctx context.Context, c Config) (Found, error) {
	if err := c.Validate(); err != nil {
		return Found{}, err
	}
	api, err := c.connect()
	if err != nil {
		return Found{}, err
	}
	var v struct {
		Version string `json:"gitVersion"`
	}
	if err := api.get(ctx, "/version", nil, &v); err != nil {
		return Found{}, err
	}
	var missing, warnings []string
	var without []string           // what is missing for want of rights
	lacks := map[string][]string{} // the rights, by that
	for _, r := range rights(c.Queue != "") {
		ok, err := api.may(ctx, r)
		switch {
		case err != nil:
			return Found{}, fmt.Errorf("ask whether we may %s: %w", r, err)
		case !ok && r.optional != "":
			if lacks[r.optional] == nil {
				without = append(without, r.optional)
			}
			lacks[r.optional] = append(lacks[r.optional], r.String())
		case !ok:
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		return Found{}, trainyard.Errorf(trainyard.CodeForbidden, "the account may not, in namespace %s: %s; apply trainyard's "+
			"RBAC manifest to it", api.namespace, strings.Join(missing, ", "))
	}
	for _, what := range without {
		warnings = append(warnings, fmt.Sprintf("the account may not %s: %s", strings.Join(lacks[what], ", "), what))
	}
	if err := api.namespaceThere(ctx, &c); err != nil {
		return Found{}, err
	}
	if err := api.queueThere(ctx, c.Queue); err != nil {
		return Found{}, err
	}
	f, err := api.found(ctx)
	f.Version, f.Warnings = v.Version, warnings
	return f, err
}

// may asks the cluster whether we have a right.
func (c *client) may(ctx context.Context, r right) (bool, error) {
	about := object{"verb": r.verb, "group": r.group, "resource": r.resource, "subresource": r.part}
	if !r.cluster {
		about["namespace"] = c.namespace
	}
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err := c.create(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", object{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": object{"resourceAttributes": about},
	}, &answer)
	return answer.Status.Allowed, err
}

// namespaceThere has the API server go through with making a Job, but for keeping it: a namespace that is not there, a queue or a policy
// that refuses our pods, is said now and not by the first task.
func (c *client) namespaceThere(ctx context.Context, cfg *Config) error {
	shape, err := cfg.instanceType("")
	if err != nil {
		return err
	}
	image := cfg.Image
	if image == "" {
		image = "probe"
	}
	p := &plan{cfg: cfg, group: "probe", name: "trainyard-probe", shape: shape, image: image, task: trainyard.Task{Hi: 1}}
	err = c.call(ctx, "POST", c.path(jobs), map[string][]string{"dryRun": {"All"}}, p.job(), nil)
	if err != nil && !isThere(err) {
		return trainyard.Invalid("namespace %s does not take a Job as tasks are: %v", c.namespace, err)
	}
	return nil
}
