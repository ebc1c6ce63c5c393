package trainyard

import "time"

// Serve makes a task a replica: it is not supposed to end, it listens on a port, and it is asked whether it is well.
type Serve struct {
	Endpoint   string `json:"endpoint"`
	Deployment string `json:"deployment"`
	Generation int    `json:"generation"`

	// Port is where a container listens. 0: the node chooses a port and tells the process in SERVER_PORT (and PORT); it listens on
	// loopback there. A container whose port is 0 listens on 5001.
	Port int `json:"port,omitempty"`
	// Image says that the image's own entry point serves, not the task's command; the model is then found at ModelPath.
	Image     bool   `json:"image,omitempty"`
	ModelPath string `json:"modelPath,omitempty"` // in the container: where the input "model" is mounted

	Scoring   string        `json:"scoring"`        // path that the scoring URI stands for: "/score"
	Bare      bool          `json:"bare,omitempty"` // clients add paths of their own to the scoring URI: it is the endpoint's address alone
	Liveness  Probe         `json:"liveness"`
	Readiness Probe         `json:"readiness"`
	Drain     time.Duration `json:"drain,omitempty"` // requests that are under way may take this long when it ends

	// Collects are the collections that the scoring script fills itself, each with the share of its rows to keep of those that the script
	// sends (0: the collection is disabled). The node takes them beside the replica.
	Collects map[string]float64 `json:"collects,omitempty"`

	Concurrency int           `json:"concurrency"` // requests at once
	Queue       time.Duration `json:"queue"`       // a request may wait this long for its turn
	Timeout     time.Duration `json:"timeout"`     // of a request
}

// PortVariables are the variables in which a replica's command finds its port.
var PortVariables = []string{"SERVER_PORT", "PORT", "HEALTH_PORT"}

// CollectedLog begins the name of a log that is none: what is appended to CollectedLog + COLLECTION are rows that a replica's script collected,
// at no particular offset.
const CollectedLog = "data_collector/"

// ContainerPort is where a replica listens that has a network of its own: a container, a pod.
func (s *Serve) ContainerPort() int {
	if s.Port > 0 {
		return s.Port
	}
	return 5001
}

// Probe is a request that tells whether a replica is well: any answer below 400 is a yes.
type Probe struct {
	Path      string        `json:"path"`
	Delay     time.Duration `json:"delay"` // failures before it are not counted
	Period    time.Duration `json:"period"`
	Timeout   time.Duration `json:"timeout"`
	Successes int           `json:"successes"` // in a row, to count as well
	Failures  int           `json:"failures"`  // in a row, to count as unwell
}

// Serving is how a replica is, as its node sees it.
type Serving struct {
	Ready   bool   `json:"ready,omitempty"`   // it may be sent requests
	Was     bool   `json:"was,omitempty"`     // it was ready once
	Address string `json:"address,omitempty"` // host:port where it answers; see Direct
	Direct  bool   `json:"direct,omitempty"`  // the server's computer reaches Address; else it is reached through the node's agent
	Why     string `json:"why,omitempty"`     // it is not ready: the last answer to its probe
}

// TaskLoad is what a replica uses, as its node measures it.
type TaskLoad struct {
	ID       TaskID  `json:"id"`
	CPU      float64 `json:"cpu"` // percent of what it may use
	MemoryMB int64   `json:"memoryMB,omitempty"`
	PeakMB   int64   `json:"peakMB,omitempty"`   // the most since it began
	OOMKills int     `json:"oomKills,omitempty"` // processes of it that were ended because its memory had run out

	GPU    *float64 `json:"gpu,omitempty"`    // percent of the GPUs that it was given, their mean; nil: not known
	GPUWhy string   `json:"gpuWhy,omitempty"` // why GPU is not known
}

// Routes is all that a gateway needs to know. It replaces what was said before.
type Routes struct {
	Rev       int64           `json:"rev"`
	Endpoints []EndpointRoute `json:"endpoints"`
}

// EndpointRoute is one endpoint as a gateway sees it. Its name is unique in a server, without regard to case.
type EndpointRoute struct {
	Scope       Scope             `json:"scope"`
	Name        string            `json:"name"`
	AuthMode    string            `json:"authMode"`
	Keys        [][]byte          `json:"keys,omitempty"` // SHA-256 of each key that is good
	Traffic     map[string]int    `json:"traffic,omitempty"`
	Mirror      map[string]int    `json:"mirror,omitempty"`
	Deployments []DeploymentRoute `json:"deployments"`
}

