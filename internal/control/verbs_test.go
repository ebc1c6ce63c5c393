package control

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
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

func TestWhatAClusterIsCannotBeChanged(t *testing.T) {
	c := newControl(t)
	c.Locations = []trainyard.Location{{Name: "lab", Regions: []string{"westeurope"}}, {Name: "hpc"}}
	put := func(location, priority, size string) (*trainyard.Compute, error) {
		comp, _, err := c.PutCompute(t.Context(), anAdmin, &trainyard.Compute{Scope: trainyard.DefaultScope(), Name: "cpu", Location: location,
			Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster, Properties: trainyard.ClusterProperties{VMSize: size, VMPriority: priority}}})
		return comp, err
	}
	if _, err := put("hpc", "", usualSize); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ location, priority, size, want string }{
		{"hpc", "LowPriority", usualSize, `compute "cpu" has nodes of tier dedicated; the tier cannot be changed to low_priority: create another compute`},
		{"lab", "", usualSize, `compute "cpu" has its nodes at location hpc; the location cannot be changed to lab: create another compute, or name location hpc`},
		{"westeurope", "", usualSize, "the location cannot be changed to lab"},
		{"hpc", "", "Standard_F2s_v2", "the size cannot be changed to Standard_F2s_v2"},
	} {
		if _, err := put(tt.location, tt.priority, tt.size); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	for _, location := range []string{"hpc", "HPC", ""} {
		if comp, err := put(location, "Dedicated", "ds3_v2"); err != nil || comp.Where != "hpc" {
			t.Errorf("the same at %q: %v, %v", location, comp, err)
		}
	}
	c.Locations = []trainyard.Location{{Name: "lab"}, {Name: "new", Regions: []string{"hpc"}}} // its word has come to mean another place
	c.retired = []trainyard.Location{{Name: "hpc"}}
	if comp, err := put("hpc", "", usualSize); err != nil || comp.Where != "hpc" {
		t.Errorf("its nodes are at hpc: %v, %v", comp, err)
	}
}

func TestAnInstanceTypeThatIsNotActedOnIsSaid(t *testing.T) {
	c := newControl(t)
	for _, tt := range []struct{ computeType, name, want string }{
		{trainyard.ComputeLocal, "local", "resources.instance_type Bogus is not acted on: local has what its machines have"},
		{"VirtualMachine", "lab-pc", "resources.instance_type Bogus is not acted on: lab-pc has what its machines have"},
		{"Slurm", "hpc", "resources.instance_type Bogus is not acted on: hpc has what its machines have"},
		{"Kubernetes", "k8s", ""},
	} {
		r := &resolver{c: c, ctx: t.Context(), j: &trainyard.Job{Spec: trainyard.JobSpec{Resources: &trainyard.JobResources{InstanceType: "Bogus"}}}}
		r.shape(&trainyard.Compute{Name: tt.name, Spec: trainyard.ComputeSpec{ComputeType: tt.computeType}})
		if got := strings.Join(r.warnings, "\n"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.computeType, got, tt.want)
		}
	}
}

func TestAJobOfSeveralNodesIsNotForOneMachine(t *testing.T) {
	for _, tt := range []struct{ computeType, engine, want string }{
		{"VirtualMachine", "", "resources.instance_count is 2, and it is one machine: leave it out, or name a cluster"},
		{"Slurm", "slurm", ""},
		{trainyard.ComputeLocal, "", ""},
	} {
		r := &resolver{c: newControl(t), ctx: t.Context(), j: &trainyard.Job{Spec: trainyard.JobSpec{Resources: &trainyard.JobResources{InstanceCount: 2}}}}
		r.shape(&trainyard.Compute{Name: "it", Engine: tt.engine, Spec: trainyard.ComputeSpec{ComputeType: tt.computeType}})
		got := ""
		for _, e := range r.errs {
			got += e.Message
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.computeType, got, tt.want)
		}
	}
}

func TestOneJobIsNotJobs(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	if err := makeCluster(t, c, usualSize); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`compute "cpu" has 1 job (a); wait, cancel it, or delete with --force, which cancels it`,
		`compute "cpu" has 2 jobs (a, b); wait, cancel them, or delete with --force, which cancels them`} {
		j := &trainyard.Job{Scope: scope, Name: string(rune('a' + i)), Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "cpu"}}
		if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteCompute(t.Context(), anAdmin, scope, "cpu", false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("delete says %v, want %q", err, want)
		}
	}
}

// withJobs is a server with the cluster "cpu" and jobs that wait for it.
func withJobs(t *testing.T, names ...string) (*Control, trainyard.Scope) {
	t.Helper()
	c, scope := newControl(t), trainyard.DefaultScope()
	if err := makeCluster(t, c, usualSize); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		j := &trainyard.Job{Scope: scope, Name: name, Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "cpu"}}
		if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); err != nil {
			t.Fatal(err)
		}
	}
	return c, scope
}

func TestJobsThatEndWithTheirComputeSaySo(t *testing.T) {
	c, scope := withJobs(t, "a")
	if err := c.DeleteCompute(t.Context(), anAdmin, scope, "cpu", true); err != nil {
		t.Fatal(err)
	}
	got, err := c.Job(t.Context(), scope, "a")
	if err != nil {
		t.Fatal(err)
	}
	if want := "canceled by " + anAdmin.Name + " (deleted compute cpu) before it started"; got.Status.Reason.Message != want {
		t.Errorf("job a is %s: %s; want %q", got.Status.State, got.Status.Reason.Message, want)
	}
}

// Who waits for a compute is listed as the queue will serve them, not as they came.
func TestThoseThatWaitAreListedAsTheyAreServed(t *testing.T) {
	c, scope := withJobs(t, "a", "b", "c")
	for most, want := range map[int]string{2: "a b true", 3: "a b c false", 9: "a b c false"} {
		list, more, err := c.Waiting(t.Context(), scope, "cpu", most)
		got := ""
		for _, j := range list {
			got += j.Name + " "
		}
		if got += strconv.FormatBool(more); got != want || err != nil {
			t.Errorf("of %d: %s, %v, want %s", most, got, err, want)
		}
	}
}

func TestWhatIsAttachedIsDetached(t *testing.T) {
	c, scope := withJobs(t, "a")
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		comp, err := tx.Compute(trainyard.MakeComputeKey(scope, "cpu"))
		if err != nil {
			return err
		}
		comp.Spec.ComputeType = "VirtualMachine"
		return tx.PutCompute(comp)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `compute "cpu" has 1 job (a); wait, cancel it, or detach with --force, which cancels it`
	if err := c.DeleteCompute(t.Context(), anAdmin, scope, "cpu", false); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it says %v, want %q", err, want)
	}
}
