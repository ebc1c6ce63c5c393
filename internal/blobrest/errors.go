package blobrest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/trainyard/trainyard"
)

// refusal is an error with Azure's name for it.
type refusal struct {
	status  int
	code    string // x-ms-error-code
	message string
}

func (e *refusal) Error() string { return e.message }

func refuse(status int, code, format string, args ...any) error {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// errMD5 is what a body's reader says at its end when it is not what the client meant to send.
var errMD5 = refuse(http.StatusBadRequest, "Md5Mismatch", "the body is not what its Content-MD5 says; it was changed on the way")

// refusalOf finds Azure's name for an error. ok is false if it is nothing for a user to see.
func refusalOf(err error) (as *refusal, ok bool) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r, true
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &refusal{http.StatusBadRequest, "IncompleteBody", "the body ended before its Content-Length"}, true
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &refusal{http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", e.Error()}, true
	}
	e, ok := errors.AsType[*trainyard.Error](err)
	if !ok {
		return nil, false
	}
	as = &refusal{message: e.Error()}
	switch e.Code {
	case trainyard.CodeNotFound:
		as.status, as.code = http.StatusNotFound, "BlobNotFound"
	case trainyard.CodeConflict:
		as.status, as.code = http.StatusConflict, "ResourceTypeMismatch"
	case trainyard.CodeForbidden:
		as.status, as.code = http.StatusForbidden, "AuthorizationPermissionMismatch"
	case trainyard.CodeUnknown:
		as.status, as.code = http.StatusForbidden, "AuthenticationFailed"
	case trainyard.CodeInvalid, trainyard.CodeUnsupported:
		as.status, as.code = http.StatusBadRequest, "InvalidResourceName"
	case trainyard.CodeBusy:
		as.status, as.code = http.StatusServiceUnavailable, "ServerBusy"
	default: // the disk is full or cannot be written: not a status that clients try again
		as.status, as.code = http.StatusInsufficientStorage, "InsufficientStorage"
	}
	return as, true
}

// fail answers with an error. It is too late for that if the body was begun; then the client sees it cut short.
func (h *handler) fail(r *request, err error) {
	as, ok := refusalOf(err)
	if !ok {
		if r.Context().Err() != nil {
			return // the client is gone
		}
		h.Log.Error("blob request", "method", r.Method, "container", r.container, "blob", r.blob, "error", err)
		as = &refusal{http.StatusInternalServerError, "InternalError", "the server could not do this; its log says why"}
	}
	head := r.w.Header()
	head.Del("Content-Length")
	head.Set("x-ms-error-code", as.code)
	if as.status == http.StatusNotModified || r.Method == http.MethodHead {
		r.w.WriteHeader(as.status)
		return
	}
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}{Code: as.code, Message: as.message})
	if err != nil {
		body = nil
	}
	head.Set("Content-Type", "application/xml")
	head.Set("Content-Length", strconv.Itoa(len(xml.Header)+len(body)))
	r.w.WriteHeader(as.status)
	io.WriteString(r.w, xml.Header)
	r.w.Write(body)
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
