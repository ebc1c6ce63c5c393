package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// Serverless computes are clusters that nobody creates: one for each size and tier that a job asks for, with nodes that go as soon as they
// have nothing to do. They are not listed.

const (
	serverlessPrefix = "serverless-"
	serverlessNodes  = 100 // at once, per size and tier of a workspace; the location's capacity holds as well
)

// serverless finds or makes the cluster for a job that names no compute.
func (r *resolver) serverless() *trainyard.Compute {
	j := r.j
	size, where, low := "", trainyard.DefaultLocation, false
	if res := j.Spec.Resources; res != nil {
		size = res.InstanceType
		if len(res.Locations) > 0 {
			where = res.Locations[0]
		}
	}
	if q := j.Spec.QueueSettings; q != nil {
		low = strings.EqualFold(q.JobTier, "spot")
	}
	l := r.c.place(r.c.where(where))
	vm, ok := r.serverlessSize(l, size)
	if !ok {
		return nil
	}
	comp := serverlessCompute(j.Scope, l, vm, low)
	old, err := r.c.Store.Compute(r.ctx, comp.Key())
	switch {
	case err == nil && !sameServerless(old, comp, l):
		r.fail("the serverless compute %s of location %s is taken by one with nodes of size %s in location %s; create a compute of size %s and name it",
			comp.Name, l.Name, old.Spec.Properties.VMSize, old.Where, vm.Name)
		return nil
	case err == nil && !old.Deleting:
		comp = old
	default:
		now := r.c.Now()
		comp.Created, comp.Modified, comp.CreatedBy = now, now, "trainyard"
		overcommitted(comp, vm, l)
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

// serverlessSize finds the size of the nodes for a job that names one, or none (""); what cannot be is said, and ok is false.
func (r *resolver) serverlessSize(l *trainyard.Location, name string) (size trainyard.VMSize, ok bool) {
	count, field := 1, "instance_type"
	if !r.serves { // replicas come one by one
		field = "resources.instance_type"
		if res := r.j.Spec.Resources; res != nil && res.InstanceCount > 0 {
			count = res.InstanceCount
		}
	}
	if name == "" {
		size, err := defaultSize(l, count)
		if err != nil {
			r.fail("the %s names no %s, and %v", r.word(), field, err)
		}
		return size, err == nil
	}
	size, err := sizeAt(l, name, count)
	if err != nil {
		r.fail("%s: %v", field, err)
	}
	return size, err == nil
}

// sameServerless says whether a compute that was found under a name is the one that was meant.
func sameServerless(old, want *trainyard.Compute, l *trainyard.Location) bool {
	size, ok := l.Size(old.Spec.Properties.VMSize)
	return ok && old.Serverless && old.Where == want.Where && size.Name == want.Spec.Properties.VMSize && old.LowPriority() == want.LowPriority()
}

func serverlessCompute(scope trainyard.Scope, l *trainyard.Location, size trainyard.VMSize, low bool) *trainyard.Compute {
	tier := "Dedicated"
	if low {
		tier = "LowPriority"
	}
	name := serverlessName(l.Name, size.Name, low)
	return &trainyard.Compute{Scope: scope, Name: name, Location: l.Name, Where: l.Name, Serverless: true,
		Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster, Description: fmt.Sprintf("nodes of size %s for jobs that name no compute", size.Name),
			Properties: trainyard.ClusterProperties{VMSize: size.Name, VMPriority: tier, OSType: "Linux",
				ScaleSettings: &trainyard.ScaleSettings{MaxNodeCount: serverlessNodes, NodeIdleTimeBeforeScaleDown: trainyard.ISODuration(0)}}}}
}

// serverlessName names the compute for a size, a tier and a location. What cannot be told apart by its words alone ends in a digest of them:
// a location may be called spot, and sizes A_B and A-B read the same.
func serverlessName(location, size string, low bool) string {
	size, location = strings.ToLower(size), strings.ToLower(location)
	size = strings.TrimPrefix(size, "standard_")
	name := serverlessPrefix + strings.ReplaceAll(size, "_", "-")
	if low {
		name += "-spot"
	}
	if location != strings.ToLower(trainyard.DefaultLocation) {
		name += "-" + location
	}
	if name == serverlessPrefix+strings.ReplaceAll(size, "_", "-") && !strings.Contains(size, "-") {
		return name
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %v", location, size, low))
	return name + "-" + hex.EncodeToString(sum[:3])
}
