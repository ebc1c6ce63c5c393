package control

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// replicaTail is the end of a replica's log, at most so many bytes, of whole lines as far as wholeLines has that; "" if there is none.
func (c *Control) replicaTail(ctx context.Context, j *trainyard.Job, most int64) string {
	files, err := c.Output.Files(ctx, j.Scope, j.Name)
	if err != nil {
		return ""
	}
	for _, f := range files {
		if f.Key != replicaLog {
			continue
		}
		r, _, err := c.Output.Read(ctx, j.Scope, j.Name, f.Key, max(0, f.Size-most))
		if err != nil {
			return ""
		}
		defer r.Close()
		data, err := io.ReadAll(io.LimitReader(r, most))
		if err != nil {
			return ""
		}
		text := string(data)
		if f.Size > most {
			text = wholeLines(text)
		}
		return strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	}
	return ""
}

// replicaLog is where a replica's log is among its job's.
const replicaLog = "user_logs/std_log.txt"

// DeploymentLogs is the end of what a deployment's replicas said, newest replica last: so many lines of each. container chooses between
// the model server ("InferenceServer") and the preparation before it ("StorageInitializer").
func (c *Control) DeploymentLogs(ctx context.Context, scope trainyard.Scope, endpoint, name string, tail int, container string) (string, error) {
	if _, err := c.Endpoint(ctx, scope, endpoint); err != nil {
		return "", err
	}
	d := c.served.deployment(endpoint, name)
	if d == nil || d.Scope.Fold() != scope.Fold() {
		return "", noDeployment(endpoint, name)
	}
	if tail <= 0 {
		tail = 50
	}
	page, err := c.Store.Jobs(ctx, trainyard.JobQuery{Scope: scope, View: trainyard.ViewAll, Tag: replicaTag + "=" + deploymentKey(endpoint, name), Top: 20})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	page.Items = slices.DeleteFunc(page.Items, notOf(deploymentKey(endpoint, name)))
	slices.Reverse(page.Items)
	for _, j := range page.Items {
		text, err := c.lastLines(ctx, j, tail, strings.EqualFold(container, "StorageInitializer"))
		if err != nil {
			return "", err
		}
		if text == "" {
			continue
		}
		if len(page.Items) > 1 {
			fmt.Fprintf(&b, "--- replica %s: %s ---\n", j.Name, strings.ToLower(string(j.Status.State)))
		}
		b.WriteString(text)
		if !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String(), nil
}

// lastLines is the end of a replica's log, or of what was said while it was prepared.
func (c *Control) lastLines(ctx context.Context, j *trainyard.Job, lines int, preparing bool) (string, error) {
	files, err := c.Output.Files(ctx, j.Scope, j.Name)
	if err != nil {
		return "", err
	}
	const most = 1 << 20
	var out []string
	for _, f := range files {
		if strings.HasPrefix(f.Key, "user_logs/") == preparing {
			continue
		}
		r, _, err := c.Output.Read(ctx, j.Scope, j.Name, f.Key, max(0, f.Size-most))
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(io.LimitReader(r, most))
		r.Close()
		if err != nil {
			return "", err
		}
		out = append(out, strings.Split(strings.TrimRight(string(data), "\n"), "\n")...)
	}
	return strings.Join(out[max(0, len(out)-lines):], "\n"), nil
}

// replicaStatuses is what people see of a deployment's replicas.
func (c *Control) replicaStatuses(ctx context.Context, d *trainyard.OnlineDeployment) ([]trainyard.ReplicaStatus, error) {
	all, err := c.look(ctx, deploymentKey(d.Endpoint, d.Name))
	if err != nil {
		return nil, err
	}
	var out []trainyard.ReplicaStatus
	for _, r := range all {
		j := c.present(ctx, r.job)
		s := trainyard.ReplicaStatus{Name: j.Name, Generation: r.gen, State: string(j.Status.State), Address: r.serving.Address,
			Reason: j.Status.Reason.Message, Since: j.Status.Reason.Since, Warnings: j.Status.Warnings}
		if a := j.Status.Current(); a != nil && len(a.Tasks) > 0 {
			s.Node = a.Tasks[0].Node
			use, heard := c.served.usage(deploymentKey(d.Endpoint, d.Name), a.Tasks[0].ID)
			s.MemoryMB, s.PeakMB, s.CPU, s.OOMKills, s.Measured = use.MemoryMB, use.PeakMB, use.CPU, use.OOMKills, heard
			s.GPU = use.GPU
		}
		switch {
		case r.ready():
			s.State, s.Reason = "Ready", ""
		case j.Status.State == trainyard.JobRunning && r.serving.Was:
			s.State, s.Reason = "Unready", r.serving.Why
		case j.Status.State == trainyard.JobRunning:
			s.State, s.Reason = "Loading", "the model is loading"
		}
		out = append(out, s)
	}
	return out, nil
}

// instances is a number of replicas for people.
func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return strconv.Itoa(n) + " instances"
}
