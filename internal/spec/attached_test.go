package spec_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/spec"
)

// attached translates a file for "compute attach".
func attached(t *testing.T, file string, opts spec.Options) (*spec.Compute, error) {
	t.Helper()
	opts.Noun = "compute"
	d, err := spec.Load(file, opts)
	if err != nil {
		return nil, err
	}
	return d.Compute(trainyard.DefaultScope())
}

// The files of testdata/attached hold every field that a kind of attached compute has; all that becomes of them is in the .json beside each.
func TestEveryFieldOfAnAttachedComputeBecomesASetting(t *testing.T) {
	files, err := filepath.Glob("testdata/attached/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := attached(t, file, spec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var data bytes.Buffer
			enc := json.NewEncoder(&data)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			out := translation{Name: c.Name, Location: c.Location, Tags: c.Tags, Identity: c.Identity, Properties: c.Spec, Warnings: c.Warnings}
			if err := enc.Encode(out); err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".yml")+".json", data.Bytes())
		})
	}
}

// Every file of testdata/attached/bad must be refused, with the words in the .txt beside it: file, line, column, and the field's name.
func TestMistakesInAnAttachedComputeAreAllSaidWithTheirPlaces(t *testing.T) {
	refused(t, "testdata/attached/bad/*.yml", func(t *testing.T, file string) error {
		_, err := attached(t, file, spec.Options{})
		return err
	})
}

// Whatever field is misspelt, the mistake is said at its place, by its name.
func TestAMisspeltFieldOfAnAttachedComputeIsNamedAtItsPlace(t *testing.T) {
	for _, kind := range []string{"virtualmachine", "slurm", "slurm-rest", "slurm-rest-token", "kubernetes", "kubernetes-in-cluster"} {
		data, err := os.ReadFile("testdata/attached/" + kind + ".yml")
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			name, _, found := strings.Cut(strings.TrimSpace(line), ":")
			if !found || name == "type" || strings.HasPrefix(name, "-") || name == "small" || name == "gpu" {
				continue
			}
			lines := strings.Split(string(data), "\n")
			lines[i] = strings.Replace(line, name+":", name+"_x:", 1)
			d, err := spec.Parse("compute.yml", []byte(strings.Join(lines, "\n")), "testdata/attached", spec.Options{Noun: "compute"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Compute(trainyard.DefaultScope())
			place := "compute.yml:" + strconv.Itoa(i+1) + ":" + strconv.Itoa(strings.Index(line, name)+1) + ": "
			wantWords(t, err, place, name+"_x: there is no such field")
		}
	}
}

// Who gave flags is told of flags.
func TestWhatAnEngineLacksIsNamedAsItsUserKnowsIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  []string
		want string
		not  string
	}{
		{"a cluster by flags", []string{"type=kubernetes"}, "the command line: --kubeconfig or --in-cluster is missing", "in_cluster"},
		{"a cluster by flags that the server is not in", []string{"type=kubernetes", "in_cluster=false"}, "--kubeconfig or --in-cluster is missing", "in_cluster: true"},
		{"a login node by flags", []string{"type=slurm", "ssh_settings.admin_username=me", "ssh_settings.admin_password=x"}, "the command line: --address is missing", "address: it is missing"},
		{"a machine of Azure's by flags", []string{"type=virtualmachine", "resource_id=/x", "ssh_settings.admin_username=me", "ssh_settings.admin_password=x"},
			"the command line: --address is missing: --resource-id names", "add address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := attached(t, "", spec.Options{Set: append(tt.set, "name=c")})
			wantWords(t, err, tt.want)
			if strings.Contains(err.Error(), tt.not) {
				t.Errorf("the error has %q, which a file would have:\n%v", tt.not, err)
			}
		})
	}
	_, err := attached(t, write(t, t.TempDir(), "compute.yml", "type: kubernetes\nname: c\n"), spec.Options{})
	wantWords(t, err, "compute.yml:1:1: kubeconfig: it is missing", "in_cluster: true")
}
