// Package trainyard holds the words the whole project speaks: workspaces, computes, nodes, jobs, attempts, tasks, their states and the
// legal moves between them, and the errors users read. It imports only the standard library, does no I/O and reads no clock.
//
// Names and JSON spellings are those of Azure Resource Manager's "properties" objects (Microsoft.MachineLearningServices), so one set of
// types serves the API, the store, the scheduler and the agents.
package trainyard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Names of the things that exist from a server's first start.
const (
	DefaultSubscription  = "00000000-0000-0000-0000-000000000000"
	DefaultResourceGroup = "default"
	DefaultWorkspace     = "default"
	DefaultLocation      = "local"              // the location every unknown Azure region stands for
	LocalCompute         = "local"              // processes on the server's own computer
	BlobDatastore        = "workspaceblobstore" // default datastore: uploads, job outputs
	ArtifactDatastore    = "workspaceartifactstore"
	AnonymousEnvironment = "CliV2AnonymousEnvironment" // where clients register environments written inside a job file
)

// Reason says why something rests in the state it is in, in words a user can act on.
type Reason struct {
	Code    string    `json:"code,omitempty"`    // short, stable, CamelCase: "AtMaximumNodes"
	Message string    `json:"message,omitempty"` // a sentence that names the thing, and what would change it
	Cause   string    `json:"cause,omitempty"`   // of what is away: the part of Message that says why
	Since   time.Time `json:"since,omitzero"`
}

// SaysItRuns tells whether the reason of a running job has no more to say than that it runs, as a process or in steps that have states of their own.
func (r Reason) SaysItRuns() bool { return r.Code == "Running" || r.Code == "Steps" || r.Code == "" }

// Span is a piece of a job's time: who had it, from when to when. End is zero while it lasts.
type Span struct {
	Name  string    `json:"name"` // queue, node, environment, data, code, start, user, upload, finish
	Start time.Time `json:"start"`
	End   time.Time `json:"end,omitzero"`
	Note  string    `json:"note,omitempty"` // "cached", "built in 12 s"
}

// Names of spans, in the order a job meets them.
const (
	SpanQueue       = "queue"       // submitted, waiting for room
	SpanNode        = "node"        // placed, waiting for a node to take it (a machine starting counts as queue with its own reason)
	SpanCode        = "code"        // code snapshot on the node
	SpanData        = "data"        // inputs on the node
	SpanEnvironment = "environment" // environment found or built
	SpanStart       = "start"       // between these: links made, folders laid out, the process on its way
	SpanUser        = "user"        // the user's process
	SpanUpload      = "upload"      // outputs and logs on their way home
	SpanFinish      = "finish"      // waiting for the last rank, and for the server to take note
)

// Event is what happened to whom, when, and why. Events feed stream, the live pages and the audit trail.
type Event struct {
	Seq     int64     `json:"seq"`
	Time    time.Time `json:"time"`
	Scope   Scope     `json:"scope"`
	Kind    string    `json:"kind"`    // "job", "compute", "node", or an asset kind
	Subject string    `json:"subject"` // its name
	What    string    `json:"what"`    // "queued", "placed", "running", "created", …
	Who     string    `json:"who,omitempty"`
	Message string    `json:"message,omitempty"`
}

// Resource is anything a workspace owns that this page does not know more closely: an environment version, a data version, a code
// version, a datastore, the workspace itself. Properties is the ARM "properties" object; what we do not act on is kept and echoed.
type Resource struct {
	Scope      Scope             `json:"scope"`
	Kind       Kind              `json:"kind"`
	Name       string            `json:"name"`
	Version    string            `json:"version,omitempty"` // empty for unversioned kinds
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Properties json.RawMessage   `json:"properties"`
	Identity   json.RawMessage   `json:"identity,omitempty"`
	Sku        json.RawMessage   `json:"sku,omitempty"`
	Hash       string            `json:"hash,omitempty"`   // codes: hash_sha256 of the content, found again with the hash filter
	Secret     json.RawMessage   `json:"secret,omitempty"` // credentials: stored, never shown but by listSecrets
	Archived   bool              `json:"archived,omitempty"`
	Created    time.Time         `json:"created"`
	Modified   time.Time         `json:"modified"`
	CreatedBy  string            `json:"createdBy,omitempty"`
	ModifiedBy string            `json:"modifiedBy,omitempty"`
}

// Kind names a sort of resource as it stands in ARM paths.
type Kind string

// The kinds that are stored as Resource.
const (
	KindWorkspace   Kind = "workspaces"
	KindEnvironment Kind = "environments"
	KindCode        Kind = "codes"
	KindData        Kind = "data"
	KindDatastore   Kind = "datastores"
	KindModel       Kind = "models"
	KindComponent   Kind = "components"
	KindJob         Kind = "jobs"     // stored as Job
	KindCompute     Kind = "computes" // stored as Compute
)

// Versioned says whether names of this kind hold versions that are immutable once written.
func (k Kind) Versioned() bool {
	switch k {
	case KindEnvironment, KindCode, KindData, KindModel, KindComponent:
		return true
	}
	return false
}

