package trainyard

import "testing"

// Keys carry the whole scope; people are in a workspace and know the job by its name.
func TestTasksAreNamedWithoutTheirScope(t *testing.T) {
	job := MakeJobKey(DefaultScope(), "train.v2")
	for id, want := range map[TaskID]string{
		MakeTaskID(job, 1, 0):  `the task of job "train.v2" (attempt 1)`,
		MakeTaskID(job, 12, 3): `the task of job "train.v2" (attempt 12, rank 3)`,
		"stray":                `task "stray"`,
	} {
		if got := id.Words(); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	if got := job.Name(); got != "train.v2" {
		t.Errorf("the job's name is %q", got)
	}
	if got := MakeComputeKey(DefaultScope(), "Big").Name(); got != "big" {
		t.Errorf("the compute's name is %q", got)
	}
}

func TestAnEnvironmentIsNamedInASentence(t *testing.T) {
	for name, want := range map[string]string{"sklearn:1": `environment "sklearn:1"`, "of this job": "the environment of this job", "of this deployment": "the environment of this deployment"} {
		if got := (&EnvironmentPlan{Name: name}).Words(); got != want {
			t.Errorf("%q is named %q", name, got)
		}
	}
}
