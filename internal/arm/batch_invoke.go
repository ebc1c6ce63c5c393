package arm

import (
	"encoding/json"
	"strings"

	"github.com/trainyard/trainyard"
)

// invocation is the body of an invocation. Names of members match in any case: Azure's own examples write them in two ways.
type invocation struct {
	Properties struct {
		InputData  map[string]*invocationInput     `json:"inputData"`
		OutputData map[string]*trainyard.JobOutput `json:"outputData"`
		Name       string                          `json:"name"`
		JobName    string                          `json:"jobName"`
		Display    string                          `json:"displayName"`
		About      string                          `json:"description"`
		Experiment string                          `json:"experimentName"`
		Tags       map[string]string               `json:"tags"`
		Properties map[string]string               `json:"properties"`
		Compute    *struct {
			InstanceCount int `json:"instanceCount"`
		} `json:"compute"`
		Resources      *trainyard.JobResources       `json:"resources"`
		Concurrency    int                           `json:"maxConcurrencyPerInstance"`
		MiniBatchSize  int                           `json:"miniBatchSize"`
		ErrorThreshold *int                          `json:"errorThreshold"`
		LoggingLevel   string                        `json:"loggingLevel"`
		OutputFileName string                        `json:"outputFileName"`
		Retry          *trainyard.BatchRetrySettings `json:"retrySettings"`
	} `json:"properties"`
}

// invocationInput is a JobInput whose literal value may be of any type.
type invocationInput struct {
	Type        string          `json:"jobInputType"`
	Value       json.RawMessage `json:"value"`
	URI         string          `json:"uri"`
	Path        string          `json:"path"`
	Mode        string          `json:"mode"`
	Description string          `json:"description"`
}

// invokeBatch answers 201 for a new job and 200 for one that the same request made before: clients take nothing else.
func (d *door) invokeBatch(c *call, _ trainyard.Kind) (reply, error) {
	var body invocation
	if err := c.read(&body); err != nil {
		return reply{}, err
	}
	in := body.read()
	in.Request = c.Header.Get("repeatability_request-id")
	if in.Request == "" {
		in.Request = c.Header.Get("repeatability-request-id")
	}
	if in.Deployment = c.Header.Get("azureml-model-deployment"); in.Deployment == "" {
		in.Deployment = c.URL.Query().Get("deployment")
	}
	j, created, err := d.Batch.InvokeBatch(c.Context(), c.who, c.scope(), c.name(), in)
	if err != nil {
		return reply{}, err
	}
	return saved(created, batchJobBody(c, j)), nil
}

func (b *invocation) read() *trainyard.BatchInvocation {
	p := &b.Properties
	in := &trainyard.BatchInvocation{Name: p.Name, DisplayName: p.Display, Description: p.About, Experiment: p.Experiment, Tags: p.Tags,
		Inputs: map[string]*trainyard.JobInput{}, Outputs: map[string]*trainyard.JobOutput{}, Concurrency: p.Concurrency, MiniBatchSize: p.MiniBatchSize,
		ErrorThreshold: p.ErrorThreshold, LoggingLevel: canon(p.LoggingLevel, "Info", "Warning", "Debug"), OutputFileName: p.OutputFileName, Retry: p.Retry}
	if in.Name == "" {
		in.Name = p.JobName
	}
	if in.Experiment == "" {
		in.Experiment = p.Properties["experimentName"]
	}
	if p.Compute != nil {
		in.Instances = p.Compute.InstanceCount
	}
	if p.Resources != nil && p.Resources.InstanceCount > 0 {
		in.Instances = p.Resources.InstanceCount
	}
	for name, i := range p.InputData {
		if i == nil {
			continue
		}
		one := &trainyard.JobInput{JobInputType: canonType(i.Type), URI: i.URI, Mode: canonMode(i.Mode), Description: i.Description}
		if one.URI == "" {
			one.URI = i.Path
		}
		if one.JobInputType == "" && len(i.Value) == 0 {
			one.JobInputType = "uri_folder"
		}
		if one.JobInputType == "" || one.JobInputType == "literal" {
			one.JobInputType, one.Value = "literal", textOf(i.Value)
		}
		in.Inputs[name] = one
	}
	for name, o := range p.OutputData {
		if o != nil {
			one := *o
			one.JobOutputType, one.Mode = canonType(o.JobOutputType), canonMode(o.Mode)
			in.Outputs[name] = &one
		}
	}
	return in
}

// listBatchJobs lists the jobs of an endpoint or of one of its deployments, newest first.
func (d *door) listBatchJobs(c *call, _ trainyard.Kind) (reply, error) {
	q := c.URL.Query()
	n, err := top(q)
	if err != nil {
		return reply{}, err
	}
	e, err := d.Batch.BatchEndpoint(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	deployment := q.Get("deployment")
	if len(c.rest) > 5 {
		deployment = c.segment(5)
	}
	after := q.Get("$skip")
	if after == "" {
		after = q.Get("$skiptoken")
	}
	page, err := d.Jobs.Jobs(c.Context(), trainyard.JobQuery{Scope: c.scope(), Tag: trainyard.TagBatchEndpoint + "=" + e.Name, Top: n, After: after})
	if err != nil {
		return reply{}, err
	}
	var items []envelope
	for _, j := range page.Items {
		if j.IsBatch() && (deployment == "" || strings.EqualFold(j.Spec.Tags[trainyard.TagBatchDeployment], deployment)) {
			items = append(items, batchJobBody(c, j))
		}
	}
	return pageOf(c, items, page.Next)
}

// batchJobBody is a job as the data plane of batch endpoints shows it. Its name is what the job operations know it by.
func batchJobBody(c *call, j *trainyard.Job) envelope {
	state := j.Status.State
	if state == "" {
		state = trainyard.JobNotStarted
	}
	props := object{}
	props.set("status", state)
	props.set("name", j.Spec.DisplayName)
	props.set("description", j.Spec.Description)
	props.set("experimentName", j.Spec.ExperimentName)
	props.set("tags", tagsOf(j.Spec.Tags))
	props.set("properties", tagsOf(j.Spec.Properties))
	props.set("deployment", j.Spec.Tags[trainyard.TagBatchDeployment])
	props.set("reason", j.Status.Reason)
	props.set("provisioningState", batchState(state))
	if t := stamp(j.Status.Started); t != nil {
		props.set("startTime", t)
	}
	if t := stamp(j.Status.Ended); t != nil {
		props.set("endTime", t)
	}
	return envelope{ID: j.Scope.Child("batchEndpoints", j.Spec.Tags[trainyard.TagBatchEndpoint], "jobs", j.Name), Name: j.Name,
		Type: trainyard.Provider + "/workspaces/batchEndpoints/jobs", SystemData: newSystemData(j.Created, j.Modified, j.CreatedBy, ""), Properties: props}
}

// batchState is a job's state as its provisioningState.
func batchState(s trainyard.JobState) string {
	switch s {
	case trainyard.JobCompleted:
		return succeeded
	case trainyard.JobFailed, trainyard.JobCanceled:
		return string(s)
	}
	return inProgress
}
