package history

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// runView is the part of run history's Run and RunDetails that we have something to say in. Maps and lists are never null: clients call
// methods on them.
type runView struct {
	RunID           string            `json:"runId"`
	RunNumber       int64             `json:"runNumber"`
	RootRunID       string            `json:"rootRunId"`
	ParentRunID     *string           `json:"parentRunId"`
	ExperimentID    string            `json:"experimentId"`
	DataContainerID string            `json:"dataContainerId"`
	RunType         string            `json:"runType"`
	Status          string            `json:"status"`
	DisplayName     string            `json:"displayName,omitempty"`
	Description     string            `json:"description,omitempty"`
	Hidden          bool              `json:"hidden"`
	Target          string            `json:"target"`
	Compute         *computeView      `json:"compute,omitempty"`
	Created         time.Time         `json:"createdUtc"`
	CreatedTime     time.Time         `json:"createdTimeUtc"`
	Started         *time.Time        `json:"startTimeUtc"`
	Ended           *time.Time        `json:"endTimeUtc"`
	Modified        time.Time         `json:"lastModifiedUtc"`
	CreatedBy       userView          `json:"createdBy"`
	UserID          string            `json:"userId"`
	Error           *errorView        `json:"error"`
	Warnings        []warningView     `json:"warnings"`
	Tags            map[string]string `json:"tags"`
	Properties      map[string]string `json:"properties"`
	Parameters      map[string]string `json:"parameters"`
	Services        map[string]any    `json:"services"`
	Inputs          map[string]any    `json:"inputs"`
	// Outputs stays empty: clients then look at the default places, azureml/{job}/{output}/ and ExperimentRun/dcid.{job}/, which is
	// where they are.
	Outputs        map[string]any `json:"outputs"`
	InputDatasets  []any          `json:"inputDatasets"`
	OutputDatasets []any          `json:"outputDatasets"`
}

type (
	computeView struct {
		Target        string `json:"target"`
		InstanceCount int    `json:"instanceCount"`
	}
	userView struct {
		UserName string `json:"userName"`
	}
	warningView struct {
		Source  string `json:"source"`
		Message string `json:"message"`
	}
	errorView struct {
		Error rootError `json:"error"`
	}
	rootError struct {
		Code          string      `json:"code"`
		Message       string      `json:"message"`
		MessageFormat string      `json:"messageFormat"`
		Details       []rootError `json:"details"`
	}
)

// detailsView is RunDetails: the run and its logs.
type detailsView struct {
	runView
	LogFiles map[string]string `json:"logFiles"`
}

func viewOf(j *trainyard.Job) runView {
	v := runView{
		RunID: j.Name, RunNumber: j.Seq, RootRunID: j.Name, ExperimentID: j.Spec.ExperimentName, DataContainerID: "dcid." + j.Name,
		RunType: strings.ToLower(j.Spec.JobType), Status: string(statusOf(j)), DisplayName: j.Spec.DisplayName, Description: j.Spec.Description,
		Hidden: j.Spec.IsArchived, Target: j.Plan.Compute, Compute: &computeView{j.Plan.Compute, max(j.Plan.Nodes, 1)},
		Created: j.Created.UTC(), CreatedTime: j.Created.UTC(), Started: timeOf(j.Status.Started), Ended: timeOf(j.Status.Ended),
		Modified: j.Modified.UTC(), CreatedBy: userView{j.CreatedBy}, UserID: j.CreatedBy, Error: errorOf(j), Warnings: []warningView{},
		Tags: notNil(j.Spec.Tags), Properties: notNil(j.Spec.Properties), Parameters: map[string]string{}, Services: map[string]any{},
		Inputs: map[string]any{}, Outputs: map[string]any{}, InputDatasets: []any{}, OutputDatasets: []any{},
	}
	switch {
	case j.Plan.Parent != "":
		v.RunType, v.ParentRunID, v.RootRunID = trainyard.RunStep, &j.Plan.Parent, j.Plan.Parent
	case j.Plan.Pipeline != nil:
		v.RunType = trainyard.RunPipeline
	}
	for _, w := range j.Status.Warnings {
		v.Warnings = append(v.Warnings, warningView{"trainyard", w})
	}
	for name, in := range j.Spec.Inputs {
		if in != nil && in.JobInputType == "literal" {
			v.Parameters[name] = in.Value
		}
	}
	return v
}

// statusOf is the job's state; run history names them as ARM does.
func statusOf(j *trainyard.Job) trainyard.JobState {
	if j.Status.State == "" {
		return trainyard.JobNotStarted
	}
	return j.Status.State
}

