package arm_test

import (
	"testing"

	"github.com/trainyard/trainyard"
)

// Of an engine that does not answer both its node and the compute tell, before what was known of them when it did.
func TestAnEngineThatIsAwayIsToldOf(t *testing.T) {
	d := open(t)
	d.do("PUT", ws+"/computes/here", `{"properties":{"computeType":"Local"}}`).want(201)
	away := trainyard.Reason{Code: "EngineAway", Message: "the made-up engine has not answered since 12:03:04 UTC", Since: d.now}
	d.ctl.SetNodes(trainyard.DefaultScope(), "here", trainyard.NodeStatus{Away: away, Node: &trainyard.Node{ID: "n", State: trainyard.NodeIdle,
		Reason: trainyard.Reason{Code: "Joined", Message: "its agent has joined"}}})
	d.do("POST", ws+"/computes/here/listNodes", "").want(200).is(away.Message, "nodes", 0, "reason", "message")
	d.do("GET", ws+"/computes/here", "").want(200).is(away.Message, "properties", "reason", "message")
}
