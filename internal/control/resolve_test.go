package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestSettingsOfContainersAreSaidToBeIgnoredOnlyWhereTheyAre(t *testing.T) {
	c := newControl(t)
	c.Kinds = []Kind{{Type: "Kubernetes", Engine: "kube", Containers: true}, {Type: "Slurm", Engine: "slurm"}}
	local := &trainyard.Compute{Name: "local", Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeLocal}}
	pods := &trainyard.Compute{Name: "k8s", Engine: "kube", Spec: trainyard.ComputeSpec{ComputeType: "Kubernetes"}}
	slurm := &trainyard.Compute{Name: "hpc", Engine: "slurm", Spec: trainyard.ComputeSpec{ComputeType: "Slurm"}}
	image, built := &trainyard.EnvironmentPlan{Image: "debian"}, &trainyard.EnvironmentPlan{Context: "workspaceblobstore/bc"}
	for what, e := range map[string]struct {
		comp *trainyard.Compute
		env  *trainyard.EnvironmentPlan
		want string
	}{
		"a process":                  {local, nil, "shm_size docker_args"},
		"a process with packages":    {local, &trainyard.EnvironmentPlan{CondaFile: "dependencies: [python]"}, "shm_size docker_args"},
		"an image in Docker":         {local, image, ""},
		"a build context in Docker":  {local, built, ""},
		"a pod":                      {pods, image, "docker_args"},
		"a pod with the usual image": {pods, nil, "docker_args"},
		"a batch job":                {slurm, nil, "shm_size docker_args"},
		"a compute that is not here": {nil, nil, ""},
	} {
		r := &resolver{c: c, ctx: t.Context(), j: &trainyard.Job{Scope: trainyard.DefaultScope(), Name: "j"}}
		r.j.Spec.Resources = &trainyard.JobResources{ShmSize: "1g", DockerArgs: "--init"}
		r.j.Plan.Environment = e.env
		r.ignored(e.comp)
		var got []string
		for _, w := range r.warnings {
			name, _, _ := strings.Cut(strings.TrimPrefix(w, "resources."), " ")
			got = append(got, name)
		}
		if strings.Join(got, " ") != e.want {
			t.Errorf("%s: %q, want %q", what, r.warnings, e.want)
		}
	}
}
