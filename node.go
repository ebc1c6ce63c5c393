package trainyard

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Compute is a named target in a workspace.
type Compute struct {
	Scope     Scope
	Name      string
	Location  string // as written by the user and echoed; Where is what it means here
	Tags      map[string]string
	Identity  json.RawMessage
	Sku       json.RawMessage
	Spec      ComputeSpec
	Secret    json.RawMessage // keys and passwords, never shown but by listKeys
	Where     string          // name of our location
	Deleting  bool            // no new work; gone when its nodes are
	Stopped   bool            // stopped by a user: no nodes until started
	Warnings  []string
	Created   time.Time
	Modified  time.Time
	CreatedBy string
	Wanted    int       // nodes the scaler wants
	WantedWhy Reason    // why that many
	Resized   time.Time // when Wanted last changed
	Errors    []string  // why machines could not be had, newest last; cleared when they could
	Full      string    // why its location has no room for the nodes that it wants; "" if it has

	Serverless bool // nobody created it: it is for jobs that name no compute, and not listed

	Engine   string          // kind of target whose engine runs its tasks, such as "slurm"; "": its nodes have agents
	Settings json.RawMessage // of that engine, or of the fleet that puts an agent on its machine. May hold secrets; never shown
	Engines  []string        // container engines that an attached machine was found to have, or the newest node of a cluster; what agents say that are there counts more
}

// Hosted says whether the compute's one node is an agent in the server: this computer, or an engine with machines of its own.
func (c *Compute) Hosted() bool { return c.Spec.ComputeType == ComputeLocal || c.Engine != "" }

// Elastic says whether nodes are made and let go as work asks for them. A compute that is neither Hosted nor Elastic is an attached machine.
func (c *Compute) Elastic() bool { return c.Spec.ComputeType == ComputeCluster }

// ID is the compute's ARM id.
func (c *Compute) ID() string { return c.Scope.Child(string(KindCompute), c.Name) }

// Key is unique in a server. Compute names compare without regard to case.
func (c *Compute) Key() ComputeKey { return MakeComputeKey(c.Scope, c.Name) }

// LowPriority says whether the compute's nodes give way to dedicated ones.
func (c *Compute) LowPriority() bool {
	return strings.EqualFold(c.Spec.Properties.VMPriority, "LowPriority")
}

// ComputeKey names a compute in a server.
type ComputeKey string

// MakeComputeKey joins a scope and a compute name.
func MakeComputeKey(s Scope, name string) ComputeKey {
	return ComputeKey(s.Key() + "/" + lower(name))
}

// Name is the compute's, in small letters, for people: they are in its workspace.
func (k ComputeKey) Name() string { return string(k[strings.LastIndexByte(string(k), '/')+1:]) }

// Compute types that this build runs, and those that it knows by name.
const (
	ComputeLocal   = "Local"
	ComputeCluster = "AmlCompute"
)

// KnownComputeTypes are ARM's computeType values in canonical case.
var KnownComputeTypes = []string{ComputeLocal, ComputeCluster, "ComputeInstance", "VirtualMachine", "Kubernetes", "AKS", "Slurm",
	"SynapseSpark", "Databricks", "HDInsight", "DataLakeAnalytics", "DataFactory", "Batch"}

// ComputeSpec is ARM's compute "properties".
type ComputeSpec struct {
	ComputeType      string            `json:"computeType"`
	Description      string            `json:"description,omitempty"`
	DisableLocalAuth bool              `json:"disableLocalAuth"`
	ResourceID       string            `json:"resourceId,omitempty"`
	Properties       ClusterProperties `json:"properties"`
	Extra            Extra             `json:"-"`
}

type computeSpecFields ComputeSpec

var computeSpecNames = jsonNames(ComputeSpec{})

func (s *ComputeSpec) UnmarshalJSON(data []byte) error {
	extra, err := unmarshalExtra(data, (*computeSpecFields)(s), computeSpecNames)
	s.Extra = extra
	return err
}

func (s ComputeSpec) MarshalJSON() ([]byte, error) {
	return marshalExtra(computeSpecFields(s), s.Extra)
}

// ClusterProperties is "properties.properties" of an AmlCompute.
type ClusterProperties struct {
	VMSize                      string          `json:"vmSize,omitempty"`
	VMPriority                  string          `json:"vmPriority,omitempty"` // Dedicated, LowPriority
	OSType                      string          `json:"osType,omitempty"`
	ScaleSettings               *ScaleSettings  `json:"scaleSettings,omitempty"`
	Subnet                      json.RawMessage `json:"subnet,omitempty"`
	UserAccountCredentials      json.RawMessage `json:"userAccountCredentials,omitempty"`
	RemoteLoginPortPublicAccess string          `json:"remoteLoginPortPublicAccess,omitempty"`
	EnableNodePublicIP          *bool           `json:"enableNodePublicIp,omitempty"`
	Extra                       Extra           `json:"-"`
}

