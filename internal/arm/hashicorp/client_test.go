// Package hashicorp runs HashiCorp's generated client of Azure Machine Learning, which Terraform uses, against the Azure Resource Manager
// door: it takes no other status codes, headers and shapes than Azure's. It is a module of its own, because that client is large and
// drags in much. Set TRAINYARD_URL and TRAINYARD_TOKEN to run it against a server; it makes and deletes things there.
package hashicorp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-azure-helpers/lang/pointer"
	"github.com/hashicorp/go-azure-helpers/lang/response"
	"github.com/hashicorp/go-azure-helpers/resourcemanager/commonids"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/codeversion"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/datastore"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/dataversion"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/environmentcontainer"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/environmentversion"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/job"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/machinelearningcomputes"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/quota"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/virtualmachinesizes"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/workspaces"
	"github.com/hashicorp/go-azure-sdk/sdk/client/resourcemanager"
	"github.com/hashicorp/go-azure-sdk/sdk/environments"
	"golang.org/x/oauth2"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/arm"
	"github.com/trainyard/trainyard/internal/arm/armtest"
	"github.com/trainyard/trainyard/internal/identity"
)

const (
	sub = trainyard.DefaultSubscription
	rg  = trainyard.DefaultResourceGroup
	ws  = trainyard.DefaultWorkspace
)

// bearer authorizes with one token.
type bearer string

func (b bearer) Token(context.Context, *http.Request) (*oauth2.Token, error) {
	return &oauth2.Token{AccessToken: string(b), TokenType: "Bearer"}, nil
}

func (b bearer) AuxiliaryTokens(context.Context, *http.Request) ([]*oauth2.Token, error) {
	return nil, nil
}

