package arm

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// jobWritten are members of a job's properties that only the server writes. Clients that read, change and write a job send them back.
var jobWritten = []string{"status", "reason", "queuePosition", "timeline", "attempts", "warnings", "exitCode", "failure", "startTime",
	"endTime", "canceledBy", "compute", "parameters", "steps"}

func (d *door) putJob(c *call, _ trainyard.Kind) (reply, error) {
	var in struct {
		Properties *trainyard.JobSpec `json:"properties"`
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	if in.Properties == nil {
		return reply{}, trainyard.Invalid("the body of job %q has no properties; want {\"properties\": {\"jobType\": \"Command\", \"command\": …}}", c.name())
	}
	return d.saveJob(c, in.Properties)
}

func (d *door) patchJob(c *call, _ trainyard.Kind) (reply, error) {
	old, err := d.Jobs.Job(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	var patch struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := c.read(&patch); err != nil {
		return reply{}, err
	}
	spec, err := patched(old.Spec, patch.Properties)
	if err != nil {
		return reply{}, err
	}
	return d.saveJob(c, spec)
}

// patched is a copy of v, which shares nothing with it, with a merge patch of its JSON applied.
func patched[T any](v T, patch json.RawMessage) (*T, error) {
	if isNull(patch) {
		patch = json.RawMessage("{}")
	}
	now, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	merged, err := merge(now, patch)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(merged, out); err != nil {
		return nil, explain(merged, err)
	}
	return out, nil
}

func (d *door) saveJob(c *call, spec *trainyard.JobSpec) (reply, error) {
	cleanJob(spec)
	got, created, err := d.Jobs.SubmitJob(c.Context(), c.who, &trainyard.Job{Scope: c.scope(), Name: c.name(), Spec: *spec})
	if err != nil {
		return reply{}, err
	}
	body, err := d.jobBody(c, got)
	return saved(created, body), err
}

// cleanJob gives enumerations their spelling, and drops nulls and what only the server writes.
func cleanJob(s *trainyard.JobSpec) {
	s.Extra = cleanExtra(s.Extra, jobWritten)
	s.JobType = canon(s.JobType, "Command", "Sweep", "Pipeline", "AutoML", "Spark", "FineTuning", "Labeling")
	maps.DeleteFunc(s.Services, func(k string, v json.RawMessage) bool { return isNull(v) || k == "Studio" })
	s.Identity = nonNull(s.Identity)
	maps.DeleteFunc(s.Inputs, func(_ string, in *trainyard.JobInput) bool { return in == nil })
	for _, in := range s.Inputs {
		in.JobInputType = canonType(in.JobInputType)
		in.Mode = canonMode(in.Mode)
	}
	for name, out := range s.Outputs {
		if out == nil { // an output that is only named: the defaults
			out = &trainyard.JobOutput{}
			s.Outputs[name] = out
		}
		if out.JobOutputType == "" {
			out.JobOutputType = "uri_folder"
		}
		out.JobOutputType = canonType(out.JobOutputType)
		out.Mode = canonMode(out.Mode)
	}
	if s.Distribution != nil {
		s.Distribution.DistributionType = canon(s.Distribution.DistributionType, "PyTorch", "TensorFlow", "Mpi", "Ray")
	}
	if s.Limits != nil {
		s.Limits.JobLimitsType = canon(s.Limits.JobLimitsType, "Command", "Sweep")
	}
	if s.QueueSettings != nil {
		s.QueueSettings.JobTier = canon(s.QueueSettings.JobTier, "Null", "Spot", "Basic", "Standard", "Premium")
	}
}

func canonType(t string) string {
	return canon(t, "literal", "uri_file", "uri_folder", "mltable", "custom_model", "mlflow_model", "triton_model")
}

func canonMode(m string) string {
	return canon(m, "ReadOnlyMount", "ReadWriteMount", "Download", "Direct", "EvalMount", "EvalDownload", "Upload")
}

// cleanExtra drops nulls and the names given from what a client sent beside the fields that are known.
func cleanExtra(e trainyard.Extra, names []string) trainyard.Extra {
	o := object(e)
	o.without(names...)
	o.dropNulls()
	if len(o) == 0 {
		return nil
	}
	return e
}

func (d *door) getJob(c *call, _ trainyard.Kind) (reply, error) {
	j, err := d.Jobs.Job(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	body, err := d.jobBody(c, j)
	if err != nil {
		return reply{}, err
	}
	return ok(body)
}

func (d *door) listJobs(c *call, _ trainyard.Kind) (reply, error) {
	q := c.URL.Query()
	n, err := top(q)
	if err != nil {
		return reply{}, err
	}
	v, err := view(q)
	if err != nil {
		return reply{}, err
	}
	query := trainyard.JobQuery{Scope: c.scope(), Compute: q.Get("compute"), View: v, Tag: q.Get("tag"), Top: n, After: q.Get("$skip")}
	all := query.Compute+query.Tag+q.Get("status")+q.Get("parent") == ""
	for s := range strings.SplitSeq(q.Get("status"), ",") { // ours, as compute is
		if s = strings.TrimSpace(s); s != "" {
			query.States = append(query.States, trainyard.JobState(canon(s, jobStates...)))
		}
	}
	page, err := d.jobsOf(c, query)
	if err != nil {
		return reply{}, err
	}
	var items []envelope
	for _, j := range page.Items {
		if all && j.Plan.Parent != "" { // a step is seen below its pipeline
			continue
		}
		if t := q.Get("jobType"); t != "" && !strings.EqualFold(t, j.Spec.JobType) || q.Get("scheduleId") != "" || !hasAll(j.Spec.Properties, q.Get("properties")) {
			continue
		}
		body, err := d.jobBody(c, j)
		if err != nil {
			return reply{}, err
		}
		items = append(items, body)
	}
	return pageOf(c, items, page.Next)
}

// jobsOf lists jobs; with parent=NAME, which is ours, those of a pipeline's steps that there are.
func (d *door) jobsOf(c *call, query trainyard.JobQuery) (page trainyard.Page[*trainyard.Job], err error) {
	parent := c.URL.Query().Get("parent")
	if parent == "" {
		return d.Jobs.Jobs(c.Context(), query)
	}
	j, err := d.Jobs.Job(c.Context(), c.scope(), parent)
	if err != nil {
		return page, err
	}
	for _, name := range j.Children() {
		one, err := d.Jobs.Job(c.Context(), c.scope(), name)
		if err == nil && one.Plan.Parent == parent {
			page.Items = append(page.Items, one)
		} else if err != nil && !trainyard.IsNotFound(err) {
			return page, err
		}
	}
	return page, nil
}

var jobStates = []string{string(trainyard.JobNotStarted), string(trainyard.JobQueued), string(trainyard.JobPreparing), string(trainyard.JobRunning),
	string(trainyard.JobFinalizing), string(trainyard.JobCancelRequested), string(trainyard.JobCompleted), string(trainyard.JobFailed), string(trainyard.JobCanceled)}

func (d *door) cancelJob(c *call, kind trainyard.Kind) (reply, error) {
	if err := d.Jobs.CancelJob(c.Context(), c.who, c.scope(), c.name()); err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusAccepted, op: d.begin(c, "cancel", kind, c.name())}, nil
}

func (d *door) deleteJob(c *call, kind trainyard.Kind) (reply, error) {
	a, err := deleted(d.Jobs.DeleteJob(c.Context(), c.who, c.scope(), c.name()))
	if err != nil || a.status != http.StatusOK {
		return a, err
	}
	if _, err := d.Jobs.Job(c.Context(), c.scope(), c.name()); err == nil { // it takes its time
		a = reply{status: http.StatusAccepted, op: d.begin(c, "delete", kind, c.name())}
	}
	return a, nil
}

// jobEvents lists what happened to a job since the event with the number after.
func (d *door) jobEvents(c *call, _ trainyard.Kind) (reply, error) {
	after, err := strconv.ParseInt("0"+c.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return reply{}, trainyard.Invalid("after is %q, want the seq of an event", c.URL.Query().Get("after"))
	}
	events, err := d.Jobs.JobEvents(c.Context(), c.scope(), c.name(), after)
	if err != nil {
		return reply{}, err
	}
	return pageOf(c, events, "")
}

// jobBody is a job as clients read it: what was submitted, what became of it, and beside Azure's fields ours.
func (d *door) jobBody(c *call, j *trainyard.Job) (envelope, error) {
	spec := j.Spec
	spec.Outputs, spec.Services, spec.Extra = resolvedOutputs(j), d.services(c, j), nil
	data, err := json.Marshal(spec)
	if err != nil {
		return envelope{}, fmt.Errorf("encode job %s: %w", j.Name, err)
	}
	props := &members{text: make([]byte, 0, 2*len(data)+1024)}
	props.addAll(data)
	for _, name := range slices.Sorted(maps.Keys(j.Spec.Extra)) {
		if !slices.Contains(jobWritten, name) {
			props.add(name, j.Spec.Extra[name])
		}
	}
	if len(spec.Tags) == 0 { // what clients fall over when it is not there
		props.add("tags", struct{}{})
	}
	if len(spec.Properties) == 0 {
		props.add("properties", struct{}{})
	}
	if !spec.IsArchived {
		props.add("isArchived", false)
	}
	if err := d.addStatus(c, j, props); err != nil {
		return envelope{}, err
	}
	return envelope{ID: j.ID(), Name: j.Name, Type: trainyard.Provider + "/workspaces/jobs",
		SystemData: newSystemData(j.Created, j.Modified, j.CreatedBy, ""), Properties: props}, nil
}

func (d *door) addStatus(c *call, j *trainyard.Job, props *members) error {
	s := &j.Status
	if s.State == trainyard.JobQueued {
		position, err := d.Jobs.JobPosition(c.Context(), j.Scope, j.Name)
		if err != nil && !trainyard.IsNotFound(err) {
			return err
		}
		if position > 0 {
			props.add("queuePosition", position)
		}
	}
	state := s.State
	if state == "" {
		state = trainyard.JobNotStarted
	}
	props.add("status", state)
	props.add("reason", s.Reason)
	props.add("timeline", listOf(s.Timeline))
	props.add("attempts", listOf(s.Attempts))
	props.add("warnings", listOf(s.Warnings))
	if j.Plan.Compute != "" {
		props.add("compute", j.Plan.Compute)
	}
	if p := j.Plan.Pipeline; p != nil {
		props.add("steps", stepsOf(j, p))
	}
	addEnd(s, props)
	return nil
}

// addEnd adds what a job has once it began and ended.
func addEnd(s *trainyard.JobStatus, props *members) {
	if !s.Started.IsZero() {
		props.add("startTime", stamp(s.Started))
	}
	if !s.Ended.IsZero() {
		props.add("endTime", stamp(s.Ended))
	}
	if s.ExitCode != nil {
		props.add("exitCode", *s.ExitCode)
	}
	if s.Failure != nil {
		props.add("failure", s.Failure)
	}
	if s.CanceledBy != "" {
		props.add("canceledBy", s.CanceledBy)
	}
}

// resolvedOutputs are the outputs with the places that the server gave to those that named none.
func resolvedOutputs(j *trainyard.Job) map[string]*trainyard.JobOutput {
	if len(j.Spec.Outputs) == 0 {
		return j.Spec.Outputs
	}
	out := make(map[string]*trainyard.JobOutput, len(j.Spec.Outputs))
	for name, o := range j.Spec.Outputs {
		if o == nil {
			continue
		}
		full, plan := *o, j.Plan.Outputs[name]
		if full.URI == "" || strings.Contains(full.URI, "${{") {
			full.URI = plan.URI
		}
		if full.Mode == "" {
			full.Mode = plan.Mode
		}
		out[name] = &full
	}
	return out
}

// browserBase is where a browser best reaches the server: on its own computer plain HTTP, which no browser warns of as each does of a
// certificate authority that it does not know.
func browserBase(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" {
		return base
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() || u.Hostname() == "localhost" {
		u.Scheme = "http"
	}
	return u.String()
}

// services are those of the job and the page of the Studio that shows it; clients print that link. It has a query, as Azure's has,
// because the Python SDK puts "&tid=…" behind it.
func (d *door) services(c *call, j *trainyard.Job) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(j.Spec.Services)+1)
	for k, v := range j.Spec.Services {
		if !isNull(v) {
			out[k] = v
		}
	}
	o := object(out)
	o.set("Studio", map[string]string{"jobServiceType": "Studio", "endpoint": browserBase(c.base()) + "/jobs/" + url.PathEscape(j.Name) + "?wsid=" + j.Scope.ID()})
	return out
}