type clusterFields ClusterProperties

var clusterNames = jsonNames(ClusterProperties{})

func (s *ClusterProperties) UnmarshalJSON(data []byte) error {
	extra, err := unmarshalExtra(data, (*clusterFields)(s), clusterNames)
	s.Extra = extra
	return err
}

func (s ClusterProperties) MarshalJSON() ([]byte, error) {
	return marshalExtra(clusterFields(s), s.Extra)
}

// ScaleSettings bounds a cluster. NodeIdleTimeBeforeScaleDown is an ISO 8601 duration.
type ScaleSettings struct {
	MinNodeCount                int    `json:"minNodeCount"`
	MaxNodeCount                int    `json:"maxNodeCount"`
	NodeIdleTimeBeforeScaleDown string `json:"nodeIdleTimeBeforeScaleDown,omitempty"`
}

// NodeID names a node in a server.
type NodeID string

// Node is a place with an agent that can run tasks.
type Node struct {
	ID       NodeID
	Compute  ComputeKey
	State    NodeState
	Reason   Reason
	Epoch    int64     // rises with every join; an agent obeys nothing older than it has seen
	Size     string    // VM size
	Capacity Resources // what tasks may use of it
	Address  string    // where gang members reach each other
	Agent    string    // version of the agent's program
	Notes    []string  // what is not held here: "CPU not held: no cgroup cpu controller"
	Engines  []string  // container engines that it has: "docker"
	Created  time.Time
	Joined   time.Time
	Seen     time.Time // last sign of life; kept in memory, written only when the state changes
	IdleFrom time.Time // when it last became idle; zero while it works
	LostAs   Class     // of tasks that are lost with a node that is taken away, if its agent has said so; "": NodeLost
}

// NodeState is where a node is in its life. Names are Azure ML's, with "creating" before them.
type NodeState string

// Who moves a node in and out of each state.
const (
	NodeCreating  NodeState = "creating"  // in: the scaler. out: its agent joins
	NodeIdle      NodeState = "idle"      // in: joined, or its last task ended
	NodePreparing NodeState = "preparing" // in: a plan gave it a task
	NodeRunning   NodeState = "running"   // in: a task's process began
	NodeLeaving   NodeState = "leaving"   // in: the scaler or a delete. out: gone
	NodeUnusable  NodeState = "unusable"  // in: its agent was not heard of, or says it cannot work
	NodePreempted NodeState = "preempted" // in: dedicated work took its room, or what it runs on is taken away
)

var nodeMoves = map[NodeState][]NodeState{
	NodeCreating:  {NodeIdle, NodeLeaving, NodeUnusable},
	NodeIdle:      {NodePreparing, NodeLeaving, NodeUnusable, NodePreempted},
	NodePreparing: {NodeRunning, NodeIdle, NodeLeaving, NodeUnusable, NodePreempted},
	NodeRunning:   {NodePreparing, NodeIdle, NodeLeaving, NodeUnusable, NodePreempted},
	NodeUnusable:  {NodeIdle, NodePreparing, NodeRunning, NodeLeaving},
	NodePreempted: {NodeLeaving},
}

// MoveTo is the only way a node's state changes.
func (n *Node) MoveTo(to NodeState, why Reason, now time.Time) error {
	if n.State != to && !slices.Contains(nodeMoves[n.State], to) {
		return Conflict("node %q is %s and cannot become %s", n.ID, n.State, to)
	}
	if why.Since.IsZero() {
		why.Since = now
	}
	if n.State != to {
		n.IdleFrom = time.Time{}
		if to == NodeIdle {
			n.IdleFrom = now
		}
	}
	n.State, n.Reason = to, why
	return nil
}

// Usable says whether the scheduler may place work on a node in this state.
func (s NodeState) Usable() bool {
	return s == NodeIdle || s == NodePreparing || s == NodeRunning
}

// Clone returns a copy that shares nothing that changes.
func (n *Node) Clone() *Node {
	c := *n
	c.Notes, c.Engines = slices.Clone(n.Notes), slices.Clone(n.Engines)
	return &c
}

// NodeInfo is what an agent says of itself when it joins.
type NodeInfo struct {
	Node     NodeID    `json:"node"`
	Token    string    `json:"token"` // join token the machine was started with
	Capacity Resources `json:"capacity"`
	Address  string    `json:"address"`
	Version  string    `json:"version"`
	Notes    []string  `json:"notes,omitempty"`
	Engines  []string  `json:"engines,omitempty"`
	Holding  []TaskID  `json:"holding,omitempty"` // tasks it found on its disk
}

