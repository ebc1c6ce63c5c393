package pipeline

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

const three = `{"type":"pipeline","inputs":{"folder":{"type":"uri_folder"},"word":{"type":"string","default":"hello"},"more":{"type":"uri_file","optional":true}},
	"outputs":{"made":{"type":"mlflow_model","mode":"upload"}},"jobs":{
	"zero":{"component":{"command":"a","environment":"e","inputs":{"data":{"type":"uri_folder"},"greeting":{"type":"string"},"times":{"type":"integer","default":2},"extra":{"type":"uri_file","optional":true}},
		"outputs":{"out":{"type":"uri_folder"}},"environment_variables":{"A":1,"B":"x"},"resources":{"instance_count":2}},
		"inputs":{"data":{"path":"${{parent.inputs.folder}}","mode":"download"},"greeting":"say ${{ parent.inputs.word }}!","extra":"${{parent.inputs.more}}"},"environment_variables":{"B":"y"},"computeId":"gpu"},
	"one":{"component":"azureml:copy:1","inputs":{"data":"${{parent.jobs.zero.outputs.out}}"},"resources":{"instance_count":"3"}},
	"last":{"type":"command","command":"b","inputs":{"a":"${{parent.jobs.one.outputs.out}}","b":7},"outputs":{"model":{"type":"mlflow_model","path":"${{parent.outputs.made}}"},"own":{"type":"uri_file","path":"azureml://datastores/s/paths/${{name}}/"}}}}}`

const copied = `{"type":"command","command":"cp","inputs":{"data":{"type":"uri_folder","mode":"ro_mount"}},"outputs":{"out":{"type":"uri_folder"}}}`

func find(ref string) (json.RawMessage, error) {
	if ref == "azureml:copy:1" {
		return json.RawMessage(copied), nil
	}
	return nil, trainyard.NotFound("there is no component %s", ref)
}

func parent(p *Pipeline, inputs map[string]*trainyard.JobInput) (*trainyard.Job, []Problem) {
	j := &trainyard.Job{Scope: trainyard.DefaultScope(), Name: "p", Spec: trainyard.JobSpec{Inputs: inputs, ExperimentName: "e"}}
	problems := p.Fill(&j.Spec)
	j.Plan.Outputs = map[string]trainyard.TaskOutput{"made": {URI: "azureml://datastores/d/paths/made/"}}
	return j, problems
}

