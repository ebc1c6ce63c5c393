package control

import (
	"fmt"

	"github.com/trainyard/trainyard"
)

// limits is what a replica may use, and refuses what its place does not have.
func (r *deploying) limits() {
	s, p := &r.d.Spec, &r.j.Plan
	if n := s.ContainerResources; n != nil {
		p.Limits, p.Requests = r.amounts(n.Limits), r.amounts(n.Requests)
		if s.EndpointComputeType != trainyard.ServeKubernetes { // elsewhere a replica has one amount of a thing
			if n.Limits == nil {
				p.Limits = p.Requests
			}
			p.Requests = trainyard.Resources{}
		}
		r.atMost("cpu", p.Requests.CPUs, p.Limits.CPUs)
		r.atMost("memory", float64(p.Requests.MemoryMB), float64(p.Limits.MemoryMB))
	}
	here := s.EndpointComputeType == trainyard.ServeLocal || s.EndpointComputeType == trainyard.ServeContainer
	if !here {
		return
	}
	if l := r.c.place(r.c.where(trainyard.DefaultLocation)); s.InstanceType != "" {
		if size, ok := l.Size(s.InstanceType); ok {
			if p.Limits == (trainyard.Resources{}) {
				p.Limits = trainyard.Resources{CPUs: float64(size.VCPUs), MemoryMB: int64(size.MemoryGB * 1024), GPUs: size.GPUs}
			}
		}
	}
	switch {
	case s.EndpointComputeType == trainyard.ServeContainer && p.Limits.GPUs > 0:
		r.fail("a container instance has no GPU; deploy with type managed or kubernetes for one")
	case s.EndpointComputeType == trainyard.ServeContainer && p.Limits.MemoryMB >= containerMemoryGB<<10:
		r.fail("a container instance has less than %d GB of memory, and the deployment asks for %d GB; deploy with type managed for more", containerMemoryGB, p.Limits.MemoryMB>>10)
	case p.Limits.GPUs > r.c.Host.GPUs:
		has := "no GPU"
		if r.c.Host.GPUs > 0 {
			has = fmt.Sprintf("%d GPUs", r.c.Host.GPUs)
		}
		r.fail("the deployment asks for %d GPUs and this computer has %s; deploy to a location or a cluster that has them", p.Limits.GPUs, has)
	}
	if s.EndpointComputeType == trainyard.ServeLocal {
		p.Limits = trainyard.Resources{} // it is for trying out: it shares this computer, as jobs on local do
	}
}

// amounts reads what a replica asks for or may use.
func (r *deploying) amounts(a *trainyard.ContainerAmounts) trainyard.Resources {
	if a == nil {
		return trainyard.Resources{}
	}
	out, err := a.Resources()
	if err != nil {
		r.failed(err)
	}
	return out
}

func (r *deploying) atMost(what string, request, limit float64) {
	if limit > 0 && request > limit {
		r.fail("resources.requests.%s is more than resources.limits.%s: make it that at most", what, what)
	}
}
