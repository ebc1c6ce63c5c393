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
