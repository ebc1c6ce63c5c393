package control

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// A job that was submitted is not changed, but clients send whole jobs: the same request again, or what they read back with other tags. So
// what they send is the same job if it is what was asked for, or if all that it says is so of the job. What it leaves out is no change.

// askedDigest is a digest of what a job as submitted says of what is run.
func askedDigest(s *trainyard.JobSpec) string {
	runs := *s
	runs.DisplayName, runs.Description, runs.ExperimentName, runs.Tags, runs.Properties, runs.IsArchived, runs.Services = "", "", "", nil, nil, false, nil
	runs.JobType = strings.ToLower(s.JobType)
	runs.Extra = trainyard.Extra{}
	for _, name := range pipelineExtra {
		if raw, ok := s.Extra[name]; ok {
			runs.Extra[name] = raw
		}
	}
	data, err := json.Marshal(runs)
	if err != nil {
		return "" // like no other
	}
	return digest(canonical(decoded(data)))
}

// pipelineExtra are the members of a pipeline job that say what is run, and what they are called.
var (
	pipelineExtra = []string{"jobs", "component", "componentId", "settings"}
	pipelineNames = map[string]string{"jobs": "other steps", "component": "another component", "componentId": "another component", "settings": "other settings"}
)

// changed says what the job that was sent, see inStoredWords, has other than the one that there is: "another command", "other inputs"; "" for nothing.
func changed(old, in *trainyard.Job) string {
	a, b := &old.Spec, &in.Spec
	differs := func(was, is string) bool { return is != "" && is != was }
	switch {
	case differs(a.Command, b.Command):
		return "another command"
	case b.JobType != "" && strings.EqualFold(a.JobType, "Pipeline") != strings.EqualFold(b.JobType, "Pipeline"): // a replica is of a type of its own
		return "another type"
	case otherInputs(old, b.Inputs):
		return "other inputs"
	case otherOutputs(old, b.Outputs):
		return "other outputs"
	}
	for _, name := range pipelineExtra {
		if otherMember(old.Scope.Workspace, name, a.Extra[name], b.Extra[name]) {
			return pipelineNames[name]
		}
	}
	switch {
	case otherReference(old.Scope.Workspace, a.CodeID, b.CodeID):
		return "other code"
	case otherReference(old.Scope.Workspace, a.EnvironmentID, b.EnvironmentID):
		return "another environment"
	case otherReference(old.Scope.Workspace, a.ComputeID, b.ComputeID):
		return "another compute"
	case len(b.EnvironmentVariables) > 0 && !maps.Equal(a.EnvironmentVariables, b.EnvironmentVariables):
		return "other environment variables"
	case otherResources(a.Resources, b.Resources):
		return "other resources"
	case otherQueue(a.QueueSettings, b.QueueSettings):
		return "other queue settings"
	case otherShape(a, b):
		return "another number of nodes or processes"
	case b.Limits != nil && (a.Limits == nil && b.Limits.Timeout != "" || a.Limits != nil && differs(a.Limits.Timeout, b.Limits.Timeout)):
		return "other limits"
	}
	return ""
}

func otherInputs(old *trainyard.Job, is map[string]*trainyard.JobInput) bool {
	for name, in := range is {
		was := old.Spec.Inputs[name]
		if in == nil {
			continue
		}
		if was == nil || !strings.EqualFold(was.JobInputType, in.JobInputType) || was.Value != in.Value || otherReference(old.Scope.Workspace, was.URI, in.URI) ||
			in.Mode != "" && in.Mode != was.Mode && in.Mode != old.Plan.Inputs[name].Mode {
			return true
		}
	}
	return len(is) > 0 && len(is) != len(old.Spec.Inputs)
}

// otherOutputs compares what was asked for as well as the places that the server chose, which is what clients read.
func otherOutputs(old *trainyard.Job, is map[string]*trainyard.JobOutput) bool {
	for name, out := range is {
		was, plan := old.Spec.Outputs[name], old.Plan.Outputs[name]
		if out == nil {
			continue
		}
		if was == nil || !strings.EqualFold(was.JobOutputType, out.JobOutputType) || otherReference(old.Scope.Workspace, was.URI, out.URI) && otherReference(old.Scope.Workspace, plan.URI, out.URI) ||
			out.Mode != "" && out.Mode != was.Mode && out.Mode != plan.Mode || out.AssetName != was.AssetName {
			return true
		}
	}
	return len(is) > 0 && len(is) != len(old.Spec.Outputs)
}

