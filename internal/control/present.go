package control

import (
	"cmp"

	"github.com/trainyard/trainyard"
)

// presentEndpoint fills in what follows from where the gateway is.
func (c *Control) presentEndpoint(e *trainyard.OnlineEndpoint) *trainyard.OnlineEndpoint {
	out := *e
	base := c.Gateway() + "/endpoints/" + e.Name
	out.Spec.ScoringURI, out.Spec.SwaggerURI, out.Spec.ProvisioningState = base+"/score", base+"/swagger.json", "Succeeded"
	if c.bare(e) {
		out.Spec.ScoringURI = base + "/"
	}
	if e.Deleting {
		out.Spec.ProvisioningState = "Deleting"
	}
	return &out
}

// bare says whether clients add paths of their own to an endpoint's address, because every deployment that gets its traffic wants that; where
// none gets any, every deployment.
func (c *Control) bare(e *trainyard.OnlineEndpoint) bool {
	some := trafficSum(e) > 0
	bare := false
	for _, d := range c.served.deploymentsOf(e.Name) {
		plan := cmp.Or(d.Status.Live, d.Status.Next)
		if plan == nil || plan.Plan.Serve == nil || some && e.Spec.Traffic[d.Name] == 0 {
			continue
		}
		if !plan.Plan.Serve.Bare {
			return false
		}
		bare = true
	}
	return bare
}

func trafficSum(e *trainyard.OnlineEndpoint) (sum int) {
	for _, percent := range e.Spec.Traffic {
		sum += percent
	}
	return sum
}
