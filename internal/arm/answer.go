package arm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
)

// reply is what a handler answers with.
type reply struct {
	status int
	body   any        // encoded as JSON; nil: none
	op     *operation // a long-running operation that was started
	at     string     // Location, where that is not op's
}

func ok(body any) (reply, error) { return reply{status: http.StatusOK, body: body}, nil }

// saved is the answer to PUT: clients take 201 for new and 200 for not.
func saved(created bool, body any) reply {
	if created {
		return reply{status: http.StatusCreated, body: body}
	}
	return reply{status: http.StatusOK, body: body}
}

// statusError is an error with another status than its code's.
type statusError struct {
	status int
	err    *trainyard.Error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// retryAfter is how many seconds a client should wait before it asks again. Without it Azure's clients wait 10 or 30.
const retryAfter = "1"

// skipDelay tells HashiCorp's client (and so Terraform) to look at once whether a thing is made or gone; it waits ten seconds otherwise.
const skipDelay = "X-Go-Azure-Sdk-Skip-Polling-Delay"

// done says whether what was asked for is done already, so that a client that polls will see it at its first look.
func (a *reply) done(method string) bool {
	return a.op != nil && a.op.Action == "create" || method == http.MethodDelete && a.op == nil
}

func (d *door) answer(c *call, a reply) {
	h := c.out.Header()
	if a.op != nil {
		h.Set("Azure-AsyncOperation", a.op.url(c, "mfeOperationsStatus"))
		h.Set("Retry-After", retryAfter)
		if c.Method == http.MethodPost || c.Method == http.MethodDelete {
			a.at = a.op.url(c, "mfeOperationResults") // after PUT and PATCH clients read the resource itself
		}
	}
	if a.done(c.Method) {
		h.Set(skipDelay, "true")
	}
	if a.at != "" {
		h.Set("Location", a.at)
		h.Set("Retry-After", retryAfter)
	}
	if a.body == nil {
		d.write(c, a.status, nil)
		return
	}
	data, err := json.Marshal(a.body)
	if err != nil {
		d.fail(c, fmt.Errorf("encode the answer to %s %s: %w", c.Method, c.URL.Path, err))
		return
	}
	d.write(c, a.status, data)
}

// errorBody is an error in Azure's shape. Clients read each of these fields without looking whether it is there.
type errorBody struct {
	Code           trainyard.ErrorCode `json:"code"`
	Message        string              `json:"message"`
	Target         *string             `json:"target"`
	Details        []errorBody         `json:"details"`
	AdditionalInfo []additionalInfo    `json:"additionalInfo"`
}

type additionalInfo struct {
	Type string `json:"type"`
	Info any    `json:"info"`
}

func newErrorBody(e *trainyard.Error) errorBody {
	b := errorBody{Code: e.Code, Message: e.Message, Details: []errorBody{}, AdditionalInfo: []additionalInfo{}}
	if e.Target != "" {
		b.Target = &e.Target
	}
	for i := range e.Details {
		b.Details = append(b.Details, newErrorBody(&e.Details[i]))
	}
	return b
}

// fail answers with an error. What is not meant for users goes to the log, and the answer says where to find it.
func (d *door) fail(c *call, err error) {
	e, meant := errors.AsType[*trainyard.Error](err)
	if !meant || e.Code == trainyard.CodeInternal {
		d.Log.Error("request", "method", c.Method, "path", c.URL.Path, "request", c.id, "user", c.who.Name, "err", err)
	}
	if !meant {
		e = trainyard.Errorf(trainyard.CodeInternal, "something went wrong in the server; its log has the details under request %s", c.id)
	}
	status := e.Code.Status()
	if s, ok := errors.AsType[*statusError](err); ok {
		status = s.status
	}
	h := c.out.Header()
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer authorization_uri="`+c.base()+`/common"`)
	case http.StatusTooManyRequests:
		h.Set("Retry-After", retryAfter)
	}
	body := newErrorBody(e)
	body.AdditionalInfo = []additionalInfo{
		{"ComponentName", map[string]string{"value": "trainyard"}},
		{"RequestId", map[string]string{"value": c.id}},
	}
	data, err := json.Marshal(map[string]errorBody{"error": body})
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"InternalServerError","message":"the error could not be encoded"}}`)
	}
	d.write(c, status, data)
}

func (d *door) write(c *call, status int, data []byte) {
	h := c.out.Header()
	h.Set("x-ms-request-id", c.id)
	h.Set("Cache-Control", "no-cache")
	if d.Version != "" {
		h.Set("Server", "Trainyard/"+d.Version)
	}
	if data != nil {
		h.Set("Content-Type", "application/json; charset=utf-8")
	}
	if status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(data)))
	}
	c.out.WriteHeader(status)
	if _, err := c.out.Write(data); err != nil && len(data) > 0 {
		d.Log.Debug("client is gone", "request", c.id, "err", err)
	}
}

// requestID names a request in the log and in its answer: a random UUID. It is no secret.
func requestID() string {
	a, b := rand.Uint64(), rand.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", uint32(a>>32), uint16(a>>16), a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}

// stamp is a time as Azure writes it; nil for none.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}
