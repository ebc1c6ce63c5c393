package agent_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// collects posts rows as azureml-ai-monitoring 1.0.0 does with the requests library, and as somebody who has only found the port; then it
// serves.
const collects = `
import base64, os, urllib.request, urllib.error
known, _, host = os.environ["AZUREML_MDC_HOST"].rpartition("@")
def post(name, body, kind="application/json", known=known):
    url = "http://%s:%s/modeldata/log" % (host, os.environ["AZUREML_MDC_PORT"])
    headers = {"Accept": "*/*", "Content-Type": kind, "trace-id": "t-1", "ce-time": "1700000000", "ce-type": "azureml.inference." + name,
        "ce-collect-data-type": "pandas.core.frame.DataFrame", "ce-agent": "azureml-ai-monitoring/1.0.0", "ce-x-request-id": "r-1", "ce-model-version": "default"}
    if known:
        headers["Authorization"] = "Basic " + base64.b64encode(known.encode()).decode()
    try:
        return urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)).status
    except urllib.error.HTTPError as e:
        return "%d %s" % (e.code, e.read().decode().strip())
print("stranger:", post("model_inputs", '[{"x":3}]', known=""))
print("guess:", post("model_inputs", '[{"x":3}]', known="replica:guess"))
print("empty:", post("model_inputs", '[{"x":3}]', known="replica:"))
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
	for _, want := range []string{"stranger: 401 this data collector takes rows of its own replica alone", "guess: 401 ", "empty: 401 ", "inputs: 200", "off: 200", `nowhere: 404 collection "../nowhere" is not in the deployment's data_collector; there is: Model_Inputs, off`,
		"broken: 400 the rows are not JSON", "long: 413 one collect() can be at most 1000000 bytes"} {
		if !strings.Contains(said, want) {
			t.Errorf("the script did not hear %q: %s", want, said)
		}
	}
	if o.srv.log(o.job.ID, "data_collector/off") != "" {
		t.Error("a collection that is disabled was kept")
	}
	if text := o.srv.log(o.job.ID, "data_collector/Model_Inputs"); strings.Contains(text, `"x":3`) {
		t.Errorf("rows of strangers were kept: %s", text)
	}
	o.until("a warning tells of the strangers", func() bool { return len(o.last().Warnings) > 0 })
	if w := o.last().Warnings; len(w) != 1 || !strings.Contains(w[0], "without its key") {
		t.Errorf("the warnings are %q, want one of the strangers", w)
	}
}

// Rows that an agent has taken are sent by the next one, which the script finds at the same place with the same key.
func TestRowsOutliveAnAgentThatIsKilled(t *testing.T) {
	o := newOffice(t)
	script := o.state + "/collect.py"
	text := collects[:strings.Index(collects, "print(")] + `
import time
for part in "one", "two":
    while not os.path.exists(os.environ["STATE"] + "/" + part):
        time.sleep(0.01)
    print(part + ":", post("rows", '["%s"]' % part), flush=True)
`
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	o.job.Command = "python3 " + script + " & " + o.job.Command
	o.job.Serve.Collects = map[string]float64{"rows": 1}
	said := func(want string) {
		o.until("the script has said "+want, func() bool { return strings.Contains(o.srv.log(o.job.ID, "user_logs/std_log.txt"), want) })
	}
	refuse := func(why error) {
		o.srv.change(func() { o.srv.refuseRows = why })
	}
	refuse(trainyard.Errorf(trainyard.CodeBusy, "not now"))
	first := o.host()
	o.srv.want(o.job)
	o.untilReady()
	o.touch("one")
	said("one: 200")
	first()
	refuse(nil)
	second := o.host()
	defer second()
	o.until("the row has come", func() bool { return o.srv.log(o.job.ID, "data_collector/rows") != "" })
	o.touch("two")
	said("two: 200")
	o.until("the other has come", func() bool { return strings.Contains(o.srv.log(o.job.ID, "data_collector/rows"), `["two"]`) })
	if rows := o.srv.log(o.job.ID, "data_collector/rows"); strings.Count(rows, `["one"]`) != 1 || strings.Count(rows, "\n") != 2 {
		t.Errorf("the rows are %s", rows)
	}
	o.srv.stop(o.job.ID, trainyard.ClassCanceled)
	o.until("it is ended", func() bool { return o.srv.result(o.job.ID) != nil })
}
