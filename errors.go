package trainyard

import (
	"errors"
	"fmt"
	"strings"
)

// ErrorCode is what kind of thing went wrong, as clients see it in {"error":{"code":…}}.
type ErrorCode string

// The codes. Each has one HTTP status: see Status.
const (
	CodeInvalid     ErrorCode = "ValidationError"      // the request is wrong: say what, where and what is wanted
	CodeNotFound    ErrorCode = "ResourceNotFound"     // no such thing
	CodeConflict    ErrorCode = "Conflict"             // it exists, it is in use, or the world moved on
	CodeForbidden   ErrorCode = "AuthorizationFailed"  // known, but may not
	CodeUnknown     ErrorCode = "AuthenticationFailed" // not known
	CodeUnsupported ErrorCode = "NotSupported"         // understood, and not built
	CodeBusy        ErrorCode = "TooManyRequests"      // come back later
	CodeInternal    ErrorCode = "InternalServerError"
)

// Status is the code's HTTP status; that of CodeInternal for a code that is none of these.
func (c ErrorCode) Status() int {
	switch c {
	case CodeInvalid:
		return 400
	case CodeUnknown:
		return 401
	case CodeForbidden:
		return 403
	case CodeNotFound:
		return 404
	case CodeConflict:
		return 409
	case CodeBusy:
		return 429
	case CodeUnsupported:
		return 501
	}
	return 500
}

// Error is an error for a user: a code, the thing it is about, and a sentence that says what is wrong and what to do.
type Error struct {
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
	Target  string    `json:"target,omitempty"`
	Details []Error   `json:"details,omitempty"`
}

func (e *Error) Error() string {
	if len(e.Details) == 0 {
		return e.Message
	}
	var b strings.Builder
	b.WriteString(e.Message)
	for _, d := range e.Details {
		b.WriteString("\n  " + d.Message)
	}
	return b.String()
}

// Is lets errors.Is compare by code: errors.Is(err, &Error{Code: CodeNotFound}).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// Errorf makes an Error of the code.
func Errorf(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid, NotFound and Conflict make the commonest errors.
func Invalid(format string, args ...any) *Error  { return Errorf(CodeInvalid, format, args...) }
func NotFound(format string, args ...any) *Error { return Errorf(CodeNotFound, format, args...) }
func Conflict(format string, args ...any) *Error { return Errorf(CodeConflict, format, args...) }

// CodeOf is the code of the first Error in err's chain; CodeInternal if there is none, "" for nil.
func CodeOf(err error) ErrorCode {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// IsNotFound and IsConflict say what err is.
func IsNotFound(err error) bool { return CodeOf(err) == CodeNotFound }
func IsConflict(err error) bool { return CodeOf(err) == CodeConflict }
