package modelserver

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
)

// What Azure takes where nothing is said, and its bounds of a request.
const (
	defaultTimeout  = 5 * time.Second
	defaultQueue    = 500 * time.Millisecond
	maxManaged      = 180 * time.Second
	maxElsewhere    = 300 * time.Second
	probeDelay      = 10 * time.Second
	probePeriod     = 10 * time.Second
	probeTimeout    = 2 * time.Second
	probeFailures   = 30
	defaultSuccess  = 1
	minDrain        = time.Second
	maxConcurrently = 1000
)

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = trainyard.Warn(p.Warnings, fmt.Sprintf(format, args...))
}

// settings reads the request settings and the probes.
func (p *Plan) settings(s *trainyard.DeploymentSpec) error {
	set := trainyard.RequestSettings{}
	if s.RequestSettings != nil {
		set = *s.RequestSettings
	}
	v := &p.Serve
	var err error
	if v.Timeout, err = duration("request_settings.request_timeout_ms", set.RequestTimeout, defaultTimeout); err != nil {
		return err
	}
	most, where := maxElsewhere, "here"
	if s.EndpointComputeType == trainyard.ServeManaged || s.EndpointComputeType == "" {
		most, where = maxManaged, "of a managed deployment"
	}
	if v.Timeout <= 0 || v.Timeout > most {
		return trainyard.Invalid("request_settings.request_timeout_ms is %s ms (%s), and %s it can be more than 0 and at most %d ms",
			milliseconds(v.Timeout), set.RequestTimeout, where, most.Milliseconds())
	}
	if v.Queue, err = duration("request_settings.max_queue_wait_ms", set.MaxQueueWait, defaultQueue); err != nil {
		return err
	}
	v.Concurrency = max(1, set.MaxConcurrentRequestsPerInstance)
	if n := set.MaxConcurrentRequestsPerInstance; n < 0 || n > maxConcurrently {
		return trainyard.Invalid("request_settings.max_concurrent_requests_per_instance is %d, want 1 to %d", n, maxConcurrently)
	}
	v.Drain = max(v.Timeout, minDrain)
	return p.probes(s)
}

func (p *Plan) probes(s *trainyard.DeploymentSpec) error {
	startup, err := probe("startup_probe", s.StartupProbe)
	if err != nil {
		return err
	}
	if p.Serve.Liveness, err = probe("liveness_probe", s.LivenessProbe); err != nil {
		return err
	}
	if p.Serve.Readiness, err = probe("readiness_probe", s.ReadinessProbe); err != nil {
		return err
	}
	if s.StartupProbe != nil { // until it has had its chances, nobody is killed for not being up
		p.Serve.Liveness.Delay = max(p.Serve.Liveness.Delay, startup.Delay+time.Duration(startup.Failures)*startup.Period)
	}
	return nil
}

// probe reads one probe; nil has Azure's values.
func probe(name string, s *trainyard.ProbeSettings) (trainyard.Probe, error) {
	out := trainyard.Probe{Delay: probeDelay, Period: probePeriod, Timeout: probeTimeout, Successes: defaultSuccess, Failures: probeFailures}
	if s == nil {
		return out, nil
	}
	for _, d := range []struct {
		field, text string
		to          *time.Duration
		least       time.Duration
	}{
		{"initial_delay", s.InitialDelay, &out.Delay, 0},
		{"period", s.Period, &out.Period, time.Millisecond},
		{"timeout", s.Timeout, &out.Timeout, time.Millisecond},
	} {
		v, err := duration(name+"."+d.field, d.text, *d.to)
		if err != nil {
			return out, err
		}
		if v < d.least {
			return out, trainyard.Invalid("%s.%s is %s, want more than zero", name, d.field, d.text)
		}
		*d.to = v
	}
	for _, n := range []struct {
		field string
		value int
		to    *int
	}{{"success_threshold", s.SuccessThreshold, &out.Successes}, {"failure_threshold", s.FailureThreshold, &out.Failures}} {
		if n.value < 0 {
			return out, trainyard.Invalid("%s.%s is %d, want 1 or more", name, n.field, n.value)
		}
		if n.value > 0 {
			*n.to = n.value
		}
	}
	return out, nil
}

func duration(field, text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := trainyard.ParseISODuration(text)
	if err != nil {
		return 0, trainyard.Invalid("%s: %v", field, err)
	}
	return d, nil
}

// variables are the deployment's own, without those that are the node's to set.
func (p *Plan) variables(r Request) {
	maps.Copy(p.Env, r.Env)
	for _, name := range []string{"SERVER_PORT", "PORT"} {
		if _, ok := p.Env[name]; ok && !servesItself(r) {
			delete(p.Env, name)
			p.warn("environment_variables.%s is not acted on: the node says which port a replica listens on", name)
		}
	}
}

// servesItself says whether the image's own server will run, whose settings are its own affair.
func servesItself(r Request) bool {
	return r.ScoringScript == "" && r.Contained && hasImage(r.Environment) && (r.ModelType != mlflowModel || r.InferenceRoutes != nil)
}

func workers(env map[string]string) int {
	n, err := strconv.Atoi(env["WORKER_COUNT"])
	if err != nil {
		return 1
	}
	return max(1, n)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
