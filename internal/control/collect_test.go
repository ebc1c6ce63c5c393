package control

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func collecting(set *trainyard.DataCollector) *trainyard.OnlineDeployment {
	d := &trainyard.OnlineDeployment{Scope: trainyard.DefaultScope(), Endpoint: "wine", Name: "blue"}
	d.Spec.EndpointComputeType, d.Spec.DataCollector = "local", set
	return d
}

func TestWhatADataCollectorCannotBeIsSaid(t *testing.T) {
	c := newControl(t)
	c.newEndpoint(t, "wine")
	one := func(name string, col trainyard.DataCollection) *trainyard.DataCollector {
		return &trainyard.DataCollector{Collections: map[string]trainyard.DataCollection{name: col}}
	}
	to := func(place string) *trainyard.DataCollector {
		return one("inputs", trainyard.DataCollection{DataID: place})
	}
	const other = "azureml://subscriptions/s/resourcegroups/rg/workspaces/theirs/datastores/workspaceblobstore/paths/x"
	j := &trainyard.Job{Scope: trainyard.DefaultScope(), Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local"}}
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); err != nil {
		t.Fatal(err)
	}
	theirs := trainyard.Scope{Subscription: "s", ResourceGroup: "rg", Workspace: "theirs"}
	if _, _, err := c.PutResource(t.Context(), anAdmin, &trainyard.Resource{Scope: theirs, Kind: trainyard.KindWorkspace, Name: "theirs"}); err != nil {
		t.Fatal(err)
	}
	for want, set := range map[string]*trainyard.DataCollector{
		`"../../x" cannot be a collection's name`: one("../../x", trainyard.DataCollection{}),
		"differ in more than capital letters":     {Collections: map[string]trainyard.DataCollection{"inputs": {}, "Inputs": {}}},
		"sampling_rate is 2":                      one("inputs", trainyard.DataCollection{SamplingRate: 2}),
		"which holds the logs and files of jobs":  to("azureml://datastores/workspaceartifactstore/paths/ExperimentRun/dcid.j/user_logs"),
		"is the output of a job":                  to("azureml://jobs/j/outputs/artifacts/paths/logs"),
		"deployments write to their own":          to(other),
		`rolling_rate is "week"`:                  {RollingRate: "week"},
		"Authorization holds keys of callers":     {RequestLogging: &trainyard.RequestLogging{CaptureHeaders: []string{"Authorization"}}},
		`"a b" cannot be the name of a header`:    {RequestLogging: &trainyard.RequestLogging{CaptureHeaders: []string{"a b"}}},
	} {
		if _, _, err := c.PutDeployment(t.Context(), anAdmin, collecting(set)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("says %v, want it to say %q", err, want)
		}
	}
}

func TestWhatAReplicaCollectsItselfIsKeptWhereTheGatewayWouldPutIt(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	d := collecting(&trainyard.DataCollector{Collections: map[string]trainyard.DataCollection{"Inputs": {}, "off": {DataCollectionMode: "Disabled"}, "request": {}}})
	c.served.keepDeployment(d)
	plan := &trainyard.ReplicaPlan{Generation: 1, Spec: trainyard.JobSpec{JobType: "Replica", Command: "true"},
		Plan: trainyard.JobPlan{Compute: trainyard.LocalCompute, Nodes: 1, Processes: 1, Serve: &trainyard.Serve{Endpoint: "wine", Deployment: "blue", Generation: 1}}}
	k := &keeper{c: c, ctx: t.Context(), key: "wine/blue", d: d, now: time.Now()}
	if err := k.start(plan); err != nil {
		t.Fatal(err)
	}
	j := k.live[0].job
	add := func(collection string) error {
		n, err := c.appendLog(t.Context(), j, 0, trainyard.CollectedLog+collection, 0, []byte("{}\n"))
		if err == nil && n != 3 {
			t.Errorf("%d bytes of 3 were taken", n)
		}
		return err
	}
	if err := add("inputs"); err != nil {
		t.Fatal(err)
	}
	if err := add("off"); err != nil { // an older replica may still send it
		t.Error(err)
	}
	for _, name := range []string{"request", "../x", "nosuch"} {
		if err := add(name); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, err := c.Blobs.List(t.Context(), "workspaceblobstore/modelDataCollector/")
	if err != nil || len(all) != 1 || !regexp.MustCompile(`/wine/blue/Inputs/\d{4}/\d\d/\d\d/\d\d/[^/]+\.jsonl$`).MatchString(all[0].Key) {
		t.Fatalf("kept %+v, %v", all, err)
	}
	r, _, err := c.Blobs.Open(t.Context(), all[0].Key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); err != nil || string(data) != "{}\n" {
		t.Errorf("%q, %v", data, err)
	}
	files, err := c.Output.Files(t.Context(), scope, j.Name)
	if err != nil || len(files) != 0 {
		t.Errorf("rows stand among the replica's logs: %+v, %v", files, err)
	}
}
