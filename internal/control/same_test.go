package control

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

const aPipeline = `{"jobType":"Pipeline","computeId":"local","inputs":{"word":{"jobInputType":"literal","value":"hello"}},"outputs":{"made":{"jobOutputType":"uri_folder"}},
	"settings":{"force_rerun":null,"_source":"DSL"},"jobs":{
	"one":{"type":"command","command":"echo ${{inputs.word}} >> ${{outputs.out}}/word","inputs":{"word":"${{parent.inputs.word}}"},"outputs":{"out":{"type":"uri_folder"}}},
	"two":{"type":"command","command":"cp ${{inputs.data}}/word ${{outputs.made}}/","inputs":{"data":"${{parent.jobs.one.outputs.out}}"},"outputs":{"made":"${{parent.outputs.made}}"}}}}`

const aCommand = `{"jobType":"Command","command":"echo ${{inputs.word}} ${{inputs.file}}","computeId":"azureml:local","environmentVariables":{"A":"1"},"limits":{"jobLimitsType":"Command","timeout":"PT1H"},
	"inputs":{"word":{"jobInputType":"literal","value":"hello"},"file":{"jobInputType":"uri_file","uri":"https://example.com/a"}},"outputs":{"made":{"jobOutputType":"uri_folder","uri":"azureml://datastores/workspaceblobstore/paths/made/"}}}`

func specOf(t *testing.T, text string) trainyard.JobSpec {
	t.Helper()
	var s trainyard.JobSpec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Whoever asks for another job by a name that is taken must not be told that all is well.
func TestAnotherJobByTheNameOfOneIsAConflict(t *testing.T) {
	for job, changes := range map[string]map[string]string{
		aPipeline: {
			`echo | printf`:                        "other steps",
			`"value":"hello" | "value":"good bye"`: "other inputs",
			`"literal","value":"hello"}} | "literal","value":"hello"},"more":{"jobInputType":"literal","value":"1"}}`:             "other inputs",
			`"jobOutputType":"uri_folder" | "jobOutputType":"uri_folder","uri":"azureml://datastores/workspaceblobstore/paths/x"`: "other outputs",
			`"computeId":"local" | "computeId":"elsewhere"`:                                                                       "another compute",
			`"force_rerun":null | "default_compute":"azureml:elsewhere"`:                                                          "other settings",
			`"force_rerun":null | "continue_on_step_failure":true`:                                                                "other settings",
			`"jobs" | "componentId":"azureml:other:1","jobs"`:                                                                     "another component",
			`"jobType":"Pipeline" | "jobType":"Command","command":"true"`:                                                         "another command",
		},
		aCommand: {
			`echo | printf`: "another command",
			`"jobInputType":"literal" | "jobInputType":"uri_file"`: "other inputs",
			`example.com/a | example.com/b`:                        "other inputs",
			`paths/made | paths/other`:                             "other outputs",
			`"A":"1" | "A":"2"`:                                    "other environment variables",
			`PT1H | PT2H`:                                          "other limits",
			`"limits" | "resources":{"instanceCount":2},"limits"`:  "another number of nodes",
			`"limits" | "codeId":"azureml:code:1","limits"`:        "other code",
			`"limits" | "queueSettings":{"priority":3},"limits"`:   "other queue settings",
			`"limits" | "resources":{"shmSize":"8g"},"limits"`:     "other resources",
			`azureml://datastores/workspaceblobstore | azureml://subscriptions/s/resourcegroups/g/workspaces/elsewhere/datastores/workspaceblobstore`: "other outputs",
			`"Command" | "Pipeline"`: "another type",
		},
	} {
		c, scope := newControl(t), trainyard.DefaultScope()
		if _, created, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "j", Spec: specOf(t, job)}); err != nil || !created {
			t.Fatalf("%v %v", created, err)
		}
		for change, want := range changes {
			from, to, _ := strings.Cut(change, " | ")
			other := specOf(t, strings.Replace(job, from, to, 1))
			if _, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "j", Spec: other}); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), "exists already with "+want) {
				t.Errorf("%s: %v, want %q", change, err, want)
			}
		}
	}
}

// What a client sends twice, or read and sends back with other tags, is the same job.
func TestTheSameJobSentAgainIsNoConflict(t *testing.T) {
	for _, text := range []string{aPipeline, aCommand} {
		c, scope := newControl(t), trainyard.DefaultScope()
		j, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "j", Spec: specOf(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		read := j.Clone().Spec
		read.Outputs = map[string]*trainyard.JobOutput{"made": {JobOutputType: "uri_folder", URI: j.Plan.Outputs["made"].URI, Mode: j.Plan.Outputs["made"].Mode}}
		sent := map[string]trainyard.JobSpec{
			"again": specOf(t, text), "read back": read, "only tags": {JobType: j.Spec.JobType},
			"in other words": specOf(t, strings.NewReplacer(`"jobs":{`, `"jobs": {`, `"azureml:local"`, `"`+scope.Child("computes", "local")+`"`, `"_source":"DSL"`, `"_source":"YAML"`).Replace(text)),
		}
		for how, spec := range sent {
			spec.Tags = map[string]string{"how": how}
			saved, created, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "j", Spec: spec})
			if err != nil || created || saved.Spec.Tags["how"] != how {
				t.Errorf("%s: created %v, %v", how, created, err)
			}
		}
	}
}

// Of a job that was stored by an older version there is no digest, and its steps are as they were sent.
func TestAJobOfAnOlderVersionSentAgainIsNoConflict(t *testing.T) {
	text := strings.Replace(aPipeline, `"force_rerun":null`, `"default_compute":"azureml:local"`, 1)
	c, scope := newControl(t), trainyard.DefaultScope()
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "j", Spec: specOf(t, text)}); err != nil {
		t.Fatal(err)
	}
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		j, err := tx.Job(trainyard.MakeJobKey(scope, "j"))
		if err != nil {
			return err
		}
		j.Plan.Asked, j.Spec.Extra = "", specOf(t, text).Extra
		return tx.PutJob(j)
	})
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Job(t.Context(), scope, "j")
	if err != nil {
		t.Fatal(err)
	}
	read := j.Clone().Spec
	read.IsArchived = true
	for how, spec := range map[string]trainyard.JobSpec{
		"again": specOf(t, text), "read back": read,
		"with ids": specOf(t, strings.Replace(text, `"azureml:local"`, `"`+scope.Child("computes", "local")+`"`, 1)),
	} {
		if _, created, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "j", Spec: spec}); err != nil || created {
			t.Errorf("%s: created %v, %v", how, created, err)
		}
	}
	other := specOf(t, strings.Replace(text, "echo", "printf", 1))
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "j", Spec: other}); !trainyard.IsConflict(err) {
		t.Errorf("another one: %v", err)
	}
}
