package armtest

import (
	"context"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

func (c *Control) SubmitJob(_ context.Context, who trainyard.User, in *trainyard.Job) (*trainyard.Job, bool, error) {
	c.Lock()
	defer c.Unlock()
	if c.Err != nil {
		return nil, false, c.Err
	}
	if old := c.jobs[in.Key()]; old != nil {
		old.Spec.Tags, old.Spec.DisplayName, old.Spec.IsArchived, old.Modified = in.Spec.Tags, in.Spec.DisplayName, in.Spec.IsArchived, c.Now()
		return old.Clone(), false, nil
	}
	j := in.Clone()
	c.seq++
	j.Seq, j.Created, j.Modified, j.CreatedBy = c.seq, c.Now(), c.Now(), who.Name
	j.Plan.Compute = j.Spec.ComputeID[strings.LastIndexByte(j.Spec.ComputeID, '/')+1:]
	j.Plan.Outputs = map[string]trainyard.TaskOutput{}
	for name, o := range j.Spec.Outputs {
		p := trainyard.TaskOutput{Type: o.JobOutputType, URI: o.URI, Mode: o.Mode}
		if p.URI == "" {
			p.URI = "azureml://datastores/workspaceblobstore/paths/azureml/" + j.Name + "/" + name + "/"
		}
		j.Plan.Outputs[name] = p
	}
	if err := j.MoveTo(trainyard.JobQueued, trainyard.Reason{Code: "AtMaximumNodes", Message: "cpu-cluster is at its maximum of 2 nodes"}, c.Now()); err != nil {
		return nil, false, err
	}
	c.jobs[j.Key()] = j
	return j.Clone(), true, nil
}

func (c *Control) Job(_ context.Context, s trainyard.Scope, name string) (*trainyard.Job, error) {
	c.Lock()
	defer c.Unlock()
	if c.Err != nil {
		return nil, c.Err
	}
	if j := c.jobs[trainyard.MakeJobKey(s, name)]; j != nil {
		return j.Clone(), nil
	}
	return nil, trainyard.NotFound("job %q does not exist in workspace %q", name, s.Workspace)
}

func (c *Control) Jobs(_ context.Context, q trainyard.JobQuery) (trainyard.Page[*trainyard.Job], error) {
	c.Lock()
	defer c.Unlock()
	var found []*trainyard.Job
	for _, j := range c.jobs {
		if !within(j.Scope, q.Scope) || q.Compute != "" && q.Compute != j.Plan.Compute || len(q.States) > 0 && !slices.Contains(q.States, j.Status.State) {
			continue
		}
		if q.View == trainyard.ViewActive && j.Spec.IsArchived || q.View == trainyard.ViewArchived && !j.Spec.IsArchived {
			continue
		}
		if k, v, _ := strings.Cut(q.Tag, "="); q.Tag != "" && j.Spec.Tags[k] != v {
			continue
		}
		found = append(found, j.Clone())
	}
	slices.SortFunc(found, func(a, b *trainyard.Job) int { return int(b.Seq - a.Seq) })
	return page(found, q.Top, q.After), c.Err
}

func (c *Control) CancelJob(_ context.Context, who trainyard.User, s trainyard.Scope, name string) error {
	return c.EditJob(s, name, func(j *trainyard.Job) error {
		if j.Status.State.Terminal() {
			return nil
		}
		to := trainyard.JobCanceled
		if j.Status.State != trainyard.JobQueued {
			to = trainyard.JobCancelRequested
		}
		j.Status.CanceledBy = who.Name
		return j.MoveTo(to, trainyard.Reason{Code: "Canceled", Message: "canceled by " + who.Name}, c.Now())
	})
}

// EditJob changes a job by hand.
func (c *Control) EditJob(s trainyard.Scope, name string, edit func(*trainyard.Job) error) error {
	c.Lock()
	defer c.Unlock()
	j := c.jobs[trainyard.MakeJobKey(s, name)]
	if j == nil {
		return trainyard.NotFound("job %q does not exist", name)
	}
	return edit(j)
}

func (c *Control) DeleteJob(_ context.Context, _ trainyard.User, s trainyard.Scope, name string) error {
	c.Lock()
	defer c.Unlock()
	k := trainyard.MakeJobKey(s, name)
	j := c.jobs[k]
	if j == nil {
		return trainyard.NotFound("job %q does not exist", name)
	}
	if !j.Status.State.Terminal() {
		return trainyard.Conflict("job %q is %s; cancel it first", name, j.Status.State)
	}
	delete(c.jobs, k)
	return nil
}

func (c *Control) JobEvents(_ context.Context, s trainyard.Scope, name string, after int64) ([]trainyard.Event, error) {
	if after >= 1 {
		return nil, c.Err
	}
	return []trainyard.Event{{Seq: 1, Time: c.Now(), Scope: s, Kind: "job", Subject: name, What: "queued"}}, c.Err
}

func (c *Control) JobPosition(context.Context, trainyard.Scope, string) (int, error) { return 3, nil }

func (c *Control) PutCompute(_ context.Context, who trainyard.User, in *trainyard.Compute) (*trainyard.Compute, bool, error) {
	c.Lock()
	defer c.Unlock()
	if c.Err != nil {
		return nil, false, c.Err
	}
	comp := *in
	comp.Created, comp.Modified, comp.CreatedBy = c.Now(), c.Now(), who.Name
	old, there := c.computes[comp.Key()]
	if there {
		comp.Created, comp.CreatedBy = old.Created, old.CreatedBy
	}
	c.computes[comp.Key()] = &comp
	return &comp, !there, nil
}

func (c *Control) Compute(_ context.Context, s trainyard.Scope, name string) (*trainyard.Compute, error) {
	c.Lock()
	defer c.Unlock()
	if comp := c.computes[trainyard.MakeComputeKey(s, name)]; comp != nil {
		copied := *comp
		return &copied, c.Err
	}
	return nil, trainyard.NotFound("compute %q does not exist in workspace %q", name, s.Workspace)
}

func (c *Control) Computes(_ context.Context, s trainyard.Scope) ([]*trainyard.Compute, error) {
	c.Lock()
	defer c.Unlock()
	var out []*trainyard.Compute
	for _, comp := range c.computes {
		if within(comp.Scope, s) {
			out = append(out, comp)
		}
	}
	slices.SortFunc(out, func(a, b *trainyard.Compute) int { return strings.Compare(a.Name, b.Name) })
	return out, c.Err
}

func (c *Control) DeleteCompute(_ context.Context, _ trainyard.User, s trainyard.Scope, name string, force bool) error {
	c.Lock()
	defer c.Unlock()
	k := trainyard.MakeComputeKey(s, name)
	comp := c.computes[k]
	switch {
	case comp == nil:
		return trainyard.NotFound("compute %q does not exist", name)
	case len(c.nodes[k]) > 0 && len(c.nodes[k][0].Jobs) > 0 && !force:
		return trainyard.Conflict("compute %q runs job %q", name, c.nodes[k][0].Jobs[0])
	case c.Slow:
		comp.Deleting = true
	default:
		delete(c.computes, k)
		delete(c.nodes, k)
	}
	return nil
}

func (c *Control) ActOnCompute(_ context.Context, _ trainyard.User, s trainyard.Scope, name, action string) error {
	c.Lock()
	defer c.Unlock()
	comp := c.computes[trainyard.MakeComputeKey(s, name)]
	if comp == nil {
		return trainyard.NotFound("compute %q does not exist", name)
	}
	comp.Stopped = action == "stop"
	return nil
}

func (c *Control) Nodes(_ context.Context, s trainyard.Scope, compute string) ([]trainyard.NodeStatus, error) {
	c.Lock()
	defer c.Unlock()
	k := trainyard.MakeComputeKey(s, compute)
	if c.computes[k] == nil {
		return nil, trainyard.NotFound("compute %q does not exist", compute)
	}
	return c.nodes[k], c.Err
}

// SetNodes puts a compute's nodes by hand.
func (c *Control) SetNodes(s trainyard.Scope, compute string, nodes ...trainyard.NodeStatus) {
	c.Lock()
	defer c.Unlock()
	c.nodes[trainyard.MakeComputeKey(s, compute)] = nodes
}

func (c *Control) Location(_ context.Context, name string) (trainyard.Location, error) {
	return trainyard.Location{Name: "local", Driver: "process", Sizes: []trainyard.VMSize{
		{Name: "Standard_DS3_v2", Family: "standardDSv2Family", Series: "DSv2", VCPUs: 4, MemoryGB: 14, ResourceDiskMB: 28672, PricePerHour: 0.27, LowPriorityRate: 0.05, ComputeTypes: []string{"AmlCompute", "ComputeInstance"}},
		{Name: "Standard_NC6", Family: "standardNCFamily", Series: "NC", VCPUs: 6, MemoryGB: 56, GPUs: 1, GPU: "K80", PricePerHour: 0.9, NeedsApproval: true, ComputeTypes: []string{"AmlCompute"}},
	}}, c.Err
}

func (c *Control) Usages(_ context.Context, _ trainyard.Scope, _ string) ([]trainyard.Usage, error) {
	return []trainyard.Usage{{Name: "standardDSv2Family", Current: 8, Limit: -1, Unit: "Count"}}, c.Err
}

func (c *Control) Quotas(_ context.Context, _ trainyard.Scope, _ string) ([]trainyard.Usage, error) {
	c.Lock()
	defer c.Unlock()
	limit, set := c.limits["standardDSv2Family"]
	if !set {
		limit = -1
	}
	return []trainyard.Usage{{Name: "standardDSv2Family", Limit: limit}}, c.Err
}

func (c *Control) SetQuotas(_ context.Context, _ trainyard.User, _ trainyard.Scope, _ string, limits map[string]int64) error {
	c.Lock()
	defer c.Unlock()
	for k, v := range limits {
		c.limits[k] = v
	}
	return c.Err
}

// AllLocations is the one location.
func (c *Control) AllLocations(ctx context.Context) ([]trainyard.Location, error) {
	l, err := c.Location(ctx, "local")
	return []trainyard.Location{l}, err
}

// Used is as if one machine were there.
func (c *Control) Used(context.Context, string) trainyard.Capacity {
	return trainyard.Capacity{Nodes: 1, VCPUs: 4}
}
