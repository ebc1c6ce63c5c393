package modelserver

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestCollectionsThatTheScriptFillsGoToItsLog(t *testing.T) {
	plan := func(d *trainyard.DataCollector) Plan {
		p, err := Make(Request{ScoringScript: "score.py", Spec: &trainyard.DeploymentSpec{DataCollector: d}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan(&trainyard.DataCollector{SamplingRate: 0.25, Collections: map[string]trainyard.DataCollection{"model_inputs": {}, "request": {}, "off": {DataCollectionMode: "Disabled"}}})
	if p.Env["AZUREML_MDC_ENABLED"] != "true" || p.Env["AZUREML_MDC_LOCAL_CAPTURE"] != "true" || p.Env["AZUREML_MDC_SAMPLE_RATE"] != "25" {
		t.Errorf("variables %v", p.Env)
	}
	if all := strings.Join(p.Warnings, "\n"); !strings.Contains(all, "(model_inputs) is written to the replica's log") {
		t.Errorf("warnings %q", all)
	}
	for _, d := range []*trainyard.DataCollector{nil, {Collections: map[string]trainyard.DataCollection{"Request": {}, "response": {}}}} {
		if p := plan(d); p.Env["AZUREML_MDC_ENABLED"] != "" {
			t.Errorf("%+v: %v", d, p.Env)
		}
	}
}
