package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

func TestEveryRunRegistersItsModelAnew(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	for _, name := range []string{"first", "second"} {
		j := &trainyard.Job{Scope: scope, Name: name}
		j.Plan.Outputs = map[string]trainyard.TaskOutput{"made": {Type: "mlflow_model", URI: "azureml://datastores/workspaceblobstore/paths/" + name, AssetName: "wine"}}
		if err := c.Store.Update(t.Context(), func(tx *store.Tx) error { return c.registerOutputs(tx, j) }); err != nil || len(j.Status.Warnings) > 0 {
			t.Errorf("%s: %v %q", name, err, j.Status.Warnings)
		}
	}
	if m, err := c.Resource(t.Context(), scope, trainyard.KindModel, "wine", "2"); err != nil || !strings.Contains(string(m.Properties), "paths/second") {
		t.Errorf("the second: %+v, %v", m, err)
	}
}

func TestAnOutputThatCannotBeRegisteredIsRefused(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	for _, name := range []string{strings.Repeat("n", 3000), "a/b", "a b", "-a"} {
		j := &trainyard.Job{Scope: scope, Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local", Outputs: map[string]*trainyard.JobOutput{"made": {AssetName: name}}}}
		if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), "outputs.made: it cannot be registered") {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

func TestTheNamesOfStepsToComeAreTaken(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	p := &trainyard.Job{Scope: scope, Name: "p"}
	p.Plan.Pipeline = &trainyard.PipelinePlan{Steps: []trainyard.PipelineStep{{Name: "b"}}}
	c.pipelines.keep(p)
	reserved := func(j *trainyard.Job) error {
		return c.Store.Update(t.Context(), func(tx *store.Tx) error { return c.pipelines.reserved(tx, j) })
	}
	other := &trainyard.Job{Scope: scope, Name: trainyard.StepJob("p", "b")}
	if err := reserved(other); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), `pipeline "p"`) {
		t.Errorf("a job by the name of a step: %v", err)
	}
	step := *other
	step.Plan.Parent = "p"
	for _, j := range []*trainyard.Job{&step, p, {Scope: scope, Name: "q"}} {
		if err := reserved(j); err != nil {
			t.Errorf("%s: %v", j.Name, err)
		}
	}
	c.pipelines.drop(p)
	if err := reserved(other); err != nil {
		t.Errorf("when the pipeline is over: %v", err)
	}
}

func TestADistributionThatIsNotKnownIsRefused(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	j := &trainyard.Job{Scope: scope, Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local",
		Distribution: &trainyard.Distribution{DistributionType: "Horovod"}}}
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); err == nil || !strings.Contains(err.Error(), "distribution type horovod is not in this build") {
		t.Errorf("submit says %v", err)
	}
}
