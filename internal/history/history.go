// Package history is the door that clients watch runs through: Azure ML's run history (details, children, run data, service instances),
// the one data plane call that its clients need to find named outputs, and the log files of a job, live. It turns requests into calls on
// Runs and shapes the answers; it decides nothing, keeps nothing, and changes no run.
//
// Logs have URLs that carry their own token, since clients fetch them with no credentials. Beside the plain GET that Azure's clients use,
// they can be followed: GET {log}?offset=N&wait=SECONDS answers with the bytes from N on, and waits for there to be any until the job is
// over. The headers Trainyard-Log-Size and Trainyard-Job-Status say how much there is and how the job is; a follower that has read all
// of a log whose job is terminal has read everything.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// Runs is what the door opens on to.
type Runs interface {
	Job(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Job, error)
	// Watched is Job for a client that polls a run's details to follow its log: the end is shown one look later than it came, so that
	// a client that reads logs only of live runs reads the last lines too.
	Watched(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Job, error)
	// LogFiles lists a job's logs. Keys are their names: "user_logs/std_log.txt".
	LogFiles(ctx context.Context, scope trainyard.Scope, job string) ([]trainyard.BlobInfo, error)
	// ReadLog reads a log from a byte offset to the end that it has now; a log that is not there is NotFound.
	ReadLog(ctx context.Context, scope trainyard.Scope, job, name string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error)
	// WaitLog returns a log's size when it is more than beyond, when the job is terminal, or when ctx is done, which is no error.
	WaitLog(ctx context.Context, scope trainyard.Scope, job, name string, beyond int64) (size int64, err error)
}

// Signer makes and checks queries that let their bearer do perms to the keys under a prefix; blobrest.Signer is one.
type Signer interface {
	Sign(prefix, perms string, expiry time.Time) url.Values
	Verify(q url.Values, key string, perm byte) error
}

// Config is what New needs.
type Config struct {
	Runs   Runs
	Signer Signer
	// Allow says who asks, and refuses those who may not read the workspace, or write to it.
	Allow func(r *http.Request, scope trainyard.Scope, write bool) (trainyard.User, error)
	// Data finds a version of a data asset for batchGetResolvedUris. Nil finds none.
	Data     func(ctx context.Context, scope trainyard.Scope, name, version string) (*trainyard.Resource, error)
	External func(r *http.Request) string // URL of this server as the caller sees it, without a slash at its end; nil: identity.External
	Now      func() time.Time             // nil: time.Now
	Log      *slog.Logger                 // nil: slog.Default()
}

type door struct{ Config }

// New serves /history/v1.0/… and /data/v1.0/…; mount it at both.
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
	return &door{c}
}

// call is one request, taken apart.
type call struct {
	*http.Request
	w     http.ResponseWriter
	scope trainyard.Scope
	run   string // of …/runs/{run}/…
	rest  string // what is left of the path: the name of a log or a node
}

// route is a row of the table of what is served. In path, {run} is one segment and {rest} one or more.
type route struct {
	method, plane, path string
	open                bool // does not need Allow: the handler checks the caller itself
	do                  func(*door, *call) error
}

var routes = []route{
	{http.MethodGet, "history", "runs/{run}", false, (*door).getRun},
	{http.MethodGet, "history", "runs/{run}/details", false, (*door).details},
	{http.MethodGet, "history", "runs/{run}/children", false, (*door).children},
	{http.MethodGet, "history", "runs/{run}/serviceinstances/{rest}", false, (*door).services},
	{http.MethodGet, "history", "runs/{run}/logs/{rest}", true, (*door).log},
	{http.MethodHead, "history", "runs/{run}/logs/{rest}", true, (*door).log},
	{http.MethodPost, "history", "rundata", false, (*door).runData},
	{http.MethodPost, "data", "dataversion/batchGetResolvedUris", false, (*door).resolve},
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, w: w}
	rt, err := find(c)
	if err == nil && !rt.open {
		_, err = d.allow(c)
	}
	if err == nil {
		err = rt.do(d, c)
	}
	if err != nil {
		d.fail(c, err)
	}
}

