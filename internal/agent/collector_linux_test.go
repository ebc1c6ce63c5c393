package agent_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// collects posts rows as azureml-ai-monitoring 1.0.0 does, and then serves.
const collects = `
import os, urllib.request, urllib.error
def post(name, body, kind="application/json"):
    url = "http://%s:%s/modeldata/log" % (os.environ["AZUREML_MDC_HOST"], os.environ["AZUREML_MDC_PORT"])
    headers = {"Accept": "*/*", "Content-Type": kind, "trace-id": "t-1", "ce-time": "1700000000", "ce-type": "azureml.inference." + name,
        "ce-collect-data-type": "pandas.core.frame.DataFrame", "ce-agent": "azureml-ai-monitoring/1.0.0", "ce-x-request-id": "r-1", "ce-model-version": "default"}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)).status
    except urllib.error.HTTPError as e:
        return "%d %s" % (e.code, e.read().decode().strip())
print("inputs:", post("model_inputs", '[{"x":1}]'))
print("off:", post("off", '[{"x":2}]'))
print("nowhere:", post("../nowhere", "[]"))
print("broken:", post("model_inputs", "[{"))
print("long:", post("model_inputs", '"%s"' % ("x" * 1000001)), flush=True)
`

func TestRowsThatAScriptCollectsComeHome(t *testing.T) {
	o := newOffice(t)
	script := o.state + "/collect.py"
	if err := os.WriteFile(script, []byte(collects), 0o644); err != nil {
		t.Fatal(err)
	}
	o.job.Command = "python3 " + script + "; " + o.job.Command
	o.job.Serve.Collects = map[string]float64{"Model_Inputs": 1, "off": 0}
	defer o.begin()()
	o.srv.want(o.job)
	var row struct {
		SpecVersion, ID, Source, Type, DataContentType, ModelVersion, CollectDataType, Agent, CorrelationID, XRequestID, ContentRange string
		Time                                                                                                                          time.Time
		Data                                                                                                                          []map[string]int
	}
	o.until("the row is there", func() bool { return o.srv.log(o.job.ID, "data_collector/Model_Inputs") != "" })
	text := o.srv.log(o.job.ID, "data_collector/Model_Inputs")
	if err := json.Unmarshal([]byte(text), &row); err != nil || !strings.HasSuffix(text, "}\n") {
		t.Fatalf("the row %q: %v", text, err)
	}
	if row.SpecVersion != "1.0" || row.ID != "t-1" || row.Type != "azureml.inference.Model_Inputs" || row.Time.Unix() != 1700000000 || len(row.Data) != 1 || row.Data[0]["x"] != 1 ||
		row.CorrelationID != "r-1" || row.XRequestID != "r-1" || row.ContentRange != "bytes 0-8/9" || row.CollectDataType != "pandas.core.frame.DataFrame" ||
		!strings.HasSuffix(row.Source, "/onlineEndpoints/e/deployments/d") || row.ModelVersion != "default" || row.Agent != "azureml-ai-monitoring/1.0.0" {
		t.Errorf("the row %+v", row)
	}
	o.until("the script has said all", func() bool { return strings.Contains(o.srv.log(o.job.ID, "user_logs/std_log.txt"), "long:") })
	said := o.srv.log(o.job.ID, "user_logs/std_log.txt")
	for _, want := range []string{"inputs: 200", "off: 200", `nowhere: 404 collection "../nowhere" is not in the deployment's data_collector; there is: Model_Inputs, off`,
		"broken: 400 the rows are not JSON", "long: 413 one collect() can be at most 1000000 bytes"} {
		if !strings.Contains(said, want) {
			t.Errorf("the script did not hear %q: %s", want, said)
		}
	}
	if o.srv.log(o.job.ID, "data_collector/off") != "" {
		t.Error("a collection that is disabled was kept")
	}
}
