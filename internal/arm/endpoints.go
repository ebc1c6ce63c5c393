package arm

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// endpointRoutes are those of online endpoints and their deployments. Keys and tokens are secrets.
func endpointRoutes() []route {
	const read, write, del, act, secrets = identity.Read, identity.Write, identity.Delete, identity.Act, identity.Secrets
	const e, ds = trainyard.KindOnlineEndpoint, trainyard.KindOnlineDeployment
	const at = inGroup + "/onlineEndpoints/*"
	return []route{
		{"GET", inGroup + "/onlineEndpoints", read, e, (*door).listEndpoints},
		{"PUT", at, write, e, (*door).putEndpoint},
		{"GET", at, read, e, (*door).getEndpoint},
		{"PATCH", at, write, e, (*door).patchEndpoint},
		{"DELETE", at, del, e, (*door).deleteEndpoint},
		{"POST", at + "/listKeys", secrets, e, (*door).endpointKeys},
		{"POST", at + "/regenerateKeys", act, e, (*door).regenerateKeys},
		{"POST", at + "/token", secrets, e, (*door).endpointToken},
		{"GET", at + "/deployments", read, ds, (*door).listDeployments},
		{"PUT", at + "/deployments/*", write, ds, (*door).putDeployment},
		{"GET", at + "/deployments/*", read, ds, (*door).getDeployment},
		{"PATCH", at + "/deployments/*", write, ds, (*door).patchDeployment},
		{"DELETE", at + "/deployments/*", del, ds, (*door).deleteDeployment},
		{"POST", at + "/deployments/*/getLogs", read, ds, (*door).deploymentLogs},
		{"GET", at + "/deployments/*/skus", read, ds, (*door).deploymentSKUs},
	}
}

// endpointWritten are members of an endpoint's properties that only the server writes, and its keys, which go another way.
var endpointWritten = []string{"keys"}

