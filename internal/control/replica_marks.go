package control

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/trainyard/trainyard"
)

func (s *served) markLeaving(key string, job trainyard.JobKey, rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		d.leaving[job], d.since[job] = rev, time.Time{}
	}
}

func (s *served) leavingRev(key string, job trainyard.JobKey) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil {
		return 0, false
	}
	rev, ok := d.leaving[job]
	return rev, ok
}

func (s *served) isLeaving(key string, job trainyard.JobKey) bool {
	_, ok := s.leavingRev(key, job)
	return ok
}

// known says how long to wait until every gateway has the routes in which a replica is no more; 0: they have.
func (s *served) known(key string, job trainyard.JobKey, rev int64, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil || rev == 0 {
		return 0
	}
	if d.since[job].IsZero() {
		d.since[job] = now
	}
	left := drainAck - now.Sub(d.since[job])
	for _, g := range s.gateways {
		if g.rev < rev && left > 0 {
			return min(left, 100*time.Millisecond)
		}
	}
	return 0
}

// routeIsNew says whether a deployment's route is another than it was at the last call.
func (s *served) routeIsNew(key string, r *trainyard.DeploymentRoute) bool {
	text, err := json.Marshal(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil || err == nil && bytes.Equal(d.route, text) {
		return false
	}
	d.route = text
	return true
}

// crash counts an end that nobody asked for.
func (s *served) crash(key string, r *replica, why string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil {
		return
	}
	ran := r.job.Status.Ended.Sub(r.job.Status.Started)
	if now.Sub(d.crashed) > crashMemory || r.serving.Was && ran > 5*time.Second {
		d.crashes = 0
	}
	d.crashes++
	d.crashed, d.why = now, why
	var how *trainyard.Result
	if a := r.job.Status.Current(); a != nil && len(a.Tasks) > 0 {
		how = a.Tasks[0].Result
	}
	d.load.leave(trainyard.MakeTaskID(r.job.Key(), len(r.job.Status.Attempts), 0), how)
}

func (s *served) forgive(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		d.crashes, d.why = 0, ""
	}
}

// crashWait is how long to wait before the next try: nothing after the first end, then twice as long each time.
// routesRev counts changes of routes that gateways must learn of.
func (s *served) crashWait(key string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil || d.crashes < 2 {
		return 0
	}
	wait := min(crashMost, crashDelay<<min(d.crashes-2, 10))
	return max(0, d.crashed.Add(wait).Sub(now))
}

func (s *served) crashWhy(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil && d.crashes > 0 {
		return d.why
	}
	return ""
}

func (s *served) crashCount(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		return d.crashes
	}
	return 0
}
