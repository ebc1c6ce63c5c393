package catalog_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
)

func TestSizesThatPublicExamplesNameAreThere(t *testing.T) {
	for _, name := range []string{"Standard_DS3_v2", "STANDARD_DS3_V2", "Standard_F2s_v2", "standard_e4s_v3", "STANDARD_NC4AS_T4_V3", "Standard_D2_v2",
		"standard_e8s_v3", "Standard_E8S_V3", "Standard_NC48ads_A100_v4", "Standard_DS5_v2", "Standard_E4s_v3", "Standard_DS4_v2",
		"Standard_NC24ads_A100_v4", "Standard_E16s_v3", "Standard_NC96ads_A100_v4", "Standard_E64S_v3", "ds3_v2", " Standard_D2s_v3 "} {
		size, ok := catalog.Size(name)
		if !ok {
			t.Errorf("no size %q", name)
		} else if !strings.EqualFold(strings.TrimPrefix(size.Name, "Standard_"), strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), "standard_")) {
			t.Errorf("%q finds %q", name, size.Name)
		}
	}
	for _, name := range []string{"", "Standard_", "defaultinstancetype", "DS3"} {
		if size, ok := catalog.Size(name); ok {
			t.Errorf("%q finds %q", name, size.Name)
		}
	}
}

func TestEverySeriesIsThereWithItsRestriction(t *testing.T) {
	restricted := map[string]bool{"D": false, "Dv2": false, "Dv3": false, "DSv2": false, "DSv3": false, "FSv2": false, "HBv2": true, "HCS": true,
		"M": true, "NC": false, "NCsv2": true, "NCsv3": true, "NDs": true, "NDv2": true, "NV": false, "NVv3": true}
	seen := map[string]bool{}
	for _, s := range catalog.Sizes() {
		seen[s.Series] = true
		if want, named := restricted[s.Series]; named && s.NeedsApproval != want {
			t.Errorf("%s: needs approval: %v, want %v", s.Name, s.NeedsApproval, want)
		}
	}
	for name := range restricted {
		if !seen[name] {
			t.Errorf("no size of the series %s", name)
		}
	}
}

func TestSizesAreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, s := range catalog.Sizes() {
		key := strings.ToLower(s.Name)
		if names[key] {
			t.Errorf("%s is there twice", s.Name)
		}
		names[key] = true
		if s.VCPUs < 1 || s.MemoryGB < 1 || s.PricePerHour <= 0 || s.ResourceDiskMB <= 0 || s.Family == "" || !slices.Contains(s.ComputeTypes, trainyard.ComputeCluster) {
			t.Errorf("%s is not whole: %+v", s.Name, s)
		}
		if (s.GPUs > 0) != (s.GPU != "") || (s.GPUs > 0) != strings.HasPrefix(s.Name, "Standard_N") {
			t.Errorf("%s has %d GPUs of model %q", s.Name, s.GPUs, s.GPU)
		}
		if math.Abs(s.LowPriorityRate-s.PricePerHour*0.2) > 0.0001 {
			t.Errorf("%s costs %v, at low priority %v", s.Name, s.PricePerHour, s.LowPriorityRate)
		}
	}
	var isolated []string
	for _, s := range catalog.Sizes() {
		if s.Isolated {
			isolated = append(isolated, s.Name)
		}
	}
	slices.Sort(isolated)
	if want := []string{"Standard_F72s_v2", "Standard_M128ms", "Standard_NC24rs_v3", "Standard_NC24s_v3"}; !slices.Equal(isolated, want) {
		t.Errorf("isolated sizes are %v, want %v", isolated, want)
	}
}

func TestTheCallerOwnsTheList(t *testing.T) {
	catalog.Sizes()[0].ComputeTypes[0] = "changed"
	if got := catalog.Sizes()[0].ComputeTypes[0]; got != trainyard.ComputeCluster {
		t.Errorf("a caller changed the catalogue to %q", got)
	}
}

func TestNearSizes(t *testing.T) {
	for name, want := range map[string]string{"Standard_DS3v2": "Standard_DS3_v2", "Standar_DS3_v2": "Standard_DS3_v2", "NC4as_T4": "Standard_NC4as_T4_v3"} {
		if got := catalog.NearSizes(name, catalog.Sizes()); !slices.Contains(got, want) {
			t.Errorf("near %q are %v, want %s among them", name, got, want)
		}
	}
	if got := catalog.NearSizes("bananas", catalog.Sizes()); len(got) > 0 {
		t.Errorf("near bananas are %v", got)
	}
	few := []trainyard.VMSize{{Name: "Standard_D16s_v3"}, {Name: "Standard_D4s_v3"}, {Name: "Lab_Big"}}
	for name, want := range map[string]string{"Standard_ND96asr_v4": "", "Standard_D8s_v3": "Standard_D4s_v3 Standard_D16s_v3", "lab_bgi": "Lab_Big", "standard_lab": "Lab_Big"} {
		if got := strings.Join(catalog.NearSizes(name, few), " "); got != want {
			t.Errorf("near %q are %q of a few, want %q", name, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	among := []string{"instance_count", "instance_type", "shm_size"}
	for word, want := range map[string]string{"instance_cuont": "instance_count", "Instance_Type": "instance_type", "shmsize": "shm_size", "count": "instance_count"} {
		if got := catalog.Nearest(word, among); len(got) == 0 || got[0] != want {
			t.Errorf("nearest to %q are %v, want %s first", word, got, want)
		}
	}
	if got := catalog.Nearest("zebra", among); len(got) > 0 {
		t.Errorf("nearest to zebra are %v", got)
	}
	if got := catalog.Nearest(strings.Repeat("x", 1e6), among); len(got) > 0 {
		t.Errorf("nearest to a million letters are %v", got)
	}
}
