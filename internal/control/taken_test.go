package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// A node is taken away and nothing is heard of its task's end, or the task never began there. The attempt does not count if it was for a
// better job.
func TestATaskLostWithANodeThatIsTakenAway(t *testing.T) {
	const why = "Slurm took its node (job 7) for a job that goes before it (preempted)"
	for as, want := range map[trainyard.Class]trainyard.Reason{
		trainyard.ClassPreempted: {Code: "Preempted", Message: "attempt 1 was preempted: node node was lost: " + why},
		trainyard.ClassNodeLost:  {Code: "Retrying", Message: "attempt 1 of 3 ended because node node was lost: " + why},
		"":                       {Code: "Retrying", Message: "attempt 1 of 3 ended because node node was lost: " + why}, // an agent of an older version
		trainyard.ClassOK:        {Code: "Retrying", Message: "attempt 1 of 3 ended because node node was lost: " + why}, // no class of such an end
	} {
		for _, began := range []bool{true, false} {
			c, tell := placed(t)
			if began {
				tell(trainyard.TaskRunning, "")
			}
			n, err := c.Store.Node(t.Context(), "node")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Report(t.Context(), trainyard.Report{Node: n.ID, Epoch: n.Epoch, Yields: why, YieldsAs: as}); err != nil {
				t.Fatal(err)
			}
			giveUpUnheard(t, c)
			if err := c.FleetReport(t.Context(), trainyard.FleetReport{Location: trainyard.DefaultLocation}); err != nil {
				t.Fatal(err)
			}
			j := jobOf(t, c)
			if got := j.Status.Reason; got.Code != want.Code || !strings.HasPrefix(got.Message, want.Message+";") {
				t.Errorf("as %q, began %t: the job waits because %+v", as, began, got)
			}
			if counted := tries(j) == 1; counted == (as == trainyard.ClassPreempted) {
				t.Errorf("as %q, began %t: %d attempts count", as, began, tries(j))
			}
		}
	}
}
