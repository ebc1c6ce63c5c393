// Package arm is the Azure Resource Manager door: it turns requests in Azure's shapes into calls of a few small interfaces, and what they
// return back into Azure's shapes. One table (routes.go) says what there is. It decides nothing, stores nothing and holds nothing between
// two requests.
package arm

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// Assets are workspaces, datastores, environments, codes, data, models and components: everything that is a trainyard.Resource.
type Assets interface {
	// PutResource creates or updates. An empty Secret leaves the stored one as it is.
	PutResource(ctx context.Context, who trainyard.User, r *trainyard.Resource) (saved *trainyard.Resource, created bool, err error)
	// Resource finds one. Of versioned kinds, version "" is the container, and "@latest" (or another label) the version with that label.
	Resource(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name, version string) (*trainyard.Resource, error)
	Resources(ctx context.Context, q trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error)
	DeleteResource(ctx context.Context, who trainyard.User, scope trainyard.Scope, kind trainyard.Kind, name, version string) error
	// NextVersion is the newest version of a name and the one that a client should give to the next.
	NextVersion(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name string) (latest, next string, err error)
	// Secrets is the whole answer of a datastore's listSecrets.
	Secrets(ctx context.Context, who trainyard.User, scope trainyard.Scope, datastore string) (json.RawMessage, error)
	PendingUpload(ctx context.Context, who trainyard.User, scope trainyard.Scope, kind trainyard.Kind, name, version string) (trainyard.Upload, error)
}

