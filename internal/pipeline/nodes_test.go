package pipeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

// What is stored of a pipeline job is another spelling of the same jobs.
func TestNodesAreTheSameStepsInOtherWords(t *testing.T) {
	const more = `"file":{"type":"command","limits":{"timeout":60},"distribution":{"type":"pytorch","process_count_per_instance":2},"compute":"azureml:gpu",
		"component":{"type":"command","command":"c","inputs":{"one":{"type":"uri_file"}},"outputs":{"o":{"type":"uri_file"}}},
		"inputs":{"one":{"type":"uri_file","path":"https://example.com/x","mode":"download"}},"outputs":{"o":{"mode":"upload","name":"kept","version":"3"}}},
		"again":{"command":"d","environment":"e","inputs":{"w":{"value":"${{parent.inputs.word}}"},"f":{"path":"${{parent.inputs.folder}}","mode":"download"},"n":1,"b":true,"o":"${{parent.jobs.file.outputs.o}}"}},
		"zero":`
	spec := strings.Replace(three, `"zero":`, more, 1)
	p, problems := Read(json.RawMessage(spec), find)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal([]byte(spec), &whole); err != nil {
		t.Fatal(err)
	}
	shelf := map[string]json.RawMessage{}
	nodes, err := p.Nodes(whole["jobs"], func(c map[string]any) (string, error) {
		id := fmt.Sprintf("shelf/%d", len(shelf))
		var err error
		shelf[id], err = json.Marshal(c)
		return id, err
	})
	if err != nil || len(shelf) != 4 {
		t.Fatalf("%v, %d components", err, len(shelf))
	}
	for _, want := range []string{`"componentId":"azureml:copy:1"`, `{"job_input_type":"literal","value":"${{parent.jobs.zero.outputs.out}}"}`, `{"type":"literal","value":"${{parent.outputs.made}}"}`,
		`"limits":{"job_limits_type":"Command","timeout":"PT1M"}`, `"distribution_type":"PyTorch"`, `"uri":"https://example.com/x"`, `"computeId":"azureml:gpu"`} {
		if !strings.Contains(string(nodes), want) {
			t.Errorf("no %s in %s", want, nodes)
		}
	}
	whole["jobs"] = nodes
	data, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	again, problems := Read(data, func(ref string) (json.RawMessage, error) {
		if c := shelf[ref]; c != nil {
			return c, nil
		}
		return find(ref)
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	jobs := func(p *Pipeline) []trainyard.PipelineStep {
		j, problems := parent(p, map[string]*trainyard.JobInput{"folder": {JobInputType: "uri_folder", URI: "u"}})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return p.Jobs(j, "cpu")
	}
	if diff := cmp.Diff(jobs(p), jobs(again)); diff != "" {
		t.Errorf("the jobs are others (- before, + after):\n%s", diff)
	}
	// and in these words it stays
	same, err := again.Nodes(nodes, func(map[string]any) (string, error) { return "", fmt.Errorf("a second time") })
	if err != nil || string(same) != string(nodes) {
		t.Errorf("%v\n%s\n%s", err, same, nodes)
	}
}
