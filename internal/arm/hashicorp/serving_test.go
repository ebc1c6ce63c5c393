package hashicorp

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-azure-helpers/lang/pointer"
	"github.com/hashicorp/go-azure-helpers/lang/response"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/modelcontainer"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/modelversion"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/onlinedeployment"
	"github.com/hashicorp/go-azure-sdk/resource-manager/machinelearningservices/2025-09-01/onlineendpoint"
	"github.com/hashicorp/go-azure-sdk/sdk/client/resourcemanager"
)

func TestOnlineEndpoints(t *testing.T) {
	url, token := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client(t, onlineendpoint.NewOnlineEndpointClientWithBaseURI, func(c *onlineendpoint.OnlineEndpointClient) *resourcemanager.Client { return c.Client }, url, token)
	id := onlineendpoint.NewOnlineEndpointID(sub, rg, ws, "hc-ep")
	in := onlineendpoint.OnlineEndpointTrackedResource{Location: "local", Properties: onlineendpoint.OnlineEndpoint{
		AuthMode: onlineendpoint.EndpointAuthModeKey, Traffic: &map[string]int64{}, Description: pointer.To("d")}}
	if err := c.CreateOrUpdateThenPoll(ctx, id, in); err != nil {
		t.Fatal(err)
	}
	got := ok[onlineendpoint.GetOperationResponse](t)(c.Get(ctx, id))
	if p := got.Model.Properties; p.AuthMode != onlineendpoint.EndpointAuthModeKey || pointer.From(p.ProvisioningState) != onlineendpoint.EndpointProvisioningStateSucceeded ||
		pointer.From(p.ScoringUri) == "" || p.Keys != nil || pointer.From(p.Description) != "d" {
		t.Errorf("%+v", p)
	}
	if err := c.UpdateThenPoll(ctx, id, onlineendpoint.PartialMinimalTrackedResourceWithIdentity{Tags: &map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	l := ok[onlineendpoint.ListCompleteResult](t)(c.ListComplete(ctx, onlineendpoint.NewWorkspaceID(sub, rg, ws), onlineendpoint.ListOperationOptions{Tags: pointer.To("a=b")}))
	if len(l.Items) != 1 {
		t.Errorf("%d endpoints", len(l.Items))
	}
	before := ok[onlineendpoint.ListKeysOperationResponse](t)(c.ListKeys(ctx, id))
	if err := c.RegenerateKeysThenPoll(ctx, id, onlineendpoint.RegenerateEndpointKeysRequest{KeyType: onlineendpoint.KeyTypeSecondary}); err != nil {
		t.Fatal(err)
	}
	after := ok[onlineendpoint.ListKeysOperationResponse](t)(c.ListKeys(ctx, id))
	if pointer.From(before.Model.PrimaryKey) != pointer.From(after.Model.PrimaryKey) || pointer.From(before.Model.SecondaryKey) == pointer.From(after.Model.SecondaryKey) {
		t.Errorf("keys %+v, then %+v", before.Model, after.Model)
	}
	if tok := ok[onlineendpoint.GetTokenOperationResponse](t)(c.GetToken(ctx, id)); os.Getenv("TRAINYARD_URL") == "" && pointer.From(tok.Model.AccessToken) == "" {
		t.Errorf("%+v", tok.Model)
	}
	if err := c.DeleteThenPoll(ctx, id); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get(ctx, id); err == nil || !response.WasNotFound(r.HttpResponse) {
		t.Errorf("after the delete: %v", err)
	}
}

// Against a server the deployment fails, as nothing is at its model; that is no matter of the door.
func TestOnlineDeployments(t *testing.T) {
	if os.Getenv("TRAINYARD_URL") != "" {
		t.Skip("a deployment that serves needs a model: the program's own tests have one")
	}
	url, token := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eps := client(t, onlineendpoint.NewOnlineEndpointClientWithBaseURI, func(c *onlineendpoint.OnlineEndpointClient) *resourcemanager.Client { return c.Client }, url, token)
	if err := eps.CreateOrUpdateThenPoll(ctx, onlineendpoint.NewOnlineEndpointID(sub, rg, ws, "hc-dep"), onlineendpoint.OnlineEndpointTrackedResource{Location: "local",
		Properties: onlineendpoint.OnlineEndpoint{AuthMode: onlineendpoint.EndpointAuthModeAMLToken}}); err != nil {
		t.Fatal(err)
	}
	c := client(t, onlinedeployment.NewOnlineDeploymentClientWithBaseURI, func(c *onlinedeployment.OnlineDeploymentClient) *resourcemanager.Client { return c.Client }, url, token)
	id := onlinedeployment.NewOnlineEndpointDeploymentID(sub, rg, ws, "hc-dep", "blue")
	in := onlinedeployment.OnlineDeploymentTrackedResource{Location: "local", Sku: &onlinedeployment.Sku{Name: "Default", Capacity: pointer.To(int64(2))},
		Properties: onlinedeployment.ManagedOnlineDeployment{EndpointComputeType: onlinedeployment.EndpointComputeTypeManaged, Model: pointer.To("azureml:m:1"),
			InstanceType: pointer.To("Standard_DS3_v2"), ReadinessProbe: &onlinedeployment.ProbeSettings{Period: pointer.To("PT5S")}}}
	if err := c.CreateOrUpdateThenPoll(ctx, id, in); err != nil {
		t.Fatal(err)
	}
	got := ok[onlinedeployment.GetOperationResponse](t)(c.Get(ctx, id))
	m, isManaged := got.Model.Properties.(onlinedeployment.ManagedOnlineDeployment)
	if !isManaged || pointer.From(m.ProvisioningState) != onlinedeployment.DeploymentProvisioningStateSucceeded || pointer.From(m.Model) != "azureml:m:1" ||
		pointer.From(got.Model.Sku.Capacity) != 2 {
		t.Fatalf("%+v", got.Model)
	}
	if _, isDefault := m.ScaleSettings.(onlinedeployment.DefaultScaleSettings); !isDefault {
		t.Errorf("scale settings %T", m.ScaleSettings)
	}
	if err := c.UpdateThenPoll(ctx, id, onlinedeployment.PartialMinimalTrackedResourceWithSku{Sku: &onlinedeployment.PartialSku{Capacity: pointer.To(int64(3))}}); err != nil {
		t.Fatal(err)
	}
	if l := ok[onlinedeployment.ListCompleteResult](t)(c.ListComplete(ctx, onlinedeployment.NewOnlineEndpointID(sub, rg, ws, "hc-dep"), onlinedeployment.ListOperationOptions{})); len(l.Items) != 1 {
		t.Errorf("%d deployments", len(l.Items))
	}
	logs := ok[onlinedeployment.GetLogsOperationResponse](t)(c.GetLogs(ctx, id, onlinedeployment.DeploymentLogsRequest{Tail: pointer.To(int64(10))}))
	if pointer.From(logs.Model.Content) == "" {
		t.Error("no logs")
	}
	if l := ok[onlinedeployment.ListSkusCompleteResult](t)(c.ListSkusComplete(ctx, id, onlinedeployment.ListSkusOperationOptions{})); len(l.Items) != 1 {
		t.Errorf("%d sizes", len(l.Items))
	}
	if err := c.DeleteThenPoll(ctx, id); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get(ctx, id); err == nil || !response.WasNotFound(r.HttpResponse) {
		t.Errorf("after the delete: %v", err)
	}
}

func TestModels(t *testing.T) {
	url, token := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client(t, modelversion.NewModelVersionClientWithBaseURI, func(c *modelversion.ModelVersionClient) *resourcemanager.Client { return c.Client }, url, token)
	id := modelversion.NewModelVersionID(sub, rg, ws, "hc-model", "1")
	in := modelversion.ModelVersionResource{Properties: modelversion.ModelVersion{ModelType: pointer.To("MLFLOW_MODEL"), Description: pointer.To("of the client"),
		ModelUri: pointer.To("azureml://datastores/workspaceblobstore/paths/m/"), Tags: &map[string]string{"stage": "gold"}}}
	ok[modelversion.CreateOrUpdateOperationResponse](t)(c.CreateOrUpdate(ctx, id, in))
	got := ok[modelversion.GetOperationResponse](t)(c.Get(ctx, id))
	if p := got.Model.Properties; pointer.From(p.ModelType) != "mlflow_model" || p.Flavors == nil || pointer.From(p.ProvisioningState) != modelversion.AssetProvisioningStateSucceeded {
		t.Errorf("%+v", p)
	}
	list := func(o modelversion.ListOperationOptions) int {
		l := ok[modelversion.ListCompleteResult](t)(c.ListComplete(ctx, modelversion.NewModelID(sub, rg, ws, "hc-model"), o))
		return len(l.Items)
	}
	for name, tt := range map[string]struct {
		options modelversion.ListOperationOptions
		want    int
	}{
		"everything":      {modelversion.ListOperationOptions{}, 1},
		"the newest":      {modelversion.ListOperationOptions{OrderBy: pointer.To("createdtime desc"), Top: pointer.To(int64(1))}, 1},
		"a tag":           {modelversion.ListOperationOptions{Tags: pointer.To("stage=gold")}, 1},
		"another tag":     {modelversion.ListOperationOptions{Tags: pointer.To("stage=tin")}, 0},
		"a version":       {modelversion.ListOperationOptions{Version: pointer.To("1")}, 1},
		"another version": {modelversion.ListOperationOptions{Version: pointer.To("2")}, 0},
		"words":           {modelversion.ListOperationOptions{Description: pointer.To("client")}, 1},
		"other words":     {modelversion.ListOperationOptions{Description: pointer.To("server")}, 0},
		"what is hidden":  {modelversion.ListOperationOptions{ListViewType: pointer.To(modelversion.ListViewTypeArchivedOnly)}, 0},
	} {
		if n := list(tt.options); n != tt.want {
			t.Errorf("%s: %d versions, want %d", name, n, tt.want)
		}
	}
	in.Properties.IsArchived = pointer.To(true)
	ok[modelversion.CreateOrUpdateOperationResponse](t)(c.CreateOrUpdate(ctx, id, in))
	if n := list(modelversion.ListOperationOptions{ListViewType: pointer.To(modelversion.ListViewTypeArchivedOnly)}); n != 1 {
		t.Errorf("%d archived versions", n)
	}
	containers := client(t, modelcontainer.NewModelContainerClientWithBaseURI, func(c *modelcontainer.ModelContainerClient) *resourcemanager.Client { return c.Client }, url, token)
	box := ok[modelcontainer.GetOperationResponse](t)(containers.Get(ctx, modelcontainer.NewModelID(sub, rg, ws, "hc-model")))
	if p := box.Model.Properties; pointer.From(p.LatestVersion) != "1" || pointer.From(p.NextVersion) != "2" {
		t.Errorf("%+v", p)
	}
	ok[modelversion.DeleteOperationResponse](t)(c.Delete(ctx, id))
}