// Jobs are jobs.
type Jobs interface {
	// SubmitJob takes a new job, or updates what may change of the one that has the name: Scope, Name and Spec are set.
	SubmitJob(ctx context.Context, who trainyard.User, job *trainyard.Job) (saved *trainyard.Job, created bool, err error)
	Job(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Job, error)
	Jobs(ctx context.Context, q trainyard.JobQuery) (trainyard.Page[*trainyard.Job], error)
	// CancelJob asks a job to end. One that has ended already is no error.
	CancelJob(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error
	DeleteJob(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error
	JobEvents(ctx context.Context, scope trainyard.Scope, name string, after int64) ([]trainyard.Event, error)
	// JobPosition is at which place of its compute's queue a job is, counted from 1; 0 is not known.
	JobPosition(ctx context.Context, scope trainyard.Scope, name string) (int, error)
}

// Computes are computes and their nodes.
type Computes interface {
	PutCompute(ctx context.Context, who trainyard.User, c *trainyard.Compute) (saved *trainyard.Compute, created bool, err error)
	Compute(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Compute, error)
	Computes(ctx context.Context, scope trainyard.Scope) ([]*trainyard.Compute, error)
	// DeleteCompute begins to delete: the compute may be there for a while, with Deleting set.
	DeleteCompute(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string, force bool) error
	ActOnCompute(ctx context.Context, who trainyard.User, scope trainyard.Scope, name, action string) error // start, stop, restart
	Nodes(ctx context.Context, scope trainyard.Scope, compute string) ([]trainyard.NodeStatus, error)
}

// Places are where machines come from. Only the subscription of a scope counts.
type Places interface {
	Location(ctx context.Context, name string) (trainyard.Location, error)
	// AllLocations lists them, the default first; Used is what the machines of one come to.
	AllLocations(ctx context.Context) ([]trainyard.Location, error)
	Used(ctx context.Context, location string) trainyard.Capacity
	Usages(ctx context.Context, scope trainyard.Scope, location string) ([]trainyard.Usage, error)
	Quotas(ctx context.Context, scope trainyard.Scope, location string) ([]trainyard.Usage, error)
	SetQuotas(ctx context.Context, who trainyard.User, scope trainyard.Scope, location string, limits map[string]int64) error
}

// Endpoints are online endpoints: names under which deployments answer.
type Endpoints interface {
	// PutEndpoint creates or replaces one. Keys are those that the client chose for a new one; empty ones are made.
	PutEndpoint(ctx context.Context, who trainyard.User, e *trainyard.OnlineEndpoint) (saved *trainyard.OnlineEndpoint, created bool, err error)
	Endpoint(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.OnlineEndpoint, error)
	Endpoints(ctx context.Context, scope trainyard.Scope) ([]*trainyard.OnlineEndpoint, error)
	// DeleteEndpoint begins to delete: the endpoint is there, with Deleting set, until its replicas are gone.
	DeleteEndpoint(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error
	EndpointKeys(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) (trainyard.EndpointKeys, error)
	// RegenerateKey replaces the key "Primary" or "Secondary"; an empty value makes one.
	RegenerateKey(ctx context.Context, who trainyard.User, scope trainyard.Scope, name, key, value string) error
	EndpointToken(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) (trainyard.EndpointToken, error)
}

// Deployments are models that serve under an online endpoint.
type Deployments interface {
	PutDeployment(ctx context.Context, who trainyard.User, d *trainyard.OnlineDeployment) (saved *trainyard.OnlineDeployment, created bool, err error)
	// Deployment finds one, with its replicas as they are.
	Deployment(ctx context.Context, scope trainyard.Scope, endpoint, name string) (*trainyard.OnlineDeployment, error)
	Deployments(ctx context.Context, scope trainyard.Scope, endpoint string) ([]*trainyard.OnlineDeployment, error)
	// DeleteDeployment begins to delete, as DeleteEndpoint does.
	DeleteDeployment(ctx context.Context, who trainyard.User, scope trainyard.Scope, endpoint, name string) error
	// DeploymentLogs are the last lines of its replicas' logs. container is one of Azure's containerType, or empty; tail 0 leaves it to control.
	DeploymentLogs(ctx context.Context, scope trainyard.Scope, endpoint, name string, tail int, container string) (string, error)
}

// Config is what New needs. All but Now, Version and Log must be set.
type Config struct {
	Assets   Assets
	Jobs     Jobs
	Computes Computes
	Places   Places

	Endpoints   Endpoints
	Deployments Deployments

	Batch            Batch // nil, with BatchDeployments: this build has none, and says so
	BatchDeployments BatchDeployments

	Auth     func(*http.Request) (trainyard.User, error)
	Allow    func(who trainyard.User, verb string, scope trainyard.Scope, kind trainyard.Kind, name string) error
	External func(*http.Request) string // URL of this server as the caller sees it, without a slash at the end
	Now      func() time.Time           // nil: time.Now
	Version  string                     // of the server, shown in the Server header
	Log      *slog.Logger               // nil: slog.Default
}

// door is a Config with the table made ready.
type door struct {
	Config
	table map[string]*route // by method and path
	known map[string]string // name of every operation of Azure's, by method and path
}

// New is the door. It answers every path: what it does not know with an error in Azure's shape.
func New(c Config) http.Handler {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	rows := routes()
	if c.Batch == nil || c.BatchDeployments == nil {
		rows = slices.DeleteFunc(rows, func(r route) bool {
			return r.kind == trainyard.KindBatchEndpoint || r.kind == trainyard.KindBatchDeployment
		})
	}
	return &door{Config: c, table: index(rows), known: operations()}
}

// call is one request on its way through the door.
type call struct {
	*http.Request
	id    string // x-ms-request-id
	place place
	rest  []string // path segments after the provider
	who   trainyard.User
	out   http.ResponseWriter
	door  *door
}

// ServeHTTP finds who asks and for what, asks whether they may, does it, and answers.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, id: requestID(), out: w, door: d}
	a, err := d.serve(c)
	if err != nil {
		d.fail(c, err)
		return
	}
	d.answer(c, a)
}

func (d *door) serve(c *call) (reply, error) {
	who, err := d.Auth(c.Request)
	if err != nil {
		return reply{}, err
	}
	c.who = who
	rt, err := d.find(c)
	if err != nil {
		return reply{}, err
	}
	if rt.verb != "" {
		if err := d.Allow(who, rt.verb, c.scope(), rt.kind, c.subject(rt)); err != nil {
			return reply{}, err
		}
	}
	return rt.do(d, c, rt.kind)
}

// scope is the workspace of the path; parts that the path lacks are empty.
func (c *call) scope() trainyard.Scope {
	s := trainyard.Scope{Subscription: c.place.subscription, ResourceGroup: c.place.group}
	if len(c.rest) > 1 && fold(c.rest[0]) == "workspaces" {
		s.Workspace = c.rest[1]
	}
	return s
}

// name, version and location are the path's.
func (c *call) name() string     { return c.segment(3) }
func (c *call) location() string { return c.segment(1) }

func (c *call) version() string {
	if fold(c.segment(4)) == "labels" {
		return "@" + c.segment(5)
	}
	return c.segment(5)
}

func (c *call) segment(i int) string {
	if i < len(c.rest) {
		return c.rest[i]
	}
	return ""
}

// subject is the name of what the request is about, for Allow.
func (c *call) subject(rt *route) string {
	if rt.kind == trainyard.KindWorkspace || rt.kind == kindLocation {
		return c.segment(1)
	}
	return c.name()
}

func (c *call) base() string { return c.door.External(c.Request) }
