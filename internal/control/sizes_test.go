package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// sized is a size as a location of one's own has it.
func sized(name string, vcpus int, memoryGB float64) trainyard.VMSize {
	return trainyard.VMSize{Name: name, VCPUs: vcpus, MemoryGB: memoryGB}
}

// restricted is a size that needs approval.
func restricted(name string, vcpus int, memoryGB float64) trainyard.VMSize {
	return trainyard.VMSize{Name: name, VCPUs: vcpus, MemoryGB: memoryGB, Series: "R", NeedsApproval: true}
}

func TestAJobThatNamesNoSizeGetsOneThatItsLocationOffers(t *testing.T) {
	usual := sized(usualSize, 4, 14)
	for _, tt := range []struct {
		name     string
		at       trainyard.Location
		count    int
		want     string
		sentence string // when it is refused
	}{
		{"the usual size where it is there, though there are smaller ones", trainyard.Location{Sizes: []trainyard.VMSize{sized("Small", 1, 1), usual}}, 1, usualSize, ""},
		{"the usual size of the whole catalogue", trainyard.Location{}, 1, usualSize, ""},
		{"the smallest where the usual one is not there", trainyard.Location{Sizes: []trainyard.VMSize{sized("Big", 8, 8), sized("Small", 2, 8)}}, 1, "Small", ""},
		{"of as many vCPUs the one with less memory", trainyard.Location{Sizes: []trainyard.VMSize{sized("Wide", 2, 8), sized("Narrow", 2, 4)}}, 1, "Narrow", ""},
		{"of equals the first in the configuration", trainyard.Location{Sizes: []trainyard.VMSize{sized("B", 2, 4), sized("A", 2, 4)}}, 1, "B", ""},
		{"the smallest where the usual one does not fit", trainyard.Location{Capacity: trainyard.Capacity{VCPUs: 2}, Sizes: []trainyard.VMSize{usual, sized("Small", 2, 8)}}, 1, "Small", ""},
		{"the smallest of the catalogue where the usual one does not fit", trainyard.Location{Capacity: trainyard.Capacity{VCPUs: 2}}, 1, "Standard_D1", ""},
		{"one that is approved", trainyard.Location{Sizes: []trainyard.VMSize{restricted("Tiny", 1, 1), sized("Small", 2, 8)}}, 1, "Small", ""},
		{"one that has its approval", trainyard.Location{Approved: []string{"R"}, Sizes: []trainyard.VMSize{restricted("Tiny", 1, 1), sized("Small", 2, 8)}}, 1, "Tiny", ""},
		{"not the usual one without approval", trainyard.Location{Sizes: []trainyard.VMSize{restricted(usualSize, 4, 14), sized("Big", 8, 8)}}, 1, "Big", ""},
		{"one of which all nodes of the job fit", trainyard.Location{Capacity: trainyard.Capacity{VCPUs: 8}, Sizes: []trainyard.VMSize{usual, sized("Small", 2, 8)}}, 4, "Small", ""},
		{"none where none fits", trainyard.Location{Capacity: trainyard.Capacity{VCPUs: 2}, Sizes: []trainyard.VMSize{usual}}, 1, "",
			"the job names no resources.instance_type, and location lab has no size that it approves and of which its capacity holds 1"},
		{"none where none is approved", trainyard.Location{Sizes: []trainyard.VMSize{restricted("Tiny", 1, 1)}}, 1, "", "has no size that it approves"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControl(t)
			tt.at.Name = "lab"
			c.Locations = []trainyard.Location{tt.at}
			saved, err := submitServerless(t, c, &trainyard.JobResources{InstanceCount: tt.count})
			if tt.want == "" {
				if trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), tt.sentence) {
					t.Errorf("it says %v, want %q", err, tt.sentence)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			comp, err := c.Store.Compute(t.Context(), trainyard.MakeComputeKey(saved.Scope, saved.Plan.Compute))
			if err != nil || comp.Spec.Properties.VMSize != tt.want {
				t.Errorf("nodes of size %s, %v; want %s", comp.Spec.Properties.VMSize, err, tt.want)
			}
		})
	}
}

// submitServerless submits a job without a compute.
func submitServerless(t *testing.T, c *Control, res *trainyard.JobResources) (*trainyard.Job, error) {
	t.Helper()
	saved, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: trainyard.DefaultScope(), Name: "j",
		Spec: trainyard.JobSpec{JobType: "Command", Command: "true", Resources: res}})
	return saved, err
}

