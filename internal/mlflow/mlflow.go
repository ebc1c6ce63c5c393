// Package mlflow is the door for MLflow's own clients: tracking, the model registry and the artifact proxy, as its REST API has them. Every
// job is a run, of its own name; what clients log to it, and the runs, experiments, logged models and traces that they make, are kept
// here, as lines appended to files in the blob store. Registered models are the workspace's model assets, and artifacts the job's own.
// It starts, ends and changes no job, keeps nothing in the database, and serves no page.
//
// Of a batch that was acknowledged nothing is lost when the server is killed: it is one line of one file, and a line that is torn never was.
// What is in memory is a bounded cache of those files, and the index of what there is.
package mlflow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// Jobs is where runs come from that clients did not make.
type Jobs interface {
	Job(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Job, error)
	// Jobs lists jobs, newest first: in the order of Seq.
	Jobs(ctx context.Context, q trainyard.JobQuery) (trainyard.Page[*trainyard.Job], error)
}

// Models is where registered models are, the workspace's assets of trainyard.KindModel, and where it is asked whether the workspace is there.
type Models interface {
	Resource(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name, version string) (*trainyard.Resource, error)
	Resources(ctx context.Context, q trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error)
	NextVersion(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name string) (latest, next string, err error)
	PutResource(ctx context.Context, who trainyard.User, in *trainyard.Resource) (*trainyard.Resource, bool, error)
	DeleteResource(ctx context.Context, who trainyard.User, scope trainyard.Scope, kind trainyard.Kind, name, version string) error
}

// Bucket is where bytes are kept; blob.Bucket is one, and its words on each method hold.
type Bucket interface {
	Append(ctx context.Context, key string, offset int64, data []byte) (size int64, err error)
	OpenRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, trainyard.BlobInfo, error)
	Stat(ctx context.Context, key string) (trainyard.BlobInfo, error)
	PutWith(ctx context.Context, key string, r io.Reader, contentType string, metadata map[string]string, ifNoneMatch bool) (trainyard.BlobInfo, error)
	Page(ctx context.Context, prefix, delimiter, marker string, max int) (items []trainyard.BlobInfo, prefixes []string, next string, err error)
	Delete(ctx context.Context, key string) error
	DeletePrefix(ctx context.Context, prefix string) error
}

// Config is what New needs: Jobs, Models, Blobs and Allow.
type Config struct {
	Jobs   Jobs
	Models Models
	Blobs  Bucket
	// Allow says who asks, and refuses those who may not read the workspace, or write to it. What a job's token may write is narrower, and
	// found out here: its own run and those below it.
	Allow func(r *http.Request, scope trainyard.Scope, write bool) (trainyard.User, error)
	// JobsRegister lets a job's token register new versions of models from the artifacts of its own run.
	JobsRegister bool
	CacheBytes   int64            // about how much of what was logged is kept in memory; 0: 64 MiB
	Now          func() time.Time // nil: time.Now
	Log          *slog.Logger     // nil: slog.Default()
}

type door struct {
	Config
	journal *journal

	mu        sync.Mutex
	books     map[string]*book // by Scope.Key
	registers sync.Mutex       // serialises the numbering of model versions
}

// New serves /mlflow/…; mount it there.
func New(c Config) http.Handler {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 64 << 20
	}
	return &door{Config: c, journal: newJournal(c.Blobs, c.CacheBytes), books: map[string]*book{}}
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, w: w}
	rt, err := find(c)
	if err == nil {
		c.who, err = d.allow(c, rt.writes)
	}
	if err == nil {
		err = d.workspace(c.Context(), c.scope)
	}
	if err == nil {
		err = rt.do(d, c)
	}
	if err != nil {
		d.fail(c, err)
	}
}

func (d *door) allow(c *call, write bool) (trainyard.User, error) {
	if d.Allow == nil {
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown, "this server lets nobody use MLflow")
	}
	return d.Allow(c.Request, c.scope, write)
}

// workspace refuses one that is not there. One that was seen once is not looked for again.
func (d *door) workspace(ctx context.Context, scope trainyard.Scope) error {
	d.mu.Lock()
	_, known := d.books[scope.Key()]
	d.mu.Unlock()
	if known {
		return nil
	}
	if _, err := d.Models.Resource(ctx, scope, trainyard.KindWorkspace, scope.Workspace, ""); err != nil {
		return err
	}
	d.book(scope)
	return nil
}

// now is the present in milliseconds since 1970, as MLflow counts.
func (d *door) now() int64 { return d.Now().UnixMilli() }

// newID is 32 hexadecimal digits that nobody can guess.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
