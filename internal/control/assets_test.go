package control

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// A name as a whole is archived and restored with all its versions; it holds nothing that could be changed besides.
func TestANameAsAWholeIsArchivedAndNothingElse(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	put := func(version, properties string, archived bool) (*trainyard.Resource, error) {
		r, _, err := c.PutResource(t.Context(), anAdmin, &trainyard.Resource{Scope: scope, Kind: trainyard.KindEnvironment, Name: "env", Version: version,
			Properties: json.RawMessage(properties), Archived: archived})
		return r, err
	}
	if _, err := put("", `{"isArchived":true}`, true); !trainyard.IsNotFound(err) {
		t.Errorf("of a name that is not there: %v", err)
	}
	for _, version := range []string{"1", "2"} {
		if _, err := put(version, `{"image":"python:3.11","tags":{"a":"b"}}`, false); err != nil {
			t.Fatal(err)
		}
	}
	are := func(archived bool) {
		t.Helper()
		for _, version := range []string{"1", "2"} {
			if r, err := c.Resource(t.Context(), scope, trainyard.KindEnvironment, "env", version); err != nil || r.Archived != archived {
				t.Errorf("version %s: %+v, %v, want archived %v", version, r, err, archived)
			}
		}
	}
	if _, err := put("", `{"isArchived":true,"tags":{"a":"b"},"properties":{},"description":null}`, true); err != nil { // as clients send back what they read
		t.Error(err)
	}
	are(true)
	for _, properties := range []string{`{}`, `{"tags":{"a":"b"}}`} {
		if r, err := put("", properties, false); err != nil || r.Version != "2" {
			t.Errorf("%s: %+v, %v", properties, r, err)
		}
	}
	if _, err := put("", `{"isArchived":false,"tags":{"a":"c"}}`, false); err == nil || !strings.Contains(err.Error(), "has no tags to change") {
		t.Errorf("with other tags: %v", err)
	}
	are(true)
	if _, err := put("", `{"isArchived":false}`, false); err != nil {
		t.Error(err)
	}
	are(false)
	if err := c.DeleteResource(t.Context(), anAdmin, scope, trainyard.KindEnvironment, "env", ""); err != nil {
		t.Error(err)
	}
	if err := c.DeleteResource(t.Context(), anAdmin, scope, trainyard.KindEnvironment, "env", ""); !trainyard.IsNotFound(err) {
		t.Errorf("deleted twice: %v", err)
	}
}
