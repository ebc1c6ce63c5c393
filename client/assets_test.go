package client

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shop is the assets' part of a server: codes by hash, one blob container, and a record of what was asked.
type shop struct {
	*blobs
	asked []string
	code  map[string]any // what was PUT
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, workspace)
	if strings.HasPrefix(path, "/blob/") {
		s.blobs.ServeHTTP(w, r)
		return
	}
	s.asked = append(s.asked, r.Method+" "+uuids.ReplaceAllString(path, "UUID"))
	switch {
	case strings.HasSuffix(path, "/startPendingUpload"):
		answer(w, 200, map[string]any{"blobReferenceForConsumption": map[string]any{"blobUri": "https://h/blob/c",
			"credential": map[string]any{"sasUri": "https://h/blob/c?sig=s"}}})
	case strings.HasSuffix(path, "/versions") && s.code != nil && r.URL.Query().Get("hash") == "abc":
		answer(w, 200, map[string]any{"value": []any{map[string]any{"id": "the/code/before"}}})
	case strings.HasSuffix(path, "/versions"):
		answer(w, 200, map[string]any{"value": []any{}})
	case strings.HasPrefix(path, "/codes/") && r.Method == "PUT":
		s.code = map[string]any{}
		answer(w, 201, map[string]any{"id": "the/new/code"})
	case strings.HasSuffix(path, "/listSecrets"):
		answer(w, 200, map[string]any{"secretsType": "Sas", "sasToken": "?sig=s"})
	case strings.HasPrefix(path, "/datastores/"):
		answer(w, 200, map[string]any{"properties": map[string]any{"datastoreType": "AzureBlob", "containerName": "c"}})
	default:
		w.WriteHeader(404)
	}
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

func TestCodeIsUploadedOnceAContent(t *testing.T) {
	s := &shop{blobs: newBlobs()}
	c := serve(t, s.ServeHTTP)
	_, files := writeFiles(t, map[string]string{"train.py": "print(1)"})
	files[0].Name = "train.py"
	what := Local{Name: "src", Hash: "abc", Folder: true, Files: files}
	id, already, err := c.UploadCode(t.Context(), what, nil)
	if err != nil || id != "the/new/code" || already {
		t.Fatalf("%q, already %v, %v", id, already, err)
	}
	if string(s.data["src/train.py"]) != "print(1)" {
		t.Errorf("blobs %v", s.data)
	}
	id, already, err = c.UploadCode(t.Context(), what, nil)
	if err != nil || id != "the/code/before" || !already {
		t.Errorf("second time %q, already %v, %v", id, already, err)
	}
	want := []string{"GET /codes/UUID/versions", "POST /codes/UUID/versions/1/startPendingUpload", "PUT /codes/UUID/versions/1", "GET /codes/UUID/versions"}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Error(diff)
	}
}

func TestDataIsUploadedUnderItsHash(t *testing.T) {
	s := &shop{blobs: newBlobs()}
	c := serve(t, s.ServeHTTP)
	_, files := writeFiles(t, map[string]string{"iris.csv": "1,2"})
	files[0].Name = "iris.csv"
	for _, tt := range []struct {
		what      Local
		uri, blob string
	}{
		{Local{Name: "iris.csv", Hash: "f00", Files: files}, "azureml://datastores/workspaceblobstore/paths/LocalUpload/f00/iris.csv", "LocalUpload/f00/iris.csv"},
		{Local{Name: "dir", Hash: "d00", Folder: true, Files: files}, "azureml://datastores/workspaceblobstore/paths/LocalUpload/d00/dir/", "LocalUpload/d00/dir/iris.csv"},
	} {
		uri, _, err := c.UploadData(t.Context(), "", tt.what, nil)
		if err != nil || uri != tt.uri {
			t.Errorf("%q, %v; want %q", uri, err, tt.uri)
		}
		if string(s.data[tt.blob]) != "1,2" {
			t.Errorf("no blob %s", tt.blob)
		}
	}
}

func TestNextVersionOfANewNameIsOne(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/old") {
			answer(w, 200, map[string]any{"properties": map[string]any{"nextVersion": "8"}})
			return
		}
		w.WriteHeader(404)
	})
	for name, want := range map[string]string{"new": "1", "old": "8"} {
		if got, err := c.NextVersion(t.Context(), "data", name); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}
