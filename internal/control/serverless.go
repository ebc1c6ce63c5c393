package control

import (
	"fmt"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
	"github.com/trainyard/trainyard/internal/store"
)

// Serverless computes are clusters that nobody creates: one for each size and tier that a job asks for, with nodes that go as soon as they
// have nothing to do. They are not listed.

const (
	serverlessPrefix = "serverless-"
	serverlessSize   = "Standard_DS3_v2" // of jobs that name none
	serverlessNodes  = 100               // at once, per size and tier of a workspace; the location's capacity holds as well
)

// serverless finds or makes the cluster for a job that names no compute.
func (r *resolver) serverless() *trainyard.Compute {
	j := r.j
	size, where, low := serverlessSize, trainyard.DefaultLocation, false
	if res := j.Spec.Resources; res != nil {
		if res.InstanceType != "" {
			size = res.InstanceType
		}
		if len(res.Locations) > 0 {
			where = res.Locations[0]
		}
	}
	if q := j.Spec.QueueSettings; q != nil {
		switch strings.ToLower(q.JobTier) {
		case "spot":
			low = true
		case "", "null", "standard", "basic", "premium":
		default:
			r.fail("queue_settings.job_tier is %q, want spot, basic, standard or premium", q.JobTier)
		}
	}
	l := r.c.place(r.c.where(where))
	vm, ok := l.Size(size)
	switch {
	case !ok:
		near := catalog.NearSizes(size)
		r.fail("resources.instance_type %q is not a size of location %s; the nearest are %s; it has %s", size, l.Name, strings.Join(near, ", "), sizeNames(l))
		return nil
	case !l.Approves(vm):
		r.fail("resources.instance_type %s is of a restricted series and location %s has no approval for it; it has %s", vm.Name, l.Name, sizeNames(l))
		return nil
	}
	comp := serverlessCompute(j.Scope, l, vm, low)
	old, err := r.c.Store.Compute(r.ctx, comp.Key())
	if err == nil && !old.Deleting {
		comp = old
	} else {
		now := r.c.Now()
		comp.Created, comp.Modified, comp.CreatedBy = now, now, "trainyard"
		r.c.overcommitted(comp, vm)
		if err := r.c.Store.Update(r.ctx, func(tx *store.Tx) error { return tx.PutCompute(comp) }); err != nil {
			r.failed(err)
			return nil
		}
	}
	for _, w := range comp.Warnings {
		r.warn("%s", w)
	}
	j.Plan.Compute, j.Spec.ComputeID = strings.ToLower(comp.Name), ""
	return comp
}

func serverlessCompute(scope trainyard.Scope, l *trainyard.Location, size trainyard.VMSize, low bool) *trainyard.Compute {
	name := serverlessPrefix + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(size.Name, "Standard_")), "_", "-")
	tier := "Dedicated"
	if low {
		name, tier = name+"-spot", "LowPriority"
	}
	if l.Name != trainyard.DefaultLocation {
		name += "-" + strings.ToLower(l.Name)
	}
	return &trainyard.Compute{Scope: scope, Name: name, Location: l.Name, Where: l.Name, Serverless: true,
		Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster, Description: fmt.Sprintf("nodes of size %s for jobs that name no compute", size.Name),
			Properties: trainyard.ClusterProperties{VMSize: size.Name, VMPriority: tier, OSType: "Linux",
				ScaleSettings: &trainyard.ScaleSettings{MaxNodeCount: serverlessNodes, NodeIdleTimeBeforeScaleDown: trainyard.ISODuration(0)}}}}
}
