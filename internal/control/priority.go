package control

import (
	"strings"

	"github.com/trainyard/trainyard"
)

// What a job's place in a queue is made of. Plan.Priority is one number for both: a better tier goes before any priority of a lesser one. A
// job of the standard tier has 1, 2 or 3, as all jobs had that were stored before tiers counted; premium ones are above, basic ones and
// spot ones below zero or at it.
const (
	tierSpot     = -2
	tierBasic    = -1
	tierStandard = 0
	tierPremium  = 1

	priorityMedium = 2
	priorityHigh   = 3 // and so many there are: low is 1

	priorityReplica = tierPremium*priorityHigh + priorityHigh // nothing goes before what serves requests
)

// priority is the place in a queue that a job's settings ask for; higher goes first.
func priority(q *trainyard.QueueSettings) int {
	if q == nil {
		return priorityMedium
	}
	t, _ := tier(q.JobTier)
	return t*priorityHigh + level(q)
}

// level is 1, 2 or 3 for low, medium and high; medium unless said otherwise.
func level(q *trainyard.QueueSettings) int {
	if q.Priority == 0 {
		return priorityMedium
	}
	return q.Priority
}

// tier is the rank of a job tier; standard unless said otherwise. It is not ok for a name that is not of a tier.
func tier(name string) (rank int, ok bool) {
	switch strings.ToLower(name) {
	case "spot":
		return tierSpot, true
	case "basic":
		return tierBasic, true
	case "", "null", "standard":
		return tierStandard, true
	case "premium":
		return tierPremium, true
	}
	return tierStandard, false
}

// queue sets the job's place in its queue.
func (r *resolver) queue() {
	q := r.j.Spec.QueueSettings
	if q != nil {
		if _, ok := tier(q.JobTier); !ok {
			r.fail("queue_settings.job_tier is %q, want spot, basic, standard or premium", q.JobTier)
		}
		if q.Priority < 0 || q.Priority > priorityHigh {
			r.fail("queue_settings.priority is %d, want 1 (low), 2 (medium) or 3 (high)", q.Priority)
		}
	}
	r.j.Plan.Priority = priority(q)
}
