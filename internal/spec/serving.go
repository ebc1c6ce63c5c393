package spec

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// lasting is a whole number of units as an ISO 8601 duration; "" where it is not set.
func (f *fields) lasting(name string, unit time.Duration) string {
	n := f.integer(name, 0)
	if n == nil {
		return ""
	}
	return trainyard.ISODuration(time.Duration(*n) * unit)
}

func (t *deploymentTranslator) requests() {
	f := t.sub("request_settings")
	if f.n == nil {
		return
	}
	t.dep.Spec.RequestSettings = &trainyard.RequestSettings{RequestTimeout: f.lasting("request_timeout_ms", time.Millisecond),
		MaxConcurrentRequestsPerInstance: or(f.integer("max_concurrent_requests_per_instance", 1), 0),
		MaxQueueWait:                     f.lasting("max_queue_wait_ms", time.Millisecond)}
	f.done()
}

func (t *deploymentTranslator) probe(name string) *trainyard.ProbeSettings {
	f := t.sub(name)
	if f.n == nil {
		return nil
	}
	p := &trainyard.ProbeSettings{InitialDelay: f.lasting("initial_delay", time.Second), Period: f.lasting("period", time.Second),
		Timeout: f.lasting("timeout", time.Second), SuccessThreshold: or(f.integer("success_threshold", 1), 0),
		FailureThreshold: or(f.integer("failure_threshold", 1), 0)}
	for _, extra := range []string{"path", "port", "scheme", "method"} {
		if f.get(extra) != nil {
			f.p.note("%s is not acted on: probes go to the routes of the environment's inference_config", f.at(extra))
		}
	}
	f.done()
	return p
}

func (t *deploymentTranslator) scaling() {
	f := t.sub("scale_settings")
	if f.n == nil {
		return
	}
	s := &trainyard.ReplicaScaling{ScaleType: f.choice("type", "default", "Default", "target_utilization", "TargetUtilization", "targetutilization", "(TargetUtilization)",
		"manual", "(Default)", "auto", "(TargetUtilization)"),
		MinInstances: f.integer("min_instances", 0), MaxInstances: f.integer("max_instances", 1),
		TargetUtilizationPercentage: or(f.integer("target_utilization_percentage", 1), 0), PollingInterval: f.lasting("polling_interval", time.Second),
		Metric:       f.choice("metric", "concurrency", "concurrency", "rate", "rate", "cpu", "cpu", "gpu", "gpu", "queue", "queue"),
		Target:       f.amount("target"),
		StableWindow: f.lasting("stable_window", time.Second), PanicWindow: f.lasting("panic_window", time.Second),
		ScaleToZeroAfter: f.lasting("scale_to_zero_after", time.Second), Schedules: f.replicaFloors("schedules")}
	f.done()
	if s.ScaleType == "" {
		s.ScaleType = "Default"
		if s.MaxInstances != nil || s.Metric != "" || s.Target > 0 || s.TargetUtilizationPercentage > 0 {
			s.ScaleType = "TargetUtilization"
		}
	}
	if s.TargetUtilizationPercentage > 100 {
		f.p.at(f.place("target_utilization_percentage"), f.at("target_utilization_percentage"), "got %d, want at most 100", s.TargetUtilizationPercentage)
	}
	if s.MinInstances != nil && s.MaxInstances != nil && *s.MinInstances > *s.MaxInstances {
		f.p.at(f.place("min_instances"), f.at("min_instances"), "%d is more than max_instances, which is %d", *s.MinInstances, *s.MaxInstances)
	}
	t.dep.Spec.ScaleSettings = s
}

// amount is a number above 0; 0 where it is not set.
func (f *fields) amount(name string) float64 {
	n := f.get(name)
	if n == nil {
		return 0
	}
	if n.kind == scalar {
		if x, err := strconv.ParseFloat(n.text, 64); err == nil && x > 0 && x < 1e12 {
			return x
		}
	}
	f.wrong(n, name, "a number above 0")
	return 0
}

var quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$`)

// containers reads what a replica asks for on Kubernetes.
func (t *deploymentTranslator) containers() {
	f := t.sub("resources")
	if f.n == nil {
		return
	}
	amounts := func(name string) *trainyard.ContainerAmounts {
		one := f.sub(name)
		if one.n == nil {
			return nil
		}
		a := &trainyard.ContainerAmounts{CPU: one.quantity("cpu"), Memory: one.quantity("memory"), GPU: one.quantity("nvidia.com/gpu")}
		if one.has("gpu") {
			a.GPU = one.quantity("gpu")
		}
		one.done()
		return a
	}
	t.dep.Spec.ContainerResources = &trainyard.ContainerNeeds{Requests: amounts("requests"), Limits: amounts("limits")}
	f.done()
}

func (f *fields) quantity(name string) string {
	text := f.text(name)
	if text != "" && !quantity.MatchString(text) {
		f.wrong(f.get(name), name, "a quantity such as 0.5, 500m or 1Gi")
	}
	return text
}

// collector reads what requests and responses are kept.
func (t *deploymentTranslator) collector() {
	f := t.sub("data_collector")
	if f.n == nil {
		return
	}
	c := &trainyard.DataCollector{Collections: map[string]trainyard.DataCollection{}, SamplingRate: f.rate("sampling_rate"),
		RollingRate: f.choice("rolling_rate", "year", "Year", "month", "Month", "day", "Day", "hour", "Hour", "minute", "Minute")}
	f.each("collections", func(k, v *node, path string) {
		one := &fields{p: f.p, n: v, path: path}
		switch {
		case v.null():
			one.n = nil
		case v.kind != mapping:
			f.p.at(v.place, path, "got %s, want a map with enabled", v.words())
			return
		}
		got := trainyard.DataCollection{DataCollectionMode: "Enabled", SamplingRate: one.rate("sampling_rate")}
		if on := one.boolean("enabled"); on != nil && !*on {
			got.DataCollectionMode = "Disabled"
		}
		got.DataID = t.collected(one)
		one.silent("client_id")
		one.done()
		c.Collections[k.text] = got
	})
	if logging := f.sub("request_logging"); logging.n != nil {
		c.RequestLogging = &trainyard.RequestLogging{CaptureHeaders: logging.list("capture_headers")}
		logging.done()
	}
	f.done()
	t.dep.Spec.DataCollector = c
}

// collected is the place of a collection: an address, a data asset, or one that is written in place and registered.
func (t *deploymentTranslator) collected(f *fields) string {
	n := f.get("data")
	switch {
	case n == nil:
		return ""
	case n.kind == scalar && remote(n.text):
		return f.uri(n, "data")
	case n.kind == scalar:
		return f.assetID(n, "data", t.scope, trainyard.KindData)
	}
	in := f.sub("data")
	defer in.done()
	in.need("path")
	path := in.text("path")
	if n := in.get("path"); path != "" && !strings.HasPrefix(path, "azureml://") {
		in.wrong(n, "path", "azureml://datastores/NAME/paths/PATH")
	} else if path != "" {
		in.uri(n, "path")
	}
	name, version := in.name("name"), in.version("version")
	in.silent("type", "description", "tags")
	if name == "" {
		return path
	}
	if version == "" {
		version = "1"
	}
	t.dep.Data = append(t.dep.Data, &Asset{Kind: trainyard.KindData, Name: name, Version: version,
		Properties: map[string]any{"dataType": "uri_folder", "dataUri": path, "isAnonymous": false}})
	return t.scope.Child(string(trainyard.KindData), name, "versions", version)
}

// rate is a share from 0 to 1; 0 where it is not set.
func (f *fields) rate(name string) float64 {
	x := f.amount(name)
	if x > 1 {
		f.wrong(f.get(name), name, "a share above 0 and at most 1")
	}
	return x
}

// unacted reads what is kept with the deployment and shown, and changes nothing about how it serves.
func (t *deploymentTranslator) unacted() {
	if on := t.boolean("app_insights_enabled"); on != nil {
		t.dep.Spec.AppInsightsEnabled = *on
		if *on {
			t.noted("app_insights_enabled", "the gateway's metrics and the replicas' logs say the same")
		}
	}
	t.dep.Spec.EgressPublicNetworkAccess = t.choice("egress_public_network_access", "enabled", "Enabled", "disabled", "Disabled")
	t.noted("egress_public_network_access", "replicas are in the network of their node")
	if n := t.noted("private_network_connection", "replicas are in the network of their node"); n != nil {
		t.dep.Spec.Extra = trainyard.Extra{"privateNetworkConnection": asJSON(n.plain())}
	}
}
