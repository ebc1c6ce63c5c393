package arm_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/arm"
	"github.com/trainyard/trainyard/internal/arm/armtest"
	"github.com/trainyard/trainyard/internal/identity"
)

// deployments is arm.BatchDeployments under a name that none of its methods has.
type deployments = arm.BatchDeployments

// batch keeps one endpoint and one deployment, and remembers how it was invoked.
type batch struct {
	arm.Batch
	deployments
	endpoint   *trainyard.BatchEndpoint
	deployment *trainyard.BatchDeployment
	asked      *trainyard.BatchInvocation
	made       map[string]bool
}

func (b *batch) PutBatchEndpoint(_ context.Context, _ trainyard.User, e *trainyard.BatchEndpoint) (*trainyard.BatchEndpoint, bool, error) {
	created := b.endpoint == nil
	b.endpoint = e
	return e, created, nil
}

func (b *batch) BatchEndpoint(_ context.Context, _ trainyard.Scope, name string) (*trainyard.BatchEndpoint, error) {
	if b.endpoint == nil || b.endpoint.Name != name {
		return nil, trainyard.NotFound("no endpoint %q", name)
	}
	return b.endpoint, nil
}

func (b *batch) PutBatchDeployment(_ context.Context, _ trainyard.User, d *trainyard.BatchDeployment) (*trainyard.BatchDeployment, bool, error) {
	created := b.deployment == nil
	b.deployment = d
	return d, created, nil
}

func (b *batch) BatchDeployment(_ context.Context, _ trainyard.Scope, _, name string) (*trainyard.BatchDeployment, error) {
	if b.deployment == nil || b.deployment.Name != name {
		return nil, trainyard.NotFound("no deployment %q", name)
	}
	return b.deployment, nil
}

func (b *batch) InvokeBatch(_ context.Context, _ trainyard.User, scope trainyard.Scope, endpoint string, in *trainyard.BatchInvocation) (*trainyard.Job, bool, error) {
	b.asked = in
	created := !b.made[in.Request]
	b.made[in.Request] = true
	return &trainyard.Job{Scope: scope, Name: "batchjob-1", Spec: trainyard.JobSpec{JobType: "Pipeline", Tags: map[string]string{trainyard.TagBatchRun: "true", trainyard.TagBatchEndpoint: endpoint}},
		Status: trainyard.JobStatus{State: trainyard.JobQueued}}, created, nil
}

// batchDoor is the door over b, as one function from a request to its status and body.
func batchDoor(t *testing.T, b *batch) func(method, path, body string, headers ...string) (int, map[string]any, http.Header) {
	t.Helper()
	ctl := armtest.New(time.Now)
	h := arm.New(arm.Config{Assets: ctl, Jobs: ctl, Computes: ctl, Places: ctl, Batch: b, BatchDeployments: b, Allow: identity.Allow, External: identity.External,
		Auth: func(*http.Request) (trainyard.User, error) {
			return trainyard.User{Name: "ann", Role: trainyard.RoleAdmin}, nil
		}})
	return func(method, path, body string, headers ...string) (int, map[string]any, http.Header) {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var got map[string]any
		if w.Body.Len() > 0 {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
			}
		}
		return w.Code, got, w.Header()
	}
}

func TestABatchEndpointIsPutPatchedAndWaitedForAsClientsDo(t *testing.T) {
	b := &batch{made: map[string]bool{}}
	do := batchDoor(t, b)
	at := trainyard.DefaultScope().ID() + "/batchEndpoints/scoring"
	status, got, head := do("PUT", at, `{"location":"local","tags":{"a":"b"},"properties":{"authMode":"aadToken","description":"d","properties":null,"someday":1}}`)
	props := got["properties"].(map[string]any)
	if status != 201 || props["authMode"] != "AADToken" || props["someday"] != 1.0 || props["provisioningState"] != "Succeeded" || !strings.HasSuffix(props["scoringUri"].(string), at+"/jobs") {
		t.Fatalf("%d %v", status, got)
	}
	if defaults, ok := props["defaults"].(map[string]any); !ok || defaults["deploymentName"] != nil {
		t.Errorf("clients set a member of defaults, which are %v", props["defaults"])
	}
	if status, got, _ = do("GET", strings.TrimPrefix(head.Get("Azure-AsyncOperation"), "http://example.com"), ""); status != 200 || got["status"] != "Succeeded" {
		t.Errorf("operation: %d %v", status, got)
	}
	if status, _, _ = do("PATCH", at, `{"properties":{"defaults":{"deploymentName":"blue"}}}`); status != 200 || b.endpoint.Spec.Defaults.DeploymentName != "blue" || b.endpoint.Spec.Description != "d" {
		t.Errorf("patch: %d %+v", status, b.endpoint.Spec)
	}
	status, got, head = do("PUT", at+"/deployments/blue", `{"properties":{"model":{"referenceType":"Id","assetId":"m"},"outputAction":"append_row","loggingLevel":"info","retrySettings":{"maxRetries":0}}}`)
	if status != 201 || b.deployment.Spec.OutputAction != "AppendRow" || b.deployment.Spec.LoggingLevel != "Info" || *b.deployment.Spec.RetrySettings.MaxRetries != 0 || !strings.HasSuffix(got["id"].(string), at+"/deployments/blue") {
		t.Errorf("deployment: %d %v", status, got)
	}
	if status, got, _ = do("GET", strings.TrimPrefix(head.Get("Azure-AsyncOperation"), "http://example.com"), ""); status != 200 || got["status"] != "Succeeded" {
		t.Errorf("operation: %d %v", status, got)
	}
}

func TestAnInvocationIsReadInAllSpellingsAndAnswered201ThenTheSameAgain200(t *testing.T) {
	b := &batch{made: map[string]bool{}}
	do := batchDoor(t, b)
	at := "/mferp/managementfrontend" + trainyard.DefaultScope().ID() + "/batchEndpoints/scoring/jobs"
	body := `{"properties":{"InputData":{"in":{"JobInputType":"UriFolder","Uri":"azureml://datastores/d/paths/p"},"rate":{"JobInputType":"Literal","Value":0.5}},` +
		`"OutputData":{"score":{"JobOutputType":"UriFile","Uri":"azureml://datastores/d/paths/o/x.csv"}},"miniBatchSize":3,"properties":{"experimentName":"exp"},"compute":{"instanceCount":2}}}`
	for _, want := range []int{201, 200} {
		status, got, _ := do("POST", at, body, "repeatability_request-id", "r-1", "azureml-model-deployment", "blue")
		if status != want || got["name"] != "batchjob-1" || got["properties"].(map[string]any)["status"] != "Queued" {
			t.Fatalf("%d %v, want %d", status, got, want)
		}
	}
	in := b.asked
	if in.Request != "r-1" || in.Deployment != "blue" || in.Experiment != "exp" || in.Instances != 2 || in.MiniBatchSize != 3 || in.Inputs["in"].JobInputType != "uri_folder" ||
		in.Inputs["in"].URI != "azureml://datastores/d/paths/p" || in.Inputs["rate"].Value != "0.5" || in.Inputs["rate"].JobInputType != "literal" || in.Outputs["score"].JobOutputType != "uri_file" {
		t.Errorf("read %+v, %+v, %+v", in, in.Inputs["in"], in.Inputs["rate"])
	}
}
