package arm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// maxBody bounds a request's body.
const maxBody = 4 << 20

// read decodes the body into v. Errors say where in the body they are.
func (c *call) read(v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(c.out, c.Body, maxBody))
	if err != nil {
		if _, big := errors.AsType[*http.MaxBytesError](err); big {
			return &statusError{http.StatusRequestEntityTooLarge,
				trainyard.Invalid("the body of %s %s is larger than %d MiB; upload files to a datastore instead", c.Method, c.URL.Path, maxBody>>20)}
		}
		return trainyard.Invalid("the body of %s %s did not arrive whole: %v", c.Method, c.URL.Path, err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return trainyard.Invalid("%s %s needs a body, a JSON object, and has none", c.Method, c.URL.Path)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return explain(data, err)
	}
	return nil
}

// explain turns an error of encoding/json into one that names the field, what it is and what is wanted, with line and column.
func explain(data []byte, err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return trainyard.Invalid("the body is not JSON: %v (%s)", e, position(data, int(e.Offset)-1))
	}
	e, isType := errors.AsType[*json.UnmarshalTypeError](err)
	if !isType {
		return trainyard.Invalid("the body cannot be read: %v", err)
	}
	found, _, _ := strings.Cut(e.Value, " ")
	l := locator{dec: json.NewDecoder(bytes.NewReader(data)), data: data, field: strings.Split(fold(e.Field), "."), kind: found}
	l.dec.UseNumber()
	if !l.value(nil) {
		return trainyard.Invalid("the body has %s where %s is wanted, in %q", article(found), wanted(e.Type), e.Field)
	}
	err = trainyard.Invalid("%s is %s, want %s (%s of the body)", l.path, article(found), wanted(e.Type), position(data, l.at))
	return err
}

// position is the line and column of a byte, both counted from 1, columns in bytes.
func position(data []byte, at int) string {
	at = max(0, min(at, len(data)))
	line := 1 + bytes.Count(data[:at], []byte("\n"))
	column := at - bytes.LastIndexByte(data[:at], '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}

func article(kind string) string {
	switch kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Int, reflect.Int64, reflect.Int32:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return "an object"
}

// locator finds the value that did not fit. encoding/json knows it by the names of struct fields only, counted from the innermost type
// that decodes itself; so the first value that is of the kind and ends in those names is it.
type locator struct {
	dec   *json.Decoder
	data  []byte
	field []string // in lower case; {""} is the body or its properties
	kind  string

	path string
	at   int
}

// value reads one value and says whether it or one inside it is the one that is looked for.
func (l *locator) value(path []string) bool {
	start := int(l.dec.InputOffset())
	start += len(l.data[start:]) - len(bytes.TrimLeft(l.data[start:], " \t\r\n,:"))
	tok, err := l.dec.Token()
	if err != nil {
		return false
	}
	if l.matches(path, kindOf(tok)) {
		l.path, l.at = strings.ReplaceAll(strings.Join(path, "."), ".[", "["), start
		if l.path == "" {
			l.path = "the body"
		}
		return true
	}
	open, nested := tok.(json.Delim)
	if !nested {
		return false
	}
	for i := 0; l.dec.More(); i++ {
		step := fmt.Sprintf("[%d]", i)
		if open == '{' {
			key, err := l.dec.Token()
			if err != nil {
				return false
			}
			step, _ = key.(string)
		}
		if l.value(append(slices.Clip(path), step)) {
			return true
		}
	}
	_, err = l.dec.Token() // the closing one
	_ = err                // the document was valid when it was first decoded
	return false
}

func (l *locator) matches(path []string, kind string) bool {
	if kind != l.kind {
		return false
	}
	if l.field[0] == "" {
		last := "properties"
		if len(path) > 0 {
			last = path[len(path)-1]
		}
		return last == "properties" && len(path) <= 2
	}
	named := slices.DeleteFunc(slices.Clone(path), func(s string) bool { return strings.HasPrefix(s, "[") })
	want := len(l.field) - 1
	if len(named) == 0 || !strings.EqualFold(named[len(named)-1], l.field[want]) && !l.inMap(named) {
		return false
	}
	for i := len(named) - 1; i >= 0 && want >= 0; i-- {
		if strings.EqualFold(named[i], l.field[want]) {
			want--
		}
	}
	return want < 0
}

// inMap says whether the value is an entry of a map that is the field: tags.team of field tags.
func (l *locator) inMap(named []string) bool {
	return len(named) > 1 && strings.EqualFold(named[len(named)-2], l.field[len(l.field)-1])
}

func kindOf(tok json.Token) string {
	switch t := tok.(type) {
	case json.Delim:
		if t == '[' {
			return "array"
		}
		return "object"
	case string:
		return "string"
	case json.Number:
		return "number"
	case bool:
		return "bool"
	}
	return "null"
}
