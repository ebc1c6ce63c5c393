package control

import (
	"cmp"
	"strings"

	"github.com/trainyard/trainyard"
)

// presentEndpoint fills in what follows from where the gateway is and from the endpoint's deployments.
func (c *Control) presentEndpoint(e *trainyard.OnlineEndpoint, of []*trainyard.OnlineDeployment) *trainyard.OnlineEndpoint {
	out := *e
	base := c.Gateway() + "/endpoints/" + e.Name
	out.Spec.ScoringURI, out.Spec.SwaggerURI, out.Spec.ProvisioningState = base+"/score", base+"/swagger.json", "Succeeded"
	if isBare(e, of) {
		out.Spec.ScoringURI = base + "/"
	}
	if e.Deleting {
		out.Spec.ProvisioningState = "Deleting"
	}
	return &out
}

// isBare says whether clients add paths of their own to an endpoint's address, because every deployment that gets its traffic wants that; where
// none gets any, every deployment.
func isBare(e *trainyard.OnlineEndpoint, of []*trainyard.OnlineDeployment) bool {
	some := trafficSum(e) > 0
	all := false
	for _, d := range of {
		plan := cmp.Or(d.Status.Live, d.Status.Next)
		if plan == nil || plan.Plan.Serve == nil || some && e.Spec.Traffic[d.Name] == 0 {
			continue
		}
		if !plan.Plan.Serve.Bare {
			return false
		}
		all = true
	}
	return all
}

// deploymentsByEndpoint are all deployments by the name of their endpoint in lower case, for those who want more than one endpoint's.
func (s *served) deploymentsByEndpoint() map[string][]*trainyard.OnlineDeployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string][]*trainyard.OnlineDeployment, len(s.endpoints))
	for _, d := range s.deployments {
		name := strings.ToLower(d.d.Endpoint)
		out[name] = append(out[name], d.d)
	}
	return out
}

func trafficSum(e *trainyard.OnlineEndpoint) (sum int) {
	for _, percent := range e.Spec.Traffic {
		sum += percent
	}
	return sum
}
