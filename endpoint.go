package trainyard

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of serving. An endpoint is stored under its name, a deployment under "{endpoint}/{deployment}".
const (
	KindOnlineEndpoint   Kind = "onlineendpoints"
	KindOnlineDeployment Kind = "onlinedeployments"
	KindBatchEndpoint    Kind = "batchendpoints"
	KindBatchDeployment  Kind = "batchdeployments"
)

var endpointName = pattern(`^[a-zA-Z]([-a-zA-Z0-9]{0,30}[a-zA-Z0-9])?$`)

// CheckEndpointName refuses what cannot be the name of an endpoint or a deployment: Azure's own rule, 3 to 32 letters, digits and '-',
// beginning with a letter and not ending with '-'. what is "endpoint" or "deployment".
func CheckEndpointName(what, name string) error {
	if len(name) < 3 || !endpointName().MatchString(name) {
		return Invalid("%q cannot be the name of an %s: use 3 to 32 letters, digits and '-', beginning with a letter and not ending with '-'", name, "online "+what)
	}
	return nil
}

// How a caller shows that it may use an endpoint.
const (
	AuthKey      = "Key"
	AuthAMLToken = "AMLToken"
	AuthAADToken = "AADToken"
)

// StillServes is what is said of a deployment whose update failed.
const StillServes = "the deployment as it was before still serves"

// Where a deployment runs. Managed, Kubernetes and AzureMLCompute are Azure's words; the others are siblings of ours.
const (
	ServeManaged    = "Managed"           // nodes of a location, made for the deployment
	ServeKubernetes = "Kubernetes"        // an attached cluster
	ServeCompute    = "AzureMLCompute"    // any compute of the workspace: an attached machine, an edge device, a cluster
	ServeContainer  = "ContainerInstance" // one container on this computer's engine, for development and test
	ServeLocal      = "Local"             // a process on this computer, for testing and debugging
)

// ServeTypes are the values of endpointComputeType in canonical case.
var ServeTypes = []string{ServeManaged, ServeKubernetes, ServeCompute, ServeContainer, ServeLocal}

// OnlineEndpoint is a name under which models answer, and how its traffic is divided among its deployments.
type OnlineEndpoint struct {
	Scope     Scope             `json:"scope"`
	Name      string            `json:"name"`
	Location  string            `json:"location,omitempty"`
	Kind      string            `json:"kind,omitempty"` // ARM's "kind", echoed
	Tags      map[string]string `json:"tags,omitempty"`
	Identity  json.RawMessage   `json:"identity,omitempty"`
	Spec      EndpointSpec      `json:"spec"`
	Keys      EndpointKeys      `json:"-"`               // sealed at rest; never shown but by listKeys
	Epoch     int64             `json:"epoch,omitempty"` // another one makes the tokens that were made before good no more
	Deleting  bool              `json:"deleting,omitempty"`
	Created   time.Time         `json:"created"`
	Modified  time.Time         `json:"modified"`
	CreatedBy string            `json:"createdBy,omitempty"`
}

// ID is the endpoint's ARM id.
func (e *OnlineEndpoint) ID() string { return e.Scope.Child("onlineEndpoints", e.Name) }

// EndpointKeys are the two keys of an endpoint; either is good.
type EndpointKeys struct {
	Primary   string `json:"primaryKey"`
	Secondary string `json:"secondaryKey"`
}

// EndpointToken is a key for an hour. Times are Unix seconds.
type EndpointToken struct {
	AccessToken   string `json:"accessToken"`
	ExpiryTime    int64  `json:"expiryTimeUtc"`
	RefreshAfter  int64  `json:"refreshAfterTimeUtc"`
	TokenType     string `json:"tokenType"` // "Bearer"
	TokenAudience string `json:"-"`
}

// EndpointSpec is ARM's endpoint "properties". Fields without a Go name are kept in Extra and echoed.
type EndpointSpec struct {
	AuthMode            string            `json:"authMode"` // Key, AMLToken, AADToken
	Description         string            `json:"description,omitempty"`
	Compute             string            `json:"compute,omitempty"` // ARM id: where its deployments run; "": managed
	Traffic             map[string]int    `json:"traffic"`           // percent by deployment; the sum is 0 or 100
	MirrorTraffic       map[string]int    `json:"mirrorTraffic"`     // percent of live calls copied to one deployment, at most 50
	PublicNetworkAccess string            `json:"publicNetworkAccess,omitempty"`
	Properties          map[string]string `json:"properties"`
	ScoringURI          string            `json:"scoringUri,omitempty"` // written by the server
	SwaggerURI          string            `json:"swaggerUri,omitempty"` // written by the server
	ProvisioningState   string            `json:"provisioningState,omitempty"`
	Extra               Extra             `json:"-"`
}