// Location is where machines come from: this machine, a Kubernetes cluster, an SSH inventory, a cloud region.
type Location struct {
	Name     string          `json:"name"`
	Driver   string          `json:"driver"`             // the fleet kind that makes its machines
	Regions  []string        `json:"regions,omitempty"`  // Azure regions that mean it; a region that no location lists means the first one
	Sizes    []VMSize        `json:"sizes"`              // empty: the whole catalogue
	Approved []string        `json:"approved,omitempty"` // sizes, series or families that need approval and have it; "all"
	Capacity Capacity        `json:"capacity,omitzero"`  // of all its machines together
	Machine  Resources       `json:"machine,omitzero"`   // the one machine that all its nodes share; zero: each is one of its own
	Away     string          `json:"away,omitempty"`     // why nothing is known of its machines at the moment, for people; "": they are known
	Settings json.RawMessage `json:"-"`                  // of the fleet; may hold secrets
}

// Capacity is how much a location's machines may have together. A zero field is not limited.
type Capacity struct {
	Nodes int `json:"nodes,omitempty"`
	VCPUs int `json:"vcpus,omitempty"`
	GPUs  int `json:"gpus,omitempty"`
}

// Holds says whether used fits in c.
func (c Capacity) Holds(used Capacity) bool {
	return (c.Nodes == 0 || used.Nodes <= c.Nodes) && (c.VCPUs == 0 || used.VCPUs <= c.VCPUs) && (c.GPUs == 0 || used.GPUs <= c.GPUs)
}

// Room is how many machines of a size fit beside what is used, at least 0. It is not limited where nothing says how many fit.
func (c Capacity) Room(used Capacity, s VMSize) (n int, limited bool) {
	for _, d := range []struct{ most, used, each int }{{c.Nodes, used.Nodes, 1}, {c.VCPUs, used.VCPUs, s.VCPUs}, {c.GPUs, used.GPUs, s.GPUs}} {
		if d.most == 0 || d.each == 0 {
			continue
		}
		if fit := max(d.most-d.used, 0) / d.each; !limited || fit < n {
			n, limited = fit, true
		}
	}
	return n, limited
}

// Plus is what c and n machines of a size come to.
func (c Capacity) Plus(n int, s VMSize) Capacity {
	return Capacity{Nodes: c.Nodes + n, VCPUs: c.VCPUs + n*s.VCPUs, GPUs: c.GPUs + n*s.GPUs}
}

// Size finds one of the location's sizes, in any case and with or without "Standard_".
func (l *Location) Size(name string) (VMSize, bool) {
	want := strings.TrimPrefix(lower(name), "standard_")
	for _, s := range l.Sizes {
		if strings.TrimPrefix(lower(s.Name), "standard_") == want {
			return s, true
		}
	}
	return VMSize{}, false
}

// Approves says whether machines of the size may be made: it needs no approval, or has it.
func (l *Location) Approves(s VMSize) bool {
	return !s.NeedsApproval || slices.ContainsFunc(l.Approved, func(a string) bool {
		return strings.EqualFold(a, "all") || strings.EqualFold(a, s.Name) || strings.EqualFold(a, s.Series) || strings.EqualFold(a, s.Family)
	})
}

// VMSize is a machine size as Azure names it. Memory is in GiB as the vmSizes operation reports it (memoryGB).
type VMSize struct {
	Name            string   `json:"name"`
	Family          string   `json:"family"`
	Series          string   `json:"series"` // DSv3, NCsv3, …
	VCPUs           int      `json:"vCPUs"`
	MemoryGB        float64  `json:"memoryGB"`
	GPUs            int      `json:"gpus"`
	GPU             string   `json:"gpu,omitempty"` // model of the GPU
	ResourceDiskMB  int      `json:"maxResourceVolumeMB"`
	PricePerHour    float64  `json:"pricePerHour"`       // US dollars, dedicated, Linux; a list price for comparison, not a bill
	LowPriorityRate float64  `json:"lowPriorityPerHour"` // US dollars; 0 where low priority is not offered
	NeedsApproval   bool     `json:"needsApproval"`      // a quota must be granted before a compute of it can be made
	Isolated        bool     `json:"isolated,omitempty"` // the only node of any customer on its physical host
	RDMA            bool     `json:"rdma,omitempty"`
	ComputeTypes    []string `json:"supportedComputeTypes"`
}

// Warn adds a sentence to a list of warnings once.
func Warn(list []string, sentence string) []string {
	if slices.Contains(list, sentence) {
		return list
	}
	return append(list, sentence)
}

// Extra carries the JSON fields of an object that its Go type does not name, so that they are stored and echoed unchanged.
type Extra map[string]json.RawMessage

// unmarshalExtra decodes data into known and returns the members that known's own encoding does not account for. names lists the JSON
// names known understands.
func unmarshalExtra(data []byte, known any, names []string) (Extra, error) {
	if err := json.Unmarshal(data, known); err != nil {
		return nil, err
	}
	var all Extra
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for _, n := range names {
		delete(all, n)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// marshalExtra encodes known, an object, with extra's members added where known has none of that name.
func marshalExtra(known any, extra Extra) ([]byte, error) {
	data, err := json.Marshal(known)
	if err != nil || len(extra) == 0 {
		return data, err
	}
	var all Extra
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	merged := maps.Clone(extra)
	maps.Copy(merged, all)
	return json.Marshal(merged)
}
