package kube

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// A replica is a Deployment of one pod instead of a Job, and a Service before it. Kubernetes starts its container again whenever it ends,
// and its pod on another node when that one goes. It ends when it is told to, or when it cannot be brought to answer.

const (
	serveName   = "serve" // of the container that an image serves in by itself, beside that which brings the model
	modelVolume = "model"
	modelDir    = "/trainyard/model"

	// maxExits is how often a replica that never answered may end before it is given up.
	maxExits = 2

	// startupLimit bounds in seconds how long a replica may take to answer, with the bringing of its environment and its model. The server
	// gives up long before.
	startupLimit = 24 * 3600
)

// modelVariable is where staging says where the input "model" is.
const modelVariable = "AZURE_ML_INPUT_model"

func (p *plan) serves() bool { return p.task.Serve != nil }

// byItself says whether the image serves with its own entry point.
func (p *plan) byItself() bool { return p.serves() && p.task.Serve.Image }

// bringsModel says whether something is to be brought into the pod of an image that serves by itself.
func (p *plan) bringsModel() bool {
	_, ok := p.task.Inputs["model"]
	return p.byItself() && ok && p.task.Serve.ModelPath != ""
}

// main is the container whose life is the task's.
func (p *plan) main() string {
	if p.byItself() {
		return serveName
	}
	return containerName
}

// replicaMain is main of a replica, "" of what is none.
func (p *plan) replicaMain() string {
	if !p.serves() {
		return ""
	}
	return p.main()
}

// deployment is the Deployment of a replica.
func (p *plan) deployment() object {
	about, more := object{idAnnotation: string(p.task.ID), ranksAnnotation: "1", mainAnnotation: p.main()}, object{}
	for k, v := range p.cfg.Annotations {
		about[k], more[k] = v, v
	}
	return object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": p.meta(object{"annotations": about}), "spec": object{
		"replicas": 1, "revisionHistoryLimit": 0, "strategy": object{"type": "Recreate"},
		"selector": object{"matchLabels": object{taskLabel: p.name}},
		"template": object{"metadata": object{"labels": p.meta(nil)["labels"], "annotations": more}, "spec": p.replica()},
	}}
}

// front is the Service of a replica: its name in the cluster.
func (p *plan) front() object {
	port := p.task.Serve.ContainerPort()
	return object{"apiVersion": "v1", "kind": "Service", "metadata": p.meta(nil), "spec": object{
		"type": "ClusterIP", "selector": object{taskLabel: p.name}, "ports": []object{{"name": "http", "port": port, "targetPort": port}}}}
}

// replica is the pod of one.
func (p *plan) replica() object {
	s, spec := p.task.Serve, p.pod()
	drain := max(s.Drain, p.task.Grace)
	spec["restartPolicy"] = "Always"
	spec["terminationGracePeriodSeconds"] = int(math.Ceil(drain.Seconds())) + leaving
	c := spec["containers"].([]object)[0]
	if p.byItself() {
		spec["containers"] = []object{p.ownServer()}
		if p.bringsModel() {
			if p.cfg.Image != "" { // the server's own image may have no shell
				c["image"] = p.cfg.Image
			}
			c["command"] = append(c["command"].([]string), "--fresh", "--model", modelDir+"/"+path.Base(s.ModelPath))
			c["volumeMounts"] = append(c["volumeMounts"].([]object), object{"name": modelVolume, "mountPath": modelDir})
			spec["initContainers"] = []object{c}
			spec["volumes"] = append(spec["volumes"].([]object), object{"name": modelVolume, "emptyDir": object{}})
		} else {
			spec["volumes"] = slices.DeleteFunc(spec["volumes"].([]object), func(v object) bool { return v["name"] != "shm" })
		}
		c = spec["containers"].([]object)[0]
	} else {
		c["command"] = append(c["command"].([]string), "--fresh") // it may be started again beside what the one before has left
	}
	port := s.ContainerPort()
	c["ports"] = []object{{"name": "http", "containerPort": port}}
	c["startupProbe"] = probe(trainyard.Probe{Path: s.Readiness.Path, Period: time.Second, Timeout: s.Readiness.Timeout, Failures: startupLimit}, port)
	c["readinessProbe"] = probe(s.Readiness, port)
	live := s.Liveness
	live.Successes = 1 // Kubernetes takes no other
	c["livenessProbe"] = probe(live, port)
	return spec
}

// leaving is how many seconds a replica's pod may take beyond the requests that are under way.
const leaving = 10

// ownServer is the container of an image that serves by itself.
func (p *plan) ownServer() object {
	env := []object{}
	for _, name := range slices.Sorted(maps.Keys(p.task.Env)) {
		env = append(env, object{"name": name, "value": strings.ReplaceAll(p.task.Env[name], "$(", "$$(")})
	}
	c := object{"name": serveName, "image": p.image, "resources": p.resources(), "env": env, "terminationMessagePolicy": "FallbackToLogsOnError"}
	var mounts []object
	if p.bringsModel() {
		mounts = append(mounts, object{"name": modelVolume, "mountPath": path.Dir(p.task.Serve.ModelPath), "readOnly": true})
	}
	if p.task.ShmSize != "" {
		mounts = append(mounts, object{"name": "shm", "mountPath": "/dev/shm"})
	}
	c["volumeMounts"] = mounts
	return c
}