type endpointFields EndpointSpec

var endpointNames = jsonNames(EndpointSpec{})

func (s *EndpointSpec) UnmarshalJSON(data []byte) error {
	extra, err := unmarshalExtra(data, (*endpointFields)(s), endpointNames)
	s.Extra = extra
	return err
}

func (s EndpointSpec) MarshalJSON() ([]byte, error) { return marshalExtra(endpointFields(s), s.Extra) }

// OnlineDeployment is a model, what serves it, and how many replicas of that there are.
type OnlineDeployment struct {
	Scope     Scope             `json:"scope"`
	Endpoint  string            `json:"endpoint"`
	Name      string            `json:"name"`
	Location  string            `json:"location,omitempty"`
	Kind      string            `json:"kind,omitempty"` // ARM's "kind", echoed
	Tags      map[string]string `json:"tags,omitempty"`
	Identity  json.RawMessage   `json:"identity,omitempty"`
	Instances int               `json:"instances"` // ARM's sku.capacity: replicas, where nothing scales them
	Spec      DeploymentSpec    `json:"spec"`
	Status    DeploymentStatus  `json:"status"`
	Created   time.Time         `json:"created"`
	Modified  time.Time         `json:"modified"`
	CreatedBy string            `json:"createdBy,omitempty"`
}

// ID is the deployment's ARM id.
func (d *OnlineDeployment) ID() string {
	return d.Scope.Child("onlineEndpoints", d.Endpoint, "deployments", d.Name)
}

// DeploymentSpec is ARM's deployment "properties". Durations are ISO 8601.
type DeploymentSpec struct {
	EndpointComputeType       string             `json:"endpointComputeType"` // one of ServeTypes
	Description               string             `json:"description,omitempty"`
	Model                     string             `json:"model,omitempty"` // ARM id, azureml:NAME:VERSION, or azureml://, runs:/ URI
	ModelMountPath            string             `json:"modelMountPath,omitempty"`
	EnvironmentID             string             `json:"environmentId,omitempty"`
	CodeConfiguration         *CodeConfiguration `json:"codeConfiguration,omitempty"`
	EnvironmentVariables      map[string]string  `json:"environmentVariables"`
	InstanceType              string             `json:"instanceType,omitempty"`
	Compute                   string             `json:"compute,omitempty"` // ours: ARM id of the compute, of AzureMLCompute; else the endpoint's
	RequestSettings           *RequestSettings   `json:"requestSettings,omitempty"`
	LivenessProbe             *ProbeSettings     `json:"livenessProbe,omitempty"`
	ReadinessProbe            *ProbeSettings     `json:"readinessProbe,omitempty"`
	StartupProbe              *ProbeSettings     `json:"startupProbe,omitempty"`
	ScaleSettings             *ReplicaScaling    `json:"scaleSettings,omitempty"`
	ContainerResources        *ContainerNeeds    `json:"containerResourceRequirements,omitempty"` // Kubernetes
	DataCollector             *DataCollector     `json:"dataCollector,omitempty"`
	AppInsightsEnabled        bool               `json:"appInsightsEnabled"`
	EgressPublicNetworkAccess string             `json:"egressPublicNetworkAccess,omitempty"`
	Properties                map[string]string  `json:"properties"`
	ProvisioningState         string             `json:"provisioningState,omitempty"` // written by the server
	Extra                     Extra              `json:"-"`
}

type deploymentFields DeploymentSpec

var deploymentNames = jsonNames(DeploymentSpec{})

func (s *DeploymentSpec) UnmarshalJSON(data []byte) error {
	extra, err := unmarshalExtra(data, (*deploymentFields)(s), deploymentNames)
	s.Extra = extra
	return err
}

func (s DeploymentSpec) MarshalJSON() ([]byte, error) {
	return marshalExtra(deploymentFields(s), s.Extra)
}

// CodeConfiguration is a snapshot and the script in it that scores.
type CodeConfiguration struct {
	CodeID        string `json:"codeId,omitempty"`
	ScoringScript string `json:"scoringScript,omitempty"` // path below the snapshot
}

// RequestSettings bound a request. Zero fields mean Azure's defaults: 5 s, 1 at a time, half a second of waiting.
type RequestSettings struct {
	RequestTimeout                   string `json:"requestTimeout,omitempty"`
	MaxConcurrentRequestsPerInstance int    `json:"maxConcurrentRequestsPerInstance,omitempty"`
	MaxQueueWait                     string `json:"maxQueueWait,omitempty"`
}

