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
    sizes: [standard_ds3_v2, Standard_NC6s_v3, {name: Lab_Big, vcpus: 32, memory_gb: 128, gpus: 2, gpu: A100, price: 1.5}]
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
	if lab.Driver != "process" || lab.Capacity != (trainyard.Capacity{Nodes: 4, VCPUs: 64}) || len(lab.Sizes) != 3 || len(lab.Regions) != 2 {
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

func TestWordsThatAServersFileDoesNotMeanAreSaidInWords(t *testing.T) {
	_, err := LoadServer(serverFile(t, `
locations:
  - name: lab
    driver: proces
    sizes: [Bananas, standard_ds3v2, Standard_NC6s_v3]
    approved: [NCsv3, standard_nc6s_v3, standardNCSv3Family, all, NCvs3, HBv2]
  - name: whole
    approved: [HBv2, Standard_M8ms, M, Nonsense]
`), []Driver{{"process", anything}, {"slurm", anything}})
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{
		`locations[0].driver: got "proces", want process or slurm`,
		`locations[0].sizes[0]: "Bananas" is not in the catalogue; a size of your own is a map`,
		`locations[0].sizes[1]: "standard_ds3v2" is not in the catalogue (did you mean Standard_DS3_v2`,
		`config.yml:6:67: locations[0].approved[4]: the location has no series, size or family "NCvs3" (did you mean NCsv3?); all`,
		`locations[0].approved[5]: the location has no series, size or family "HBv2"; all approves every one`,
		`locations[1].approved[3]: the location has no series, size or family "Nonsense"; all`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	for _, no := range []string{"[]", "[process", "approved[0]", "approved[1]", "locations[1].approved[2]"} {
		if strings.Contains(err.Error(), no) {
			t.Errorf("%q is in: %v", no, err)
		}
	}
}

// The pages that say what a server's file may hold have files that it may be.
func TestTheServersFilesInTheDocumentsAreRead(t *testing.T) {
	read := 0
	for _, page := range []string{"README.md", "docs/locations.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if !strings.HasPrefix(block, "locations:") {
				continue
			}
			read++
			s, err := LoadServer(serverFile(t, block), []Driver{{"process", anything}, {"slurm", anything}})
			if err != nil || len(s.Locations) == 0 {
				t.Errorf("%s: %v in\n%s", page, err, block)
			}
			if page == "README.md" {
				continue
			}
			for _, field := range []string{"name:", "driver:", "regions:", "sizes:", "prices:", "capacity:", "approved:", "settings:", "family:", "series:", "gpu:", "gpus:", "vcpus:", "memory_gb:",
				"price:", "low_priority_price:", "needs_approval:", "nodes:"} {
				if !strings.Contains(block, field) {
					t.Errorf("%s has no %s", page, field)
				}
			}
			lab := s.Locations[0]
			if size, ok := lab.Size("Standard_DS3_v2"); !ok || size.PricePerHour != 0.19 || !lab.Approves(lab.Sizes[1]) || !lab.Approves(lab.Sizes[2]) {
				t.Errorf("%s has %+v", page, lab)
			}
		}
	}
	if read < 3 {
		t.Errorf("%d files were read", read)
	}
}
