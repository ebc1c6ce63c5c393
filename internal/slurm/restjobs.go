package slurm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Submit posts a job. What sbatch takes as options the service takes as fields, by names that are nearly the same.
func (v *service) Submit(ctx context.Context, b Batch) (string, error) {
	job := map[string]any{"name": b.Name, "current_working_directory": b.Dir, "standard_output": b.Output, "standard_error": b.Output,
		"standard_input": "/dev/null", "open_mode": "append", "no_requeue": true, "nodes": b.Nodes, "tasks": b.Nodes, "tasks_per_node": 1}
	env := map[string]string{}
	for _, line := range v.env {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	job["environment"] = env
	if b.CPUs > 0 {
		job["cpus_per_task"] = b.CPUs
	}
	if b.MemoryMB > 0 {
		job["memory_per_node"] = b.MemoryMB
	}
	if b.GPUs > 0 {
		job["gres"] = fmt.Sprintf("gpu:%d", b.GPUs)
	}
	if b.Time > 0 {
		job["time_limit"] = int64((b.Time + time.Minute - 1) / time.Minute)
	}
	fields := map[string]string{"constraint": "constraints", "time": "time_limit"}
	for _, arg := range b.Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if field := fields[name]; field != "" {
			name = field
		}
		if name == "exclusive" {
			value = "exclusive"
		}
		job[name] = value
	}
	var out struct {
		ID int64 `json:"job_id"`
	}
	if err := v.call(ctx, http.MethodPost, "/job/submit", map[string]any{"script": b.Script, "job": job}, &out); err != nil {
		return "", err
	}
	if out.ID <= 0 {
		return "", v.failed(nil, "its answer has no number of a job")
	}
	return strconv.FormatInt(out.ID, 10), nil
}

// jobInfo is a job as the service shows it.
type jobInfo struct {
	ID          int64  `json:"job_id"`
	Name        string `json:"name"`
	State       string `json:"job_state"`
	Reason      string `json:"state_reason"`
	Description string `json:"state_description"`
	Partition   string `json:"partition"`
	Nodes       int    `json:"node_count"`
	NodeList    string `json:"nodes"`
	Minutes     *int64 `json:"time_limit"`
	Start       int64  `json:"start_time"`
	End         int64  `json:"end_time"`
	Status      int    `json:"exit_code"` // as wait(2) has it
	Restarts    int    `json:"restart_cnt"`
	ArrayID     int64  `json:"array_job_id"`
	HetID       int64  `json:"het_job_id"`
}

func (i *jobInfo) job() Job {
	j := Job{ID: strconv.FormatInt(i.ID, 10), Name: i.Name, State: i.State, Reason: i.Reason, Partition: i.Partition, Nodes: i.Nodes, NodeList: i.NodeList,
		TimeLimit: "UNLIMITED", ExitCode: i.Status >> 8 & 0xff, Signal: i.Status & 0x7f, Restarts: i.Restarts}
	if i.Description != "" {
		j.Reason = i.Description
	}
	if i.Minutes != nil && *i.Minutes > 0 {
		j.TimeLimit = fmt.Sprintf("%02d:%02d:00", *i.Minutes/60, *i.Minutes%60)
	}
	if i.Start > 0 {
		j.Start = time.Unix(i.Start, 0)
	}
	if j.Ended() && i.End > 0 {
		j.End = time.Unix(i.End, 0)
	}
	return j
}

// Queue lists the jobs of all users that may be seen: the service knows no other list.
func (v *service) Queue(ctx context.Context, names ...string) ([]Job, error) {
	var out struct {
		Jobs []jobInfo `json:"jobs"`
	}
	if err := v.call(ctx, http.MethodGet, "/jobs", nil, &out); err != nil {
		return nil, err
	}
	var jobs []Job
	for i := range out.Jobs {
		if j := &out.Jobs[i]; j.ArrayID == 0 && j.HetID == 0 && (len(names) == 0 || slices.Contains(names, j.Name)) {
			jobs = append(jobs, j.job())
		}
	}
	return jobs, nil
}

// Job asks for one job.
func (v *service) Job(ctx context.Context, id, name string) (Job, error) {
	var out struct {
		Jobs []jobInfo `json:"jobs"`
	}
	err := v.call(ctx, http.MethodGet, "/job/"+id, nil, &out)
	if err != nil && Away(err) {
		return Job{}, err
	}
	for i := range out.Jobs {
		if j := out.Jobs[i].job(); err == nil && j.ID == id && j.Name == name {
			return j, nil
		}
	}
	if err != nil && over(err) != nil {
		return Job{}, err
	}
	return Job{}, fmt.Errorf("job %s: %w", id, ErrUnknown)
}

// Accounted knows nothing: the service's accounting needs a database of Slurm's.
func (v *service) Accounted(context.Context, string, string) (Job, bool) { return Job{}, false }

// Nodes lists the nodes of a partition.
func (v *service) Nodes(ctx context.Context, partition string) ([]Node, error) {
	var out struct {
		Nodes []struct {
			Name       string   `json:"name"`
			CPUs       int      `json:"cpus"`
			MemoryMB   int64    `json:"real_memory"`
			GRES       string   `json:"gres"`
			State      string   `json:"state"`
			Partitions []string `json:"partitions"`
		} `json:"nodes"`
	}
	if err := v.call(ctx, http.MethodGet, "/nodes", nil, &out); err != nil {
		return nil, err
	}
	var nodes []Node
	for _, n := range out.Nodes {
		in := func(p string) bool { return slices.Contains(n.Partitions, p) }
		if partition == "" || slices.ContainsFunc(strings.Split(partition, ","), in) {
			nodes = append(nodes, Node{Name: n.Name, CPUs: n.CPUs, MemoryMB: n.MemoryMB, GPUs: gpus(n.GRES), State: n.State})
		}
	}
	return some(nodes, partition)
}

// HoldsMemory says yes: the service does not show how Slurm is configured, and as a rule it is so.
func (v *service) HoldsMemory(context.Context) (bool, error) { return true, nil }

// end deletes a job, or signals it. The service has no way to name a job's state or its parts, so what the job does is looked at before, and a
// signal reaches the batch script and all steps. At SIGTERM the srun of a job of several nodes ends its ranks at once, so they have no grace.
func (v *service) end(ctx context.Context, ref Ref, how ending) error {
	j, err := v.Job(ctx, ref.ID, ref.Name)
	switch {
	case err != nil && Away(err):
		return err
	case err != nil, j.Ended(), how.waiting != (j.State == Pending) && (how.waiting || how.signal != ""):
		return nil
	}
	query := ""
	if how.signal != "" {
		query = "?signal=" + how.signal
	}
	return over(v.call(ctx, http.MethodDelete, "/job/"+ref.ID+query, nil, nil))
}
