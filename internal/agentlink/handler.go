// Package agentlink is both HTTP ends of the link between a node's agent and the server: Handler at the server, Client at the agent. All
// goes over one outbound connection of the agent (HTTP/2 with TLS; plain HTTP on loopback), as JSON and raw bytes, with long polls for
// what is wanted. It keeps no state but the token, decides nothing and tries nothing twice: that is the agent's.
// Tasks that an engine began without telling them what to run ask by the same way, with a ticket of their own, again and again: Ask.
package agentlink

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Server is what the agents of nodes ask; package control satisfies it.
type Server interface {
	Join(ctx context.Context, info trainyard.NodeInfo) (trainyard.NodeLease, error)
	Wanted(ctx context.Context, node trainyard.NodeID, epoch, after int64) (trainyard.Wanted, error)
	Report(ctx context.Context, r trainyard.Report) error
	Append(ctx context.Context, node trainyard.NodeID, epoch int64, task trainyard.TaskID, name string, offset int64, data []byte) (size int64, err error)
	Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error)
	List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error)
	Put(ctx context.Context, key string, r io.Reader) error
}

// Jobs is what tasks that stage themselves, without a node's agent, may do with their job's token.
type Jobs interface {
	// MayRead and MayWrite refuse keys that are not the job's to read or write, and jobs that are over.
	MayRead(ctx context.Context, who trainyard.User, key string) error
	MayWrite(ctx context.Context, who trainyard.User, key string) error
	// AppendOwn is Server.Append for a task of the job.
	AppendOwn(ctx context.Context, who trainyard.User, task trainyard.TaskID, name string, offset int64, data []byte) (size int64, err error)
}

// Config is what the server's end works with. Server and Auth are required.
type Config struct {
	Server  Server
	Jobs    Jobs                                       // nil: jobs' tokens are refused
	Tunnels Tunnels                                    // nil: no connections to replicas are taken
	Tellers Tellers                                    // nil: no task asks what it is to run
	Auth    func(token string) (trainyard.User, error) // who a bearer token speaks for
	Log     *slog.Logger                               // nil: silent
}

// Bounds of request bodies in bytes.
const (
	maxReport = 16 << 20
	maxChunk  = 1 << 20
	maxJoin   = 4 << 20
)

// stall is how long a request or an answer may stand still.
const stall = time.Minute

// infoHeader carries a blob's description beside its bytes, as JSON.
const infoHeader = "Trainyard-Blob"

type handler struct{ Config }

// Handler serves /agent/v1/…
func Handler(c Config) http.Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h := handler{c}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /agent/v1/join", h.join)
	mux.HandleFunc("POST /agent/v1/nodes/{node}/begin", h.begin)
	mux.HandleFunc("GET /agent/v1/nodes/{node}/wanted", h.asNode(h.wanted))
	mux.HandleFunc("POST /agent/v1/nodes/{node}/report", h.asNode(h.report))
	mux.HandleFunc("GET /agent/v1/nodes/{node}/dials/{id}", h.asNode(h.dialled))
	mux.HandleFunc("POST /agent/v1/nodes/{node}/dials/{id}", h.asNode(h.dialled))
	mux.HandleFunc("POST /agent/v1/nodes/{node}/log", h.asEither(h.append, h.appendOwn))
	mux.HandleFunc("GET /agent/v1/nodes/{node}/blobs", h.asEither(h.list, h.asJob("prefix", Jobs.MayRead, h.list)))
	mux.HandleFunc("GET /agent/v1/nodes/{node}/blob", h.asEither(h.open, h.asJob("key", Jobs.MayRead, h.open)))
	mux.HandleFunc("PUT /agent/v1/nodes/{node}/blob", h.asEither(h.put, h.asJob("key", Jobs.MayWrite, h.put)))
	return mux
}

type nodeFunc func(w http.ResponseWriter, r *http.Request, node trainyard.NodeID) error
type jobFunc func(w http.ResponseWriter, r *http.Request, who trainyard.User) error