func (d *door) putEndpoint(c *call, kind trainyard.Kind) (reply, error) {
	var in struct {
		written
		Kind       string                  `json:"kind"`
		Properties *trainyard.EndpointSpec `json:"properties"` // hides written's
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	if in.Properties == nil {
		return reply{}, trainyard.Invalid("the body of online endpoint %q has no properties; want {\"properties\": {\"authMode\": \"Key\"}}", c.name())
	}
	e := &trainyard.OnlineEndpoint{Scope: c.scope(), Name: c.name(), Location: in.Location, Kind: in.Kind, Tags: in.Tags,
		Identity: nonNull(in.Identity), Spec: *in.Properties}
	keys, err := givenKeys(e.Spec.Extra)
	if err != nil {
		return reply{}, err
	}
	e.Keys = keys
	e.Spec.ScoringURI, e.Spec.SwaggerURI, e.Spec.ProvisioningState = "", "", ""
	return d.saveEndpoint(c, kind, e)
}

// givenKeys are the keys that a client chose for a new endpoint; empty ones are made.
func givenKeys(extra trainyard.Extra) (keys trainyard.EndpointKeys, err error) {
	if isNull(extra["keys"]) {
		return keys, nil
	}
	if json.Unmarshal(extra["keys"], &keys) != nil {
		return keys, trainyard.Invalid("properties.keys is not {\"primaryKey\": …, \"secondaryKey\": …}")
	}
	return keys, nil
}

// patchEndpoint merges: Azure's own PATCH changes tags and identity only, ours any field that may change.
func (d *door) patchEndpoint(c *call, kind trainyard.Kind) (reply, error) {
	var patch written
	if err := c.read(&patch); err != nil {
		return reply{}, err
	}
	return again(func() (reply, error) { return d.patchEndpointOnce(c, kind, &patch) })
}

// again does what merges into what is there until nobody else changed that meanwhile, five times at most.
func again(do func() (reply, error)) (reply, error) {
	for n := 1; ; n++ {
		if a, err := do(); !trainyard.IsConflict(err) || n == 5 {
			return a, err
		}
	}
}

func (d *door) patchEndpointOnce(c *call, kind trainyard.Kind, patch *written) (reply, error) {
	old, err := d.Endpoints.Endpoint(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	spec, err := patched(old.Spec, patch.Properties)
	if err != nil {
		return reply{}, err
	}
	if spec.Traffic == nil { // taken away, and not left alone
		spec.Traffic = map[string]int{}
	}
	if spec.MirrorTraffic == nil {
		spec.MirrorTraffic = map[string]int{}
	}
	e := *old
	e.Spec = *spec
	if patch.Tags != nil {
		e.Tags = patch.Tags
	}
	if !isNull(patch.Identity) {
		e.Identity = patch.Identity
	}
	a, err := d.saveEndpoint(c, kind, &e)
	a.status = http.StatusOK
	return a, err
}

func (d *door) saveEndpoint(c *call, kind trainyard.Kind, e *trainyard.OnlineEndpoint) (reply, error) {
	s := &e.Spec
	s.AuthMode = canon(s.AuthMode, trainyard.AuthKey, trainyard.AuthAMLToken, trainyard.AuthAADToken)
	s.PublicNetworkAccess = canon(s.PublicNetworkAccess, "Enabled", "Disabled")
	s.Extra = cleanExtra(s.Extra, endpointWritten)
	got, created, err := d.Endpoints.PutEndpoint(c.Context(), c.who, e)
	if err != nil {
		return reply{}, err
	}
	body, err := d.endpointBody(got)
	a := saved(created, body)
	a.op = d.begin(c, "create", kind, got.Name)
	return a, err
}

func (d *door) getEndpoint(c *call, _ trainyard.Kind) (reply, error) {
	e, err := d.Endpoints.Endpoint(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	body, err := d.endpointBody(e)
	if err != nil {
		return reply{}, err
	}
	return ok(body)
}

// listEndpoints takes the filters that Azure has: name, tags, properties and computeType.
func (d *door) listEndpoints(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Endpoints.Endpoints(c.Context(), c.scope())
	if err != nil {
		return reply{}, err
	}
	q := c.URL.Query()
	list = slices.DeleteFunc(slices.Clone(list), func(e *trainyard.OnlineEndpoint) bool {
		return q.Get("name") != "" && !strings.EqualFold(q.Get("name"), e.Name) ||
			!hasAll(e.Tags, q.Get("tags")) || !hasAll(e.Spec.Properties, q.Get("properties")) || !ofComputeType(e, q.Get("computeType"))
	})
	return listPage(c, list, d.endpointBody)
}

// ofComputeType says whether an endpoint is of Azure's computeType: one without a compute is Managed.
func ofComputeType(e *trainyard.OnlineEndpoint, want string) bool {
	if want == "" {
		return true
	}
	return (canon(want, trainyard.ServeTypes...) == trainyard.ServeManaged) == (e.Spec.Compute == "")
}

// listPage is a page of a list that is there as a whole: the token of the next page is a place in it.
func listPage[T any](c *call, list []T, body func(T) (envelope, error)) (reply, error) {
	q := c.URL.Query()
	most, err := top(q)
	if err != nil {
		return reply{}, err
	}
	from := 0
	if skip := q.Get("$skip"); skip != "" {
		if from, err = strconv.Atoi(skip); err != nil || from < 0 {
			return reply{}, trainyard.Invalid("$skip is %q, which no nextLink holds", skip)
		}
	}
	list = list[min(from, len(list)):]
	next := ""
	if most = cmp.Or(most, 100); len(list) > most {
		list, next = list[:most], strconv.Itoa(from+most)
	}
	items := make([]envelope, 0, len(list))
	for _, one := range list {
		b, err := body(one)
		if err != nil {
			return reply{}, err
		}
		items = append(items, b)
	}
	return pageOf(c, items, next)
}

func (d *door) deleteEndpoint(c *call, kind trainyard.Kind) (reply, error) {
	a, err := deleted(d.Endpoints.DeleteEndpoint(c.Context(), c.who, c.scope(), c.name()))
	if err != nil || a.status != http.StatusOK {
		return a, err
	}
	if _, err := d.Endpoints.Endpoint(c.Context(), c.scope(), c.name()); err == nil { // its replicas have to go first
		a = reply{status: http.StatusAccepted, op: d.begin(c, "delete", kind, c.name())}
	}
	return a, nil
}

func (d *door) endpointKeys(c *call, _ trainyard.Kind) (reply, error) {
	keys, err := d.Endpoints.EndpointKeys(c.Context(), c.who, c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	return ok(keys)
}

func (d *door) regenerateKeys(c *call, kind trainyard.Kind) (reply, error) {
	var in struct {
		Type  string `json:"keyType"`
		Value string `json:"keyValue"`
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	key := canon(in.Type, "Primary", "Secondary")
	if key != "Primary" && key != "Secondary" {
		return reply{}, trainyard.Invalid("keyType is %q; Primary and Secondary are known", in.Type)
	}
	if in.Value != "" { // the Python SDK sends the key that there is, and means another one
		keys, err := d.Endpoints.EndpointKeys(c.Context(), c.who, c.scope(), c.name())
		if err != nil {
			return reply{}, err
		}
		if old := map[string]string{"Primary": keys.Primary, "Secondary": keys.Secondary}; in.Value == old[key] {
			in.Value = ""
		}
	}
	if err := d.Endpoints.RegenerateKey(c.Context(), c.who, c.scope(), c.name(), key, in.Value); err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusAccepted, op: d.begin(c, "regenerateKeys", kind, c.name())}, nil
}

func (d *door) endpointToken(c *call, _ trainyard.Kind) (reply, error) {
	t, err := d.Endpoints.EndpointToken(c.Context(), c.who, c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	return ok(t)
}

// endpointBody is an endpoint as clients read it. Its keys are not in it.
func (d *door) endpointBody(e *trainyard.OnlineEndpoint) (envelope, error) {
	props, err := objectOf(e.Spec)
	if err != nil {
		return envelope{}, err
	}
	props.dropNulls()
	props.without(endpointWritten...)
	props.fill("traffic", map[string]int{})
	props.fill("mirrorTraffic", map[string]int{})
	props.fill("properties", map[string]string{})
	props.set("provisioningState", endpointState(e))
	return envelope{ID: e.ID(), Name: e.Name, Type: trainyard.Provider + "/workspaces/onlineEndpoints", Kind: e.Kind, Location: e.Location,
		Tags: tagsOf(e.Tags), Identity: e.Identity, SystemData: newSystemData(e.Created, e.Modified, e.CreatedBy, ""), Properties: props}, nil
}

func endpointState(e *trainyard.OnlineEndpoint) string {
	if e.Deleting {
		return "Deleting"
	}
	return cmp.Or(e.Spec.ProvisioningState, succeeded)
}

// endpointProgress is that of an operation on an endpoint.
func (d *door) endpointProgress(c *call, o *operation) (string, *trainyard.Error, any, error) {
	e, err := d.Endpoints.Endpoint(c.Context(), o.Scope, o.Name)
	if err != nil {
		return gone(err)
	}
	body, err := d.endpointBody(e)
	if err != nil {
		return "", nil, nil, err
	}
	switch state := endpointState(e); {
	case o.Action == "delete" && !o.after(e.Created):
		return inProgress, nil, body, nil
	case o.Action == "delete":
	case state == failed:
		return failed, trainyard.Errorf("EndpointFailed", "online endpoint %q could not be provisioned", e.Name), body, nil
	case o.Action == "create" && state != succeeded:
		return inProgress, nil, body, nil
	}
	return succeeded, nil, body, nil
}

// oldestFirst says whether a list is asked for with the oldest first.
func oldestFirst(q url.Values) bool {
	words := strings.Fields(fold(q.Get("$orderBy")))
	return len(words) > 0 && strings.HasPrefix(words[0], "created") && (len(words) == 1 || words[1] == "asc")
}
