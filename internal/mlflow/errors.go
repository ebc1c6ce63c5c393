package mlflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/trainyard/trainyard"
)

// Error codes of MLflow (its databricks.proto) that this door uses, each with its status in statuses.
const (
	codeInvalid     = "INVALID_PARAMETER_VALUE"
	codeMissing     = "RESOURCE_DOES_NOT_EXIST"
	codeExists      = "RESOURCE_ALREADY_EXISTS"
	codeNoEndpoint  = "ENDPOINT_NOT_FOUND"
	codeNotBuilt    = "NOT_IMPLEMENTED"
	codeConflict    = "RESOURCE_CONFLICT"
	codeForbidden   = "PERMISSION_DENIED"
	codeUnknown     = "UNAUTHENTICATED"
	codeBusy        = "REQUEST_LIMIT_EXCEEDED"
	codeInternal    = "INTERNAL_ERROR"
	codeUnavailable = "TEMPORARILY_UNAVAILABLE"
)

var statuses = map[string]int{
	codeInvalid: http.StatusBadRequest, codeMissing: http.StatusNotFound, codeExists: http.StatusBadRequest,
	codeNoEndpoint: http.StatusNotFound, codeNotBuilt: http.StatusNotImplemented, codeConflict: http.StatusConflict,
	codeForbidden: http.StatusForbidden, codeUnknown: http.StatusUnauthorized, codeBusy: http.StatusTooManyRequests,
	codeInternal: http.StatusInternalServerError, codeUnavailable: http.StatusServiceUnavailable,
}

// codes says what the project's own codes are called by MLflow.
var codes = map[trainyard.ErrorCode]string{
	trainyard.CodeInvalid: codeInvalid, trainyard.CodeNotFound: codeMissing, trainyard.CodeConflict: codeConflict,
	trainyard.CodeForbidden: codeForbidden, trainyard.CodeUnknown: codeUnknown, trainyard.CodeUnsupported: codeNotBuilt,
	trainyard.CodeBusy: codeBusy, trainyard.CodeInternal: codeInternal,
}

// problem is an error with a code of MLflow's that the project has no code of its own for.
type problem struct{ Code, Message string }

func (p *problem) Error() string { return p.Message }

func exists(format string, args ...any) error {
	return &problem{codeExists, fmt.Sprintf(format, args...)}
}

func forbidden(format string, args ...any) error {
	return trainyard.Errorf(trainyard.CodeForbidden, format, args...)
}

// isMissing says whether err is that something is not there.
func isMissing(err error) bool { return trainyard.IsNotFound(err) }

// fail answers with an error in MLflow's shape.
func (d *door) fail(c *call, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		e, known := errors.AsType[*trainyard.Error](err)
		switch {
		case known:
			p = &problem{codes[e.Code], e.Error()}
		case c.Context().Err() != nil:
			return // the client is gone
		default:
			d.Log.Error("mlflow request", "method", c.Method, "path", c.URL.Path, "error", err)
			p = &problem{codeInternal, "the server could not do this; its log says why"}
		}
	}
	status := statuses[p.Code]
	if status == 0 {
		status, p = http.StatusInternalServerError, &problem{codeInternal, p.Message}
	}
	head := c.w.Header()
	for _, h := range []string{"Content-Length", "Content-Disposition", "Etag", "Last-Modified"} {
		head.Del(h)
	}
	switch status {
	case http.StatusUnauthorized:
		head.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		head.Set("Retry-After", "1")
	}
	body, err := json.Marshal(map[string]string{"error_code": p.Code, "message": p.Message})
	if err != nil {
		body = nil
	}
	head.Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // if the client is gone there is nobody to tell
}