// otherReference compares addresses and references, which are spelled in several ways: an id, azureml:NAME:VERSION, azureml://…, with or
// without the kind of thing and the workspace, which is home then.
func otherReference(home, was, is string) bool {
	if is == "" || is == was {
		return false
	}
	a, b := readReference(was), readReference(is)
	return a.rest != b.rest || !strings.EqualFold(cmp.Or(a.workspace, home), cmp.Or(b.workspace, home)) || a.kind != "" && b.kind != "" && a.kind != b.kind
}

// reference is what a text leads to; workspace and kind are empty where it does not say them.
type reference struct{ workspace, kind, rest string }

func readReference(ref string) reference {
	ref = strings.TrimPrefix(ref, "azureml:")
	if id, err := trainyard.ParseID(ref); err == nil {
		return reference{id.Scope.Workspace, string(id.Kind), strings.ToLower(strings.Trim(id.Name+":"+id.Version+"@"+id.Label, ":@"))}
	}
	if i := strings.Index(ref, "/datastores/"); i >= 0 {
		_, workspace, _ := strings.Cut(ref[:i], "/workspaces/")
		return reference{workspace, "datastores", ref[i:]}
	}
	if !strings.Contains(ref, "/") {
		ref = strings.ToLower(ref)
	}
	return reference{"", "", ref}
}

// otherMember compares two members of a pipeline job. Of settings, which clients complete, those count that are said.
func otherMember(home, name string, was, is json.RawMessage) bool {
	a, b := bare(decoded(was)), bare(decoded(is))
	old, isMap := a.(map[string]any)
	if now, ok := b.(map[string]any); ok && name == "settings" && (isMap || a == nil) {
		for key, v := range now {
			if key != "_source" && !sameValue(home, key, old[key], v) {
				return true
			}
		}
		return false
	}
	return b != nil && !sameValue(home, name, a, b)
}

// references are the members that name something else, in whatever spelling.
var references = []string{"default_compute", "default_datastore", "computeId", "componentId", "uri"}

// sameValue compares two bare JSON values; name is that of the member they are.
func sameValue(home, name string, a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, v := range x {
			other, there := y[key]
			if !there || !sameValue(home, key, v, other) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(home, "", x[i], y[i]) {
				return false
			}
		}
		return true
	case string:
		y, ok := b.(string)
		return ok && (x == y || slices.Contains(references, name) && !otherReference(home, x, y))
	}
	return a == b
}

// decoded is a JSON text as a value; a text that is none stands for itself.
func decoded(raw json.RawMessage) (v any) {
	if len(raw) > 0 && json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return v
}

// canonical is a JSON value in the one spelling that it has without nulls and what is empty.
func canonical(v any) string {
	data, err := json.Marshal(bare(v))
	if err != nil {
		return ""
	}
	return string(data)
}

// bare leaves out of a JSON value what says nothing.
func bare(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, one := range x {
			if one = bare(one); one != nil {
				out[k] = one
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(x) == 0 {
			return nil
		}
		out := make([]any, len(x))
		for i := range x {
			out[i] = bare(x[i])
		}
		return out
	}
	return v
}

func otherResources(was, is *trainyard.JobResources) bool {
	if is == nil {
		return false
	}
	if was == nil {
		was = &trainyard.JobResources{}
	}
	return is.ShmSize != "" && is.ShmSize != was.ShmSize || is.DockerArgs != "" && is.DockerArgs != was.DockerArgs
}

func otherQueue(was, is *trainyard.QueueSettings) bool {
	if is == nil {
		return false
	}
	if was == nil {
		was = &trainyard.QueueSettings{}
	}
	wasTier, _ := tier(was.JobTier)
	isTier, _ := tier(is.JobTier)
	return is.Priority != 0 && level(is) != level(was) || is.JobTier != "" && isTier != wasTier
}

func otherShape(was, is *trainyard.JobSpec) bool {
	if r := is.Resources; r != nil {
		old := trainyard.JobResources{}
		if was.Resources != nil {
			old = *was.Resources
		}
		if max(r.InstanceCount, 1) != max(old.InstanceCount, 1) || r.InstanceType != "" && !strings.EqualFold(r.InstanceType, old.InstanceType) {
			return true
		}
	}
	d, old := is.Distribution, was.Distribution
	if d == nil {
		return false
	}
	return old == nil || !strings.EqualFold(d.DistributionType, old.DistributionType) || max(d.ProcessCountPerInstance, 1) != max(old.ProcessCountPerInstance, 1) ||
		d.WorkerCount != old.WorkerCount || d.ParameterServerCount != old.ParameterServerCount
}
