package pipeline

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

// aShelf keeps components by their ids.
type aShelf map[string]json.RawMessage

func (s aShelf) Keep(c map[string]any) (string, error) {
	id := fmt.Sprintf("shelf/%d", len(s))
	var err error
	s[id], err = json.Marshal(c)
	return id, err
}

func (s aShelf) ID(kind trainyard.Kind, ref string) (string, error) {
	if name, ok := strings.CutPrefix(ref, "azureml:"); ok {
		return "/" + string(kind) + "/" + name, nil
	}
	return ref, nil
}

// aFullShelf keeps no more.
type aFullShelf struct{ aShelf }

func (aFullShelf) Keep(map[string]any) (string, error) { return "", fmt.Errorf("a second time") }

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
	shelf := aShelf{}
	nodes, err := p.Nodes(whole["jobs"], shelf)
	if err != nil || len(shelf) != 4 {
		t.Fatalf("%v, %d components", err, len(shelf))
	}
	for _, want := range []string{`"componentId":"/components/copy:1"`, `{"job_input_type":"literal","value":"${{parent.jobs.zero.outputs.out}}"}`, `{"type":"literal","value":"${{parent.outputs.made}}"}`,
		`"limits":{"job_limits_type":"Command","timeout":"PT1M"}`, `"distribution_type":"PyTorch"`, `"uri":"https://example.com/x"`, `"computeId":"/computes/gpu"`} {
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
		return find(strings.Replace(ref, "/components/", "azureml:", 1))
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	jobs := func(p *Pipeline) []trainyard.PipelineStep {
		j, problems := parent(p, map[string]*trainyard.JobInput{"folder": {JobInputType: "uri_folder", URI: "u"}})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		all := p.Jobs(j, "cpu")
		for i := range all { // the same compute in other words
			all[i].Spec.ComputeID = path.Base(strings.TrimPrefix(all[i].Spec.ComputeID, "azureml:"))
		}
		return all
	}
	if diff := cmp.Diff(jobs(p), jobs(again)); diff != "" {
		t.Errorf("the jobs are others (- before, + after):\n%s", diff)
	}
	// and in these words it stays
	same, err := again.Nodes(nodes, aFullShelf{shelf})
	if err != nil || string(same) != string(nodes) {
		t.Errorf("%v\n%s\n%s", err, same, nodes)
	}
}
