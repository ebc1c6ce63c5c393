package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// refusal is an answer that the gateway gives itself.
type refusal struct {
	status  int
	code    string
	message string
	close   bool // the connection cannot be read on
	retry   time.Duration
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, code, message string) *refusal {
	return &refusal{status: status, code: code, message: message}
}

// appendRefusal writes the answer: JSON as everywhere in this API, {"error":{"code","message"}}.
func (r *refusal) append(to []byte, ids *requestIDs, closing, head bool) []byte {
	text, _ := json.Marshal(map[string]any{"error": map[string]string{"code": r.code, "message": r.message}}) // strings always encode
	to = appendStatus(to, r.status, http.StatusText(r.status))
	to = appendField(to, "Content-Type", "application/json")
	to = append(to, "Content-Length: "...)
	to = strconv.AppendInt(to, int64(len(text)), 10)
	to = append(to, "\r\n"...)
	to = ids.append(to)
	if r.status == http.StatusUnauthorized {
		to = appendField(to, "WWW-Authenticate", "Bearer")
	}
	if r.retry > 0 {
		to = appendField(to, "Retry-After", strconv.Itoa(int((r.retry+time.Second-1)/time.Second)))
	}
	if closing {
		to = appendField(to, "Connection", "close")
	}
	to = append(to, "\r\n"...)
	if head {
		return to
	}
	return append(to, text...)
}

func appendStatus(to []byte, status int, reason string) []byte {
	to = append(to, "HTTP/1.1 "...)
	to = strconv.AppendInt(to, int64(status), 10)
	to = append(to, ' ')
	to = append(to, reason...)
	return append(to, "\r\n"...)
}