func TestStepsBecomeJobsThatHandTheirOutputsOn(t *testing.T) {
	p, problems := Read(json.RawMessage(three), find)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	j, problems := parent(p, map[string]*trainyard.JobInput{"folder": {JobInputType: "uri_folder", URI: "u"}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	steps := p.Jobs(j, "cpu")
	data, err := json.MarshalIndent(steps, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 3 || steps[0].Name != "zero" || steps[1].Name != "one" || steps[2].Name != "last" || !slices.Equal(steps[2].After, []string{"one"}) {
		t.Fatalf("steps %s", data)
	}
	zero, one, last := steps[0].Spec, steps[1].Spec, steps[2].Spec
	at := trainyard.DataPath{Scope: j.Scope, Datastore: trainyard.BlobDatastore, Path: "azureml/p-zero/out/"}
	switch {
	case zero.Inputs["data"].URI != "u" || zero.Inputs["data"].Mode != "Download" || zero.Inputs["greeting"].Value != "say hello!" || zero.Inputs["times"].Value != "2" || zero.Inputs["extra"] != nil:
		t.Errorf("inputs of zero: %s", data)
	case zero.EnvironmentVariables["A"] != "1" || zero.EnvironmentVariables["B"] != "y" || zero.ComputeID != "gpu" || one.ComputeID != "cpu" || zero.Resources.InstanceCount != 2 || one.Resources.InstanceCount != 3:
		t.Errorf("what the step says is not before what its component says: %s", data)
	case one.Inputs["data"].URI != at.String() || one.Inputs["data"].Mode != "ReadOnlyMount" || one.Command != "cp":
		t.Errorf("one: %s", data)
	case last.Outputs["model"].URI != "azureml://datastores/d/paths/made/" || last.Outputs["own"].URI != "azureml://datastores/s/paths/p-last/" || last.Inputs["b"].Value != "7":
		t.Errorf("last: %s", data)
	case j.Spec.Outputs["made"].JobOutputType != "mlflow_model" || j.Spec.Inputs["word"].Value != "hello":
		t.Errorf("parent %+v", j.Spec)
	}
}

func TestWhatIsWrongWithAPipelineIsSaidWithItsPlace(t *testing.T) {
	for change, want := range map[string]string{
		`${{parent.jobs.zero.outputs.out}} > ${{parent.jobs.two.outputs.out}}`:  `jobs.one.inputs.data: there is no step two; there are: last, one, zero`,
		`${{parent.jobs.zero.outputs.out}} > ${{parent.jobs.zero.outputs.oot}}`: `jobs.one.inputs.data: step zero has no output oot; it has: out`,
		`${{parent.jobs.zero.outputs.out}} > ${{parent.jobs.last.outputs.own}}`: `jobs.one.inputs.data: got data of type uri_file, want data of type uri_folder`,
		`"${{parent.inputs.more}}" > "${{parent.jobs.last.outputs.own}}"`:       `steps wait for each other in a circle: last waits for one waits for zero waits for last`,
		`${{parent.inputs.folder}} > ${{parent.inputs.faldor}}`:                 `jobs.zero.inputs.data: the pipeline has no input faldor; it has: folder, more, word`,
		`${{parent.inputs.folder}} > ${{parent.inputs.word}}`:                   `jobs.zero.inputs.data: got a value of type string, want data of type uri_folder`,
		`"say ${{ parent.inputs.word }}!" > "say ${{parent.inputs.folder}}!"`:   `data cannot be a part of a text`,
		`"greeting":"say ${{ parent.inputs.word }}!", > `:                       `jobs.zero.inputs: the input greeting of step zero (string) is given no value`,
		`"times":{"type":"integer","default":2} > "times":{"type":"integer"}`:   `the input times of step zero (integer) is given no value`,
		`"extra":"${{parent.inputs.more}}" > "times":"many"`:                    `jobs.zero.inputs.times: got "many", want a value of type integer`,
		`azureml:copy:1 > azureml:copy:2`:                                       `jobs.one.component: there is no component azureml:copy:2`,
		`"path":"${{parent.outputs.made}}" > "path":null`:                       `outputs.made: no step writes the pipeline's output made`,
		`"type":"command","command":"b" > "type":"sweep"`:                       `jobs.last.type: steps of type "sweep" are not run by this build`,
		`"command":"a" > "type":"pipeline"`:                                     `jobs.zero.component: it is a component of type "pipeline"`,
	} {
		from, to, _ := strings.Cut(change, " > ")
		text := strings.Replace(three, from, to, 1)
		if text == three {
			t.Fatalf("%q changes nothing", change)
		}
		_, problems := Read(json.RawMessage(text), find)
		var said []string
		for _, p := range problems {
			said = append(said, strings.Join(p.Path, ".")+": "+p.Text)
		}
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%s: got %q, want %q", change, said, want)
		}
	}
	p, _ := Read(json.RawMessage(three), find)
	for want, in := range map[string]map[string]*trainyard.JobInput{
		"the pipeline needs an input folder (uri_folder): give it": {},
		"the pipeline has no input dir":                            {"dir": {}},
		"got a value, want data of type uri_folder":                {"folder": {JobInputType: "literal", Value: "x"}},
		"got data of type uri_file, want data of type uri_folder":  {"folder": {JobInputType: "uri_file", URI: "x"}},
	} {
		_, problems := parent(p, in)
		if len(problems) == 0 || !slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(p.Text, want) }) {
			t.Errorf("%v, want %q", problems, want)
		}
	}
}

func TestAComponentOfOneCommandIsAPipelineOfOneStep(t *testing.T) {
	p, problems := Read(json.RawMessage(copied), find)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	j := &trainyard.Job{Name: "p", Spec: trainyard.JobSpec{Inputs: map[string]*trainyard.JobInput{"data": {JobInputType: "uri_folder", URI: "u"}}}}
	if problems := p.Fill(&j.Spec); len(problems) > 0 {
		t.Fatal(problems)
	}
	if s := p.Jobs(j, ""); len(s) != 1 || s[0].Spec.Command != "cp" || s[0].Spec.Inputs["data"].URI != "u" {
		t.Errorf("%+v", s)
	}
}

// TestAnyPipelineEndsWithEveryStepBegunOnceAndInOrder plays pipelines of any shape to their end, with steps that fail.
func TestAnyPipelineEndsWithEveryStepBegunOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "steps")
		j := &trainyard.Job{Name: "p", Plan: trainyard.JobPlan{Pipeline: &trainyard.PipelinePlan{Continue: rapid.Bool().Draw(t, "continue")}}}
		j.Status.State = trainyard.JobPreparing
		for i := range n {
			s := trainyard.PipelineStep{Name: string(rune('a' + i))}
			for k := range i {
				if rapid.Bool().Draw(t, "after") {
					s.After = append(s.After, string(rune('a'+k)))
				}
			}
			j.Plan.Pipeline.Steps = append(j.Plan.Pipeline.Steps, s)
		}
		jobs, failed := make([]*trainyard.Job, n), false
		for range 4 * n {
			next := Decide(j, jobs)
			if next.Why.Message == "" {
				t.Fatal("no reason")
			}
			if next.State.Terminal() {
				all := !slices.Contains(jobs, nil)
				if live := slices.ContainsFunc(jobs, func(j *trainyard.Job) bool { return j != nil && !j.Status.State.Terminal() }); live {
					t.Fatalf("over while steps run: %s", next.Why.Message)
				}
				if failed != (next.State == trainyard.JobFailed) || !failed && !all || failed != (next.Fail != nil) {
					t.Fatalf("%s, failed %v, %v", next.State, failed, next.Why)
				}
				return
			}
			j.Status.State = next.State
			for _, i := range next.Start {
				if jobs[i] != nil {
					t.Fatal("begun twice")
				}
				for _, before := range j.Plan.Pipeline.Steps[i].After {
					if b := jobs[before[0]-'a']; b == nil || b.Status.State != trainyard.JobCompleted {
						t.Fatalf("step %d began before %s had completed", i, before)
					}
				}
				jobs[i] = &trainyard.Job{Name: trainyard.StepJob("p", j.Plan.Pipeline.Steps[i].Name), Status: trainyard.JobStatus{State: trainyard.JobRunning}}
			}
			var live []int
			for i, one := range jobs {
				if one != nil && one.Status.State == trainyard.JobRunning {
					if slices.Contains(next.Stop, one.Name) {
						one.Status.State = trainyard.JobCanceled
						continue
					}
					live = append(live, i)
				}
			}
			if len(live) > 0 {
				one := jobs[rapid.SampledFrom(live).Draw(t, "ends")]
				one.Status.State = trainyard.JobCompleted
				if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
					one.Status.State, failed = trainyard.JobFailed, true
				}
			}
		}
		t.Fatal("it did not end")
	})
}