// asNode lets only the node's own token through.
func (h handler) asNode(do nodeFunc) http.HandlerFunc { return h.asEither(do, nil) }

// asJob lets a job do what it may do with the key that the query names.
func (h handler) asJob(name string, may func(Jobs, context.Context, trainyard.User, string) error, do nodeFunc) jobFunc {
	return func(w http.ResponseWriter, r *http.Request, who trainyard.User) error {
		k, err := key(r, name)
		if err == nil {
			err = may(h.Jobs, r.Context(), who, k)
		}
		if err != nil {
			return err
		}
		return do(w, r, "")
	}
}

// asEither lets the node's own token through, and a job's to what is for jobs.
func (h handler) asEither(do nodeFunc, own jobFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		node := trainyard.NodeID(r.PathValue("node"))
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall)) // longer than a long poll; not every writer can
		who, err := h.Auth(token)
		switch {
		case err != nil:
		case who.Role == trainyard.RoleAgent && who.Node == node && node != "":
			err = do(w, r, node)
		case who.Role == trainyard.RoleJob && own != nil && h.Jobs != nil:
			err = own(w, r, who)
		default:
			err = trainyard.Errorf(trainyard.CodeForbidden, "this token does not speak for node %q", node)
		}
		if err != nil {
			h.fail(w, r, err)
		}
	}
}

// fail answers with an error. When the request's context is done, the server stops (or nobody listens): saying nothing would be a 200.
func (h handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*trainyard.Error](err)
	switch {
	case r.Context().Err() != nil && (!ok || e.Code == trainyard.CodeInternal):
		e = trainyard.Errorf(trainyard.CodeBusy, "the server is stopping")
	case !ok:
		h.Log.Error("agent request", "path", r.URL.Path, "err", err)
		e = trainyard.Errorf(trainyard.CodeInternal, "%v", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code.Status()) // the code itself travels in the body
	_ = json.NewEncoder(w).Encode(e)
}

func (h handler) join(w http.ResponseWriter, r *http.Request) {
	var info trainyard.NodeInfo
	err := decode(w, r, maxJoin, &info)
	if err == nil {
		var lease trainyard.NodeLease
		if lease, err = h.Server.Join(r.Context(), info); err == nil {
			err = answer(w, lease)
		}
	}
	if err != nil {
		h.fail(w, r, err)
	}
}

func (h handler) wanted(w http.ResponseWriter, r *http.Request, node trainyard.NodeID) error {
	epoch, err := number(r, "epoch")
	if err != nil {
		return err
	}
	after, err := number(r, "after")
	if err != nil {
		return err
	}
	wanted, err := h.Server.Wanted(r.Context(), node, epoch, after)
	if err != nil {
		return err
	}
	return answer(w, wanted)
}

