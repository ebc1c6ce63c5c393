// Package kube runs tasks as Kubernetes Jobs. It asks for nothing in the cluster but the rights in Manifest, and for nothing in an image
// but a shell with head, gzip or neither: it sends this program into the pod itself. It makes no nodes, builds no images, and keeps no
// secret but the task's own, which goes with the task.
//
// A task is one Job of as many pods as it has ranks, and for a gang a headless Service, all of one name that follows from the task's ID, so
// that a start that was interrupted goes on where it stopped. Pods wait for the program and the task, which are sent together; a gang's get
// them when all of them have an address. Nothing of a task runs before that, which makes the sending, written down in Env.Dir, the moment
// that a task begins. Of many tasks at once the last ones' pods have the program in ConfigMaps, and ask for the task (Driver.Tell), which is
// written down in the same way. Pods that may be started again by Kubernetes find the task in a Secret instead.
//
// What the driver knows comes from one list and watch of Jobs and one of pods. What cannot be had again is kept in Env.Dir, below
// <TaskID.Dir()>: what is to be sent, and how the task ended and its log, since these go with the pod, and a pod may go at any time.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// Kind is the entry for the list of targets.
func Kind() target.Kind {
	return target.Kind{
		Name:       "kube",
		Doc:        "Jobs of a Kubernetes cluster",
		New:        func() target.Config { return &Config{} },
		SelfStaged: true,
	}
}

// Config is a namespace of a cluster, and how tasks run there.
type Config struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // its text, with everything in it: files and commands that it names are refused
	Context    string `json:"context,omitempty"`    // of the kubeconfig; default its current one
	InCluster  bool   `json:"inCluster,omitempty"`  // instead of a kubeconfig: the account of the pod that the server runs in
	Namespace  string `json:"namespace,omitempty"`  // default "default"; see OfContext

	InstanceTypes       map[string]InstanceType `json:"instanceTypes,omitempty"`       // besides the built-in "defaultinstancetype"
	DefaultInstanceType string                  `json:"defaultInstanceType,omitempty"` // default "defaultinstancetype"

	Image            string   `json:"image,omitempty"`            // of tasks whose environment has none
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"` // names of Secrets of the namespace
	ImagePullGrace   int      `json:"imagePullGrace,omitempty"`   // seconds before an image that cannot be pulled fails the task; default 300

	Queue          string            `json:"queue,omitempty"`          // a LocalQueue of Kueue: tasks wait there until Kueue admits them
	ServiceAccount string            `json:"serviceAccount,omitempty"` // that pods run as; without one they have no token of the cluster
	PriorityClass  string            `json:"priorityClass,omitempty"`
	Annotations    map[string]string `json:"annotations,omitempty"` // of Jobs and pods
	TTL            int               `json:"ttl,omitempty"`         // seconds after which the cluster clears away an ended Job by itself; default never

	ServerURL string `json:"serverURL,omitempty"` // at which pods reach the server; default the server's own
	WorkSize  string `json:"workSize,omitempty"`  // most that a pod may write to its own disk: "20Gi"; default what the node has
	Tasks     int    `json:"tasks,omitempty"`     // most tasks at once, default 1000: the cluster has a queue of its own

	// For tests.
	shared string        // a folder of the node that tasks see under the same path
	spare  time.Duration // instead of the constant
}

// InstanceType is a shape of pod, as Azure Machine Learning's InstanceType resource has it.
type InstanceType struct {
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Resources    PodResources      `json:"resources,omitzero"`
	Tolerations  []Toleration      `json:"tolerations,omitempty"`
}

// PodResources are quantities by resource name: cpu, memory, nvidia.com/gpu.
type PodResources struct {
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
}

// Toleration lets pods on to tainted nodes, as in a pod's spec.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// DefaultInstanceType is the instance type that every cluster has, with the resources that Azure Machine Learning gives it.
const DefaultInstanceType = "defaultinstancetype"

// builtIn are the resources of DefaultInstanceType.
func builtIn() InstanceType {
	return InstanceType{Resources: PodResources{
		Requests: map[string]string{"cpu": "100m", "memory": "2Gi"},
		Limits:   map[string]string{"cpu": "2", "memory": "2Gi"},
	}}
}

