package trainyard

import "testing"

func TestAnEnvironmentIsNamedInASentence(t *testing.T) {
	for name, want := range map[string]string{"sklearn:1": `environment "sklearn:1"`, "of this job": "the environment of this job", "of this deployment": "the environment of this deployment"} {
		if got := (&EnvironmentPlan{Name: name}).Words(); got != want {
			t.Errorf("%q is named %q", name, got)
		}
	}
}