func (d *door) allow(c *call) (trainyard.User, error) {
	if d.Allow == nil {
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown, "this server lets nobody read runs")
	}
	return d.Allow(c.Request, c.scope, false)
}

// workspacePath is what stands between the plane and a route's path. Names match without regard to case.
var workspacePath = []string{"v1.0", "subscriptions", "", "resourceGroups", "", "providers", trainyard.Provider, "workspaces", ""}

// find looks the request up in the table of routes and fills in what the path says.
func find(c *call) (*route, error) {
	unknown := trainyard.NotFound("there is nothing at %s %s", c.Method, c.URL.Path)
	parts, err := segments(c.URL.EscapedPath())
	if err != nil || len(parts) < 2+len(workspacePath) {
		return nil, unknown
	}
	for i, want := range workspacePath {
		if want != "" && !strings.EqualFold(parts[1+i], want) {
			return nil, unknown
		}
	}
	c.scope = trainyard.Scope{Subscription: parts[3], ResourceGroup: parts[5], Workspace: parts[9]}
	path := parts[1+len(workspacePath):]
	if len(path) > 2 && (strings.EqualFold(path[0], "experiments") || strings.EqualFold(path[0], "experimentids")) {
		path = path[2:] // runs have one name in a workspace, whatever their experiment
	}
	wrongMethod := false
	for i := range routes {
		if rt := &routes[i]; strings.EqualFold(rt.plane, parts[0]) && rt.matches(path, c) {
			if rt.method == c.Method {
				return rt, nil
			}
			wrongMethod = true
		}
	}
	if wrongMethod {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "%s is not built for %s", c.Method, c.URL.Path)
	}
	return nil, unknown
}

func (rt *route) matches(path []string, c *call) bool {
	want := strings.Split(rt.path, "/")
	for i, w := range want {
		switch {
		case i >= len(path):
			return false
		case w == "{run}":
			c.run = path[i]
		case w == "{rest}":
			c.rest = strings.Join(path[i:], "/")
			return true
		case !strings.EqualFold(w, path[i]):
			return false
		}
	}
	return len(path) == len(want)
}

// segments splits a path as it came over the wire, so that an escaped slash stays in its segment until now.
func segments(escaped string) ([]string, error) {
	parts := strings.Split(strings.Trim(escaped, "/"), "/")
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err != nil || plain == "" {
			return nil, errors.New("empty or badly escaped segment")
		}
		parts[i] = plain
	}
	return parts, nil
}

// maxBody bounds what is read of a request.
const maxBody = 1 << 20

func (c *call) decode(into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(c.w, c.Body, maxBody)).Decode(into); err != nil {
		return trainyard.Invalid("the body of %s is not the JSON object that is wanted: %v", c.URL.Path, err)
	}
	return nil
}

func (c *call) reply(body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = c.w.Write(data) // if the client is gone there is nobody to tell
	return nil
}

// fail answers with an error in ARM's shape, which run history's clients read as well.
func (d *door) fail(c *call, err error) {
	e, ok := errors.AsType[*trainyard.Error](err)
	if !ok {
		if c.Context().Err() != nil {
			return // the client is gone
		}
		d.Log.Error("run history request", "method", c.Method, "path", c.URL.Path, "error", err)
		e = trainyard.Errorf(trainyard.CodeInternal, "the server could not do this; its log says why")
	}
	status := e.Code.Status()
	head := c.w.Header()
	head.Del("Content-Length")
	switch status {
	case http.StatusUnauthorized:
		head.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		head.Set("Retry-After", "1")
	}
	body, err := json.Marshal(map[string]any{"error": e})
	if err != nil {
		body = nil
	}
	head.Set("Content-Type", "application/json; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body)
}
