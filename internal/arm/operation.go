package arm

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// operation is a long-running operation. Nothing of it is stored: its id says what was asked for, and how far it is shows on the thing
// it was asked of.
type operation struct {
	Action  string          `json:"a"` // create, deploy, delete, start, stop, restart, cancel, regenerateKeys
	Kind    trainyard.Kind  `json:"k"`
	Scope   trainyard.Scope `json:"s"`
	Name    string          `json:"n"`
	Started int64           `json:"t"` // Unix time in milliseconds
}

func (d *door) begin(c *call, action string, kind trainyard.Kind, name string) *operation {
	return &operation{Action: action, Kind: kind, Scope: c.scope(), Name: name, Started: d.Now().UnixMilli()}
}

// url is absolute, because some clients refuse others.
func (o *operation) url(c *call, kind string) string {
	data, err := json.Marshal(o)
	if err != nil { // strings and numbers always encode
		return ""
	}
	u := c.base() + "/subscriptions/" + url.PathEscape(o.Scope.Subscription) + "/providers/" + trainyard.Provider + "/locations/" +
		trainyard.DefaultLocation + "/" + kind + "/" + base64.RawURLEncoding.EncodeToString(data)
	if v := c.URL.Query().Get("api-version"); v != "" {
		u += "?api-version=" + url.QueryEscape(v)
	}
	return u
}

// operationOf reads the operation that the path names, if the caller may see what it is about.
func (d *door) operationOf(c *call) (*operation, error) {
	var o operation
	data, err := base64.RawURLEncoding.DecodeString(c.name())
	if err != nil || json.Unmarshal(data, &o) != nil || o.Action == "" {
		return nil, trainyard.NotFound("there is no operation %q", c.name())
	}
	if err := d.Allow(c.who, identity.Read, o.Scope, o.Kind, o.Name); err != nil {
		return nil, err
	}
	return &o, nil
}

// The states of an operation, in the words that clients wait for.
const (
	inProgress = "InProgress"
	succeeded  = "Succeeded"
	failed     = "Failed"
	canceled   = "Canceled"
)

// progress looks at the thing that the operation was asked of. body is the thing, nil if it is gone.
func (d *door) progress(c *call, o *operation) (state string, why *trainyard.Error, body any, err error) {
	switch o.Kind {
	case trainyard.KindJob:
		return d.jobProgress(c, o)
	case trainyard.KindCompute:
		return d.computeProgress(c, o)
	case trainyard.KindOnlineEndpoint:
		return d.endpointProgress(c, o)
	case trainyard.KindOnlineDeployment:
		return d.deploymentProgress(c, o)
	case trainyard.KindBatchEndpoint, trainyard.KindBatchDeployment:
		return d.batchProgress(c, o)
	case trainyard.KindWorkspace:
		r, err := d.Assets.Resource(c.Context(), o.Scope, o.Kind, o.Name, "")
		if err != nil {
			return gone(err)
		}
		return succeeded, nil, d.workspaceBody(c, r), nil
	}
	return "", nil, nil, trainyard.NotFound("there is no operation %q", c.name())
}

// gone is the progress of anything that is not there any more: there is nothing left to wait for.
func gone(err error) (string, *trainyard.Error, any, error) {
	if trainyard.IsNotFound(err) {
		return succeeded, nil, nil, nil
	}
	return "", nil, nil, err
}

func (d *door) jobProgress(c *call, o *operation) (string, *trainyard.Error, any, error) {
	j, err := d.Jobs.Job(c.Context(), o.Scope, o.Name)
	if err != nil {
		return gone(err)
	}
	body, err := d.jobBody(c, j)
	if err != nil {
		return "", nil, nil, err
	}
	switch {
	case o.Action == "delete" && !o.after(j.Created):
		return inProgress, nil, body, nil
	case o.Action == "cancel" && !j.Status.State.Terminal() && !o.after(j.Created):
		return inProgress, nil, body, nil
	}
	return succeeded, nil, body, nil
}

// after says whether what has the name now was made after the operation began: then it is another one.
func (o *operation) after(created time.Time) bool { return created.UnixMilli() > o.Started }

func (d *door) computeProgress(c *call, o *operation) (string, *trainyard.Error, any, error) {
	comp, err := d.Computes.Compute(c.Context(), o.Scope, o.Name)
	if err != nil {
		return gone(err)
	}
	nodes, err := d.Computes.Nodes(c.Context(), o.Scope, o.Name)
	if err != nil && !trainyard.IsNotFound(err) {
		return "", nil, nil, err
	}
	body, err := d.computeBody(comp, nodes)
	if err != nil {
		return "", nil, nil, err
	}
	switch {
	case o.after(comp.Created) && o.Action != "create":
	case o.Action == "delete":
		return inProgress, nil, body, nil
	case o.Action == "stop" && !comp.Stopped:
		return canceled, trainyard.Conflict("compute %q was started again before it had stopped", comp.Name), body, nil
	case o.Action == "stop" && comp.Spec.ComputeType != trainyard.ComputeLocal && len(nodes) > 0:
		return inProgress, nil, body, nil
	case (o.Action == "start" || o.Action == "restart") && comp.Stopped:
		return canceled, trainyard.Conflict("compute %q was stopped again before it had started", comp.Name), body, nil
	}
	return succeeded, nil, body, nil
}

// operationStatus is what Azure-AsyncOperation points to.
func (d *door) operationStatus(c *call, _ trainyard.Kind) (reply, error) {
	o, err := d.operationOf(c)
	if err != nil {
		return reply{}, err
	}
	state, why, _, err := d.progress(c, o)
	if err != nil {
		return reply{}, err
	}
	percent := 100
	body := map[string]any{"id": c.URL.Path, "name": c.name(), "status": state, "startTime": stamp(time.UnixMilli(o.Started))}
	switch state {
	case inProgress:
		percent = 50
		c.out.Header().Set("Retry-After", retryAfter)
	default:
		body["endTime"] = stamp(d.Now())
	}
	if why != nil {
		body["error"] = newErrorBody(why)
	}
	body["percentComplete"] = percent
	return ok(body)
}

// operationResult is what Location points to: 202 while it goes on, then the thing itself, or 204 if that is gone.
func (d *door) operationResult(c *call, _ trainyard.Kind) (reply, error) {
	o, err := d.operationOf(c)
	if err != nil {
		return reply{}, err
	}
	state, why, body, err := d.progress(c, o)
	switch {
	case err != nil:
		return reply{}, err
	case why != nil:
		return reply{}, why
	case state == inProgress:
		return reply{status: http.StatusAccepted, at: c.base() + c.URL.RequestURI()}, nil
	case body == nil || o.Action == "delete":
		return reply{status: http.StatusNoContent}, nil
	}
	return ok(body)
}
