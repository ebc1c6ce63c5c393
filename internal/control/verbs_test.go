package control

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blob"
	"github.com/trainyard/trainyard/internal/output"
	"github.com/trainyard/trainyard/internal/store"
)

// newControl is a control with a store of its own and no loops.
func newControl(t *testing.T) *Control {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + filepath.Join(t.TempDir(), "db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	bytes, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bytes.Close() })
	c := New(Config{Store: db, Blobs: bytes, Output: output.New(bytes), Gateway: func() string { return "http://gateway" }, Now: time.Now, Locations: []trainyard.Location{{Name: trainyard.DefaultLocation}}, Log: slog.New(slog.DiscardHandler)})
	if err := c.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// The token of a job that was deleted still names it: it must not bring a job of that name back.
func TestAJobsTokenSubmitsNothing(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	admin := trainyard.User{Name: "admin", Role: trainyard.RoleAdmin}
	job := trainyard.User{Name: "job j", Role: trainyard.RoleJob, Scope: scope, Job: "j"}
	in := &trainyard.Job{Scope: scope, Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local"}}
	if _, _, err := c.SubmitJob(t.Context(), job, in); trainyard.CodeOf(err) != trainyard.CodeForbidden {
		t.Fatalf("a job's token submits: %v", err)
	}
	if _, created, err := c.SubmitJob(t.Context(), admin, in); err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	in.Spec.Tags = map[string]string{"a": "b"}
	if saved, created, err := c.SubmitJob(t.Context(), job, in); err != nil || created || saved.Spec.Tags["a"] != "b" {
		t.Fatalf("its own run is not changed: %v, %v", created, err)
	}
}

// Whoever makes machines hears of a restart at once, and not at the end of a long poll.
func TestARestartWakesTheFleet(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	admin := trainyard.User{Name: "admin", Role: trainyard.RoleAdmin}
	comp := &trainyard.Compute{Scope: scope, Name: "cpu-cluster", Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster}}
	if _, _, err := c.PutCompute(t.Context(), admin, comp); err != nil {
		t.Fatal(err)
	}
	before := c.fleets.wait(context.Background(), trainyard.DefaultLocation, 0, 0)
	if err := c.ActOnCompute(t.Context(), admin, scope, "cpu-cluster", "restart"); err != nil {
		t.Fatal(err)
	}
	if after := c.fleets.wait(context.Background(), trainyard.DefaultLocation, 0, 0); after <= before {
		t.Errorf("revision %d, before %d", after, before)
	}
}
