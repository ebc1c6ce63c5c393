package arm

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// deploymentWritten are members of a deployment's properties that only the server writes. Clients that read, change and write one send
// them back.
var deploymentWritten = []string{"replicas", "reason", "warnings", "wanted", "wantedReason", "generation", "peakMemoryMB", "outOfMemory"}

// deploymentSKU is where ARM keeps how many instances there are.
type deploymentSKU struct {
	Name     string `json:"name"`
	Capacity *int   `json:"capacity"`
}

// instancesOf reads an sku; otherwise is what one that does not say means.
func instancesOf(sku json.RawMessage, otherwise int) (int, error) {
	var s deploymentSKU
	if !isNull(sku) && json.Unmarshal(sku, &s) != nil {
		return 0, trainyard.Invalid("sku is not {\"name\": \"Default\", \"capacity\": NUMBER}")
	}
	if s.Capacity == nil {
		return otherwise, nil
	}
	if *s.Capacity < 0 {
		return 0, trainyard.Invalid("sku.capacity is %d: it is the number of instances, and at least 0", *s.Capacity)
	}
	return *s.Capacity, nil
}

// deployment is the deployment's name in the path.
func (c *call) deployment() string { return c.segment(5) }

func (d *door) putDeployment(c *call, kind trainyard.Kind) (reply, error) {
	var in struct {
		written
		Kind       string                    `json:"kind"`
		Properties *trainyard.DeploymentSpec `json:"properties"` // hides written's
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	if in.Properties == nil || in.Properties.EndpointComputeType == "" {
		return reply{}, trainyard.Invalid("the body of deployment %q has no properties.endpointComputeType; %s are known", c.deployment(),
			strings.Join(trainyard.ServeTypes, ", "))
	}
	n, err := instancesOf(in.Sku, 1)
	if err != nil {
		return reply{}, err
	}
	in.Properties.ProvisioningState = ""
	return d.saveDeployment(c, kind, &trainyard.OnlineDeployment{Scope: c.scope(), Endpoint: c.name(), Name: c.deployment(), Location: in.Location,
		Kind: in.Kind, Tags: in.Tags, Identity: nonNull(in.Identity), Instances: n, Spec: *in.Properties})
}

// patchDeployment merges: Azure's own PATCH changes sku.capacity and tags only, ours any field that may change.
func (d *door) patchDeployment(c *call, kind trainyard.Kind) (reply, error) {
	var patch written
	if err := c.read(&patch); err != nil {
		return reply{}, err
	}
	return again(func() (reply, error) { return d.patchDeploymentOnce(c, kind, &patch) })
}

func (d *door) patchDeploymentOnce(c *call, kind trainyard.Kind, patch *written) (reply, error) {
	old, err := d.Deployments.Deployment(c.Context(), c.scope(), c.name(), c.deployment())
	if err != nil {
		return reply{}, err
	}
	spec, err := patched(old.Spec, patch.Properties)
	if err != nil {
		return reply{}, err
	}
	dep := *old
	dep.Spec = *spec
	if dep.Instances, err = instancesOf(patch.Sku, old.Instances); err != nil {
		return reply{}, err
	}
	if patch.Tags != nil {
		dep.Tags = patch.Tags
	}
	if !isNull(patch.Identity) {
		dep.Identity = patch.Identity
	}
	a, err := d.saveDeployment(c, kind, &dep)
	a.status = http.StatusOK
	return a, err
}

func (d *door) saveDeployment(c *call, kind trainyard.Kind, dep *trainyard.OnlineDeployment) (reply, error) {
	cleanDeployment(&dep.Spec)
	got, created, err := d.Deployments.PutDeployment(c.Context(), c.who, dep)
	if err != nil {
		return reply{}, err
	}
	body, err := d.deploymentBody(got)
	a := saved(created, body)
	a.op = d.begin(c, "deploy", kind, got.Endpoint+"/"+got.Name)
	return a, err
}

// cleanDeployment gives enumerations their spelling, and drops what only the server writes.
func cleanDeployment(s *trainyard.DeploymentSpec) {
	s.EndpointComputeType = canon(s.EndpointComputeType, trainyard.ServeTypes...)
	s.EgressPublicNetworkAccess = canon(s.EgressPublicNetworkAccess, "Enabled", "Disabled")
	s.Extra = cleanExtra(s.Extra, deploymentWritten)
	if scale := s.ScaleSettings; scale != nil {
		scale.ScaleType = cmp.Or(canon(scale.ScaleType, "Default", "TargetUtilization"), "Default")
		scale.Metric = fold(scale.Metric)
	}
	if dc := s.DataCollector; dc != nil {
		dc.RollingRate = canon(dc.RollingRate, "Year", "Month", "Day", "Hour", "Minute")
		for name, one := range dc.Collections {
			one.DataCollectionMode = canon(one.DataCollectionMode, "Enabled", "Disabled")
			dc.Collections[name] = one
		}
	}
}

func (d *door) getDeployment(c *call, _ trainyard.Kind) (reply, error) {
	dep, err := d.Deployments.Deployment(c.Context(), c.scope(), c.name(), c.deployment())
	if err != nil {
		return reply{}, err
	}
	body, err := d.deploymentBody(dep)
	if err != nil {
		return reply{}, err
	}
	return ok(body)
}

func (d *door) listDeployments(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Deployments.Deployments(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	if oldestFirst(c.URL.Query()) {
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b *trainyard.OnlineDeployment) int { return a.Created.Compare(b.Created) })
	}
	return listPage(c, list, d.deploymentBody)
}

