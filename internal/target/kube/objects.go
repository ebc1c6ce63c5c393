package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// object is one to be written.
type object = map[string]any

// meta is what all objects have.
type meta struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Version     string            `json:"resourceVersion"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Created     time.Time         `json:"creationTimestamp"`
	Deleted     *time.Time        `json:"deletionTimestamp"` // when it is to be gone at the latest
}

// job is what is read of a Job, or of the Deployment of a replica.
type job struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Suspend  bool `json:"suspend"`
		Template struct {
			Spec struct {
				Volumes []struct {
					Name string `json:"name"`
				} `json:"volumes"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Succeeded  int         `json:"succeeded"`
		Conditions []condition `json:"conditions"`
	} `json:"status"`

	serves bool // it is a Deployment
}

// sent says whether its pods are sent the task, and do not find it in a Secret.
func (j *job) sent() bool {
	for _, v := range j.Spec.Template.Spec.Volumes {
		if v.Name == taskVolume {
			return false
		}
	}
	return true
}

// finished is the condition that ended a Job, nil if it goes on.
func finished(j *job) *condition {
	if j == nil {
		return nil
	}
	for _, kind := range []string{"Complete", "Failed"} {
		if c := findCondition(j.Status.Conditions, kind); c != nil && c.Status == "True" {
			return c
		}
	}
	return nil
}

func isComplete(j *job) bool {
	c := finished(j)
	return c != nil && c.Type == "Complete"
}

// pod is what is read of a pod.
type pod struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Node       string `json:"nodeName"`
		Containers []struct {
			Name      string       `json:"name"`
			Image     string       `json:"image"`
			Resources PodResources `json:"resources"`
			Ports     []struct {
				Number int `json:"containerPort"`
			} `json:"ports"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string            `json:"phase"`
		Reason     string            `json:"reason"`
		Message    string            `json:"message"`
		IP         string            `json:"podIP"`
		Conditions []condition       `json:"conditions"`
		Containers []containerStatus `json:"containerStatuses"`
		Init       []containerStatus `json:"initContainerStatuses"`
	} `json:"status"`
}

type condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Changed time.Time `json:"lastTransitionTime"`
}

type containerStatus struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Restarts int    `json:"restartCount"`
	Last     struct {
		Terminated *terminated `json:"terminated"`
	} `json:"lastState"`
	State struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
		Running *struct {
			Started time.Time `json:"startedAt"`
		} `json:"running"`
		Terminated *terminated `json:"terminated"`
	} `json:"state"`
}

type terminated struct {
	ExitCode int       `json:"exitCode"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	Started  time.Time `json:"startedAt"`
	Finished time.Time `json:"finishedAt"`
}

// ended is how the container ended the last time; nil if it never did.
func (c *containerStatus) ended() *terminated {
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	return c.Last.Terminated
}

// Exits is how often the container has ended badly.
func (c *containerStatus) Exits() int {
	n := c.Restarts
	if t := c.State.Terminated; t != nil && (t.ExitCode != 0 || c.Name == serveName) {
		n++
	}
	return n
}

// main is the name of the container whose life is the task's.
func (p *pod) main() string {
	for _, c := range p.Spec.Containers {
		if c.Name == serveName {
			return serveName
		}
	}
	return containerName
}

// container is the status of the task's own container, nil before there is one.
func (p *pod) container() *containerStatus { return p.named(p.main()) }

// named is the status of a container, nil before there is one.
func (p *pod) named(name string) *containerStatus {
	for _, all := range [][]containerStatus{p.Status.Containers, p.Status.Init} {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
	}
	return nil
}

// port is where a replica's container listens, 0 for what is none.
func (p *pod) port() int {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			return port.Number
		}
	}
	return 0
}

// image and limitMB are what the task's own container was made with; limitMB is 0 if nothing bounds its memory.
func (p *pod) image() string {
	for _, c := range p.Spec.Containers {
		if c.Name == p.main() {
			return c.Image
		}
	}
	return ""
}

func (p *pod) limitMB() int64 {
	for _, c := range p.Spec.Containers {
		if c.Name == p.main() {
			q, _ := resource.ParseQuantity(c.Resources.Limits["memory"]) // none is zero
			return q.Value() >> 20
		}
	}
	return 0
}

func (p *pod) condition(kind string) *condition {
	return findCondition(p.Status.Conditions, kind)
}

func findCondition(all []condition, kind string) *condition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// node is what is read of a node.
type node struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
		Conditions  []condition       `json:"conditions"`
	} `json:"status"`
}

func (n *node) ready() bool {
	c := findCondition(n.Status.Conditions, "Ready")
	return c != nil && c.Status == "True"
}

// event is what the cluster says of an object.
type event struct {
	About   meta      `json:"involvedObject"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Last    time.Time `json:"lastTimestamp"`
	Time    time.Time `json:"eventTime"`
}

// page is an answer to a list.
type page[T any] struct {
	Meta struct {
		Version  string `json:"resourceVersion"`
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []*T `json:"items"`
}

// Labels and annotations of everything that is ours. The label of the task holds the name that all its objects share.
const (
	groupLabel      = "trainyard.io/group"
	taskLabel       = "trainyard.io/task"
	jobLabel        = "trainyard.io/job"
	workspaceLabel  = "trainyard.io/workspace"
	idAnnotation    = "trainyard.io/task-id"
	ranksAnnotation = "trainyard.io/ranks"
	mainAnnotation  = "trainyard.io/main"                  // of a Deployment: the container that serves
	asksAnnotation  = "trainyard.io/asks"                  // of a Job whose pods ask what they are to run
	keptLabel       = "trainyard.io/program"               // of ConfigMaps with the program
	archLabel       = "kubernetes.io/arch"                 // of nodes
	ownerLabel      = "batch.kubernetes.io/controller-uid" // of pods, by the Job controller since 1.27: the Job's UID
	indexLabel      = "batch.kubernetes.io/job-completion-index"

	containerName = "task"
	taskVolume    = "task"
)
