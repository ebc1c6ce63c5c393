package mlflow

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// call is one request, taken apart.
type call struct {
	*http.Request
	w     http.ResponseWriter
	scope trainyard.Scope
	who   trainyard.User
	id    string // {id} of the route's path
	key   string // {key} of it
	rest  string // {rest} of it: one or more segments
}

// maxBody bounds what is read of a request that is not an artifact. The profile of a dataset may have 16 MiB.
const maxBody = 32 << 20

// decode reads the request's object: the JSON body, or the query of a request without one.
func (c *call) decode(into any) error {
	if c.Method == http.MethodGet || c.Body == nil || c.ContentLength == 0 {
		return c.query(into)
	}
	err := json.NewDecoder(http.MaxBytesReader(c.w, c.Body, maxBody)).Decode(into)
	if err == nil {
		return nil
	}
	if _, big := errors.AsType[*http.MaxBytesError](err); big {
		return trainyard.Invalid("the body of %s has more than %d bytes; log less at a time", c.URL.Path, maxBody)
	}
	return trainyard.Invalid("the body of %s is not the JSON object that is wanted: %v", c.URL.Path, err)
}

// query fills the fields of a struct from the query, by their JSON names.
func (c *call) query(into any) error {
	fields := map[string]any{}
	pick(c.URL.Query(), reflect.TypeOf(into).Elem(), fields)
	data, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return trainyard.Invalid("the query of %s: %v", c.URL.Path, err)
	}
	return nil
}

// pick takes what the fields of t need out of a query. Numbers understand strings, see number.go.
func pick(q url.Values, t reflect.Type, fields map[string]any) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			pick(q, f.Type, fields)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		values := q[name]
		switch {
		case len(values) == 0:
		case f.Type.Kind() == reflect.Slice:
			fields[name] = values
		case f.Type.Kind() == reflect.Bool:
			fields[name] = strings.EqualFold(values[0], "true") || values[0] == "1"
		default:
			fields[name] = values[0]
		}
	}
}

func (c *call) reply(body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = c.w.Write(data) // if the client is gone there is nobody to tell
	return nil
}

// done is the reply to what has nothing to say.
func (c *call) done() error { return c.reply(struct{}{}) }

// segments splits a path as it came over the wire, so that an escaped slash stays in its segment until now.
func segments(escaped string) ([]string, error) {
	parts := strings.Split(strings.Trim(escaped, "/"), "/")
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err != nil {
			return nil, trainyard.Invalid("the path %q is badly escaped", escaped)
		}
		parts[i] = plain
	}
	return parts, nil
}