// NodeLease is the server's answer to a join. The agent stops obeying older epochs at once.
type NodeLease struct {
	Epoch   int64         `json:"epoch"`
	Token   string        `json:"token"`   // bearer for everything else this agent asks, good for this node alone
	Renew   time.Duration `json:"renew"`   // say something at least this often
	Expires time.Duration `json:"expires"` // not heard of for this long, the server counts the node's tasks as lost
}

// Wanted is all that should be on a node now. It replaces what was said before; a lower Rev of the same epoch is old news.
type Wanted struct {
	Epoch   int64  `json:"epoch"`
	Rev     int64  `json:"rev"`
	Tasks   []Task `json:"tasks"`
	Leaving bool   `json:"leaving,omitempty"` // finish what runs, then stop
	Dials   []Dial `json:"dials,omitempty"`   // connections that the server wants to replicas here

	Images []string `json:"images,omitempty"` // of jobs that wait: can they be had here?
}

// ImageWord is what a node's engine says of an image before a task comes that wants it.
type ImageWord struct {
	Image   string `json:"image"`
	Missing bool   `json:"missing,omitempty"` // it is not here and cannot be pulled now
	Certain bool   `json:"certain,omitempty"` // nor later: the registry has answered, or the name is none
	Why     string `json:"why,omitempty"`

	Unknown bool `json:"unknown,omitempty"` // the engine cannot say just now
}

// Dial asks an agent to connect the server with a replica's port: the agent opens a connection to the server and names ID on it.
type Dial struct {
	ID   string `json:"id"`
	Task TaskID `json:"task"`
}

// Report is what an agent says: what changed of its tasks, or nothing but "I live".
type Report struct {
	Node  NodeID       `json:"node"`
	Epoch int64        `json:"epoch"`
	Tasks []TaskReport `json:"tasks,omitempty"`
	Notes []string     `json:"notes,omitempty"`
	Loads []TaskLoad   `json:"loads,omitempty"` // of replicas

	Yields   string `json:"yields,omitempty"`   // why what the node runs on is taken away just now; "": it is not
	YieldsAs Class  `json:"yieldsAs,omitempty"` // class of the tasks that end by that; agents of older versions do not say

	Images []ImageWord `json:"images,omitempty"` // answers to Wanted.Images

	Away []EngineAway `json:"away,omitempty"` // all engines of the node that do not answer just now; one with Yields or Images tells nothing of them
}

// EngineAway is that an engine of a node does not answer: nothing new is known of what it runs.
type EngineAway struct {
	Why   string    `json:"why"` // a sentence for users that names the engine and says since when
	Since time.Time `json:"since"`
}

// MachineSpec asks a fleet for a machine. A fleet given the ID of a machine that it already has starts its agent again if that is dead,
// and does nothing if it lives.
type MachineSpec struct {
	ID      NodeID            `json:"id"`
	Compute ComputeKey        `json:"compute"`
	Size    VMSize            `json:"size"`
	Token   string            `json:"token"` // join token for the agent
	Tags    map[string]string `json:"tags,omitempty"`

	Settings json.RawMessage `json:"settings,omitempty"` // of the fleet's kind: an address and its key, a partition. May hold secrets
}

// MachineState is what a fleet knows of a machine.
type MachineState string

// Machine states.
const (
	MachineStarting MachineState = "starting"
	MachineRunning  MachineState = "running" // the machine, and as far as the fleet can tell its agent
	MachineDead     MachineState = "dead"    // it is there, its agent is not; its tasks may be
)

// Machine is one machine of a fleet.
type Machine struct {
	ID      NodeID       `json:"id"`
	Compute ComputeKey   `json:"compute"`
	State   MachineState `json:"state"`
	Note    string       `json:"note,omitempty"`
	Cut     bool         `json:"cut,omitempty"` // it cannot be reached; Note says why
}

// FleetWanted is every machine a location should have. It replaces what was said before.
type FleetWanted struct {
	Rev      int64         `json:"rev"`
	Machines []MachineSpec `json:"machines"`
}

// FleetReport is what a fleet's host saw and did.
type FleetReport struct {
	Location string            `json:"location"`
	Machines []Machine         `json:"machines"`          // all of them
	Stopped  []NodeID          `json:"stopped,omitempty"` // gone for certain, with everything that ran there
	Failed   map[NodeID]string `json:"failed,omitempty"`  // could not be started, or ended, and why

	// Away is why nothing can be said of the machines: what would have to be asked for them does not answer. Machines is empty then, which
	// means nothing.
	Away string `json:"away,omitempty"`
}