// ProbeSettings say how a replica is asked whether it is well.
type ProbeSettings struct {
	InitialDelay     string `json:"initialDelay,omitempty"`
	Period           string `json:"period,omitempty"`
	Timeout          string `json:"timeout,omitempty"`
	SuccessThreshold int    `json:"successThreshold,omitempty"`
	FailureThreshold int    `json:"failureThreshold,omitempty"`
}

// ReplicaScaling says how many replicas there should be. ScaleType Default keeps as many as asked for. TargetUtilization keeps Metric at
// its target between Min and Max; the fields after PollingInterval are ours. MinInstances 0 lets the deployment go to no replica at all.
type ReplicaScaling struct {
	ScaleType                   string         `json:"scaleType"` // Default, TargetUtilization
	MinInstances                *int           `json:"minInstances,omitempty"`
	MaxInstances                *int           `json:"maxInstances,omitempty"`
	TargetUtilizationPercentage int            `json:"targetUtilizationPercentage,omitempty"` // of Target; 70 if it is not given
	PollingInterval             string         `json:"pollingInterval,omitempty"`
	Metric                      string         `json:"metric,omitempty"`           // concurrency (the default), rate, cpu, gpu, queue
	Target                      float64        `json:"target,omitempty"`           // a replica's: requests in flight, requests/s, percent, requests waiting
	StableWindow                string         `json:"stableWindow,omitempty"`     // PT60S
	PanicWindow                 string         `json:"panicWindow,omitempty"`      // PT6S
	ScaleToZeroAfter            string         `json:"scaleToZeroAfter,omitempty"` // without a request; PT5M
	Schedules                   []ReplicaFloor `json:"schedules,omitempty"`
}

// ReplicaFloor keeps at least MinInstances at certain times.
type ReplicaFloor struct {
	Days         []string `json:"days,omitempty"` // Monday … Sunday; none: every day
	From         string   `json:"from"`           // "08:00"
	To           string   `json:"to"`             // "18:30"; before From: on the next day
	TimeZone     string   `json:"timeZone,omitempty"`
	MinInstances int      `json:"minInstances"`
}

// ContainerNeeds are what a replica asks for and may use at most on Kubernetes, in its quantities: "0.5", "500m", "1Gi".
type ContainerNeeds struct {
	Requests *ContainerAmounts `json:"containerResourceRequests,omitempty"`
	Limits   *ContainerAmounts `json:"containerResourceLimits,omitempty"`
}

// ContainerAmounts are amounts in Kubernetes quantities.
type ContainerAmounts struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	GPU    string `json:"gpu,omitempty"`
}

// DataCollector keeps requests and responses in a datastore.
type DataCollector struct {
	RollingRate  string                    `json:"rollingRate,omitempty"` // Year, Month, Day, Hour, Minute: a file for each
	SamplingRate float64                   `json:"samplingRate,omitempty"`
	Collections  map[string]DataCollection `json:"collections,omitempty"` // request, response, and what a scoring script collects itself

	RequestLogging *RequestLogging `json:"requestLogging,omitempty"`
}

// RequestLogging says what is kept of requests beside their bodies.
type RequestLogging struct {
	CaptureHeaders []string `json:"captureHeaders,omitempty"` // kept with each row of the collection "request"
}

// DataCollection is one of a DataCollector's.
type DataCollection struct {
	DataCollectionMode string  `json:"dataCollectionMode,omitempty"` // Enabled, Disabled
	SamplingRate       float64 `json:"samplingRate,omitempty"`
	DataID             string  `json:"dataId,omitempty"` // where to; "": the default datastore, modelDataCollector/ENDPOINT/DEPLOYMENT/COLLECTION
}

// DeploymentStatus is what became of a deployment. Live serves; Next is on its way to. While both are there the old one serves.
type DeploymentStatus struct {
	State      DeploymentState `json:"state"`
	Reason     Reason          `json:"reason,omitzero"`
	Generation int             `json:"generation"` // of the newest specification
	Live       *ReplicaPlan    `json:"live,omitempty"`
	Next       *ReplicaPlan    `json:"next,omitempty"`
	Wanted     int             `json:"wanted"` // replicas that there should be
	WantedWhy  Reason          `json:"wantedWhy,omitzero"`
	Warnings   []string        `json:"warnings,omitempty"`
	Replicas   []ReplicaStatus `json:"replicas,omitempty"` // filled in when somebody looks
	PeakMB     int64           `json:"peakMB,omitempty"`   // the most memory of one replica that the server has heard of; filled in likewise
	OOMKills   int             `json:"oomKills,omitempty"` // processes ended for want of memory; filled in likewise
}

