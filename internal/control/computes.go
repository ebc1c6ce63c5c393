package control

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

var computeName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]{1,30}[a-zA-Z0-9]$`)

// idleDefault is how long a node may idle when a file does not say, as in Azure ML.
const idleDefault = 120 * time.Second

// PutCompute creates a compute or changes one.
func (c *Control) PutCompute(ctx context.Context, who trainyard.User, in *trainyard.Compute) (*trainyard.Compute, bool, error) {
	comp := *in
	stays := ""
	if old, err := c.Store.Compute(ctx, in.Key()); err == nil && old.Elastic() {
		if comp.Location == "" { // it says nothing of the place
			comp.Location = old.Location
		}
		if strings.EqualFold(comp.Location, old.Location) && c.place(old.Where) != nil {
			stays = old.Where // its nodes are there, whatever its word for the place means by now
		}
	}
	if err := c.admitCompute(&comp, stays); err != nil {
		return nil, false, err
	}
	if err := c.attach(ctx, &comp); err != nil {
		return nil, false, err
	}
	created := false
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		if _, err := tx.Resource(comp.Scope, trainyard.KindWorkspace, comp.Scope.Workspace, ""); err != nil {
			return err
		}
		now := c.Now()
		comp.Created, comp.Modified, comp.CreatedBy = now, now, who.Name
		old, err := tx.Compute(comp.Key())
		switch {
		case err == nil:
			if err := changeable(old, &comp, c.where(old.Location)); err != nil {
				return err
			}
			if comp.Elastic() {
				comp.Where = old.Where // its nodes are there, whatever its word for the place means by now
			}
			created = false
			comp.Name, comp.Created, comp.CreatedBy, comp.Stopped = old.Name, old.Created, old.CreatedBy, old.Stopped
			if len(comp.Secret) == 0 {
				comp.Secret = old.Secret
			}
			comp.Wanted, comp.WantedWhy, comp.Resized, comp.Errors = old.Wanted, old.WantedWhy, old.Resized, old.Errors
		case trainyard.IsNotFound(err):
			created = true
		default:
			return err
		}
		what := "updated"
		if created {
			what = "created"
		}
		tx.Event(c.event(comp.Scope, "compute", comp.Name, what, who.Name, describe(&comp)))
		if err := tx.PutCompute(&comp); err != nil || !created || !comp.Hosted() {
			return err
		}
		return tx.PutNode(&trainyard.Node{ID: newNodeID(strings.ToLower(comp.Name)), Compute: comp.Key(), State: trainyard.NodeCreating, Created: now,
			Reason: trainyard.Reason{Code: "Starting", Message: "the server's agent is about to reach " + comp.Engine, Since: now}})
	})
	if err == nil && comp.Hosted() {
		c.nodes.bump(everyHosted)
	}
	if err == nil {
		c.fleets.bump(comp.Where) // how its machine is reached may have changed
	}
	return &comp, created, err
}

// admitCompute checks a compute and fills its defaults in. stays is the location of one whose nodes stay where they are; "" for a new one.
func (c *Control) admitCompute(comp *trainyard.Compute, stays string) error {
	if !computeName.MatchString(comp.Name) {
		return trainyard.Invalid("%q cannot be a compute's name: 3 to 32 letters, digits and '-', beginning with a letter", comp.Name)
	}
	if name := strings.ToLower(comp.Name); name == "serverless" || strings.HasPrefix(name, serverlessPrefix) {
		return trainyard.Invalid("%q cannot be a compute's name: names that begin with serverless are the server's own", comp.Name)
	}
	i := slices.IndexFunc(trainyard.KnownComputeTypes, func(t string) bool { return strings.EqualFold(t, comp.Spec.ComputeType) })
	if i < 0 {
		return trainyard.Invalid("%q is not a compute type; %s are", comp.Spec.ComputeType, strings.Join(trainyard.KnownComputeTypes, ", "))
	}
	comp.Spec.ComputeType = trainyard.KnownComputeTypes[i]
	if comp.Location == "" {
		comp.Location = trainyard.DefaultLocation
	}
	comp.Where = cmp.Or(stays, c.where(comp.Location))
	comp.Warnings = nil
	if !strings.EqualFold(comp.Location, comp.Where) && !strings.EqualFold(comp.Location, trainyard.DefaultLocation) { // the workspace's own word says nothing
		comp.Warnings = trainyard.Warn(comp.Warnings, fmt.Sprintf("location %s means %s here", comp.Location, comp.Where))
	}
	switch comp.Spec.ComputeType {
	case trainyard.ComputeLocal:
		if !strings.EqualFold(comp.Name, trainyard.LocalCompute) {
			return trainyard.Errorf(trainyard.CodeUnsupported, "compute %q: a workspace has one compute of type Local, and it is called %q", comp.Name, trainyard.LocalCompute)
		}
		return nil
	case trainyard.ComputeCluster:
		return c.admitCluster(comp)
	}
	if kind := c.kind(comp.Spec.ComputeType); kind != nil {
		if strings.EqualFold(comp.Name, trainyard.LocalCompute) {
			return trainyard.Conflict("%q is the name of the workspace's own compute; choose another", comp.Name)
		}
		comp.Engine, comp.Where = kind.Engine, kind.place()
		comp.Warnings = nil
		return nil
	}
	return trainyard.Errorf(trainyard.CodeUnsupported, "compute %q: type %s is not in this build; %s are", comp.Name, comp.Spec.ComputeType, strings.Join(c.types(), ", "))
}

func (c *Control) admitCluster(comp *trainyard.Compute) error {
	p := &comp.Spec.Properties
	if strings.EqualFold(comp.Name, trainyard.LocalCompute) {
		return trainyard.Conflict("%q is the name of the workspace's own compute; choose another", comp.Name)
	}
	l := c.place(comp.Where)
	var size trainyard.VMSize
	var err error
	if p.VMSize == "" {
		size, err = defaultSize(l, 1)
	} else {
		size, err = sizeAt(l, p.VMSize, 1)
	}
	if err != nil {
		return trainyard.Invalid("compute %q: %v", comp.Name, err)
	}
	p.VMSize = size.Name
	switch {
	case p.VMPriority == "" || strings.EqualFold(p.VMPriority, "Dedicated"):
		p.VMPriority = "Dedicated"
	case strings.EqualFold(p.VMPriority, "LowPriority"):
		p.VMPriority = "LowPriority"
	default:
		return trainyard.Invalid("compute %q: vmPriority is %q, want Dedicated or LowPriority", comp.Name, p.VMPriority)
	}
	if p.OSType == "" {
		p.OSType = "Linux"
	}
	if p.ScaleSettings == nil {
		p.ScaleSettings = &trainyard.ScaleSettings{MaxNodeCount: 4}
	}
	s := p.ScaleSettings
	if s.NodeIdleTimeBeforeScaleDown == "" {
		s.NodeIdleTimeBeforeScaleDown = trainyard.ISODuration(idleDefault)
	}
	if _, err := trainyard.ParseISODuration(s.NodeIdleTimeBeforeScaleDown); err != nil {
		return trainyard.Invalid("compute %q: nodeIdleTimeBeforeScaleDown is %q, want an ISO 8601 duration such as PT2M", comp.Name, s.NodeIdleTimeBeforeScaleDown)
	}
	if s.MinNodeCount < 0 || s.MaxNodeCount < s.MinNodeCount || s.MaxNodeCount > 10000 {
		return trainyard.Invalid("compute %q: min_instances is %d and max_instances %d; want 0 ≤ min ≤ max ≤ 10000", comp.Name, s.MinNodeCount, s.MaxNodeCount)
	}
	overcommitted(comp, size, l)
	return nil
}

// overcommitted says where a size asks for more than the one machine has that the location's nodes share, and what else is to be known of it.
func overcommitted(comp *trainyard.Compute, size trainyard.VMSize, l *trainyard.Location) {
	if m := l.Machine; m.CPUs > 0 {
		if float64(size.VCPUs) > m.CPUs {
			comp.Warnings = trainyard.Warn(comp.Warnings, fmt.Sprintf("%s has %d vCPUs and this machine %g: nodes are overcommitted and share what there is", size.Name, size.VCPUs, m.CPUs))
		}
		if need := int64(size.MemoryGB * 1024); m.MemoryMB > 0 && need > m.MemoryMB {
			comp.Warnings = trainyard.Warn(comp.Warnings, fmt.Sprintf("%s has %g GiB of memory and this machine %.1f: memory is overcommitted", size.Name, size.MemoryGB, float64(m.MemoryMB)/1024))
		}
		if size.GPUs > m.GPUs {
			comp.Warnings = trainyard.Warn(comp.Warnings, fmt.Sprintf("%s has %d GPUs and this machine %d", size.Name, size.GPUs, m.GPUs))
		}
		if runtime.GOOS != "linux" {
			comp.Warnings = trainyard.Warn(comp.Warnings, "CPU and memory of the size are not held on "+runtime.GOOS)
		}
	}
	if size.NeedsApproval {
		comp.Warnings = trainyard.Warn(comp.Warnings, fmt.Sprintf("%s is of a restricted series: Azure asks for an approved quota; location %s has approval", size.Name, l.Name))
	}
}

// changeable refuses what cannot change in place. means is the location that the old compute's own word for it means now.
func changeable(old, in *trainyard.Compute, means string) error {
	is, want := &old.Spec.Properties, &in.Spec.Properties
	switch {
	case old.Deleting:
		return trainyard.Conflict("compute %q is being deleted", old.Name)
	case old.Spec.ComputeType != in.Spec.ComputeType:
		return trainyard.Conflict("compute %q is of type %s and cannot become %s; delete it first", old.Name, old.Spec.ComputeType, in.Spec.ComputeType)
	case !strings.EqualFold(is.VMSize, want.VMSize):
		return trainyard.Conflict("compute %q has nodes of size %s; the size cannot be changed to %s: create another compute", old.Name, is.VMSize, want.VMSize)
	case in.Elastic() && !strings.EqualFold(cmp.Or(is.VMPriority, "Dedicated"), want.VMPriority):
		return trainyard.Conflict("compute %q has nodes of tier %s; the tier cannot be changed to %s: create another compute", old.Name, tierWord(is.VMPriority), tierWord(want.VMPriority))
	case in.Elastic() && in.Where != means && in.Where != old.Where:
		return trainyard.Conflict("compute %q has its nodes at location %s; the location cannot be changed to %s: create another compute, or name location %s", old.Name, old.Where, in.Where, old.Where)
	}
	return nil
}

// tierWord is a priority of nodes as files spell it.
func tierWord(priority string) string {
	if strings.EqualFold(priority, "LowPriority") {
		return "low_priority"
	}
	return "dedicated"
}

// Compute finds a compute.
func (c *Control) Compute(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Compute, error) {
	return c.Store.Compute(ctx, trainyard.MakeComputeKey(scope, name))
}

// Computes lists a workspace's computes.
func (c *Control) Computes(ctx context.Context, scope trainyard.Scope) ([]*trainyard.Compute, error) {
	list, err := c.Store.Computes(ctx, scope)
	return slices.DeleteFunc(list, func(comp *trainyard.Compute) bool { return comp.Serverless }), err
}

func (c *Control) computeNames(ctx context.Context, scope trainyard.Scope) []string {
	comps, err := c.Store.Computes(ctx, scope)
	if err != nil {
		return nil
	}
	var out []string
	for _, comp := range comps {
		if !comp.Serverless {
			out = append(out, comp.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Waiting lists the jobs that wait for a compute, at most so many, the first in its queue first, and says whether there are others.
func (c *Control) Waiting(ctx context.Context, scope trainyard.Scope, name string, most int) (list []*trainyard.Job, more bool, err error) {
	for _, q := range c.Store.QueueOf(trainyard.MakeComputeKey(scope, name)) {
		if len(list) == most {
			return list, true, nil
		}
		j, err := c.Job(ctx, scope, q.Name)
		if err != nil && !trainyard.IsNotFound(err) {
			return nil, false, err
		}
		if err == nil && j.Status.State == trainyard.JobQueued {
			list = append(list, j)
		}
	}
	return list, false, nil
}

// DeleteCompute deletes a compute. One with jobs is refused unless forced: then they are canceled first.
func (c *Control) DeleteCompute(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string, force bool) error {
	key := trainyard.MakeComputeKey(scope, name)
	var cancel []string
	var where, as string
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		comp, err := tx.Compute(key)
		if err != nil {
			return err
		}
		if comp.Spec.ComputeType == trainyard.ComputeLocal { // the one that a workspace is made with
			return trainyard.Conflict("compute %q belongs to the workspace and cannot be deleted", name)
		}
		cancel, where = c.jobsOn(key), comp.Where
		verb, done := "delete", "deleted"
		if !comp.Elastic() {
			verb, done = "detach", "detached"
		}
		as = fmt.Sprintf("%s compute %s", done, comp.Name)
		if len(cancel) > 0 && !force {
			them := "them"
			if len(cancel) == 1 {
				them = "it"
			}
			return trainyard.Conflict("compute %q has %s (%s); wait, cancel %s, or %s with --force, which cancels %s", name, plural(len(cancel), "job"), some(cancel), them, verb, them)
		}
		comp.Deleting = true
		tx.Event(c.event(scope, "compute", comp.Name, "deleting", who.Name, ""))
		return tx.PutCompute(comp)
	})
	if err != nil {
		return err
	}
	for _, j := range c.jobsOn(key) { // looked up again: one may have come in the meantime, and none can any more
		if err := c.cancelJob(ctx, who, as, scope, j); err != nil && !trainyard.IsNotFound(err) {
			return err
		}
	}
	if force { // its jobs are canceled by now, and so end as that and not as lost
		if err := c.dropAttached(ctx, key); err != nil {
			return err
		}
	}
	c.fleets.bump(where)
	return c.finishDelete(ctx, key)
}

// jobsOn names the jobs that wait for or run on a compute.
func (c *Control) jobsOn(key trainyard.ComputeKey) []string {
	var out []string
	for _, q := range c.Store.QueueOf(key) {
		out = append(out, q.Name)
	}
	for _, n := range c.Store.AllNodes() {
		if n.Compute != key {
			continue
		}
		for _, ref := range c.Store.NodeTasks(n.ID) {
			if !slices.Contains(out, ref.Job.Name) {
				out = append(out, ref.Job.Name)
			}
		}
	}
	return out
}

// finishDelete takes a compute that is being deleted away once it has no node.
func (c *Control) finishDelete(ctx context.Context, key trainyard.ComputeKey) error {
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		comp, err := tx.Compute(key)
		if err != nil || !comp.Deleting {
			return nil
		}
		nodes, err := tx.NodesOf(key)
		if err != nil || len(nodes) > 0 {
			return err
		}
		tx.Event(c.event(comp.Scope, "compute", comp.Name, "deleted", "", ""))
		return tx.DeleteCompute(key)
	})
}

// ActOnCompute starts, stops or restarts a compute. Stopping a cluster takes its idle nodes away and places nothing more on it.
func (c *Control) ActOnCompute(ctx context.Context, who trainyard.User, scope trainyard.Scope, name, action string) error {
	key := trainyard.MakeComputeKey(scope, name)
	var where string
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		comp, err := tx.Compute(key)
		if err != nil {
			return err
		}
		where = comp.Where
		switch strings.ToLower(action) {
		case "start", "restart":
			comp.Stopped = false
		case "stop":
			comp.Stopped = true
		default:
			return trainyard.Invalid("%q is nothing a compute can do; start, stop and restart are", action)
		}
		if strings.EqualFold(action, "restart") {
			nodes, err := tx.NodesOf(key)
			if err != nil {
				return err
			}
			for _, n := range nodes {
				if !comp.Elastic() || !n.State.Usable() || len(tx.NodeTasks(n.ID)) > 0 {
					continue // nodes at work finish first
				}
				if err := n.MoveTo(trainyard.NodeLeaving, trainyard.Reason{Code: "Restart", Message: "restarted by " + who.Name}, c.Now()); err != nil {
					return err
				}
				if err := tx.PutNode(n); err != nil {
					return err
				}
			}
		}
		tx.Event(c.event(scope, "compute", comp.Name, strings.ToLower(action), who.Name, ""))
		return tx.PutCompute(comp)
	})
	if err == nil {
		c.fleets.bump(where) // a restart lets nodes go
	}
	return err
}

// Nodes lists a compute's nodes with what they hold.
func (c *Control) Nodes(ctx context.Context, scope trainyard.Scope, name string) ([]trainyard.NodeStatus, error) {
	key := trainyard.MakeComputeKey(scope, name)
	comp, err := c.Store.Compute(ctx, key)
	if err != nil {
		return nil, err
	}
	nodes, err := c.Store.Nodes(ctx, key)
	if err != nil {
		return nil, err
	}
	var out []trainyard.NodeStatus
	for _, n := range nodes {
		n.State, n.Seen = c.stateOf(n), c.lastSeen(n.ID)
		s := trainyard.NodeStatus{Node: n}
		s.Remark, s.Cut = c.remarkOf(n.ID)
		if n.State.Usable() || comp.Hosted() { // of another that is silent itself this is old news
			s.Away = c.engineAway(n.ID)
		}
		if n.State.Usable() && !n.Seen.IsZero() && c.Now().Sub(n.Seen) > quiet {
			s.Away = trainyard.Reason{Code: codeSilent, Message: "nothing was heard of its agent since " + clock(n.Seen), Since: n.Seen}
		}
		for _, ref := range c.Store.NodeTasks(n.ID) {
			s.Jobs = append(s.Jobs, ref.Job.Name)
		}
		out = append(out, s)
	}
	return out, nil
}

func maxNodes(comp *trainyard.Compute) int {
	if s := comp.Spec.Properties.ScaleSettings; s != nil {
		return s.MaxNodeCount
	}
	return 1
}

func describe(comp *trainyard.Compute) string {
	p := comp.Spec.Properties
	if p.ScaleSettings == nil {
		return comp.Spec.ComputeType
	}
	return fmt.Sprintf("%s of %d to %d %s", comp.Spec.ComputeType, p.ScaleSettings.MinNodeCount, p.ScaleSettings.MaxNodeCount, p.VMSize)
}

// plural is "1 job" or "2 jobs".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func some(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
