package store

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestSecretsAreSealedInTheDatabase(t *testing.T) {
	dir := t.TempDir()
	key := bytes.Repeat([]byte{7}, 32)
	open := func(key []byte) (*Store, error) {
		return Open(t.Context(), Config{DSN: "sqlite:" + filepath.Join(dir, "a.db"), Key: key})
	}
	s, err := open(key)
	if err != nil {
		t.Fatal(err)
	}
	c := &trainyard.Compute{Scope: trainyard.DefaultScope(), Name: "vm", Spec: trainyard.ComputeSpec{ComputeType: "VirtualMachine"},
		Secret: json.RawMessage(`{"password":"sesame-open"}`), Settings: json.RawMessage(`{"password":"sesame-open"}`)}
	e := &trainyard.Resource{Scope: trainyard.DefaultScope(), Kind: trainyard.KindOnlineEndpoint, Name: "wine",
		Properties: json.RawMessage(`{}`), Secret: json.RawMessage(`{"primaryKey":"sesame-open"}`)}
	err = s.Update(t.Context(), func(tx *Tx) error {
		if _, err := tx.PutResource(e); err != nil {
			return err
		}
		if in, err := tx.Resource(e.Scope, e.Kind, e.Name, ""); err != nil || string(in.Secret) != string(e.Secret) {
			t.Errorf("in its transaction the resource has %s, %v", in.Secret, err)
		}
		return tx.PutCompute(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if data, err := os.ReadFile(f); err != nil || bytes.Contains(data, []byte("sesame-open")) {
			t.Errorf("%s holds the password (%v)", f, err)
		}
	}
	if s, err = open(key); err != nil {
		t.Fatal(err)
	}
	got, err := s.Compute(t.Context(), c.Key())
	if err != nil || string(got.Secret) != string(c.Secret) || string(got.Settings) != string(c.Settings) {
		t.Errorf("read back %s and %s, %v", got.Secret, got.Settings, err)
	}
	again, err := s.Resource(t.Context(), e.Scope, e.Kind, e.Name, "")
	if err != nil || string(again.Secret) != string(e.Secret) {
		t.Errorf("read back %s, %v", again.Secret, err)
	}
	page, err := s.Resources(t.Context(), trainyard.ResourceQuery{Scope: e.Scope, Kind: e.Kind})
	if err != nil || len(page.Items) != 1 || string(page.Items[0].Secret) != string(e.Secret) {
		t.Errorf("listed %v, %v", page.Items, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][]byte{nil, bytes.Repeat([]byte{8}, 32)} {
		if s, err := open(wrong); err == nil || !strings.Contains(err.Error(), "key") {
			t.Errorf("opened with the wrong key: %v", err)
			s.Close()
		}
	}
}