// DeploymentRoute is one deployment as a gateway sees it.
type DeploymentRoute struct {
	Name        string         `json:"name"`
	Replicas    []ReplicaRoute `json:"replicas,omitempty"` // those that are ready
	Wanted      int            `json:"wanted"`             // replicas that there should be; 0 with none ready: a request wakes it
	Wakes       bool           `json:"wakes,omitempty"`    // requests are held while a replica is on its way
	Progress    string         `json:"progress,omitempty"` // what the replicas on their way are doing
	Failed      string         `json:"failed,omitempty"`   // no replica can come: what a held request is told
	Scoring     string         `json:"scoring"`
	Concurrency int            `json:"concurrency"`          // requests at once at a replica
	Queue       time.Duration  `json:"queue"`                // a request may wait this long for a replica
	Hold        time.Duration  `json:"hold"`                 // a request may wait this long for the first replica to come
	Timeout     time.Duration  `json:"timeout"`              // of a request
	Kubernetes  bool           `json:"kubernetes,omitempty"` // answers with the status codes of Kubernetes endpoints, where they differ
	Collect     *DataCollector `json:"collect,omitempty"`
}

// ReplicaRoute is where a replica answers.
type ReplicaRoute struct {
	Task    TaskID `json:"task"`
	Address string `json:"address"`
	Direct  bool   `json:"direct"` // dial Address; else ask the server for a connection to Task
}

// GatewayReport is what a gateway tells the server, every second and when a request begins to be held.
type GatewayReport struct {
	Gateway     string         `json:"gateway"` // which one, unique while it runs
	Rev         int64          `json:"rev"`     // of the Routes by which it sends requests
	Deployments []GatewayCount `json:"deployments"`
	Stats       []ServeStats   `json:"stats,omitempty"` // of the same deployments, for people
}

// GatewayCount is one deployment's traffic at one gateway. Total rises for as long as the gateway runs.
type GatewayCount struct {
	Scope      Scope   `json:"scope"`
	Endpoint   string  `json:"endpoint"`
	Deployment string  `json:"deployment"`
	Total      int64   `json:"total"`    // requests that came
	InFlight   float64 `json:"inFlight"` // requests at replicas, mean since the last report
	Queued     float64 `json:"queued"`   // requests that wait for a replica, mean since the last report
	Held       int     `json:"held"`     // requests that wait for the first replica now
}

// ServeStats is what one gateway has seen of a deployment since it started.
type ServeStats struct {
	Scope      Scope         `json:"scope"`
	Endpoint   string        `json:"endpoint"`
	Deployment string        `json:"deployment"`
	Replicas   int           `json:"replicas"` // that are ready
	InFlight   int           `json:"inFlight"`
	Queued     int           `json:"queued"` // with those that are held
	Held       int           `json:"held"`
	Requests   int64         `json:"requests"`
	Codes      map[int]int64 `json:"codes,omitempty"` // answers by HTTP status; 499: the client did not wait for one
	Latency    []int64       `json:"latency"`         // answers that took at most LatencyBounds[i], and those that took longer
	LatencySum time.Duration `json:"latencySum"`
	Retries    int64         `json:"retries"`  // requests that were sent again because a replica was lost
	Mirrored   int64         `json:"mirrored"` // copies of other deployments' requests
	Dropped    int64         `json:"dropped"`  // copies that were not sent, and rows that were not collected
}

// LatencyBounds are the upper bounds of ServeStats.Latency.
var LatencyBounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

// LatencyQuantile is a latency that the share q (0 to 1) of the answers did not exceed, as far as the buckets tell; 0 if there were none.
func (s *ServeStats) LatencyQuantile(q float64) time.Duration {
	var all, seen int64
	for _, n := range s.Latency {
		all += n
	}
	for i, n := range s.Latency {
		if seen += n; n > 0 && float64(seen) >= q*float64(all) {
			return LatencyBounds[min(i, len(LatencyBounds)-1)]
		}
	}
	return 0
}