// server is the URL of a server and a token for it.
func server(t *testing.T) (string, bearer) {
	if url := os.Getenv("TRAINYARD_URL"); url != "" {
		return url, bearer(os.Getenv("TRAINYARD_TOKEN"))
	}
	kept := memory{}
	id, err := identity.New(identity.Config{Settings: kept})
	if err != nil {
		t.Fatal(err)
	}
	token, err := id.AdminToken(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctl := armtest.New(time.Now)
	ctl.Quick = true
	srv := httptest.NewServer(id.Handler(arm.New(arm.Config{Assets: ctl, Jobs: ctl, Computes: ctl, Places: ctl, Endpoints: ctl, Deployments: ctl, Auth: id.Authenticate, Allow: id.Allow, External: identity.External})))
	t.Cleanup(srv.Close)
	return srv.URL, bearer(token)
}

type memory map[string][]byte

func (m memory) Setting(_ context.Context, key string) ([]byte, error) { return m[key], nil }

func (m memory) PutSetting(_ context.Context, key string, value []byte) error {
	m[key] = value
	return nil
}

// client makes a client of one of the generated packages that talks to the server.
func client[C any](t *testing.T, make func(environments.Api) (C, error), inner func(C) *resourcemanager.Client, url string, token bearer) C {
	t.Helper()
	c, err := make(environments.NewApiEndpoint("trainyard", url, nil))
	if err != nil {
		t.Fatal(err)
	}
	inner(c).Authorizer = token
	return c
}

func ok[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestWorkspacesAndPlaces(t *testing.T) {
	url, token := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client(t, workspaces.NewWorkspacesClientWithBaseURI, func(c *workspaces.WorkspacesClient) *resourcemanager.Client { return c.Client }, url, token)
	id := workspaces.NewWorkspaceID(sub, rg, "hc-ws")
	if err := c.CreateOrUpdateThenPoll(ctx, id, workspaces.Workspace{Location: pointer.To("local"), Properties: &workspaces.WorkspaceProperties{Description: pointer.To("d")}}); err != nil {
		t.Fatal(err)
	}
	got := ok[workspaces.GetOperationResponse](t)(c.Get(ctx, id))
	if p := got.Model.Properties; pointer.From(p.Description) != "d" || pointer.From(p.ProvisioningState) != "Succeeded" || pointer.From(p.DiscoveryURL) == "" || got.Model.SystemData == nil {
		t.Errorf("%+v", p)
	}
	if err := c.UpdateThenPoll(ctx, id, workspaces.WorkspaceUpdateParameters{Tags: &map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	if l := ok[workspaces.ListBySubscriptionCompleteResult](t)(c.ListBySubscriptionComplete(ctx, commonids.NewSubscriptionID(sub), workspaces.ListBySubscriptionOperationOptions{})); len(l.Items) < 2 {
		t.Errorf("%d workspaces", len(l.Items))
	}
	ok[workspaces.ListKeysOperationResponse](t)(c.ListKeys(ctx, id))
	if err := c.DeleteThenPoll(ctx, id, workspaces.DefaultDeleteOperationOptions()); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get(ctx, id); err == nil || !response.WasNotFound(r.HttpResponse) {
		t.Errorf("after the delete: %v", err)
	}
	if _, err := c.Diagnose(ctx, id, workspaces.DiagnoseWorkspaceParameters{}); err == nil || !strings.Contains(err.Error(), "workspaces/Diagnose") {
		t.Errorf("an operation that is not built: %v", err)
	}
	sizes := client(t, virtualmachinesizes.NewVirtualMachineSizesClientWithBaseURI, func(c *virtualmachinesizes.VirtualMachineSizesClient) *resourcemanager.Client { return c.Client }, url, token)
	if l := ok[virtualmachinesizes.ListOperationResponse](t)(sizes.List(ctx, virtualmachinesizes.NewLocationID(sub, "local"))); len(pointer.From(l.Model.Value)) == 0 || pointer.From((*l.Model.Value)[0].VCPUs) == 0 {
		t.Errorf("%+v", l.Model)
	}
	quotas := client(t, quota.NewQuotaClientWithBaseURI, func(c *quota.QuotaClient) *resourcemanager.Client { return c.Client }, url, token)
	if l := ok[quota.ListCompleteResult](t)(quotas.ListComplete(ctx, quota.NewLocationID(sub, "local"))); len(l.Items) == 0 {
		t.Error("no quotas")
	}
}

func TestComputes(t *testing.T) {
	url, token := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client(t, machinelearningcomputes.NewMachineLearningComputesClientWithBaseURI, func(c *machinelearningcomputes.MachineLearningComputesClient) *resourcemanager.Client {
		return c.Client
	}, url, token)
	id := machinelearningcomputes.NewComputeID(sub, rg, ws, "hc-cluster")
	in := machinelearningcomputes.ComputeResource{Location: pointer.To("local"), Properties: machinelearningcomputes.AmlCompute{
		Properties: &machinelearningcomputes.AmlComputeProperties{VMSize: pointer.To("Standard_DS3_v2"), VMPriority: pointer.To(machinelearningcomputes.VMPriorityDedicated),
			ScaleSettings: &machinelearningcomputes.ScaleSettings{MinNodeCount: pointer.To(int64(0)), MaxNodeCount: 2, NodeIdleTimeBeforeScaleDown: pointer.To("PT2M")}}}}
	if err := c.ComputeCreateOrUpdateThenPoll(ctx, id, in); err != nil {
		t.Fatal(err)
	}
	got := ok[machinelearningcomputes.ComputeGetOperationResponse](t)(c.ComputeGet(ctx, id))
	aml, isAml := got.Model.Properties.(machinelearningcomputes.AmlCompute)
	if !isAml || pointer.From(aml.ProvisioningState) != machinelearningcomputes.ProvisioningStateSucceeded || aml.Properties.ScaleSettings.MaxNodeCount != 2 ||
		pointer.From(aml.Properties.AllocationState) == "" || aml.Properties.NodeStateCounts == nil {
		t.Fatalf("%+v", got.Model.Properties)
	}
	if err := c.ComputeUpdateThenPoll(ctx, id, machinelearningcomputes.ClusterUpdateParameters{Properties: &machinelearningcomputes.ClusterUpdateProperties{
		Properties: &machinelearningcomputes.ScaleSettingsInformation{ScaleSettings: &machinelearningcomputes.ScaleSettings{MaxNodeCount: 3}}}}); err != nil {
		t.Fatal(err)
	}
	for name, act := range map[string]func() error{
		"stop":    func() error { return c.ComputeStopThenPoll(ctx, id) },
		"start":   func() error { return c.ComputeStartThenPoll(ctx, id) },
		"restart": func() error { return c.ComputeRestartThenPoll(ctx, id) },
	} {
		if err := act(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if l := ok[machinelearningcomputes.ComputeListCompleteResult](t)(c.ComputeListComplete(ctx, machinelearningcomputes.NewWorkspaceID(sub, rg, ws), machinelearningcomputes.ComputeListOperationOptions{})); len(l.Items) == 0 {
		t.Error("no computes")
	}
	ok[machinelearningcomputes.ComputeListNodesCompleteResult](t)(c.ComputeListNodesComplete(ctx, id))
	ok[machinelearningcomputes.ComputeListKeysOperationResponse](t)(c.ComputeListKeys(ctx, id))
	action := machinelearningcomputes.UnderlyingResourceActionDelete
	if err := c.ComputeDeleteThenPoll(ctx, id, machinelearningcomputes.ComputeDeleteOperationOptions{UnderlyingResourceAction: &action}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.ComputeGet(ctx, id); err == nil || !response.WasNotFound(r.HttpResponse) {
		t.Errorf("after the delete: %v", err)
	}
}

func TestJobs(t *testing.T) {
	url, token := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client(t, job.NewJobClientWithBaseURI, func(c *job.JobClient) *resourcemanager.Client { return c.Client }, url, token)
	id := job.NewJobID(sub, rg, ws, "hc-job-"+time.Now().Format("150405"))
	in := job.JobBaseResource{Properties: job.CommandJob{
		Command: "sleep 60", ComputeId: pointer.To("/subscriptions/" + sub + "/resourceGroups/" + rg + "/providers/Microsoft.MachineLearningServices/workspaces/" + ws + "/computes/local"),
		Inputs:  &map[string]job.JobInput{"lr": job.LiteralJobInput{Value: "0.1"}},
		Outputs: &map[string]job.JobOutput{"o": job.UriFolderJobOutput{}},
		Limits:  job.CommandJobLimits{Timeout: pointer.To("PT1H")},
		Tags:    &map[string]string{"team": "ml"},
	}}
	if got := ok[job.CreateOrUpdateOperationResponse](t)(c.CreateOrUpdate(ctx, id, in)); got.HttpResponse.StatusCode != http.StatusCreated {
		t.Errorf("new: %d", got.HttpResponse.StatusCode)
	}
	if got := ok[job.CreateOrUpdateOperationResponse](t)(c.CreateOrUpdate(ctx, id, in)); got.HttpResponse.StatusCode != http.StatusOK {
		t.Errorf("again: %d", got.HttpResponse.StatusCode)
	}
	got := ok[job.GetOperationResponse](t)(c.Get(ctx, id))
	cmd, isCommand := got.Model.Properties.(job.CommandJob)
	if !isCommand || pointer.From(cmd.Status) == "" || pointer.From(cmd.Services)["Studio"].Endpoint == nil || len(pointer.From(cmd.Inputs)) != 1 {
		t.Fatalf("%+v", got.Model.Properties)
	}
	if o, isFolder := pointer.From(cmd.Outputs)["o"].(job.UriFolderJobOutput); !isFolder || pointer.From(o.Uri) == "" {
		t.Errorf("output %+v", pointer.From(cmd.Outputs)["o"])
	}
	if l := ok[job.ListCompleteResult](t)(c.ListComplete(ctx, job.NewWorkspaceID(sub, rg, ws), job.ListOperationOptions{JobType: pointer.To("Command"), Tag: pointer.To("team=ml")})); len(l.Items) == 0 {
		t.Error("the list lacks the job")
	}
	if err := c.CancelThenPoll(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteThenPoll(ctx, id); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get(ctx, id); err == nil || !response.WasNotFound(r.HttpResponse) {
		t.Errorf("after the delete: %v", err)
	}
}

func TestAssets(t *testing.T) {
	url, token := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	envs := client(t, environmentversion.NewEnvironmentVersionClientWithBaseURI, func(c *environmentversion.EnvironmentVersionClient) *resourcemanager.Client { return c.Client }, url, token)
	id := environmentversion.NewEnvironmentVersionID(sub, rg, ws, "hc-env", "1")
	ok[environmentversion.CreateOrUpdateOperationResponse](t)(envs.CreateOrUpdate(ctx, id, environmentversion.EnvironmentVersionResource{Properties: environmentversion.EnvironmentVersion{Image: pointer.To("python:3.11")}}))
	if got := ok[environmentversion.GetOperationResponse](t)(envs.Get(ctx, id)); pointer.From(got.Model.Properties.Image) != "python:3.11" || pointer.From(got.Model.Properties.ProvisioningState) != environmentversion.AssetProvisioningStateSucceeded {
		t.Errorf("%+v", got.Model.Properties)
	}
	containers := client(t, environmentcontainer.NewEnvironmentContainerClientWithBaseURI, func(c *environmentcontainer.EnvironmentContainerClient) *resourcemanager.Client { return c.Client }, url, token)
	if got := ok[environmentcontainer.GetOperationResponse](t)(containers.Get(ctx, environmentcontainer.NewEnvironmentID(sub, rg, ws, "hc-env"))); pointer.From(got.Model.Properties.LatestVersion) != "1" || pointer.From(got.Model.Properties.NextVersion) != "2" {
		t.Errorf("%+v", got.Model.Properties)
	}
	ok[environmentversion.DeleteOperationResponse](t)(envs.Delete(ctx, id))

	data := client(t, dataversion.NewDataVersionClientWithBaseURI, func(c *dataversion.DataVersionClient) *resourcemanager.Client { return c.Client }, url, token)
	did := dataversion.NewDataVersionID(sub, rg, ws, "hc-data", "1")
	ok[dataversion.CreateOrUpdateOperationResponse](t)(data.CreateOrUpdate(ctx, did, dataversion.DataVersionBaseResource{Properties: dataversion.UriFileDataVersion{DataUri: "azureml://datastores/workspaceblobstore/paths/a.csv"}}))
	if got := ok[dataversion.GetOperationResponse](t)(data.Get(ctx, did)); got.Model == nil {
		t.Error("no data version")
	} else if _, isFile := got.Model.Properties.(dataversion.UriFileDataVersion); !isFile {
		t.Errorf("%T", got.Model.Properties)
	}
	ok[dataversion.DeleteOperationResponse](t)(data.Delete(ctx, did))

	codes := client(t, codeversion.NewCodeVersionClientWithBaseURI, func(c *codeversion.CodeVersionClient) *resourcemanager.Client { return c.Client }, url, token)
	up := ok[codeversion.CreateOrGetStartPendingUploadOperationResponse](t)(codes.CreateOrGetStartPendingUpload(ctx, codeversion.NewCodeVersionID(sub, rg, ws, "hc-code", "1"), codeversion.PendingUploadRequestDto{}))
	if sas, isSAS := up.Model.BlobReferenceForConsumption.Credential.(codeversion.SASCredentialDto); !isSAS || pointer.From(sas.SasUri) == "" {
		t.Errorf("%+v", up.Model.BlobReferenceForConsumption)
	}

	stores := client(t, datastore.NewDatastoreClientWithBaseURI, func(c *datastore.DatastoreClient) *resourcemanager.Client { return c.Client }, url, token)
	l := ok[datastore.ListCompleteResult](t)(stores.ListComplete(ctx, datastore.NewWorkspaceID(sub, rg, ws), datastore.ListOperationOptions{IsDefault: pointer.To(true), Count: pointer.To(int64(30))}))
	if len(l.Items) != 1 {
		t.Fatalf("%d default datastores", len(l.Items))
	}
	if _, isBlob := l.Items[0].Properties.(datastore.AzureBlobDatastore); !isBlob {
		t.Errorf("%T", l.Items[0].Properties)
	}
	secrets := ok[datastore.ListSecretsOperationResponse](t)(stores.ListSecrets(ctx, datastore.NewDataStoreID(sub, rg, ws, trainyard.BlobDatastore)))
	if _, isSAS := secrets.Model.(datastore.SasDatastoreSecrets); !isSAS {
		t.Errorf("%T", secrets.Model)
	}
}
