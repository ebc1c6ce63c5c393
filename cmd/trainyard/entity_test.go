package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

const ws = "/subscriptions/0000/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/default"

// What "az ml" (azure-ai-ml 1.34.0) prints for the same resources, where it prints anything.
func TestEntitiesHaveTheShapeThatAzPrints(t *testing.T) {
	const sys = `"systemData":{"createdAt":"2026-01-01T00:00:00Z","createdBy":"me","createdByType":"User","lastModifiedAt":"2026-01-01T00:00:00Z"}`
	const creation = `"creation_context":{"created_at":"2026-01-01T00:00:00Z","created_by":"me","created_by_type":"User","last_modified_at":"2026-01-01T00:00:00Z"}`
	for _, tt := range []struct {
		name     string
		kind     trainyard.Kind
		arm, cli string
	}{
		{"a command job", trainyard.KindJob, `{"id":"WS/jobs/j1","name":"j1",` + sys + `,"properties":{"jobType":"Command","displayName":"d","experimentName":"e",
			"computeId":"WS/computes/cpu-cluster","codeId":"WS/codes/abc/versions/1","environmentId":"WS/environments/env/versions/3","command":"python x","status":"Running",
			"inputs":{"lr":{"jobInputType":"literal","value":"0.1"},"d":{"jobInputType":"uri_file","uri":"WS/data/d1/versions/1","mode":"ReadOnlyMount"},
				"e":{"jobInputType":"uri_folder","uri":"azureml://datastores/workspaceblobstore/paths/x/","mode":"Download"}},
			"outputs":{"o":{"jobOutputType":"uri_folder","mode":"Upload","assetName":"foo","assetVersion":"2"}},
			"services":{"Studio":{"endpoint":"https://x","jobServiceType":"Studio"}},
			"distribution":{"distributionType":"PyTorch","processCountPerInstance":2},"resources":{"instanceCount":2,"shmSize":"2g"},
			"limits":{"jobLimitsType":"Command","timeout":"PT1H"},"environmentVariables":{"camelCase":"b"},"tags":{"aTag":"v"},"properties":{"aProp":"q"},
			"queueSettings":{"jobTier":"Standard","priority":2},"identity":{"identityType":"AMLToken"},"isArchived":false,
			"reason":{"code":"Placed","message":"on a node","since":"2026-01-01T00:00:00Z"},"exitCode":0,"queuePosition":2}}`,
			`{"id":"azureml:WS/jobs/j1","name":"j1",` + creation + `,"resourceGroup":"rg","type":"command","display_name":"d","experiment_name":"e",
			"compute":"azureml:cpu-cluster","code":"azureml:WS/codes/abc/versions/1","environment":"azureml:env:3","command":"python x","status":"Running",
			"inputs":{"lr":"0.1","d":{"mode":"ro_mount","type":"uri_file","path":"azureml:d1:1"},"e":{"mode":"download","type":"uri_folder","path":"azureml://datastores/workspaceblobstore/paths/x/"}},
			"outputs":{"o":{"name":"foo","version":"2","mode":"upload","type":"uri_folder"}},"services":{"Studio":{"endpoint":"https://x","type":"Studio"}},
			"distribution":{"type":"pytorch","process_count_per_instance":2},"resources":{"instance_count":2,"shm_size":"2g"},"limits":{"timeout":3600},
			"environment_variables":{"camelCase":"b"},"tags":{"aTag":"v"},"properties":{"aProp":"q"},"queue_settings":{"job_tier":"standard","priority":"medium"},
			"identity":{"type":"aml_token"},"reason":{"code":"Placed","message":"on a node","since":"2026-01-01T00:00:00Z"},"exit_code":0,"queue_position":2}`},
		{"a cluster", trainyard.KindCompute, `{"id":"WS/computes/c","name":"c","location":"local","tags":{"a":"b"},"properties":{"computeType":"AmlCompute","computeLocation":"local",
			"provisioningState":"Succeeded","description":"x","properties":{"vmSize":"STANDARD_DS3_V2","vmPriority":"LowPriority","scaleSettings":{"minNodeCount":0,"maxNodeCount":2,
			"nodeIdleTimeBeforeScaleDown":"PT2M"},"remoteLoginPortPublicAccess":"NotSpecified","enableNodePublicIp":true,"currentNodeCount":1,"nodeStateCounts":{"idleNodeCount":1}}}}`,
			`{"name":"c","id":"WS/computes/c","resourceGroup":"rg","type":"amlcompute","location":"local","description":"x","provisioning_state":"Succeeded","tags":{"a":"b"},
			"size":"STANDARD_DS3_V2","tier":"low_priority","min_instances":0,"max_instances":2,"idle_time_before_scale_down":120,"ssh_public_access_enabled":false,
			"network_settings":{},"enable_node_public_ip":true,"current_node_count":1,"node_state_counts":{"idle_node_count":1}}`},
		{"an environment", trainyard.KindEnvironment, `{"id":"WS/environments/e/versions/1","name":"1",` + sys + `,"properties":{"image":"python:3.11",
			"condaFile":"name: x\ndependencies:\n- pip","osType":"Linux","environmentType":"UserCreated","isArchived":false,"isAnonymous":false,"tags":{},"description":"d"}}`,
			`{"name":"e","id":"azureml:WS/environments/e/versions/1","resourceGroup":"rg","description":"d","tags":{},"version":"1",` + creation + `,"image":"python:3.11",
			"conda_file":{"name":"x","dependencies":["pip"]},"os_type":"linux"}`},
		{"a data asset", trainyard.KindData, `{"id":"WS/data/d/versions/1","name":"1",` + sys + `,"properties":{"dataType":"uri_file",
			"dataUri":"azureml://datastores/x/paths/y","isArchived":true,"tags":{},"properties":{},"description":"d"}}`,
			`{"name":"d","id":"WS/data/d/versions/1","resourceGroup":"rg","description":"d","tags":{},"version":"1",` + creation + `,"path":"azureml://datastores/x/paths/y",
			"properties":{},"type":"uri_file","is_archived":true}`},
		{"a container of versions", trainyard.KindData, `{"id":"WS/data/d","name":"d","properties":{"dataType":"uri_file","latestVersion":"3","nextVersion":"4"}}`,
			`{"name":"d","id":"WS/data/d","resourceGroup":"rg","latest_version":"3","next_version":"4","type":"uri_file"}`},
		{"a datastore", trainyard.KindDatastore, `{"id":"WS/datastores/w","name":"w","properties":{"datastoreType":"AzureBlob","accountName":"acc","containerName":"cont",
			"credentials":{"credentialsType":"AccountKey"},"isDefault":true}}`,
			`{"name":"w","id":"WS/datastores/w","resourceGroup":"rg","account_name":"acc","type":"azure_blob","container_name":"cont","credentials":{},"is_default":true}`},
		{"a workspace", trainyard.KindWorkspace, `{"id":"WS","name":"default","location":"local","tags":{},"properties":{"friendlyName":"f","mlFlowTrackingUri":"https://m","storageAccount":"/sa"}}`,
			`{"id":"WS","name":"default","resourceGroup":"rg","resource_group":"rg","location":"local","tags":{},"display_name":"f","mlflow_tracking_uri":"https://m","storage_account":"/sa"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var arm, want map[string]any
			for text, to := range map[string]*map[string]any{tt.arm: &arm, tt.cli: &want} {
				if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "WS", ws)), to); err != nil {
					t.Fatalf("%v in %s", err, text)
				}
			}
			if diff := cmp.Diff(want, entity(tt.kind, arm)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReferencesAreShortWhereTheyCanBe(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"local":                           "azureml:local",
		ws + "/computes/c":                "azureml:c",
		ws + "/environments/e/versions/2": "azureml:e:2",
		ws + "/data/d/labels/latest":      "azureml:d@latest",
		"azureml://registries/azureml/environments/sklearn-1.5/labels/latest": "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
		"azureml:AzureML-sklearn-1.5@latest":                                  "azureml:AzureML-sklearn-1.5@latest",
	} {
		if got := reference(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{"displayName": "display_name", "memoryGB": "memory_gb", "vCPUs": "v_cp_us", "osVhdSizeMB": "os_vhd_size_mb",
		"estimatedVMPrices": "estimated_vm_prices", "enableNodePublicIp": "enable_node_public_ip", "id": "id", "mlFlowTrackingUri": "mlflow_tracking_uri",
		"already_snake": "already_snake"} {
		if got := snake(in); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}