var (
	_ target.Config  = (*Config)(nil)
	_ target.Driver  = (*Driver)(nil)
	_ target.Watcher = (*Driver)(nil)
	_ target.Hearer  = (*Driver)(nil)
	_ target.Named   = (*Driver)(nil)
	_ target.Leaver  = (*Driver)(nil)
	_ target.Closer  = (*Driver)(nil)
)

var labelPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Validate says what is wrong with c.
func (c *Config) Validate() error {
	switch {
	case c.InCluster && c.Kubeconfig != "":
		return trainyard.Invalid("give either a kubeconfig or inCluster, not both")
	case !c.InCluster && c.Kubeconfig == "":
		return trainyard.Invalid("there is no kubeconfig; give one (kubectl config view --raw --flatten --minify prints it), or set inCluster")
	case c.Namespace != "" && !labelPattern.MatchString(c.Namespace):
		return trainyard.Invalid("namespace %q is not a name that Kubernetes takes: lower-case letters, digits and -, at most 63", c.Namespace)
	case c.Tasks < 0 || c.ImagePullGrace < 0 || c.TTL < 0:
		return trainyard.Invalid("tasks, imagePullGrace and ttl cannot be negative")
	}
	if c.ServerURL != "" {
		if err := trainyard.CheckServerURL(c.ServerURL); err != nil {
			return trainyard.Invalid("server_url: %v", err)
		}
	}
	if !c.InCluster {
		if _, err := readKubeconfig(c.Kubeconfig, c.Context); err != nil {
			return err
		}
	}
	if _, err := c.instanceType(""); err != nil {
		return err
	}
	if err := checkQuantity("workSize", c.WorkSize); err != nil {
		return err
	}
	for _, name := range c.typeNames() {
		if err := c.InstanceTypes[name].validate(name); err != nil {
			return err
		}
	}
	return nil
}

func (t InstanceType) validate(name string) error {
	for _, side := range []map[string]string{t.Resources.Requests, t.Resources.Limits} {
		for what, amount := range side {
			if err := checkQuantity(fmt.Sprintf("instance type %q: %s", name, what), amount); err != nil {
				return err
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(t.Resources.Requests)) {
		most, limited := t.Resources.Limits[what]
		if least := t.Resources.Requests[what]; limited && least != "" && most != "" && above(least, most) {
			return trainyard.Invalid("instance type %q: it requests %s of %s, and its limit is %s; a request can be at most the limit", name, least, what, most)
		}
	}
	return nil
}

// above compares two quantities that checkQuantity has passed.
func above(a, b string) bool {
	q := resource.MustParse(a)
	return q.Cmp(resource.MustParse(b)) > 0
}

func checkQuantity(what, amount string) error {
	if amount == "" {
		return nil
	}
	if q, err := resource.ParseQuantity(amount); err != nil || q.Sign() < 0 {
		return trainyard.Invalid("%s is %q, want an amount such as 2, 500m or 4Gi", what, amount)
	}
	return nil
}

// instanceType is the type of that name; "" means the default.
func (c *Config) instanceType(name string) (InstanceType, error) {
	if name == "" {
		name = c.DefaultInstanceType
	}
	if name == "" {
		name = DefaultInstanceType
	}
	if t, ok := c.InstanceTypes[name]; ok {
		return t, nil
	}
	if name == DefaultInstanceType {
		return builtIn(), nil
	}
	return InstanceType{}, trainyard.Invalid("there is no instance type %q; there are: %s", name, strings.Join(c.typeNames(), ", "))
}

func (c *Config) typeNames() []string {
	names := []string{DefaultInstanceType}
	for name := range c.InstanceTypes {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *Config) namespace() string {
	if c.Namespace == "" {
		return "default"
	}
	return c.Namespace
}

func (c *Config) pullGrace() time.Duration {
	if c.ImagePullGrace == 0 {
		return 5 * time.Minute
	}
	return time.Duration(c.ImagePullGrace) * time.Second
}

// Open takes up the tasks of env.Group in the namespace. It returns before the cluster has answered; until then Observe fails.
func (c *Config) Open(_ context.Context, env target.Env) (target.Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("open kube target: %w", err)
	}
	env.Dir = dir
	if err := os.MkdirAll(env.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open kube target: %w", err)
	}
	api, err := c.connect()
	if err != nil {
		return nil, err
	}
	return open(c, env, api)
}
