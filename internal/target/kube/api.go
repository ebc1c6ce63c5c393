package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard"
)

// client is one namespace of one API server, spoken to in JSON. client-go does the connections and the logging in; its own clients would
// decode all of every pod, and hold calls back to five a second.
type client struct {
	rest      *rest.Config
	http      *http.Client
	base      *url.URL
	namespace string

	firstWord, silence time.Duration // after which a script in a pod is given up, see direct
	near               atomic.Bool   // bytes cost less than packing them
	far                atomic.Bool   // a program was sent to where they do not
	notDirect          atomic.Int64  // until when scripts go only the other way: Unix time in ns
}

// patience bounds a call that is no watch.
const patience = 20 * time.Second

func (c *Config) connect() (*client, error) {
	var cfg *rest.Config
	var err error
	if c.InCluster {
		cfg, err = rest.InClusterConfig()
		if err != nil {
			return nil, trainyard.Invalid("inCluster is set, and this is no pod with a service account: %v", err)
		}
	} else if cfg, err = readKubeconfig(c.Kubeconfig, c.Context); err != nil {
		return nil, err
	}
	cfg.UserAgent = "trainyard"
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, trainyard.Invalid("the kubeconfig cannot be used: %v", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, trainyard.Invalid("the kubeconfig's server %q: %v", cfg.Host, err)
	}
	return &client{rest: cfg, http: h, base: base, namespace: c.namespace(), firstWord: firstWord, silence: longSilence}, nil
}

// Kinds of objects, as in paths.
const (
	jobs = "jobs"

	deployments = "deployments"

	pods       = "pods"
	secrets    = "secrets"
	configMaps = "configmaps"
	services   = "services"
	events     = "events"
	nodes      = "nodes"
)

// path is the URL path of a kind, or of one object below it.
func (c *client) path(kind string, below ...string) string {
	p := "/api/v1/namespaces/" + c.namespace + "/" + kind
	switch kind {
	case jobs:
		p = "/apis/batch/v1/namespaces/" + c.namespace + "/jobs"
	case deployments:
		p = "/apis/apps/v1/namespaces/" + c.namespace + "/deployments"
	case nodes:
		p = "/api/v1/nodes"
	}
	for _, b := range below {
		p += "/" + url.PathEscape(b)
	}
	return p
}

func (c *client) url(path string, query url.Values) *url.URL {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	return &u
}

// send makes a request and returns the answer's body if it went well.
func (c *client) send(ctx context.Context, method, path string, query url.Values, kind string, body any) (io.ReadCloser, error) {
	req, err := c.request(ctx, method, path, query, kind, body)
	if err != nil {
		return nil, err
	}
	return c.do(req)
}

func (c *client) request(ctx context.Context, method, path string, query url.Values, kind string, body any) (*http.Request, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url(path, query).String(), in)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	req.Header.Set("Accept", "application/json, */*")
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	return req, nil
}

func (c *client) do(req *http.Request) (io.ReadCloser, error) {
	res, err := c.http.Do(req)
	if err != nil {
		return nil, &unreachable{host: c.base.Host, err: err}
	}
	if res.StatusCode < 300 {
		return res.Body, nil
	}
	defer res.Body.Close()
	return nil, readStatus(res)
}

// call makes a request and decodes the answer into out, which may be nil.
func (c *client) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	kind := ""
	if body != nil {
		kind = "application/json"
	}
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	r, err := c.send(ctx, method, path, query, kind, body)
	if err != nil {
		return err
	}
	defer r.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, r)
		return err
	}
	if err := json.NewDecoder(r).Decode(out); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	return nil
}

func (c *client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, http.MethodGet, path, query, nil, out)
}

func (c *client) create(ctx context.Context, path string, body, out any) error {
	return c.call(ctx, http.MethodPost, path, nil, body, out)
}

func (c *client) patch(ctx context.Context, path string, body any) error {
	return c.call(ctx, http.MethodPatch, path, nil, body, nil)
}

// remove deletes an object; one that is not there is gone already.
func (c *client) remove(ctx context.Context, path string, options object) error {
	_, err := c.removed(ctx, path, options)
	return err
}

// removed is remove that says whether the object is gone: the answer is then a Status, and the object where something has to be done before.
func (c *client) removed(ctx context.Context, path string, options object) (gone bool, err error) {
	var answer struct {
		Kind string `json:"kind"`
	}
	err = c.call(ctx, http.MethodDelete, path, nil, options, &answer)
	if isMissing(err) {
		return true, nil
	}
	return err == nil && answer.Kind == "Status", err
}

// unreachable is an API server that did not answer at all.
type unreachable struct {
	host string
	err  error
}

func (e *unreachable) Error() string {
	why := e.err
	if u, ok := errors.AsType[*url.Error](why); ok { // which repeats the whole address of what was asked for
		why = u.Err
	}
	return fmt.Sprintf("the Kubernetes API at %s cannot be reached: %v", e.host, why)
}
func (e *unreachable) Unwrap() error { return e.err }

func isAway(err error) bool {
	_, away := errors.AsType[*unreachable](err)
	return away
}

// status is Kubernetes' way to say no.
type status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (s *status) Error() string { return s.Message }

// readStatus makes an error of an answer. One that lacks a right says what to do about it.
func readStatus(res *http.Response) error {
	s := &status{}
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // a cut answer is as good as none
	if json.Unmarshal(data, s) != nil || s.Message == "" {
		s.Message = strings.TrimSpace(string(data[:min(len(data), 500)]))
	}
	s.Code = res.StatusCode
	switch {
	case s.Code == http.StatusUnauthorized:
		return trainyard.Errorf(trainyard.CodeForbidden, "the Kubernetes API at %s does not know who we are (%s); attach the compute again with a "+
			"kubeconfig whose token or certificate is valid", res.Request.URL.Host, s.Message)
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, " cannot "):
		return trainyard.Errorf(trainyard.CodeForbidden, "%s; apply trainyard's RBAC manifest to the namespace", s.Message)
	}
	return s
}

func statusCode(err error) int {
	if s, ok := errors.AsType[*status](err); ok {
		return s.Code
	}
	return 0
}

func isMissing(err error) bool { return statusCode(err) == http.StatusNotFound }
func isThere(err error) bool   { return statusCode(err) == http.StatusConflict }
func isGone(err error) bool    { return statusCode(err) == http.StatusGone }

// later makes an error that says to come again of one that may be gone by then: the API server has no time, or something that it asks about
// every object, as Kueue's webhook, does not answer it.
func later(err error) error {
	if code := statusCode(err); code == http.StatusTooManyRequests || code >= http.StatusInternalServerError || isAway(err) {
		return trainyard.Errorf(trainyard.CodeBusy, "%v", err)
	}
	return err
}

// isForbidden says whether a right is missing.
func isForbidden(err error) bool { return trainyard.CodeOf(err) == trainyard.CodeForbidden }