// probe is how the kubelet asks.
func probe(p trainyard.Probe, port int) object {
	seconds := func(d time.Duration, otherwise int) int {
		if d <= 0 {
			return otherwise
		}
		return max(1, int(math.Ceil(d.Seconds())))
	}
	failures := p.Failures
	if failures <= 0 {
		failures = 30
	}
	return object{
		"httpGet":        object{"path": "/" + strings.TrimPrefix(p.Path, "/"), "port": port},
		"periodSeconds":  seconds(p.Period, 10),
		"timeoutSeconds": seconds(p.Timeout, 2), "successThreshold": max(1, p.Successes), "failureThreshold": failures,
	}
}

// judgeReplica is judge for a replica.
func judgeReplica(s *sight, now time.Time) verdict {
	v := verdict{state: trainyard.TaskStaging}
	live := false
	for i := range s.pods {
		p := &s.pods[i]
		if p.ended() {
			continue
		}
		live = true
		if p.Meta.Deleted != nil && !s.asked { // another takes its place
			continue
		}
		if e := s.unpullable(p, now); e != nil {
			return verdict{state: trainyard.TaskEnded, end: e}
		}
		if e := s.hopeless(p, now); e != nil {
			return verdict{state: trainyard.TaskEnded, started: e.Started, end: e}
		}
		s.judgeServer(p, &v)
	}
	if !live && (s.asked || s.jobGone) && s.settled {
		r := trainyard.Result{Class: trainyard.ClassCanceled, ExitCode: -1, Message: "ended because it was asked to"}
		if !s.asked {
			r.Class, r.Message = trainyard.ClassNodeLost, fmt.Sprintf("Deployment %s was deleted from the cluster, not by trainyard", s.name)
		}
		return verdict{state: trainyard.TaskEnded, end: &ending{Result: r, Ended: now}}
	}
	if v.state == trainyard.TaskStaging && v.progress == "" {
		v.progress = s.waits(0)
	}
	return v
}

// judgeServer looks at one pod that is alive.
func (s *sight) judgeServer(p *podSight, v *verdict) {
	main, brings := p.container(), p.named(containerName)
	open := !s.asked && s.job != nil && !s.jobGone
	switch {
	case main != nil && main.State.Running != nil && (p.begun || s.main == serveName):
		v.state, v.started, v.progress = trainyard.TaskRunning, main.State.Running.Started, ""
	case p.begun && main != nil && main.Exits() > 0:
		v.progress = fmt.Sprintf("it ended %d times and is started again by Kubernetes; the last time: %s", main.Exits(), s.lastExit(p, main).Message)
		if s.answered { // it runs, as far as anybody who counts on it is concerned
			v.state = trainyard.TaskRunning
		}
	case brings != nil && brings.State.Running != nil && !p.begun:
		v.ready, v.progress = open, "sending the program"
	case brings != nil && brings.State.Running != nil:
		v.progress = "bringing the model"
	default:
		v.early = open && p.starting() && !p.begun && s.main == containerName
	}
}

// hopeless is the end of a replica that never answered and ended again and again.
func (s *sight) hopeless(p *podSight, now time.Time) *ending {
	main := p.container()
	if c := p.named(containerName); main == nil || main.Exits() == 0 {
		main = c // what brings the model
	}
	if s.answered || s.asked || main == nil || main.Exits() == 0 {
		return nil
	}
	r := s.lastExit(p, main)
	own := r.Class == trainyard.ClassUser || r.Class == trainyard.ClassOK || r.Class == trainyard.ClassNodeLost
	if main.Exits() < maxExits && own {
		return nil
	}
	e := &ending{Result: r, Ended: now}
	if t := main.ended(); t != nil {
		e.Started, e.Ended = t.Started, t.Finished
	}
	return e
}

// lastExit is how a container ended the last time.
func (s *sight) lastExit(p *podSight, c *containerStatus) trainyard.Result {
	t := c.ended()
	if t == nil {
		return trainyard.Result{Class: trainyard.ClassUser, ExitCode: -1}
	}
	if left, ok := readEnd(t.Message); ok {
		return left.Result
	}
	r := trainyard.Result{Class: trainyard.ClassUser, ExitCode: t.ExitCode, Message: fmt.Sprintf("exit code %d", t.ExitCode)}
	switch {
	case t.Reason == "OOMKilled":
		return outOfMemory(&r, p.limitMB())
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		r.Class, r.Message = trainyard.ClassEnvironment, fmt.Sprintf("image %s cannot be run: %s", p.image(), strings.TrimSpace(t.Message))
	case strings.TrimSpace(t.Message) != "":
		r.Message += ": " + strings.TrimSpace(t.Message)
	}
	return r
}

// scale says how many pods a replica's Deployment is to have.
func (d *Driver) scale(ctx context.Context, name string, pods int) error {
	err := d.api.patch(ctx, d.api.path(deployments, name), object{"spec": object{"replicas": pods}})
	if err != nil && !isMissing(err) {
		return fmt.Errorf("scale Deployment %s to %s: %w", name, strconv.Itoa(pods), err)
	}
	return nil
}