// ReplicaPlan is a deployment's specification made ready: a job without a name for each replica.
type ReplicaPlan struct {
	Generation int     `json:"generation"`
	Spec       JobSpec `json:"spec"`
	Plan       JobPlan `json:"plan"`
}

// ReplicaStatus is one replica as people see it.
type ReplicaStatus struct {
	Name       string    `json:"name"`
	Generation int       `json:"generation"`
	State      string    `json:"state"` // of its job, or Ready
	Node       NodeID    `json:"node,omitempty"`
	Address    string    `json:"address,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Warnings   []string  `json:"warnings,omitempty"`

	MemoryMB int64     `json:"memoryMB,omitempty"` // that it uses
	PeakMB   int64     `json:"peakMB,omitempty"`   // the most that it has used
	CPU      float64   `json:"cpu,omitempty"`      // percent of what it may use
	GPU      *float64  `json:"gpu,omitempty"`      // percent of the GPUs that it was given; nil: not known
	OOMKills int       `json:"oomKills,omitempty"` // processes of it that were ended because its memory had run out
	Measured time.Time `json:"measured,omitzero"`  // when the server heard of these
}

// DeploymentState is where a deployment is in its life. Names are ARM's provisioning states.
type DeploymentState string

// Who moves a deployment in and out of each state.
const (
	DeploymentCreating  DeploymentState = "Creating"  // in: put. out: its first replicas are ready, or one cannot be
	DeploymentUpdating  DeploymentState = "Updating"  // in: put of another specification. out: as Creating
	DeploymentScaling   DeploymentState = "Scaling"   // in: another number of replicas. out: they are there
	DeploymentSucceeded DeploymentState = "Succeeded" // it serves
	DeploymentFailed    DeploymentState = "Failed"    // its newest specification does not; an older one may
	DeploymentDeleting  DeploymentState = "Deleting"  // in: delete. out: gone, when its replicas are
)

var deploymentMoves = map[DeploymentState][]DeploymentState{
	"":                  {DeploymentCreating},
	DeploymentCreating:  {DeploymentSucceeded, DeploymentFailed, DeploymentUpdating, DeploymentDeleting},
	DeploymentUpdating:  {DeploymentSucceeded, DeploymentFailed, DeploymentDeleting},
	DeploymentScaling:   {DeploymentSucceeded, DeploymentFailed, DeploymentUpdating, DeploymentDeleting},
	DeploymentSucceeded: {DeploymentUpdating, DeploymentScaling, DeploymentFailed, DeploymentDeleting},
	DeploymentFailed:    {DeploymentUpdating, DeploymentScaling, DeploymentSucceeded, DeploymentDeleting},
}

// MoveTo is the only way a deployment's state changes.
func (d *OnlineDeployment) MoveTo(to DeploymentState, why Reason, now time.Time) error {
	if from := d.Status.State; from != to && !slices.Contains(deploymentMoves[from], to) {
		return Conflict("deployment %q is %s and cannot become %s", d.Name, from, to)
	}
	if why.Since.IsZero() {
		why.Since = now
	}
	d.Status.State, d.Status.Reason = to, why
	return nil
}

// Done says whether nothing is under way.
func (s DeploymentState) Done() bool { return s == DeploymentSucceeded || s == DeploymentFailed }

// Resources reads Kubernetes quantities: CPU "0.5" or "500m", memory "512Mi", "2Gi" or "1G", GPUs "1".
func (a *ContainerAmounts) Resources() (Resources, error) {
	var r Resources
	if a.CPU != "" {
		v, err := quantity(a.CPU)
		if err != nil {
			return r, Invalid("resources: cpu %q is no amount: want 0.5, 2 or 500m", a.CPU)
		}
		r.CPUs = v
	}
	if a.Memory != "" {
		v, err := quantity(a.Memory)
		if err != nil {
			return r, Invalid("resources: memory %q is no amount: want 512Mi, 2Gi or 1G", a.Memory)
		}
		r.MemoryMB = int64(v) >> 20
	}
	if a.GPU != "" {
		v, err := quantity(a.GPU)
		if err != nil || v != float64(int(v)) {
			return r, Invalid("resources: gpu %q is no whole number", a.GPU)
		}
		r.GPUs = int(v)
	}
	return r, nil
}

// quantity reads a number with one of Kubernetes' suffixes.
func quantity(text string) (float64, error) {
	units := []struct {
		suffix string
		times  float64
	}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}}
	times := 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, times = rest, u.times
			break
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && (v < 0 || v*times > 1e15) {
		err = strconv.ErrRange
	}
	return v * times, err
}
