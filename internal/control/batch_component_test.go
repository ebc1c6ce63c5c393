package control

import (
	"encoding/json"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestAComponentIsThePipelineThatItsTypeSays(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	for name, spec := range map[string]string{"one": `{"type":"command","command":"true"}`, "two": `{"type":"pipeline","Type":"command","jobs":{"a":{"component":"azureml:one:1"}}}`} {
		r := &trainyard.Resource{Scope: scope, Kind: trainyard.KindComponent, Name: name, Version: "1", Properties: json.RawMessage(`{"componentSpec":` + spec + `}`)}
		if _, _, err := c.PutResource(t.Context(), anAdmin, r); err != nil {
			t.Fatal(err)
		}
	}
	d := &trainyard.BatchDeployment{Scope: scope, Name: "d"}
	d.Spec.Configuration = &trainyard.BatchConfiguration{ComponentID: &trainyard.AssetReference{AssetID: "azureml:two:1"}, Settings: map[string]any{"default_compute": "local"}}
	if err := c.probeComponent(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	j, _, err := c.componentJob(t.Context(), d, &trainyard.BatchInvocation{})
	if err != nil || j.Spec.JobType != "Pipeline" || j.Spec.Tags[trainyard.TagBatchJob] != trainyard.BatchPipelineJob {
		t.Errorf("%+v, %v", j, err)
	}
}