func TestACanceledPipelineStopsWhatRunsAndStartsNothing(t *testing.T) {
	j := &trainyard.Job{Name: "p", Plan: trainyard.JobPlan{Pipeline: &trainyard.PipelinePlan{Continue: true, Steps: []trainyard.PipelineStep{{Name: "a"}, {Name: "b"}, {Name: "c", After: []string{"a"}}}}}}
	j.Status.State, j.Status.CanceledBy = trainyard.JobCancelRequested, "eve"
	a := &trainyard.Job{Name: "p-a", Status: trainyard.JobStatus{State: trainyard.JobRunning}}
	if n := Decide(j, []*trainyard.Job{a, nil, nil}); len(n.Start) > 0 || !slices.Equal(n.Stop, []string{"p-a"}) || n.State != trainyard.JobCancelRequested {
		t.Errorf("%+v", n)
	}
	a.Status.State = trainyard.JobCanceled
	if n := Decide(j, []*trainyard.Job{a, nil, nil}); n.State != trainyard.JobCanceled || n.Fail.Message != "canceled by eve" {
		t.Errorf("%+v", n)
	}
}

func TestAStepThatCouldNotBeginFailsItsPipeline(t *testing.T) {
	j := &trainyard.Job{Name: "p", Plan: trainyard.JobPlan{Pipeline: &trainyard.PipelinePlan{Steps: []trainyard.PipelineStep{{Name: "a", Refused: "compute x is gone"}, {Name: "b", After: []string{"a"}}}}}}
	j.Status.State = trainyard.JobRunning
	if n := Decide(j, make([]*trainyard.Job, 2)); n.State != trainyard.JobFailed || n.Fail.Message != "step a could not begin: compute x is gone; not run: b" {
		t.Errorf("%+v", n)
	}
}

func TestAPipelineThatIsTooLargeIsRefusedBeforeItIsWorkedOut(t *testing.T) {
	steps := map[string]any{}
	for i := range Most + 1 {
		steps["s"+strconv.Itoa(i)] = map[string]any{"command": "x", "inputs": map[string]any{"a": "${{parent.jobs.s" + strconv.Itoa(i+1) + ".outputs.o}}"}}
	}
	spec, err := json.Marshal(map[string]any{"type": "pipeline", "jobs": steps})
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := Read(spec, nil); len(problems) != 1 || problems[0].Text != "the pipeline has 501 steps, and at most 500 are run" {
		t.Errorf("%d problems, the first %v", len(problems), problems[:min(1, len(problems))])
	}
	bad := map[string]any{}
	for i := range 1000 {
		bad["a"+strconv.Itoa(i)] = "${{parent.jobs.no.outputs.o}}"
	}
	spec, err = json.Marshal(map[string]any{"type": "pipeline", "jobs": map[string]any{"s": map[string]any{"command": "x", "inputs": bad}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := Read(spec, nil); len(problems) != mostProblems {
		t.Errorf("%d problems are told", len(problems))
	}
	long := `{"type":"command","command":"` + strings.Repeat("x", mostRead/4) + `"}`
	large := func(string) (json.RawMessage, error) { return json.RawMessage(long), nil }
	for n, want := range map[int]int{3: 0, 4: 1} {
		steps := map[string]any{}
		for i := range n {
			steps["s"+strconv.Itoa(i)] = map[string]any{"component": "azureml:large:1"}
		}
		if spec, err = json.Marshal(map[string]any{"type": "pipeline", "jobs": steps}); err != nil {
			t.Fatal(err)
		}
		if _, problems := Read(spec, large); len(problems) != want {
			t.Errorf("%d steps with a large component: %d problems", n, len(problems))
		}
	}
}
