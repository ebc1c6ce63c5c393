// Package studio is the door for people with a browser: pages rendered here, one file and one template a page, whose live parts come over
// server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html). It shows jobs with their timelines, logs and files,
// computes with their nodes, endpoints with their deployments and models, and lets a person cancel a job. It decides nothing, and keeps
// nothing but a minute of the gateway's counts; everything works without scripts, but for what changes while one looks; and no page loads
// anything from elsewhere.
package studio

import (
	"context"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// Jobs are jobs, as arm.Jobs has them.
type Jobs interface {
	Job(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Job, error)
	Jobs(ctx context.Context, q trainyard.JobQuery) (trainyard.Page[*trainyard.Job], error)
	// JobPosition is at which place of its compute's queue a job is, counted from 1; 0 is not known.
	JobPosition(ctx context.Context, scope trainyard.Scope, name string) (int, error)
	JobEvents(ctx context.Context, scope trainyard.Scope, name string, after int64) ([]trainyard.Event, error)
	// CancelJob asks a job to end. One that has ended already is no error.
	CancelJob(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error
}

// Logs are what jobs said, as history.Runs has them.
type Logs interface {
	// LogFiles lists a job's logs. Keys are their names: "user_logs/std_log.txt".
	LogFiles(ctx context.Context, scope trainyard.Scope, job string) ([]trainyard.BlobInfo, error)
	// ReadLog reads a log from a byte offset to the end that it has now; a log that is not there is NotFound.
	ReadLog(ctx context.Context, scope trainyard.Scope, job, name string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error)
	// WaitLog returns a log's size when it is more than beyond, when the job is terminal, or when ctx is done, which is no error.
	WaitLog(ctx context.Context, scope trainyard.Scope, job, name string, beyond int64) (size int64, err error)
}

// Computes are computes and their nodes.
type Computes interface {
	Compute(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Compute, error)
	Computes(ctx context.Context, scope trainyard.Scope) ([]*trainyard.Compute, error)
	Nodes(ctx context.Context, scope trainyard.Scope, compute string) ([]trainyard.NodeStatus, error)
	// Waiting lists the jobs that wait for a compute, at most so many, the first in its queue first, and says whether there are others.
	Waiting(ctx context.Context, scope trainyard.Scope, compute string, most int) (list []*trainyard.Job, more bool, err error)
	// Location is what a location's name, or another word for one, means.
	Location(ctx context.Context, name string) (trainyard.Location, error)
}

// Endpoints are online endpoints and their deployments, as arm.Endpoints and arm.Deployments have them.
type Endpoints interface {
	Endpoint(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.OnlineEndpoint, error)
	Endpoints(ctx context.Context, scope trainyard.Scope) ([]*trainyard.OnlineEndpoint, error)
	// Deployments are an endpoint's, with their replicas.
	Deployments(ctx context.Context, scope trainyard.Scope, endpoint string) ([]*trainyard.OnlineDeployment, error)
	// DeploymentLogs is the end of what the replicas said, so many lines of each: of the container "InferenceServer", or of
	// "StorageInitializer", which prepares it.
	DeploymentLogs(ctx context.Context, scope trainyard.Scope, endpoint, name string, tail int, container string) (string, error)
}

// Files are stored bytes by key.
type Files interface {
	// List lists everything whose key begins with prefix, in order of key.
	List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error)
	// Open reads from a byte offset to the end that there is now; what is not there is NotFound.
	Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error)
}

// Changes tells what changes, and what has happened.
type Changes interface {
	// Subscribe calls f, which must not block, for each change. After stop it is not called again.
	Subscribe(f func(trainyard.Change)) (stop func())
	// Events lists what happened, in order of Seq, after the query's After.
	Events(ctx context.Context, q trainyard.EventQuery) ([]trainyard.Event, error)
}

// Resources lists workspaces and models.
type Resources interface {
	Resources(ctx context.Context, q trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error)
}

// Config is what New needs. All but Gateway, External, Now and Log must be set.
type Config struct {
	Jobs      Jobs
	Logs      Logs
	Computes  Computes
	Endpoints Endpoints
	Files     Files
	Changes   Changes
	Resources Resources
	Gateway   func() []trainyard.ServeStats // what the gateway has counted; nil: no numbers are shown
	Sessions  *identity.Sessions
	External  func(*http.Request) string // URL of this server as the caller sees it, without a slash at its end; nil: identity.External
	Now       func() time.Time           // nil: time.Now
	Log       *slog.Logger               // nil: slog.Default()
}