func (h handler) report(w http.ResponseWriter, r *http.Request, node trainyard.NodeID) error {
	var report trainyard.Report
	if err := decode(w, r, maxReport, &report); err != nil {
		return err
	}
	if report.Node != node {
		return trainyard.Errorf(trainyard.CodeForbidden, "node %q cannot report for node %q", node, report.Node)
	}
	if err := h.Server.Report(r.Context(), report); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

// appended is the answer to log bytes.
type appended struct {
	Size int64 `json:"size"`
}

func (h handler) append(w http.ResponseWriter, r *http.Request, node trainyard.NodeID) error {
	epoch, err := number(r, "epoch")
	if err != nil {
		return err
	}
	return addLog(w, r, func(task trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
		return h.Server.Append(r.Context(), node, epoch, task, name, offset, data)
	})
}

func (h handler) appendOwn(w http.ResponseWriter, r *http.Request, who trainyard.User) error {
	return addLog(w, r, func(task trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
		return h.Jobs.AppendOwn(r.Context(), who, task, name, offset, data)
	})
}

// addLog reads what a request adds to which log.
func addLog(w http.ResponseWriter, r *http.Request, add func(task trainyard.TaskID, name string, offset int64, data []byte) (int64, error)) error {
	offset, err := position(r)
	if err != nil {
		return err
	}
	data, err := whole(w, r, maxChunk)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	size, err := add(trainyard.TaskID(q.Get("task")), q.Get("name"), offset, data)
	if err != nil {
		return err
	}
	return answer(w, appended{size})
}

func (h handler) list(w http.ResponseWriter, r *http.Request, _ trainyard.NodeID) error {
	prefix, err := key(r, "prefix")
	if err != nil {
		return err
	}
	infos, err := h.Server.List(r.Context(), prefix)
	if err != nil {
		return err
	}
	return answer(w, infos)
}

func (h handler) open(w http.ResponseWriter, r *http.Request, _ trainyard.NodeID) error {
	name, err := key(r, "key")
	if err != nil {
		return err
	}
	offset, err := position(r)
	if err != nil {
		return err
	}
	body, info, err := h.Server.Open(r.Context(), name, offset)
	if err != nil {
		return err
	}
	defer body.Close()
	doc, err := json.Marshal(info)
	if err != nil {
		return err
	}
	w.Header().Set(infoHeader, base64.StdEncoding.EncodeToString(doc))
	w.Header().Set("Content-Type", "application/octet-stream")
	if info.Size >= offset {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size-offset, 10))
	}
	if _, err := io.Copy(patient{w, http.NewResponseController(w)}, body); err != nil {
		if r.Context().Err() == nil {
			h.Log.Warn("send a blob to an agent", "key", name, "err", err)
		}
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

func (h handler) put(w http.ResponseWriter, r *http.Request, _ trainyard.NodeID) error {
	name, err := key(r, "key")
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // it counts from the last byte read, below
	if err := h.Server.Put(r.Context(), name, arriving{r.Body, control}); err != nil {
		return err
	}
	_ = control.SetWriteDeadline(time.Now().Add(stall))
	return answer(w, struct{}{})
}

// patient lets every write have its time, however long the whole takes.
type patient struct {
	io.Writer
	control *http.ResponseController
}

func (p patient) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(stall))
	return p.Writer.Write(b)
}

// arriving lets every read have its time.
type arriving struct {
	io.Reader
	control *http.ResponseController
}

func (a arriving) Read(b []byte) (int, error) {
	_ = a.control.SetReadDeadline(time.Now().Add(stall))
	return a.Reader.Read(b)
}

// key is a blob key or prefix of the query. One that climbs out of its container never reaches the store.
func key(r *http.Request, name string) (string, error) {
	k := r.URL.Query().Get(name)
	if k == "" || strings.HasPrefix(k, "/") || slices.Contains(strings.Split(k, "/"), "..") || strings.ContainsAny(k, "\\\x00") {
		return "", trainyard.Invalid("%s is %q, want CONTAINER/PATH", name, k)
	}
	return k, nil
}

// whole reads a body of at most limit bytes.
func whole(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body := http.MaxBytesReader(w, r.Body, limit)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stall))
	var b bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= limit {
		b.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(body); err != nil {
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			return nil, trainyard.Invalid("the body of %s is longer than %d bytes", r.URL.Path, limit)
		}
		return nil, trainyard.Errorf(trainyard.CodeBusy, "the body of %s did not arrive: %v", r.URL.Path, err)
	}
	return b.Bytes(), nil
}

func decode(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	data, err := whole(w, r, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return trainyard.Invalid("the body of %s is not readable: %v", r.URL.Path, err)
	}
	return nil
}

func answer(w http.ResponseWriter, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
	return nil
}

// position is the query's offset.
func position(r *http.Request) (int64, error) {
	n, err := number(r, "offset")
	if err == nil && n < 0 {
		err = trainyard.Invalid("offset is %d, want no less than 0", n)
	}
	return n, err
}

func number(r *http.Request, name string) (int64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, trainyard.Invalid("%s is %q, want a whole number", name, s)
	}
	return n, nil
}
