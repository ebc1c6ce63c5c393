package control

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// Azure's Python SDK cannot read steps in any other form, and one job that it cannot read spoils its list of all jobs.
func TestStepsAreStoredAsClientsReadThem(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	j, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "p", Spec: specOf(t, aPipeline)})
	if err != nil {
		t.Fatal(err)
	}
	var nodes map[string]struct {
		Name, Type, ComponentID string
		Command                 *string
		Inputs, Outputs         map[string]map[string]string
	}
	if err := json.Unmarshal(j.Spec.Extra["jobs"], &nodes); err != nil {
		t.Fatal(err)
	}
	one, two := nodes["one"], nodes["two"]
	if one.Name != "one" || one.Type != "command" || one.Command != nil || one.Inputs["word"]["value"] != "${{parent.inputs.word}}" || one.Outputs["out"]["job_output_type"] != "uri_folder" ||
		two.Inputs["data"]["job_input_type"] != "literal" || two.Outputs["made"]["type"] != "literal" {
		t.Errorf("the steps are %s", j.Spec.Extra["jobs"])
	}
	spec, err := c.componentSpec(t.Context(), scope, one.ComponentID)
	if err != nil || !strings.Contains(string(spec), `"command":"echo ${{inputs.word}}`) {
		t.Errorf("the component of step one: %s, %v", spec, err)
	}
	// written out like this it is a pipeline that runs the same
	again := j.Clone().Spec
	q, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "q", Spec: again})
	if err != nil || q.Plan.Pipeline.Steps[1].Spec.Command != j.Plan.Pipeline.Steps[1].Spec.Command || string(q.Spec.Extra["jobs"]) != string(j.Spec.Extra["jobs"]) {
		t.Errorf("%v, %+v", err, q)
	}
}

// A default that the first request left to the component is no difference to the second.
func TestAPipelineThatLeavesDefaultsOutMaySayItTwice(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	component := &trainyard.Resource{Scope: scope, Kind: trainyard.KindComponent, Name: "greet", Version: "1", Properties: json.RawMessage(
		`{"componentSpec":{"type":"pipeline","inputs":{"word":{"type":"string"},"mark":{"type":"string","default":"!"}},"jobs":{"a":{"command":"echo ${{inputs.w}}","inputs":{"w":"${{parent.inputs.word}}${{parent.inputs.mark}}"}}}}}`)}
	if _, _, err := c.PutResource(t.Context(), anAdmin, component); err != nil {
		t.Fatal(err)
	}
	text := `{"jobType":"Pipeline","computeId":"local","componentId":"azureml:greet:1","inputs":{"word":{"jobInputType":"literal","value":"hello"}}}`
	submit := func(text string) (*trainyard.Job, bool, error) {
		return c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "p", Spec: specOf(t, text)})
	}
	if j, created, err := submit(text); err != nil || !created || j.Spec.Inputs["mark"].Value != "!" {
		t.Fatalf("%v %v", created, err)
	}
	if _, created, err := submit(text); err != nil || created {
		t.Errorf("the same again: created %v, %v", created, err)
	}
	other := strings.Replace(text, `"inputs":{`, `"inputs":{"mark":{"jobInputType":"literal","value":"?"},`, 1)
	if _, _, err := submit(other); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), "with other inputs") {
		t.Errorf("another mark: %v", err)
	}
}

// The Python SDK registers the same step once by the name of its file and once by none, under the same digest.
func TestAComponentIsTheSameByAnyName(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	put := func(spec string) error {
		_, _, err := c.PutResource(t.Context(), anAdmin, &trainyard.Resource{Scope: scope, Kind: trainyard.KindComponent, Name: anonymousComponent, Version: "d1",
			Properties: json.RawMessage(`{"isAnonymous":true,"componentSpec":` + spec + `}`)})
		return err
	}
	for _, spec := range []string{`{"name":"shout","command":"c","_source":"YAML.COMPONENT"}`, `{"name":"azureml_anonymous","version":"1","command":"c","_source":"YAML.JOB"}`} {
		if err := put(spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if err := put(`{"name":"shout","command":"d"}`); !trainyard.IsConflict(err) {
		t.Errorf("another command: %v", err)
	}
}

// Azure's Python SDK reads a compute or a component by its id alone: of any other text it says that there is nothing of that name.
func TestWhatStepsNameIsStoredByItsID(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	component := &trainyard.Resource{Scope: scope, Kind: trainyard.KindComponent, Name: "greet", Version: "7", Properties: json.RawMessage(`{"componentSpec":{"type":"command","command":"echo"}}`)}
	if _, _, err := c.PutResource(t.Context(), anAdmin, component); err != nil {
		t.Fatal(err)
	}
	text := `{"jobType":"Pipeline","computeId":"azureml:local","settings":{"default_compute":"azureml:local","defaultDatastore":"workspaceblobstore","force_rerun":false},
		"jobs":{"a":{"component":"azureml:greet@latest","compute":"azureml:local"},"b":{"command":"echo","compute":"serverless"}}}`
	j, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "p", Spec: specOf(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	var nodes map[string]struct{ ComponentID, ComputeID string }
	var settings map[string]any
	if err := errors.Join(json.Unmarshal(j.Spec.Extra["jobs"], &nodes), json.Unmarshal(j.Spec.Extra["settings"], &settings)); err != nil {
		t.Fatal(err)
	}
	local := scope.Child("computes", "local")
	if n := nodes["a"]; n.ComputeID != local || n.ComponentID != scope.Child("components", "greet", "versions", "7") || nodes["b"].ComputeID != "serverless" {
		t.Errorf("the steps are %s", j.Spec.Extra["jobs"])
	}
	if settings["default_compute"] != local || settings["defaultDatastore"] != scope.Child("datastores", "workspaceblobstore") || settings["force_rerun"] != false || j.Spec.ComputeID != local {
		t.Errorf("compute %s, settings %s", j.Spec.ComputeID, j.Spec.Extra["settings"])
	}
	// and in these words it stays
	again := c.inStoredWords(t.Context(), j)
	if string(again.Spec.Extra["jobs"]) != string(j.Spec.Extra["jobs"]) || string(again.Spec.Extra["settings"]) != string(j.Spec.Extra["settings"]) || again.Spec.ComputeID != local {
		t.Errorf("again they are %s and %s", again.Spec.Extra["jobs"], again.Spec.Extra["settings"])
	}
}
