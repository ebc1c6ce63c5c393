package kube

import (
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// waits says in the cluster's words why a task does not run yet. running is how many of its pods do.
func (s *sight) waits(running int) string {
	switch {
	case s.job == nil:
		return "waiting for the cluster to take the Job"
	case s.vanished:
		return "looking for the pod in which it ran"
	case s.job.Spec.Suspend && s.queue != "":
		return fmt.Sprintf("waiting in queue %s of Kueue", s.queue)
	case s.job.Spec.Suspend:
		return fmt.Sprintf("Job %s is suspended", s.name)
	}
	for i := range s.pods {
		if p := &s.pods[i]; !p.ended() {
			if why := p.waits(); why != "" {
				if s.ranks > 1 {
					return fmt.Sprintf("%d of %d pods are up; %s", running, s.ranks, why)
				}
				return why
			}
		}
	}
	if len(s.pods) < s.ranks {
		return "waiting for the cluster to make its pods"
	}
	return "sending the program"
}

// waits says why a pod does not run yet, "" if it does.
func (p *podSight) waits() string {
	if c := p.condition("PodScheduled"); c != nil && c.Status != "True" {
		if c.Reason == "SchedulingGated" {
			return "pod " + p.Meta.Name + " is held back by a scheduling gate"
		}
		return "no node has room: " + c.Message
	}
	if p.Spec.Node == "" {
		return "waiting for a node"
	}
	c := p.container()
	if c == nil {
		return "starting on node " + p.Spec.Node
	}
	w := c.State.Waiting
	switch {
	case w == nil:
		return ""
	case isPullError(w.Reason):
		return fmt.Sprintf("image %s cannot be pulled on node %s (%s): %s", p.image(), p.Spec.Node, w.Reason, w.Message)
	case w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" || w.Reason == "":
		return fmt.Sprintf("starting on node %s: disks and image %s", p.Spec.Node, p.image())
	}
	return strings.TrimSpace(fmt.Sprintf("starting on node %s: %s %s", p.Spec.Node, w.Reason, w.Message))
}

func isPullError(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return true
	}
	return false
}

// hopeless are words of registries that say the same tomorrow.
var hopeless = []string{"not found", "manifest unknown", "unauthorized", "denied", "authorization failed", "forbidden", "invalid reference",
	"no match for platform"}

// hopelessAfter is how long even those may last: a registry may be a moment behind a push.
const hopelessAfter = 20 * time.Second

// unpullable is the end of a task whose pod has waited for an image, or been refused by its node, for too long.
func (s *sight) unpullable(p *podSight, now time.Time) *ending {
	c, scheduled := p.container(), p.condition("PodScheduled")
	if c == nil || c.State.Waiting == nil || scheduled == nil {
		return nil
	}
	w, class, limit := c.State.Waiting, trainyard.ClassEnvironment, s.grace
	what := fmt.Sprintf("image %s cannot be pulled", p.image())
	switch {
	case w.Reason == "InvalidImageName" || w.Reason == "ErrImageNeverPull":
		limit = 0
	case isPullError(w.Reason):
		for _, words := range hopeless {
			if strings.Contains(strings.ToLower(w.Message), words) {
				limit = min(limit, hopelessAfter)
			}
		}
	case w.Reason == "CreateContainerConfigError" || w.Reason == "CreateContainerError" || w.Reason == "RunContainerError":
		what = fmt.Sprintf("node %s cannot start a container of image %s", p.Spec.Node, p.image())
	default:
		return nil
	}
	if now.Sub(scheduled.Changed) < limit {
		return nil
	}
	return &ending{Ended: now, Result: trainyard.Result{Class: class, ExitCode: -1,
		Message: strings.TrimSpace(fmt.Sprintf("%s (%s): %s", what, w.Reason, w.Message))}}
}