func TestASizeThatDoesNotFitIsRefusedAtOnce(t *testing.T) {
	c := newControl(t)
	c.Locations = []trainyard.Location{{Name: "lab", Capacity: trainyard.Capacity{VCPUs: 6}, Sizes: []trainyard.VMSize{sized("Small", 2, 8), sized("Big", 8, 8)}}}
	const sentence = "a node of size Big (8 vCPUs, 0 GPUs) is more than location lab has in all; it has: Small; see: trainyard location show --name lab"
	if _, err := submitServerless(t, c, &trainyard.JobResources{InstanceType: "big"}); err == nil || err.Error() != "resources.instance_type: "+sentence {
		t.Errorf("a job: %v", err)
	}
	if err := makeCluster(t, c, "Big"); err == nil || err.Error() != `compute "cpu": `+sentence {
		t.Errorf("a cluster: %v", err)
	}
	e := &trainyard.OnlineEndpoint{Scope: trainyard.DefaultScope(), Name: "e"}
	d := &trainyard.OnlineDeployment{Scope: e.Scope, Endpoint: "e", Name: "d", Spec: trainyard.DeploymentSpec{EndpointComputeType: trainyard.ServeManaged, InstanceType: "Big"}}
	if _, _, err := c.resolveDeployment(t.Context(), e, d); err == nil || !strings.Contains(wholly(err), "instance_type: "+sentence) || strings.Contains(wholly(err), "resources.") {
		t.Errorf("a deployment: %v", err)
	}
	if _, err := submitServerless(t, c, &trainyard.JobResources{InstanceType: "Small", InstanceCount: 4}); err == nil ||
		!strings.Contains(err.Error(), "4 nodes of size Small (2 vCPUs, 0 GPUs each) are more than location lab has in all") {
		t.Errorf("a job of four nodes: %v", err)
	}
	if _, err := submitServerless(t, c, &trainyard.JobResources{InstanceType: "Small", InstanceCount: 3}); err != nil {
		t.Errorf("a job of three nodes: %v", err)
	}
}

func TestASizeThatALocationDoesNotHaveIsRefusedWithWhatItHas(t *testing.T) {
	var many []trainyard.VMSize
	for i := range 15 {
		many = append(many, sized(fmt.Sprintf("S%02d", i), 1, 1))
	}
	few := trainyard.Location{Name: "lab", Capacity: trainyard.Capacity{VCPUs: 16},
		Sizes: []trainyard.VMSize{sized("Standard_D2s_v3", 2, 8), sized("Standard_D16s_v3", 16, 64), sized("Standard_D48s_v3", 48, 192), restricted("Standard_D3s_v3", 3, 8)}}
	for _, tt := range []struct {
		name string
		at   trainyard.Location
		size string
		want string
	}{
		{"a size of the catalogue that is like none of its own", few, "Standard_ND96asr_v4",
			`"Standard_ND96asr_v4" is not a size of location lab; it has: Standard_D2s_v3, Standard_D16s_v3`},
		{"one that is like some of its own, and neither what is not approved nor what does not fit is named", few, "Standard_D4s_v3",
			`"Standard_D4s_v3" is not a size of location lab; the nearest of its own: Standard_D2s_v3, Standard_D16s_v3; it has: Standard_D2s_v3, Standard_D16s_v3`},
		{"one that is known nowhere", few, "Nope", `"Nope" is not a size of location lab; it has: Standard_D2s_v3, Standard_D16s_v3`},
		{"at a location with many", trainyard.Location{Name: "lab", Sizes: many}, "Nope",
			`"Nope" is not a size of location lab; it has: S00, S01, S02, S03, S04, S05, S06, S07, S08, S09, S10, S11 and 3 more (trainyard compute list-sizes --location lab)`},
		{"one without approval", few, "d3s_v3", `Standard_D3s_v3 is of a restricted series and location lab has no approval for it; it has: Standard_D2s_v3, Standard_D16s_v3; ` +
			`who runs the server grants it with "approved: [R]" at the location`},
		{"at a location with nothing that may be had", trainyard.Location{Name: "lab", Sizes: []trainyard.VMSize{restricted("R1", 1, 1)}}, "Nope", `"Nope" is not a size of location lab; it has: none`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControl(t)
			c.Locations = []trainyard.Location{tt.at}
			if err := makeCluster(t, c, tt.size); err == nil || err.Error() != `compute "cpu": `+tt.want {
				t.Errorf("a cluster: %v\nwant %s", err, tt.want)
			}
			if _, err := submitServerless(t, c, &trainyard.JobResources{InstanceType: tt.size}); err == nil || err.Error() != "resources.instance_type: "+tt.want {
				t.Errorf("a job: %v\nwant %s", err, tt.want)
			}
		})
	}
}

// wholly is an error with its details.
func wholly(err error) string {
	text := err.Error()
	if e, ok := err.(*trainyard.Error); ok {
		for _, d := range e.Details {
			text += "\n" + d.Message
		}
	}
	return text
}

func makeCluster(t *testing.T, c *Control, size string) error {
	t.Helper()
	_, _, err := c.PutCompute(t.Context(), anAdmin, &trainyard.Compute{Scope: trainyard.DefaultScope(), Name: "cpu",
		Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster, Properties: trainyard.ClusterProperties{VMSize: size}}})
	return err
}