func (d *door) deleteDeployment(c *call, kind trainyard.Kind) (reply, error) {
	a, err := deleted(d.Deployments.DeleteDeployment(c.Context(), c.who, c.scope(), c.name(), c.deployment()))
	if err != nil || a.status != http.StatusOK {
		return a, err
	}
	if _, err := d.Deployments.Deployment(c.Context(), c.scope(), c.name(), c.deployment()); err == nil { // its replicas have to go first
		a = reply{status: http.StatusAccepted, op: d.begin(c, "delete", kind, c.name()+"/"+c.deployment())}
	}
	return a, nil
}

// deploymentLogs reads the end of what replicas said. Azure's containers are the one that loads the model and the one that serves.
func (d *door) deploymentLogs(c *call, _ trainyard.Kind) (reply, error) {
	var in struct {
		Container string `json:"containerType"`
		Tail      int    `json:"tail"`
	}
	if c.ContentLength != 0 {
		if err := c.read(&in); err != nil {
			return reply{}, err
		}
	}
	if in.Tail < 0 {
		return reply{}, trainyard.Invalid("tail is %d: it is a number of lines, and at least 0", in.Tail)
	}
	container := canon(in.Container, "InferenceServer", "StorageInitializer", "ModelDataCollector")
	text, err := d.Deployments.DeploymentLogs(c.Context(), c.scope(), c.name(), c.deployment(), in.Tail, container)
	if err != nil {
		return reply{}, err
	}
	return ok(map[string]string{"content": text})
}

// mostInstances is how many instances Azure allows a deployment; here the location or the compute says how many fit.
const mostInstances = 50

func (d *door) deploymentSKUs(c *call, _ trainyard.Kind) (reply, error) {
	dep, err := d.Deployments.Deployment(c.Context(), c.scope(), c.name(), c.deployment())
	if err != nil {
		return reply{}, err
	}
	scale, least, most := "Manual", 0, mostInstances
	if s := dep.Spec.ScaleSettings; s != nil && s.ScaleType != "Default" {
		scale = "Automatic"
		if s.MinInstances != nil {
			least = *s.MinInstances
		}
		if s.MaxInstances != nil {
			most = *s.MaxInstances
		}
	}
	item := map[string]any{"resourceType": trainyard.Provider + "/workspaces/onlineEndpoints/deployments", "sku": map[string]string{"name": "Default"},
		"capacity": map[string]any{"default": 1, "minimum": least, "maximum": most, "scaleType": scale}}
	return pageOf(c, []map[string]any{item}, "")
}

// deploymentBody is a deployment as clients read it, with what we know besides: its replicas, why it is as it is, and what to look at.
func (d *door) deploymentBody(dep *trainyard.OnlineDeployment) (envelope, error) {
	props, err := objectOf(dep.Spec)
	if err != nil {
		return envelope{}, err
	}
	props.dropNulls()
	props.fill("environmentVariables", map[string]string{})
	props.fill("properties", map[string]string{})
	props.fill("scaleSettings", map[string]string{"scaleType": "Default"}) // without a discriminator clients fall over
	props.set("provisioningState", deploymentState(dep))
	st := dep.Status
	props.set("replicas", listOf(st.Replicas))
	props.set("reason", st.Reason)
	props.set("warnings", listOf(st.Warnings))
	props.set("wanted", st.Wanted)
	props.set("wantedReason", st.WantedWhy)
	props.set("generation", st.Generation)
	props.set("peakMemoryMB", st.PeakMB) // of one replica
	props.set("outOfMemory", st.OOMKills)
	sku, err := json.Marshal(map[string]any{"name": "Default", "capacity": dep.Instances})
	if err != nil {
		return envelope{}, err
	}
	return envelope{ID: dep.ID(), Name: dep.Name, Type: trainyard.Provider + "/workspaces/onlineEndpoints/deployments", Kind: dep.Kind,
		Location: dep.Location, Tags: tagsOf(dep.Tags), Identity: dep.Identity, Sku: sku,
		SystemData: newSystemData(dep.Created, dep.Modified, dep.CreatedBy, ""), Properties: props}, nil
}

func deploymentState(dep *trainyard.OnlineDeployment) string {
	return cmp.Or(string(dep.Status.State), dep.Spec.ProvisioningState, succeeded)
}

// deploymentProgress is that of an operation on a deployment: its own state says how it goes.
func (d *door) deploymentProgress(c *call, o *operation) (string, *trainyard.Error, any, error) {
	endpoint, name, _ := strings.Cut(o.Name, "/")
	dep, err := d.Deployments.Deployment(c.Context(), o.Scope, endpoint, name)
	if trainyard.IsNotFound(err) && o.Action == "deploy" {
		return canceled, trainyard.Conflict("deployment %q of endpoint %q was deleted before it was ready", name, endpoint), nil, nil
	}
	if err != nil {
		return gone(err)
	}
	body, err := d.deploymentBody(dep)
	if err != nil {
		return "", nil, nil, err
	}
	why := dep.Status.Reason
	switch state := trainyard.DeploymentState(deploymentState(dep)); {
	case o.Action == "delete" && !o.after(dep.Created):
		return inProgress, nil, body, nil
	case o.Action == "delete" || state.Done() && state != trainyard.DeploymentFailed:
		return succeeded, nil, body, nil
	case state == trainyard.DeploymentFailed:
		code := trainyard.ErrorCode(cmp.Or(why.Code, "DeploymentFailed"))
		return failed, &trainyard.Error{Code: code, Target: name,
			Message: cmp.Or(why.Message, "deployment \""+name+"\" failed, and nothing says why")}, body, nil
	case state == trainyard.DeploymentDeleting:
		return canceled, trainyard.Conflict("deployment %q of endpoint %q is being deleted", name, endpoint), body, nil
	}
	return inProgress, nil, body, nil
}