// Paths are the patterns of http.ServeMux that New's handler is for.
func Paths() []string {
	return []string{"GET /{$}", "/jobs", "/jobs/", "/computes", "/computes/", "/endpoints", "/endpoints/", "/models", "/models/", "/studio", "/studio/"}
}

// door is a Config with what is made ready at the start.
type door struct {
	Config
	pages   *template.Template
	assets  assets
	logins  *throttle
	traffic *traffic
}

// New is the door; mount it at Paths.
func New(c Config) http.Handler {
	if c.External == nil {
		c.External = identity.External
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	d := &door{Config: c, pages: parse(), assets: loadAssets(), logins: newThrottle(), traffic: &traffic{read: c.Gateway}}
	mux := http.NewServeMux()
	for _, r := range d.routes() {
		mux.Handle(r.pattern, r.handler)
	}
	// A page elsewhere must not be able to make a browser that is logged in here do anything.
	return http.NewCrossOriginProtection().Handler(mux)
}

type route struct {
	pattern string
	handler http.Handler
}

// routes is all that is served. What goes through page or act needs a session.
func (d *door) routes() []route {
	home := http.RedirectHandler("/jobs", http.StatusFound)
	return []route{
		{"GET /{$}", home},
		{"GET /studio", home},
		{"GET /studio/{$}", home},
		{"GET /jobs/{$}", home},
		{"GET /computes/{$}", http.RedirectHandler("/computes", http.StatusFound)},
		{"GET /endpoints/{$}", http.RedirectHandler("/endpoints", http.StatusFound)},
		{"GET /models/{$}", http.RedirectHandler("/models", http.StatusFound)},

		{"GET /jobs", d.page(trainyard.KindJob, (*door).showJobs)},
		{"GET /jobs/{name}", d.page(trainyard.KindJob, (*door).showJob)},
		{"GET /jobs/{name}/files/{path...}", d.page(trainyard.KindJob, (*door).sendFile)},
		{"GET /jobs/{name}/outputs/{output}/{path...}", d.page(trainyard.KindJob, (*door).sendOutput)},
		{"POST /jobs/{name}/cancel", d.act(trainyard.KindJob, (*door).cancelJob)},
		{"GET /computes", d.page(trainyard.KindCompute, (*door).showComputes)},
		{"GET /computes/{name}", d.page(trainyard.KindCompute, (*door).showCompute)},
		{"GET /endpoints", d.page(trainyard.KindOnlineEndpoint, (*door).showEndpoints)},
		{"GET /endpoints/{name}", d.page(trainyard.KindOnlineEndpoint, (*door).showEndpoint)},
		{"GET /models", d.page(trainyard.KindModel, (*door).showModels)},
		{"GET /models/{name}", d.page(trainyard.KindModel, (*door).showModels)},
		{"GET /studio/workspaces", d.page(trainyard.KindWorkspace, (*door).showWorkspaces)},

		{"GET /studio/live/jobs", d.page(trainyard.KindJob, (*door).streamJobs)},
		{"GET /studio/live/jobs/{name}", d.page(trainyard.KindJob, (*door).streamJob)},
		{"GET /studio/live/computes", d.page(trainyard.KindCompute, (*door).streamComputes)},
		{"GET /studio/live/computes/{name}", d.page(trainyard.KindCompute, (*door).streamCompute)},
		{"GET /studio/live/endpoints", d.page(trainyard.KindOnlineEndpoint, (*door).streamEndpoints)},
		{"GET /studio/live/endpoints/{name}", d.page(trainyard.KindOnlineEndpoint, (*door).streamEndpoint)},
		{"GET /studio/live/models", d.page(trainyard.KindModel, (*door).streamModels)},
		{"GET /studio/live/models/{name}", d.page(trainyard.KindModel, (*door).streamModels)},

		{"GET /studio/static/{file}", http.HandlerFunc(d.sendAsset)},
		{"GET /studio/login", http.HandlerFunc(d.redeem)},
		{"POST /studio/login", http.HandlerFunc(d.login)},
		{"POST /studio/logout", http.HandlerFunc(d.logout)},
		{"POST /studio/tickets", http.HandlerFunc(d.makeTicket)},
		{"/", http.HandlerFunc(d.nowhere)},
	}
}
