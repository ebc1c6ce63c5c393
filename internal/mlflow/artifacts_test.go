package mlflow_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/output"
)

const proxied = "mlflow-artifacts/artifacts/"

// What a job's client stores is where every other artifact of the job is.
func TestArtifactsAreTheJobs(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	w.ok("PUT", proxied+"7/j/artifacts/model/MLmodel", "flavors: {}", as("j"), "Content-Type: text/plain")
	w.ok("PUT", proxied+"7/j/artifacts/a%20b/%C3%A9.txt", "é", as("j"))
	key := output.Artifacts(scope, "j") + "/model/MLmodel"
	r, _, err := w.blobs.Open(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := io.ReadAll(r)
	r.Close()
	if string(data) != "flavors: {}" {
		t.Errorf("%s holds %q", key, data)
	}
	if _, err := w.blobs.Append(t.Context(), output.Artifacts(scope, "j")+"/user_logs/std_log.txt", 0, []byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"j","key":"a","value":1,"timestamp":1}`)
	for query, want := range map[string]string{
		"path=7/j/artifacts":          "map[files:[map[is_dir:true path:a b] map[is_dir:true path:model] map[is_dir:true path:user_logs]]]",
		"path=7/j/artifacts/model":    "map[files:[map[file_size:11 is_dir:false path:MLmodel]]]",
		"path=7/j/artifacts/a%20b/":   "map[files:[map[file_size:2 is_dir:false path:é.txt]]]",
		"path=7/j/artifacts/none":     "map[files:[]]",
		"path=7/none/artifacts":       "map[files:[]]",
		"path=7/j/artifacts/model/ML": "map[files:[]]",
	} {
		if got := fmt.Sprint(w.ok("GET", strings.TrimSuffix(proxied, "/")+"?"+query, nil)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	v := w.ok("GET", "mlflow/artifacts/list?run_id=j&path=model", nil)
	w.want(v, map[string]string{"root_uri": "mlflow-artifacts:/" + trainyard.ExperimentID(scope, "exp") + "/j/artifacts", "files.0.path": "model/MLmodel"})
	w.fails("RESOURCE_DOES_NOT_EXIST", "Run with id=none", "GET", "mlflow/artifacts/list?run_id=none", "")
	a := w.do("GET", proxied+"7/j/artifacts/a%20b/%C3%A9.txt", "")
	if a.StatusCode != 200 || a.body != "é" || a.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%s %q %v", a.Status, a.body, a.Header)
	}
	w.ok("DELETE", proxied+"7/j/artifacts/model/MLmodel", nil)
	w.fails("RESOURCE_DOES_NOT_EXIST", "no artifact", "GET", proxied+"7/j/artifacts/model/MLmodel", "")
	w.ok("PUT", proxied+"7/j/artifacts/d/e/f", "x")
	w.ok("DELETE", proxied+"7/j/artifacts/d", nil)
	w.fails("RESOURCE_DOES_NOT_EXIST", "no artifact", "GET", proxied+"7/j/artifacts/d/e/f", "")
}

func TestRangesOfAnArtifact(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	big := bytes.Repeat([]byte("0123456789"), 300_000)
	w.ok("PUT", proxied+"7/j/artifacts/big", string(big))
	path := proxied + "7/j/artifacts/big"
	for header, want := range map[string]string{
		"Range: bytes=2-4":       "206 234 bytes 2-4/3000000",
		"Range: bytes=2999998-":  "206 89 bytes 2999998-2999999/3000000",
		"Range: bytes=-3":        "206 789 bytes 2999997-2999999/3000000",
		"Range: bytes=3000000-5": "416",
	} {
		a := w.do("GET", path, "", header)
		got := fmt.Sprintf("%d %s %s", a.StatusCode, a.body, a.Header.Get("Content-Range"))
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %.80s, want %s", header, got, want)
		}
	}
	if a := w.do("GET", path, ""); a.body != string(big) || a.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("the whole has %d bytes", len(a.body))
	}
	a := w.do("HEAD", path, "")
	if a.StatusCode != 200 || a.ContentLength != 3_000_000 || a.body != "" {
		t.Errorf("HEAD: %s, %d bytes", a.Status, a.ContentLength)
	}
	if b := w.do("GET", path, "", "If-None-Match: "+a.Header.Get("Etag")); b.StatusCode != http.StatusNotModified {
		t.Errorf("with the tag that it has: %s", b.Status)
	}
}

func TestPathsThatEscape(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	w.submit("other", "exp", trainyard.JobRunning)
	w.ok("PUT", proxied+"7/other/artifacts/secret", "x")
	if err := w.blobs.Put(t.Context(), "workspaceblobstore/secret", strings.NewReader("of the default workspace")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"7/j/artifacts/../../other/artifacts/secret", "7/j/artifacts/%2E%2E/%2E%2E/other/artifacts/secret", "7/j/artifacts/..%2F..%2Fdcid.other%2Fsecret",
		"7/j/artifacts/a%5C..%5C..%5Csecret", "7/j/artifacts/a//b", "7/j/artifacts/./a", "7/j/artifacts/a%00b", "7/..%2Fother/artifacts/secret",
	} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			a := w.do(method, proxied+path, "evil")
			if a.StatusCode < 300 && a.Request.URL.EscapedPath() == base+proxied+path {
				t.Errorf("%s %s = %s %s", method, path, a.Status, a.body)
			}
		}
		w.fails("INVALID_PARAMETER_VALUE", "Invalid path", "GET", proxied+"7/j/artifacts/x%2F..%2Fy", "")
	}
	// Places of other workspaces, by the names of their containers.
	for _, path := range []string{"datastores/00000000-0000-0000-0000-000000000000.default.default.workspaceblobstore/secret", "datastores/codes/x", "datastores/.meta/x", "datastores/a.b/x"} {
		w.fails("RESOURCE_DOES_NOT_EXIST", "no artifacts at", "GET", proxied+path, "")
	}
	w.fails("RESOURCE_DOES_NOT_EXIST", "no artifact", "GET", proxied+"datastores/workspaceblobstore/secret", "")
	w.fails("PERMISSION_DENIED", "are read here and not written", "PUT", proxied+"datastores/workspaceblobstore/x", "x")
	w.fails("PERMISSION_DENIED", "written by the server alone", "PUT", proxied+"7/j/artifacts/user_logs/std_log.txt", "forged", as("j"))
	w.fails("PERMISSION_DENIED", "written by the server alone", "DELETE", proxied+"7/j/artifacts/system_logs", "", as("j"))
	w.fails("PERMISSION_DENIED", "name a file or a folder", "DELETE", proxied+"7/j/artifacts", "")
	w.fails("RESOURCE_DOES_NOT_EXIST", "Run with id=none not found", "PUT", proxied+"7/none/artifacts/x", "x")
	w.fails("INVALID_PARAMETER_VALUE", "names no file", "PUT", proxied+"7/j/artifacts/", "x")
}

// An upload that breaks off leaves nothing.
func TestABrokenUpload(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	conn, err := net.Dial("tcp", w.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: 100\r\n\r\nhalf", base+proxied+"7/j/artifacts/half")
	conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	conn.Close()
	if strings.Contains(string(answer), "200 OK") {
		t.Errorf("half an artifact was taken: %s", answer)
	}
	w.fails("RESOURCE_DOES_NOT_EXIST", "no artifact", "GET", proxied+"7/j/artifacts/half", "")
}

func TestWhatIsNotBuiltIsNamed(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ code, words, method, path string }{
		{"NOT_IMPLEMENTED", "Multipart upload is not supported", "POST", "mlflow-artifacts/mpu/create/0/j/artifacts"},
		{"NOT_IMPLEMENTED", "presigned", "GET", "mlflow-artifacts/presigned/0/j/artifacts/x"},
		{"NOT_IMPLEMENTED", "assessments", "POST", "mlflow/traces/tr-1/assessments"},
		{"NOT_IMPLEMENTED", "webhooks", "GET", "mlflow/webhooks"},
		{"NOT_IMPLEMENTED", "scorers", "GET", "mlflow/scorers/list"},
		{"NOT_IMPLEMENTED", "evaluation datasets", "POST", "mlflow/datasets/create"},
		{"ENDPOINT_NOT_FOUND", "nothing at GET", "GET", "mlflow/nonsense"},
		{"ENDPOINT_NOT_FOUND", "nothing at GET", "GET", "mlflow/runs/create"},
		{"ENDPOINT_NOT_FOUND", "nothing at GET", "GET", "/mlflow/v1.0/x"},
		{"ENDPOINT_NOT_FOUND", "nothing at GET", "GET", strings.TrimSuffix(base, "api/2.0/") + "version"},
	} {
		w.fails(c.code, c.words, c.method, c.path, "")
	}
	w.fails("RESOURCE_DOES_NOT_EXIST", "workspaces", "POST", strings.Replace(base, "/ws/", "/none/", 1)+"mlflow/runs/create", "{}")
	// Clients of all ages, and paths of any case.
	w.submit("j", "exp", trainyard.JobRunning)
	for _, prefix := range []string{base, strings.Replace(base, "api/2.0", "ajax-api/2.0", 1), strings.Replace(base, "api/2.0", "api/2.0/preview", 1), "/mlflow/" + strings.ToUpper(strings.TrimPrefix(base, "/mlflow/"))} {
		w.want(w.ok("GET", prefix+"mlflow/RUNS/get?run_id=j", nil), map[string]string{"run.info.run_id": "j"})
	}
	w.want(w.ok("GET", strings.Replace(base, "2.0", "3.0", 1)+"mlflow/server-info", nil), map[string]string{"multipart_uploads_enabled": "false"})
}
