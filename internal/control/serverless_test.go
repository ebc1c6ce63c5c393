package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestServerlessNamesAreReadableAndNeverMeet(t *testing.T) {
	if got := serverlessName(trainyard.DefaultLocation, "Standard_F2s_v2", false); got != "serverless-f2s-v2" {
		t.Errorf("the plain one is %s", got)
	}
	seen := map[string]string{}
	for _, location := range []string{trainyard.DefaultLocation, "spot", "b", "spot-b", "b-spot"} {
		for _, size := range []string{"A", "A_B", "A-B", "A_spot", "A_spot_b", "A_B_spot", "A-spot"} {
			for _, low := range []bool{false, true} {
				name, what := serverlessName(location, size, low), location+" "+size
				if low {
					what += " low"
				}
				if seen[name] != "" {
					t.Errorf("%s names both %s and %s", name, seen[name], what)
				}
				seen[name] = what
				if !strings.HasPrefix(name, "serverless-a") {
					t.Errorf("%s is not readable", name)
				}
			}
		}
	}
}

func TestAServerlessComputeIsUsedOnlyForWhatItIs(t *testing.T) {
	l := &trainyard.Location{Name: "lab", Sizes: []trainyard.VMSize{{Name: "Standard_A"}, {Name: "Standard_B"}}}
	want := serverlessCompute(trainyard.DefaultScope(), l, l.Sizes[0], false)
	for what, change := range map[string]func(*trainyard.Compute){
		"":         func(*trainyard.Compute) {},
		"size":     func(c *trainyard.Compute) { c.Spec.Properties.VMSize = "Standard_B" },
		"location": func(c *trainyard.Compute) { c.Where = "elsewhere" },
		"tier":     func(c *trainyard.Compute) { c.Spec.Properties.VMPriority = "LowPriority" },
		"owner":    func(c *trainyard.Compute) { c.Serverless = false },
	} {
		old := serverlessCompute(trainyard.DefaultScope(), l, l.Sizes[0], false)
		change(old)
		if got := sameServerless(old, want, l); got != (what == "") {
			t.Errorf("with another %q it is the same: %v", what, got)
		}
	}
}

// What this computer has says nothing of machines that are elsewhere.
func TestOnlyNodesOnThisComputerAreSaidToShareIt(t *testing.T) {
	size := trainyard.VMSize{Name: "Big", VCPUs: 64, MemoryGB: 256, GPUs: 4, NeedsApproval: true}
	for driver, want := range map[string][]string{
		"process": {"64 vCPUs", "256 GiB", "4 GPUs", "restricted series"},
		"slurm":   {"restricted series"},
	} {
		c := newControl(t)
		c.Host, c.Locations = trainyard.Resources{CPUs: 2, MemoryMB: 4096}, []trainyard.Location{{Name: "here", Driver: driver, Sizes: []trainyard.VMSize{size}}}
		var comp trainyard.Compute
		overcommitted(&comp, size, c.place("here"))
		said := strings.Join(comp.Warnings, "\n")
		if len(comp.Warnings) != len(want) {
			t.Errorf("%s: %q", driver, said)
		}
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: %q lacks %q", driver, said, w)
			}
		}
	}
}
