package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func serverFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func anything([]byte) error { return nil }

func TestALocationThatCannotBeToldApartIsRefused(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`[{name: ..}]`, `config.yml:1:20: locations[0].name: ".." cannot be a location's name`},
		{`[{name: lab/gpu}]`, `"lab/gpu" cannot be a location's name`},
		{`[{name: .hidden}]`, `".hidden" cannot be a location's name`},
		{`[{name: Attached}]`, "the place of machines that were attached"},
		{`[{name: "a b"}]`, `"a b" cannot be a location's name`},
		{`[{name: lab}, {name: LAB}]`, `there is another location "lab" above`},
		{`[{name: lab, regions: [westeurope]}, {name: hpc, regions: [WestEurope]}]`, `region WestEurope means location "lab" already`},
		{`[{name: lab, settings: {speed: 1, partiton: gpu}}]`, `config.yml:1:46: locations[0].settings.partiton: there is no partiton`},
	} {
		_, err := LoadServer(serverFile(t, "locations: "+tt.text+"\n"), []Driver{{"process", func([]byte) error { return trainyard.Invalid("there is no partiton") }}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

func TestAServersLocationsAreRead(t *testing.T) {
	s, err := LoadServer(serverFile(t, `
locations:
  - name: lab
    regions: [westeurope, northeurope]
    capacity: {nodes: 4, vcpus: 64}
    sizes: [standard_ds3_v2, {name: Lab_Big, vcpus: 32, memory_gb: 128, gpus: 2, gpu: A100, price: 1.5}]
    prices: {Standard_DS3_v2: 0.1}
    approved: [NCsv3]
  - name: hpc
    driver: slurm
    settings: {partition: gpu}
`), []Driver{{"process", anything}, {"slurm", anything}})
	if err != nil {
		t.Fatal(err)
	}
	lab, hpc := s.Locations[0], s.Locations[1]
	if lab.Driver != "process" || lab.Capacity != (trainyard.Capacity{Nodes: 4, VCPUs: 64}) || len(lab.Sizes) != 2 || len(lab.Regions) != 2 {
		t.Errorf("read %+v", lab)
	}
	if ds3, ok := lab.Size("STANDARD_DS3_V2"); !ok || ds3.PricePerHour != 0.1 || ds3.LowPriorityRate >= 0.1 || ds3.LowPriorityRate <= 0 {
		t.Errorf("Standard_DS3_v2 is %+v", ds3)
	}
	if big, ok := lab.Size("lab_big"); !ok || big.GPUs != 2 || big.MemoryGB != 128 || big.Family != "labFamily" {
		t.Errorf("Lab_Big is %+v", big)
	}
	if hpc.Driver != "slurm" || !strings.Contains(string(hpc.Settings), `"partition":"gpu"`) {
		t.Errorf("read %+v", hpc)
	}
}

func TestEveryMistakeInAServersFileIsSaidAtOnce(t *testing.T) {
	_, err := LoadServer(serverFile(t, `
locations:
  - name: lab
    driver: proces
    capacity: {nodes: none}
    sizes: [Standard_Nonsense]
    colour: blue
  - name: lab
    prices: {Standard_DS3_v2: -1}
place: here
`), []Driver{{"process", anything}})
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{"config.yml:4:", "locations[0].driver", "config.yml:5:", "capacity.nodes", "config.yml:6:", "Standard_Nonsense", "config.yml:7:", "colour",
		`another location "lab"`, "config.yml:9:", "config.yml:10:", "place"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
