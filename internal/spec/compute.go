package spec

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// What the Python SDK fills in where a compute file says nothing.
const (
	defaultSize         = "Standard_DS3_v2"
	defaultMaxInstances = 4
	defaultIdleSeconds  = 120
)

// Compute is a compute ready to be sent.
type Compute struct {
	Name     string
	Location string // "" if the file has none: the workspace's
	Tags     map[string]string
	Identity json.RawMessage
	Spec     trainyard.ComputeSpec
	Warnings []string
}

// computeTypeOf is ARM's name for the type of each kind of compute.
var computeTypeOf = map[Kind]string{Cluster: trainyard.ComputeCluster, VirtualMachine: "VirtualMachine", Kubernetes: "Kubernetes", Slurm: "Slurm"}

// Compute translates a compute.
func (d *Document) Compute(scope trainyard.Scope) (*Compute, error) {
	if computeTypeOf[d.Kind] == "" {
		_, err := d.reader(Cluster)
		return nil, err
	}
	f, err := d.reader(d.Kind)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id", "type", "provisioning_state", "provisioning_errors", "created_on")
	f.need("name")
	c := &Compute{Name: f.name("name"), Location: f.text("location"), Tags: f.texts("tags", false)}
	c.Spec = trainyard.ComputeSpec{ComputeType: computeTypeOf[d.Kind], Description: f.text("description"), DisableLocalAuth: true}
	if d.Kind == Cluster {
		f.silent("resource_id")
		f.cluster(c, scope)
	} else {
		d.attached(f, c)
	}
	c.Identity = f.computeIdentity()
	if err := d.end(f); err != nil {
		return nil, err
	}
	c.Warnings = f.p.notes
	return c, nil
}

// cluster is the part that a cluster has.
func (f *fields) cluster(c *Compute, scope trainyard.Scope) {
	p := &c.Spec.Properties
	p.OSType = "Linux"
	if p.VMSize = f.text("size"); p.VMSize == "" {
		p.VMSize = defaultSize
	}
	p.VMPriority = f.choice("tier", "dedicated", "Dedicated", "low_priority", "LowPriority", "lowpriority", "(LowPriority)")
	p.ScaleSettings = f.scale()
	p.EnableNodePublicIP = f.boolean("enable_node_public_ip")
	f.noted("enable_node_public_ip", "nodes have the addresses that this machine has")
	if p.EnableNodePublicIP == nil {
		yes := true
		p.EnableNodePublicIP = &yes
	}
	f.ssh(&c.Spec)
	f.network(p, scope)
}

func (f *fields) scale() *trainyard.ScaleSettings {
	s := &trainyard.ScaleSettings{MinNodeCount: or(f.integer("min_instances", 0), 0)}
	s.MaxNodeCount = or(f.integer("max_instances", 0), max(defaultMaxInstances, s.MinNodeCount))
	if s.MinNodeCount > s.MaxNodeCount {
		f.p.at(f.place("min_instances"), "min_instances", "%d is more than max_instances, which is %d", s.MinNodeCount, s.MaxNodeCount)
	}
	idle := or(f.integer("idle_time_before_scale_down", 0), defaultIdleSeconds)
	s.NodeIdleTimeBeforeScaleDown = trainyard.ISODuration(time.Duration(idle) * time.Second)
	return s
}

func (f *fields) ssh(spec *trainyard.ComputeSpec) {
	spec.Properties.RemoteLoginPortPublicAccess = "NotSpecified"
	if open := f.boolean("ssh_public_access_enabled"); open != nil {
		spec.Properties.RemoteLoginPortPublicAccess = map[bool]string{true: "Enabled", false: "Disabled"}[*open]
		f.noted("ssh_public_access_enabled", "nodes of this build have no SSH log-in")
	}
	s := f.sub("ssh_settings")
	if s.n == nil {
		return
	}
	f.noted("ssh_settings", "nodes of this build have no SSH log-in")
	s.need("admin_username")
	user := map[string]string{"adminUserName": s.text("admin_username")}
	for field, key := range map[string]string{"admin_password": "adminUserPassword", "ssh_key_value": "adminUserSshPublicKey"} {
		if text := s.text(field); text != "" {
			user[key] = text
		}
	}
	s.done()
	spec.DisableLocalAuth = false
	spec.Properties.UserAccountCredentials = asJSON(user)
}

func (f *fields) network(p *trainyard.ClusterProperties, scope trainyard.Scope) {
	s := f.sub("network_settings")
	if s.n == nil {
		return
	}
	f.noted("network_settings", "nodes are in the network of this machine")
	s.silent("public_ip_address", "private_ip_address")
	vnet, subnet := s.text("vnet_name"), s.text("subnet")
	s.done()
	switch {
	case subnet == "":
	case strings.HasPrefix(subnet, "/"):
		p.Subnet = asJSON(map[string]string{"id": subnet})
	default:
		p.Subnet = asJSON(map[string]string{"id": "/subscriptions/" + scope.Subscription + "/resourceGroups/" + scope.ResourceGroup +
			"/providers/Microsoft.Network/virtualNetworks/" + vnet + "/subnets/" + subnet})
	}
}

// computeIdentity reads the identity of a compute or a workspace: user-assigned ones come as a list or as a map of resource ids.
func (f *fields) computeIdentity() json.RawMessage {
	s := f.sub("identity")
	if s.n == nil {
		return nil
	}
	f.noted("identity", "there are no managed identities here")
	s.need("type")
	s.silent("principal_id", "tenant_id")
	m := map[string]any{"type": s.choice("type", "system_assigned", "SystemAssigned", "user_assigned", "UserAssigned", "none", "None",
		"system_assigned,user_assigned", "SystemAssigned,UserAssigned", "systemassigned", "(SystemAssigned)", "userassigned", "(UserAssigned)",
		"system_assigned, user_assigned", "(SystemAssigned,UserAssigned)")}
	if users := s.get("user_assigned_identities"); users != nil {
		ids := map[string]any{}
		for _, id := range s.identities(users) {
			ids[id] = map[string]any{}
		}
		m["userAssignedIdentities"] = ids
	}
	s.done()
	return asJSON(m)
}

func (f *fields) identities(users *node) []string {
	var ids []string
	switch users.kind {
	case mapping:
		for _, k := range users.keys {
			ids = append(ids, k.text)
		}
	case list:
		for i, v := range users.values {
			one := &fields{p: f.p, n: v, path: f.at("user_assigned_identities") + (step{index: i}).String()}
			if v.kind == scalar {
				ids = append(ids, v.text)
				continue
			}
			one.silent("principal_id", "client_id", "tenant_id", "object_id")
			one.need("resource_id")
			ids = append(ids, one.text("resource_id"))
			one.done()
		}
	default:
		f.wrong(users, "user_assigned_identities", "a list of maps with resource_id")
	}
	return ids
}
