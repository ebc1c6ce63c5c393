package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/spec"
)

// FuzzParse feeds any text through every translation: it must end, in a result that encodes or an error for a user, the same each time.
func FuzzParse(f *testing.F) {
	for _, glob := range []string{"job/*.yml", "compute/*.yml", "environment/*.yml", "data/*.yml", "datastore/*.yml", "workspace/*.yml", "model/*.yml", "online-endpoint/*.yml", "online-deployment/*.yml", "bad/*.yml"} {
		files, err := filepath.Glob(filepath.Join("testdata", filepath.FromSlash(glob)))
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds in %s: %v", glob, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, "tags.a=b")
		}
	}
	f.Add([]byte("a: &a {b: &b [*a, *b], <<: *a}"), "a.b[0]=x")
	f.Add([]byte("command: ${{inputs.${{inputs.x}}}} $[[ ${{ ]]"), "inputs.x={a: [b")
	f.Fuzz(func(t *testing.T, data []byte, set string) {
		if strings.Contains(string(data)+set, "/dev/") || strings.Contains(string(data)+set, "/proc") {
			return // files that never end are the user's own doing
		}
		for _, noun := range []string{"job", "compute", "environment", "data", "datastore", "workspace", "model", "online-endpoint", "online-deployment", ""} {
			first, second := outcome(t, noun, data, set), outcome(t, noun, data, set)
			if first != second {
				t.Fatalf("%s: the same text gives\n%s\nand\n%s", noun, first, second)
			}
		}
	})
}

func outcome(t *testing.T, noun string, data []byte, set string) string {
	d, err := spec.Parse("x.yml", data, filepath.Join("testdata", "job"), spec.Options{Noun: noun, Set: []string{set}})
	var out *translation
	if err == nil {
		out, err = translate(t, d)
	}
	if err != nil {
		if trainyard.CodeOf(err) == trainyard.CodeInternal || err.Error() == "" {
			t.Fatalf("%s: not an error for a user: %v", noun, err)
		}
		return err.Error()
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatalf("%s: %v", noun, err)
	}
	return string(text)
}
