package arm

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Members of a compute's properties, and of its properties' properties, that only the server writes.
var (
	computeWritten = []string{"computeLocation", "createdOn", "modifiedOn", "isAttachedCompute", "provisioningState", "provisioningErrors",
		"warnings", "stopped", "reason", "place"}
	clusterWritten = []string{"allocationState", "allocationStateTransitionTime", "currentNodeCount", "targetNodeCount", "nodeStateCounts", "errors"}
)

func (d *door) putCompute(c *call, kind trainyard.Kind) (reply, error) {
	var in struct {
		written
		Properties *trainyard.ComputeSpec `json:"properties"` // hides written's
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	if in.Properties == nil || in.Properties.ComputeType == "" {
		return reply{}, trainyard.Invalid("the body of compute %q has no properties.computeType; %s are known", c.name(), strings.Join(trainyard.KnownComputeTypes, ", "))
	}
	comp := &trainyard.Compute{Scope: c.scope(), Name: c.name(), Location: in.Location, Tags: in.Tags, Identity: nonNull(in.Identity),
		Sku: nonNull(in.Sku), Spec: *in.Properties}
	if comp.Location == "" {
		comp.Location = object(comp.Spec.Extra).text("computeLocation")
	}
	return d.saveCompute(c, kind, comp)
}

// patchCompute merges: Azure's own PATCH changes scale settings only, ours any field that may change.
func (d *door) patchCompute(c *call, kind trainyard.Kind) (reply, error) {
	old, err := d.Computes.Compute(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	var patch written
	if err := c.read(&patch); err != nil {
		return reply{}, err
	}
	spec, err := patched(old.Spec, patch.Properties)
	if err != nil {
		return reply{}, err
	}
	comp := *old
	comp.Spec = *spec
	if patch.Tags != nil {
		comp.Tags = patch.Tags
	}
	if !isNull(patch.Identity) {
		comp.Identity = patch.Identity
	}
	a, err := d.saveCompute(c, kind, &comp)
	a.status = http.StatusOK
	return a, err
}

func (d *door) saveCompute(c *call, kind trainyard.Kind, comp *trainyard.Compute) (reply, error) {
	cleanCompute(comp)
	got, created, err := d.Computes.PutCompute(c.Context(), c.who, comp)
	if err != nil {
		return reply{}, err
	}
	nodes, err := d.Computes.Nodes(c.Context(), got.Scope, got.Name)
	if err != nil && !trainyard.IsNotFound(err) {
		return reply{}, err
	}
	body, err := d.computeBody(got, nodes)
	a := saved(created, body)
	a.op = d.begin(c, "create", kind, got.Name)
	return a, err
}

// cleanCompute gives enumerations their spelling, takes passwords and keys out of what is shown, and drops nulls and what only the
// server writes.
func cleanCompute(comp *trainyard.Compute) {
	s := &comp.Spec
	s.ComputeType = canon(s.ComputeType, trainyard.KnownComputeTypes...)
	p := &s.Properties
	p.VMPriority = canon(p.VMPriority, "Dedicated", "LowPriority")
	p.OSType = canon(p.OSType, "Linux", "Windows")
	p.RemoteLoginPortPublicAccess = canon(p.RemoteLoginPortPublicAccess, "Enabled", "Disabled", "NotSpecified")
	p.Subnet = nonNull(p.Subnet)
	for name := range p.Extra { // another spelling would be read, and not be hidden
		for _, known := range []string{"administratorAccount", "databricksAccessToken", "kubeconfig"} {
			if name != known && strings.EqualFold(name, known) {
				p.Extra[known] = p.Extra[name]
				delete(p.Extra, name)
			}
		}
	}
	secret := object{}
	p.UserAccountCredentials = hide(secret, "userAccountCredentials", nonNull(p.UserAccountCredentials), "adminUserPassword")
	if account, there := p.Extra["administratorAccount"]; there {
		p.Extra["administratorAccount"] = hide(secret, "administratorAccount", account, "password", "privateKeyData")
	}
	for _, name := range []string{"databricksAccessToken", "kubeconfig"} {
		if token, there := p.Extra[name]; there {
			secret[name] = token
			delete(p.Extra, name)
		}
	}
	if len(secret) > 0 {
		if data, err := json.Marshal(secret); err == nil {
			comp.Secret = data
		}
	}
	s.Extra = cleanExtra(s.Extra, computeWritten)
	p.Extra = cleanExtra(p.Extra, clusterWritten)
}

// hide moves the members of an account that nobody may see into secret, under name, and returns the account without them.
func hide(secret object, name string, account json.RawMessage, members ...string) json.RawMessage {
	o, err := newObject(account)
	if err == nil {
		for name := range o {
			for _, known := range members {
				if name != known && strings.EqualFold(name, known) {
					o[known] = o[name]
					delete(o, name)
				}
			}
		}
	}
	if err != nil || !slices.ContainsFunc(members, func(m string) bool { return !isNull(o[m]) }) {
		return account
	}
	hidden := object{}
	for _, m := range members {
		if !isNull(o[m]) {
			hidden[m] = o[m]
		}
	}
	secret.set(name, hidden)
	o.without(members...)
	data, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	return data
}

func (d *door) getCompute(c *call, _ trainyard.Kind) (reply, error) {
	comp, err := d.Computes.Compute(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	nodes, err := d.Computes.Nodes(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	body, err := d.computeBody(comp, nodes)
	if err != nil {
		return reply{}, err
	}
	return ok(body)
}

func (d *door) listComputes(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Computes.Computes(c.Context(), c.scope())
	if err != nil {
		return reply{}, err
	}
	var items []envelope
	for _, comp := range list {
		nodes, err := d.Computes.Nodes(c.Context(), comp.Scope, comp.Name)
		if trainyard.IsNotFound(err) {
			continue // deleted since the list was made
		}
		if err != nil {
			return reply{}, err
		}
		body, err := d.computeBody(comp, nodes)
		if err != nil {
			return reply{}, err
		}
		items = append(items, body)
	}
	return pageOf(c, items, "")
}

// deleteCompute takes our force=true, which cancels jobs first. underlyingResourceAction means nothing for what runs here.
func (d *door) deleteCompute(c *call, kind trainyard.Kind) (reply, error) {
	force := strings.EqualFold(c.URL.Query().Get("force"), "true")
	a, err := deleted(d.Computes.DeleteCompute(c.Context(), c.who, c.scope(), c.name(), force))
	if err != nil || a.status != http.StatusOK {
		return a, err
	}
	if _, err := d.Computes.Compute(c.Context(), c.scope(), c.name()); err == nil { // its nodes have to go first
		a = reply{status: http.StatusAccepted, op: d.begin(c, "delete", kind, c.name())}
	}
	return a, nil
}

// actOnCompute answers 202 always: clients take nothing else for start, stop and restart.
func (d *door) actOnCompute(c *call, kind trainyard.Kind) (reply, error) {
	action := fold(c.segment(4))
	if err := d.Computes.ActOnCompute(c.Context(), c.who, c.scope(), c.name(), action); err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusAccepted, op: d.begin(c, action, kind, c.name())}, nil
}

// computeKeys is the compute's type and what it keeps secret.
func (d *door) computeKeys(c *call, _ trainyard.Kind) (reply, error) {
	comp, err := d.Computes.Compute(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	keys, err := newObject(comp.Secret)
	if err != nil {
		keys = object{}
	}
	keys.set("computeType", comp.Spec.ComputeType)
	return ok(keys)
}

// computeBody is a compute as clients read it, with the counts of its nodes.
func (d *door) computeBody(comp *trainyard.Compute, nodes []trainyard.NodeStatus) (envelope, error) {
	props, err := objectOf(comp.Spec)
	if err != nil {
		return envelope{}, err
	}
	inner, err := newObject(props["properties"])
	if err != nil {
		return envelope{}, err
	}
	props.dropNulls()
	inner.dropNulls()
	addCounts(inner, comp, nodes)
	props.set("properties", inner)
	props.set("computeLocation", comp.Location)
	if comp.Elastic() {
		props.set("place", comp.Where) // ours: the location that its own word for it means here
	}
	props.set("createdOn", stamp(comp.Created))
	props.set("modifiedOn", stamp(comp.Modified))
	props.set("isAttachedCompute", !comp.Elastic() && comp.Spec.ComputeType != trainyard.ComputeLocal)
	props.set("provisioningState", provisioningState(comp))
	props.set("warnings", listOf(comp.Warnings))
	props.set("stopped", comp.Stopped)
	props.set("reason", comp.Why(nodes))
	return envelope{ID: comp.ID(), Name: comp.Name, Type: trainyard.Provider + "/workspaces/computes", Location: comp.Location,
		Tags: tagsOf(comp.Tags), Identity: comp.Identity, Sku: comp.Sku,
		SystemData: newSystemData(comp.Created, comp.Modified, comp.CreatedBy, ""), Properties: props}, nil
}

func provisioningState(comp *trainyard.Compute) string {
	if comp.Deleting {
		return "Deleting"
	}
	return succeeded
}

// addCounts adds what Azure shows of a cluster's nodes. A node that is being created counts as preparing and, as it cannot be used, not
// as current.
func addCounts(inner object, comp *trainyard.Compute, nodes []trainyard.NodeStatus) {
	states := map[trainyard.NodeState]int{}
	for _, n := range nodes {
		states[n.Node.State]++
	}
	there := len(nodes) - states[trainyard.NodeCreating]
	target := comp.Wanted
	if comp.Hosted() {
		target = len(nodes) // it is not scaled
	}
	allocation := "Steady"
	if there != target || states[trainyard.NodeCreating]+states[trainyard.NodeLeaving] > 0 {
		allocation = "Resizing"
	}
	inner.set("allocationState", allocation)
	if t := stamp(comp.Resized); t != nil {
		inner.set("allocationStateTransitionTime", t)
	}
	inner.set("currentNodeCount", there)
	inner.set("targetNodeCount", target)
	inner.set("nodeStateCounts", map[string]int{
		"idleNodeCount":      states[trainyard.NodeIdle],
		"runningNodeCount":   states[trainyard.NodeRunning],
		"preparingNodeCount": states[trainyard.NodePreparing] + states[trainyard.NodeCreating],
		"creatingNodeCount":  states[trainyard.NodeCreating], // ours; those are among the preparing
		"unusableNodeCount":  states[trainyard.NodeUnusable],
		"leavingNodeCount":   states[trainyard.NodeLeaving],
		"preemptedNodeCount": states[trainyard.NodePreempted],
	})
	errs := []map[string]any{}
	for _, text := range comp.Errors {
		errs = append(errs, map[string]any{"error": newErrorBody(&trainyard.Error{Code: "NodeAllocationFailed", Message: text})})
	}
	inner.set("errors", errs)
}

// nodeBody is a node as Azure shows it, and after that what we know besides.
type nodeBody struct {
	ID       string           `json:"nodeId"`
	Private  string           `json:"privateIpAddress"`
	Public   *string          `json:"publicIpAddress"`
	Port     int              `json:"port"`
	Azure    string           `json:"nodeState"` // idle, running, preparing, unusable, leaving, preempted
	Run      *string          `json:"runId"`
	State    string           `json:"state"` // ours: creating as well
	Jobs     []string         `json:"jobs"`
	Reason   trainyard.Reason `json:"reason"`
	Size     string           `json:"vmSize,omitempty"`
	Created  any              `json:"createdAt,omitempty"`
	Joined   any              `json:"joinedAt,omitempty"`
	Seen     any              `json:"lastSeenAt,omitempty"`
	IdleFrom any              `json:"idleSince,omitempty"`
	Engines  []string         `json:"engines"` // of containers: docker; none before its agent has joined
	Notes    []string         `json:"notes"`
}

// listNodes answers under two names: the Python and JavaScript clients read nodes, the Go one value.
func (d *door) listNodes(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Computes.Nodes(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	items := make([]nodeBody, 0, len(list))
	for _, s := range list {
		n := s.Node
		b := nodeBody{ID: string(n.ID), Private: n.Address, Azure: string(n.State), State: string(n.State), Jobs: listOf(s.Jobs), Reason: s.Why(),
			Size: n.Size, Created: stamp(n.Created), Joined: stamp(n.Joined), Seen: stamp(n.Seen), IdleFrom: stamp(n.IdleFrom), Engines: listOf(n.Engines),
			Notes: listOf(n.Notes)}
		if n.State == trainyard.NodeCreating {
			b.Azure = string(trainyard.NodePreparing)
		}
		if len(s.Jobs) > 0 {
			b.Run = &s.Jobs[0]
		}
		items = append(items, b)
	}
	return ok(map[string]any{"nodes": items, "value": items, "nextLink": nil})
}
