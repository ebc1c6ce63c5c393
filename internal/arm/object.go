package arm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// envelope is what ARM wraps every resource in.
type envelope struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Kind       string          `json:"kind,omitempty"`
	Location   string          `json:"location,omitempty"`
	Tags       any             `json:"tags,omitempty"` // tracked resources only; they have it even when it is empty
	Identity   json.RawMessage `json:"identity,omitempty"`
	Sku        json.RawMessage `json:"sku,omitempty"`
	SystemData systemData      `json:"systemData"`
	Properties any             `json:"properties"` // object or members
}

// systemData says who made and changed a resource, and when.
type systemData struct {
	CreatedAt    any    `json:"createdAt,omitempty"`
	CreatedBy    string `json:"createdBy,omitempty"`
	CreatedKind  string `json:"createdByType"`
	ModifiedAt   any    `json:"lastModifiedAt,omitempty"`
	ModifiedBy   string `json:"lastModifiedBy,omitempty"`
	ModifiedKind string `json:"lastModifiedByType"`
}

func newSystemData(created, modified time.Time, by, lastBy string) systemData {
	if modified.IsZero() {
		modified = created
	}
	if lastBy == "" {
		lastBy = by
	}
	return systemData{CreatedAt: stamp(created), CreatedBy: by, CreatedKind: "User", ModifiedAt: stamp(modified), ModifiedBy: lastBy, ModifiedKind: "User"}
}

// written is the envelope of a PUT or PATCH.
type written struct {
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Identity   json.RawMessage   `json:"identity"`
	Sku        json.RawMessage   `json:"sku"`
	Properties json.RawMessage   `json:"properties"`
}

// object is a JSON object whose members are not looked into.
type object map[string]json.RawMessage

// newObject takes a JSON object apart. Absent and null are empty; anything else is an error.
func newObject(data json.RawMessage) (object, error) {
	o := object{}
	if isNull(data) {
		return o, nil
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, trainyard.Invalid("properties is not an object")
	}
	return o, nil
}

// objectOf encodes v, a struct, and takes it apart.
func objectOf(v any) (object, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode properties: %w", err)
	}
	o := object{}
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("take properties apart: %w", err)
	}
	return o, nil
}

// set puts a member, replacing one that is there.
func (o object) set(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil { // only of types that cannot be encoded, which are not used here
		data = []byte("null")
	}
	o[name] = data
}

// fill puts a member where there is none or null: clients fall over a null where they want a map, a list or a discriminator.
func (o object) fill(name string, v any) {
	if isNull(o[name]) {
		o.set(name, v)
	}
}

// without takes members away: those that only the server writes.
func (o object) without(names ...string) {
	for _, n := range names {
		delete(o, n)
	}
}

// members is a JSON object in the making whose members are appended and never looked at again: jobs come and go too often to be taken
// apart as an object is.
type members struct{ text []byte }

// add appends a member. The name must be new.
func (m *members) add(name string, v any) {
	key, err := json.Marshal(name)
	if err != nil { // no string fails
		return
	}
	data, err := json.Marshal(v)
	if err != nil { // see object.set
		data = []byte("null")
	}
	m.next()
	m.text = append(append(append(m.text, key...), ':'), data...)
}

// next begins a member.
func (m *members) next() {
	if len(m.text) == 0 {
		m.text = append(m.text, '{')
		return
	}
	m.text = append(m.text, ',')
}

// addAll appends the members of an encoded object.
func (m *members) addAll(data []byte) {
	inner := bytes.TrimSuffix(bytes.TrimPrefix(data, []byte("{")), []byte("}"))
	if len(inner) == 0 {
		return
	}
	m.next()
	m.text = append(m.text, inner...)
}

func (m *members) MarshalJSON() ([]byte, error) {
	if len(m.text) == 0 {
		return []byte("{}"), nil
	}
	return append(m.text, '}'), nil
}

func (o object) text(name string) string {
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return ""
	}
	return s
}

func (o object) truth(name string) bool {
	var b bool
	return json.Unmarshal(o[name], &b) == nil && b
}

// dropNulls takes null members away: to a client they mean the same as absent ones, and stored they would come back to trouble others.
func (o object) dropNulls() {
	for k, v := range o {
		if isNull(v) {
			delete(o, k)
		}
	}
}

func isNull(m json.RawMessage) bool {
	return len(m) == 0 || string(bytes.TrimSpace(m)) == "null"
}

// merge applies a JSON merge patch (RFC 7396).
func merge(target, patch json.RawMessage) (json.RawMessage, error) {
	var p map[string]json.RawMessage
	if json.Unmarshal(patch, &p) != nil || p == nil {
		return patch, nil // not an object: it replaces
	}
	t := map[string]json.RawMessage{}
	if json.Unmarshal(target, &t) != nil || t == nil {
		t = map[string]json.RawMessage{}
	}
	for k, v := range p {
		if isNull(v) {
			delete(t, k)
			continue
		}
		merged, err := merge(t[k], v)
		if err != nil {
			return nil, err
		}
		t[k] = merged
	}
	return json.Marshal(t)
}

// canon is the spelling of a word that Azure's enumerations have, whatever its case and underscores. An unknown word stays as it is, so
// that who validates it can name it.
func canon(word string, spellings ...string) string {
	plain := strings.ReplaceAll(word, "_", "")
	for _, s := range spellings {
		if strings.EqualFold(strings.ReplaceAll(s, "_", ""), plain) {
			return s
		}
	}
	return word
}

// tagsOf is never nil.
func tagsOf(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// listOf is never null in JSON.
func listOf[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
