package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// fillEndpoints puts endpoints of one deployment each where served has them, every other one bare.
func fillEndpoints(c *Control, n int) {
	scope := trainyard.DefaultScope()
	for i := range n {
		d := &trainyard.OnlineDeployment{Scope: scope, Endpoint: fmt.Sprintf("WINE-%d", i), Name: "blue"}
		d.Status.Live = &trainyard.ReplicaPlan{Generation: 1}
		d.Status.Live.Plan.Serve = &trainyard.Serve{Bare: i%2 == 0}
		c.served.keepEndpoint(&trainyard.OnlineEndpoint{Scope: scope, Name: fmt.Sprintf("wine-%d", i)})
		c.served.keepDeployment(d)
	}
}

func TestAListHasEndpointsAsEachIsAlone(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	fillEndpoints(c, 20)
	all, err := c.Endpoints(t.Context(), scope)
	if err != nil || len(all) != 20 {
		t.Fatalf("%d of 20, %v", len(all), err)
	}
	withPath := 0
	for _, e := range all {
		one, err := c.Endpoint(t.Context(), scope, e.Name)
		if err != nil || one.Spec.ScoringURI != e.Spec.ScoringURI {
			t.Errorf("%s is listed with %q and alone has %+v, %v", e.Name, e.Spec.ScoringURI, one, err)
		}
		if strings.HasSuffix(e.Spec.ScoringURI, "/score") {
			withPath++
		}
	}
	if withPath != 10 {
		t.Errorf("%d of 20 are asked at /score, want 10", withPath)
	}
}
