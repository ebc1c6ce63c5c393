package modelserver

import (
	"maps"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestCollectionsThatTheScriptFillsAreSwitchedOn(t *testing.T) {
	plan := func(d *trainyard.DataCollector) Plan {
		p, err := Make(Request{ScoringScript: "score.py", Spec: &trainyard.DeploymentSpec{DataCollector: d}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan(&trainyard.DataCollector{SamplingRate: 0.25, Collections: map[string]trainyard.DataCollection{"model_inputs": {}, "rare": {SamplingRate: 0.05},
		"request": {}, "off": {DataCollectionMode: "Disabled"}}})
	if p.Env["AZUREML_MDC_ENABLED"] != "true" || p.Env["AZUREML_MDC_SAMPLE_RATE"] != "25" || p.Env["AZUREML_MDC_LOCAL_CAPTURE"] != "" {
		t.Errorf("variables %v", p.Env)
	}
	// The script sends a quarter of all; of "rare" a fifth of that is kept, which is a twentieth.
	if want := map[string]float64{"model_inputs": 1, "rare": 0.2, "off": 0}; !maps.Equal(p.Serve.Collects, want) {
		t.Errorf("collects %v, want %v", p.Serve.Collects, want)
	}
	for _, d := range []*trainyard.DataCollector{nil, {Collections: map[string]trainyard.DataCollection{"Request": {}, "response": {}, "off": {DataCollectionMode: "Disabled"}}}} {
		if p := plan(d); p.Env["AZUREML_MDC_ENABLED"] != "" || len(p.Serve.Collects) > 0 {
			t.Errorf("%+v: %v, %v", d, p.Env, p.Serve.Collects)
		}
	}
	image, err := Make(Request{Contained: true, Environment: &trainyard.EnvironmentPlan{Name: "own", Image: "own:1"}, InferenceRoutes: &Routes{},
		Spec: &trainyard.DeploymentSpec{DataCollector: &trainyard.DataCollector{Collections: map[string]trainyard.DataCollection{"model_inputs": {}}}}})
	if err != nil || image.Env["AZUREML_MDC_ENABLED"] != "true" || image.Serve.Collects["model_inputs"] != 1 {
		t.Errorf("an image that serves by itself: %v %v, %v", image.Env, image.Serve.Collects, err)
	}
}
