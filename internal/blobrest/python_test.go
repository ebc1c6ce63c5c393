package blobrest_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard/internal/blob"
	"github.com/trainyard/trainyard/internal/blobrest"
)

const azureStorageBlob = "azure-storage-blob==12.31.1"

// python returns an interpreter and the folder of a package for it, which is installed once on this machine.
func python(t *testing.T, requirement string) (interpreter, path string) {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs Python 3 with pip: apt-get install python3-pip")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(cache, "trainyard-test", strings.ReplaceAll(requirement, "==", "-"))
	if _, err := os.Stat(path); err == nil {
		return interpreter, path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	partial, err := os.MkdirTemp(filepath.Dir(path), "partial-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(partial)
	out, err := exec.Command(interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", partial, requirement).CombinedOutput()
	if err != nil {
		t.Fatalf("pip install %s: %v\n%s", requirement, err, out)
	}
	if err := os.Rename(partial, path); err != nil {
		if _, statErr := os.Stat(path); statErr != nil { // or another test run was first
			t.Fatal(err)
		}
	}
	return interpreter, path
}

// Azure's own client is the judge of what we speak.
func TestAzureStorageBlob(t *testing.T) {
	interpreter, packages := python(t, azureStorageBlob)
	s := serve(t)
	for i := range 5200 {
		if _, err := s.bucket.Append(t.Context(), fmt.Sprintf("c/many/%05d", i), 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	hour := time.Now().Add(time.Hour)
	cmd := exec.Command(interpreter, filepath.Join("testdata", "client.py"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1",
		"ENDPOINT="+s.URL+"/blob",
		"SAS="+s.signer.Sign("c", "rwdl", hour).Encode(),
		"READ_SAS="+s.signer.Sign("c", "rl", hour).Encode(),
		"OLD_SAS="+s.signer.Sign("c", "rl", time.Now().Add(-time.Minute)).Encode(),
		"SNAP_SAS="+s.signer.Sign("snap-1", "rwl", hour).Encode(),
		"ACCOUNT="+s.URL+"/"+account, "ACCOUNT_KEY="+base64.StdEncoding.EncodeToString(accountKey))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("Azure's client: %v", err)
	}
	if left, err := s.bucket.List(t.Context(), "uncommitted-blocks/"); err != nil || len(left) > 0 {
		for _, b := range left {
			if !strings.HasSuffix(b.Key, ".done") {
				t.Errorf("a block is left behind: %+v", b)
			}
		}
	}
}

var _ blobrest.Blobs = (*blob.Bucket)(nil)

var _ http.Handler = blobrest.New(blobrest.Config{})