// errorOf says why a job failed. Azure's client prints this whole when it streams one.
func errorOf(j *trainyard.Job) *errorView {
	if j.Status.State != trainyard.JobFailed {
		return nil
	}
	e := rootError{Code: string(trainyard.ClassUser), Message: j.Status.Reason.Message, Details: []rootError{}}
	if f := j.Status.Failure; f != nil {
		e.Code, e.Message = string(f.Class), f.Message
	}
	e.MessageFormat = e.Message
	return &errorView{e}
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (d *door) getRun(c *call) error {
	j, view, err := d.find(c.Context(), c.scope, c.run, d.Runs.Job)
	if err != nil {
		return err
	}
	return c.reply(view(j))
}

func (d *door) details(c *call) error {
	j, view, err := d.find(c.Context(), c.scope, c.run, d.Runs.Watched)
	if err != nil {
		return err
	}
	files, err := d.Runs.LogFiles(c.Context(), c.scope, j.Name)
	if err != nil {
		return err
	}
	v := detailsView{runView: view(j), LogFiles: map[string]string{}}
	for _, f := range files {
		v.LogFiles[f.Key] = d.logURL(c, j.Name, f.Key)
	}
	return c.reply(v)
}

// children are the jobs of a pipeline's steps. Jobs that score a batch endpoint's files are pipelines of one step to clients.
func (d *door) children(c *call) error {
	j, err := d.Runs.Job(c.Context(), c.scope, c.run)
	if err != nil {
		return err
	}
	list := []any{}
	for _, name := range j.Children() {
		one, err := d.Runs.Job(c.Context(), c.scope, name)
		if err == nil && one.Plan.Parent == j.Name {
			list = append(list, viewOf(one))
		} else if err != nil && !trainyard.IsNotFound(err) {
			return err
		}
	}
	if j.IsBatch() && j.Plan.Pipeline == nil {
		list = append(list, stepOf(j))
	}
	return c.reply(map[string]any{"value": list, "continuationToken": nil, "nextLink": nil})
}

// services are interactive ones (SSH, Jupyter), which a command job here does not have.
func (d *door) services(c *call) error {
	if _, err := d.Runs.Job(c.Context(), c.scope, c.run); err != nil {
		return err
	}
	return c.reply(map[string]any{"instances": map[string]any{}})
}

func (d *door) runData(c *call) error {
	var ask struct {
		RunID string `json:"runId"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if ask.RunID == "" {
		return trainyard.Invalid(`rundata: the body names no run; want {"runId": "NAME"}`)
	}
	j, as, err := d.find(c.Context(), c.scope, ask.RunID, d.Runs.Job)
	if err != nil {
		return err
	}
	view := as(j)
	view.Outputs = outputsOf(j)
	return c.reply(map[string]any{"runMetadata": view, "runDefinition": nil, "jobSpecification": nil})
}

// outputsOf names a job's outputs with where they are; resolve gives the same place back. Clients pass over types that are not of these
// three, and look for models by another call, so a model is a folder here.
func outputsOf(j *trainyard.Job) map[string]any {
	out := map[string]any{}
	for name, o := range j.Plan.Outputs {
		kind := dataTypes[o.Type]
		if kind == "" {
			kind = "UriFolder"
		}
		out[name] = map[string]string{"assetId": longURI(j.Scope, o.URI), "type": kind}
	}
	return out
}

// dataTypes are the data plane's words for ARM's dataType; clients pass over any other.
var dataTypes = map[string]string{"uri_file": "UriFile", "uri_folder": "UriFolder", "mltable": "MLTable"}

var assetPattern = regexp.MustCompile(`(?i)^azureml://locations/[^/]+/workspaces/[^/]+/data/([^/]+)/versions/([^/]+)$`)

// resolve is batchGetResolvedUris: where data assets are. Those that are not there are left out, as Azure does.
func (d *door) resolve(c *call) error {
	var ask struct {
		Values []string `json:"values"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	found := map[string]any{}
	for _, id := range ask.Values {
		if _, err := trainyard.ParseDataPath(c.scope, id); err == nil { // an output of a job: its id is its place
			found[id] = map[string]string{"uri": id, "type": "UriFolder"}
			continue
		}
		uri, kind, err := d.dataAsset(c.Context(), c.scope, id)
		if trainyard.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		found[id] = map[string]string{"uri": uri, "type": kind}
	}
	return c.reply(map[string]any{"values": found})
}

func (d *door) dataAsset(ctx context.Context, scope trainyard.Scope, id string) (uri, kind string, err error) {
	name, version, err := parseAsset(scope, id)
	if err != nil {
		return "", "", err
	}
	if d.Data == nil {
		return "", "", trainyard.NotFound("there is no data asset %q", id)
	}
	asset, err := d.Data(ctx, scope, name, version)
	if err != nil {
		return "", "", err
	}
	var p struct {
		DataType string `json:"dataType"`
		DataURI  string `json:"dataUri"`
	}
	if err := json.Unmarshal(asset.Properties, &p); err != nil {
		return "", "", err
	}
	kind = dataTypes[strings.ToLower(p.DataType)]
	if kind == "" {
		kind = "UriFolder"
	}
	return longURI(scope, p.DataURI), kind, nil
}

// parseAsset reads a data asset's id: the data plane's (azureml://locations/…/data/N/versions/V) or ARM's, of this workspace.
func parseAsset(scope trainyard.Scope, id string) (name, version string, err error) {
	if m := assetPattern.FindStringSubmatch(id); m != nil {
		name, nameErr := url.PathUnescape(m[1])
		version, versionErr := url.PathUnescape(m[2])
		if nameErr == nil && versionErr == nil {
			return name, version, nil
		}
	}
	arm, err := trainyard.ParseID(id)
	if err != nil || arm.Kind != trainyard.KindData || arm.Version == "" || arm.Scope.Fold() != scope.Fold() {
		return "", "", trainyard.Invalid("%q is not the id of a version of a data asset of workspace %q", id, scope.Workspace)
	}
	return arm.Name, arm.Version, nil
}

// longURI spells a datastore path with its workspace, as clients want it here.
func longURI(scope trainyard.Scope, uri string) string {
	p, err := trainyard.ParseDataPath(scope, uri)
	if err != nil {
		return uri // https and the like
	}
	return "azureml://subscriptions/" + p.Scope.Subscription + "/resourcegroups/" + p.Scope.ResourceGroup + "/workspaces/" +
		p.Scope.Workspace + "/datastores/" + p.Datastore + "/paths/" + p.Path
}
