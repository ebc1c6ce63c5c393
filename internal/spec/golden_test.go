package spec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

// translation is what a golden file holds: everything a translation gives, after every upload.
type translation struct {
	Name        string            `json:"name,omitempty"`
	Version     string            `json:"version,omitempty"`
	Location    string            `json:"location,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Identity    json.RawMessage   `json:"identity,omitempty"`
	Properties  any               `json:"properties"`
	Environment any               `json:"environment,omitempty"`
	Endpoint    string            `json:"endpoint,omitempty"`
	Instances   int               `json:"instances,omitempty"`
	Model       any               `json:"model,omitempty"`
	Data        []any             `json:"data,omitempty"`
	Uploads     []string          `json:"uploads,omitempty"`
	Warnings    []string          `json:"warnings,omitempty"`
}

// translate runs the translation that belongs to the document's kind, and pretends to upload.
func translate(t testing.TB, d *spec.Document) (*translation, error) {
	t.Helper()
	scope, out := trainyard.DefaultScope(), &translation{}
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	upload := func(all []spec.Upload) {
		for _, u := range all {
			rel, err := filepath.Rel(here, u.Path)
			if err != nil {
				t.Fatal(err)
			}
			line := u.Field + ": " + u.What + " " + filepath.ToSlash(rel)
			if u.IsDir {
				line += "/"
			}
			if u.Datastore != "" {
				line += " to " + u.Datastore
			}
			out.Uploads = append(out.Uploads, line)
			u.Set("uploaded:" + filepath.ToSlash(rel))
		}
	}
	asset := func(a *spec.Asset, err error) (*translation, error) {
		if err != nil {
			return nil, err
		}
		upload(a.Uploads)
		out.Name, out.Version, out.Location, out.Tags, out.Identity, out.Warnings = a.Name, a.Version, a.Location, a.Tags, a.Identity, a.Warnings
		out.Properties = a.JSON()
		return out, nil
	}
	switch d.Kind {
	case spec.CommandJob, spec.PipelineJob:
		j, err := d.Job(scope)
		if err != nil {
			return nil, err
		}
		upload(j.Uploads)
		out.Name, out.Properties, out.Warnings = j.Name, j.Spec, j.Warnings
		if e := j.Environment; e != nil {
			out.Environment = map[string]any{"name": e.Name, "properties": e.JSON()}
			if want := scope.Child("environments", e.Name, "versions", e.Version); j.Spec.EnvironmentID != want {
				t.Errorf("the job names the environment %s, and it is %s", j.Spec.EnvironmentID, want)
			}
		}
		return out, nil
	case spec.Cluster:
		c, err := d.Compute(scope)
		if err != nil {
			return nil, err
		}
		out.Name, out.Location, out.Tags, out.Identity, out.Properties, out.Warnings = c.Name, c.Location, c.Tags, c.Identity, c.Spec, c.Warnings
		return out, nil
	case spec.Environment:
		return asset(d.Environment(scope))
	case spec.Data:
		return asset(d.Data(scope))
	case spec.Datastore:
		return asset(d.Datastore(scope))
	case spec.Workspace:
		return asset(d.Workspace(scope))
	case spec.Model:
		return asset(d.Model(scope))
	case spec.Endpoint:
		e, err := d.OnlineEndpoint(scope)
		if err != nil {
			return nil, err
		}
		out.Name, out.Location, out.Tags, out.Identity, out.Properties, out.Warnings = e.Name, e.Location, e.Tags, e.Identity, e.Spec, e.Warnings
		return out, nil
	case spec.Deployment:
		return deployment(d, scope, upload, out)
	}
	return nil, errors.New("no translation for " + string(d.Kind))
}

// deployment is the part of translate for an online deployment.
func deployment(d *spec.Document, scope trainyard.Scope, upload func([]spec.Upload), out *translation) (*translation, error) {
	dep, err := d.OnlineDeployment(scope)
	if err != nil {
		return nil, err
	}
	upload(dep.Uploads)
	if m := dep.Model; m != nil {
		upload(m.Uploads)
		out.Model = map[string]any{"name": m.Name, "version": m.Version, "properties": m.JSON()}
		dep.SetModel("registered:" + m.Name)
	}
	if e := dep.Environment; e != nil {
		out.Environment = map[string]any{"name": e.Name, "properties": e.JSON()}
	}
	for _, a := range dep.Data {
		out.Data = append(out.Data, map[string]any{"name": a.Name, "version": a.Version, "properties": a.JSON()})
	}
	out.Name, out.Endpoint, out.Location, out.Tags, out.Instances = dep.Name, dep.Endpoint, dep.Location, dep.Tags, dep.Instances
	out.Properties, out.Warnings = dep.Spec, dep.Warnings
	return out, nil
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run go test -update", err)
	}
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("not as in %s (- want, + got):\n%s", file, diff)
	}
}

func TestExamplesTranslate(t *testing.T) {
	for _, noun := range []string{"job", "compute", "environment", "data", "datastore", "workspace", "model", "online-endpoint", "online-deployment"} {
		files, err := filepath.Glob(filepath.Join("testdata", noun, "*.[yY]*[lL]"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no examples for %s: %v", noun, err)
		}
		for _, file := range files {
			t.Run(noun+"/"+filepath.Base(file), func(t *testing.T) {
				d, err := spec.Load(file, spec.Options{Noun: noun})
				if err != nil {
					t.Fatal(err)
				}
				out, err := translate(t, d)
				if err != nil {
					t.Fatal(err)
				}
				var data bytes.Buffer
				enc := json.NewEncoder(&data)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				if err := enc.Encode(out); err != nil {
					t.Fatal(err)
				}
				golden(t, strings.TrimSuffix(file, filepath.Ext(file))+".json", data.Bytes())
			})
		}
	}
}

// Every file of testdata/bad must be refused, with the words in the .txt beside it. A file's noun is the part of its name before "-".
func TestMistakesAreAllSaidWithTheirPlaces(t *testing.T) {
	refused(t, filepath.Join("testdata", "bad", "*.yml"), func(t *testing.T, file string) error {
		noun, rest, _ := strings.Cut(filepath.Base(file), "-")
		if noun == "online" { // nouns of two words
			second, _, _ := strings.Cut(rest, "-")
			noun += "-" + second
		}
		d, err := spec.Load(file, spec.Options{Noun: noun})
		if err == nil {
			_, err = translate(t, d)
		}
		return err
	})
}

// refused fails unless every file that matches a pattern is refused when it is read, with the words in the .txt beside it.
func refused(t *testing.T, pattern string, read func(t *testing.T, file string) error) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad examples: %v", err)
	}
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			err := read(t, file)
			if err == nil {
				t.Fatal("it is taken for good")
			}
			if code := trainyard.CodeOf(err); code != trainyard.CodeInvalid {
				t.Errorf("the code is %s", code)
			}
			text := strings.ReplaceAll(strings.ReplaceAll(err.Error(), file, filepath.Base(file)), here, "TESTDATA")
			golden(t, strings.TrimSuffix(file, ".yml")+".txt", []byte(filepath.ToSlash(text)+"\n"))
		})
	}
}
