package modelserver

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

const mlmodel = `flavors:
  python_function: {loader_module: mlflow.sklearn, python_version: 3.10.4}
  sklearn: {sklearn_version: 1.5.2, serialization_format: cloudpickle}
mlflow_version: 2.15.1
`

func env(image, conda string) *trainyard.EnvironmentPlan {
	e := &trainyard.EnvironmentPlan{Name: "mine:1", Image: image, CondaFile: conda}
	e.Hash = EnvironmentHash(e)
	return e
}

func ask(change func(*Request)) Request {
	r := Request{ModelName: "iris", ModelVersion: "4", ModelRoot: "model.pkl", HasModel: true, ScoringScript: "score.py", Spec: &trainyard.DeploymentSpec{}}
	change(&r)
	return r
}

func TestWhatIsServedAndHow(t *testing.T) {
	const conda = "dependencies:\n- pip:\n  - azureml-defaults\n"
	routes := &Routes{Scoring: &Route{"/v1/models/half:predict", 8501}, Liveness: &Route{"v1/models/half", 8501}, Readiness: &Route{"/v1/models/half", 8501}}
	for _, c := range []struct {
		name   string
		ask    Request
		port   int
		paths  [3]string // scoring, liveness, readiness
		holds  []string  // in the command
		vars   map[string]string
		packs  []string // in the conda file
		code   string
		warns  []string
		image  string // of the environment
		byself bool   // the image's own entry point
		model  string
	}{
		{name: "a script as a process listens on loopback", ask: ask(func(r *Request) { r.Environment = env("img", conda) }),
			paths: [3]string{"/score", "/", "/"}, holds: []string{"127.0.0.1 \"${SERVER_PORT:-5001}\" 'score.py' 5", "/azureml-models/'iris'/'4'", "/'model.pkl'", "${{inputs.model}}"},
			vars: map[string]string{"SCORING_TIMEOUT_MS": "5250"}, packs: []string{"azureml-defaults"}},
		{name: "a script in a container listens everywhere", ask: ask(func(r *Request) { r.Environment, r.Contained = env("img", conda), true }),
			paths: [3]string{"/score", "/", "/"}, holds: []string{"0.0.0.0 "}, packs: []string{"azureml-defaults"}, image: "img"},
		{name: "an image for a process is not used", ask: ask(func(r *Request) { r.Environment = env("img", "") }),
			paths: [3]string{"/score", "/", "/"}, packs: []string{serverPackage, "python"}, warns: []string{"image of environment mine:1 is not used"}},
		{name: "an image for a container is taken as it is", ask: ask(func(r *Request) { r.Environment, r.Contained = env("img", ""), true }),
			paths: [3]string{"/score", "/", "/"}, image: "img"},
		{name: "no environment", ask: ask(func(r *Request) { r.HasModel = false }), paths: [3]string{"/score", "/", "/"}, packs: []string{serverPackage},
			warns: []string{"names no environment"}},
		{name: "the node's variables are the node's", ask: ask(func(r *Request) {
			r.Environment, r.Env = env("", conda), map[string]string{"PORT": "1", "SERVER_PORT": "2", "A": "b", "SCORING_TIMEOUT_MS": "7"}
		}), paths: [3]string{"/score", "/", "/"}, vars: map[string]string{"A": "b", "SCORING_TIMEOUT_MS": "7"}, warns: []string{"SERVER_PORT", "variables.PORT"}},
		{name: "more requests than workers", ask: ask(func(r *Request) {
			r.Environment, r.Spec.RequestSettings = env("", conda), &trainyard.RequestSettings{MaxConcurrentRequestsPerInstance: 4}
		}), paths: [3]string{"/score", "/", "/"}, warns: []string{"WORKER_COUNT to 4"}},
		{name: "a custom container", ask: ask(func(r *Request) {
			r.ScoringScript, r.Contained, r.Environment, r.InferenceRoutes, r.ModelRoot = "", true, env("tf", ""), routes, "half_plus_two"
			r.Env = map[string]string{"PORT": "1"}
		}), port: 8501, paths: [3]string{"/v1/models/half:predict", "/v1/models/half", "/v1/models/half"}, image: "tf", byself: true,
			model: "/var/azureml-app/azureml-models/iris/4/half_plus_two", vars: map[string]string{"AZUREML_MODEL_DIR": "/var/azureml-app/azureml-models/iris/4", "PORT": "1"}},
		{name: "a mount path of one's own", ask: ask(func(r *Request) {
			r.ScoringScript, r.Contained, r.Environment, r.ModelMountPath = "", true, env("tf", ""), "/var/models/"
		}), port: 5001, paths: [3]string{"/score", "/", "/"}, image: "tf", byself: true, model: "/var/models/iris/4/model.pkl"},
		{name: "an MLflow model without code", ask: ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.MLmodel, r.ModelName, r.ModelRoot = "", mlflowModel, []byte(mlmodel), "", "my model"
			r.ModelConda = []byte("dependencies:\n- python=3.10.4\n- pip:\n  - -r requirements.txt\n")
			r.ModelRequirements = []byte("# made by MLflow\nmlflow==2.15.1\n\nscikit-learn==1.5.2 # pinned\n")
		}), paths: [3]string{"/score", "/", "/"}, holds: []string{"'score.py'", "/azureml-models/'my_model'/'1'"}, code: Snapshot,
			packs: []string{"mlflow==2.15.1", "scikit-learn==1.5.2", "python=3.10\n", serverPackage}, vars: map[string]string{"MLFLOW_MODEL_FOLDER": "my model"}},
		{name: "an MLflow model that names no packages", ask: ask(func(r *Request) { r.ScoringScript, r.ModelType, r.MLmodel = "", mlflowModel, []byte(mlmodel) }),
			paths: [3]string{"/score", "/", "/"}, code: Snapshot, packs: []string{"mlflow==2.15.1", "scikit-learn==1.5.2", "python=3.10\n"}, warns: []string{"guessed"}},
		{name: "an MLflow model in the deployment's environment", ask: ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.MLmodel, r.Environment, r.Contained = "", mlflowModel, []byte(mlmodel), env("img", conda), true
		}), paths: [3]string{"/score", "/", "/"}, code: Snapshot, packs: []string{"azureml-defaults", "mlflow==2.15.1"}, image: "img"},
		{name: "Triton", ask: ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.Contained, r.Environment, r.ModelRoot = "", tritonModel, true, env("nvcr.io/nvidia/tritonserver:24.08-py3", ""), "models"
			r.ModelFiles = []string{"one/1/model.onnx"}
		}), paths: [3]string{"/v2/models/one/infer", "/v2/health/live", "/v2/health/ready"}, image: "nvcr.io/nvidia/tritonserver:24.08-py3",
			holds: []string{`tritonserver --model-repository="$AZUREML_MODEL_DIR"/'models' `, `--http-port="${SERVER_PORT:-5001}"`}},
		{name: "Triton in an image of any name, with the routes of its author", ask: ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.Contained, r.Environment, r.ModelRoot = "", tritonModel, true, env("example.com/vision:3", ""), "models"
			r.ModelFiles = []string{"one/1/model.onnx"}
			r.InferenceRoutes = &Routes{Scoring: &Route{"/", 8000}, Liveness: &Route{"/v2/health/live", 8000}, Readiness: &Route{"/v2", 8000}}
		}), paths: [3]string{"/", "/v2/health/live", "/v2"}, image: "example.com/vision:3", holds: []string{"command -v tritonserver"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Make(c.ask)
			if err != nil {
				t.Fatal(err)
			}
			v := p.Serve
			if got := [3]string{v.Scoring, v.Liveness.Path, v.Readiness.Path}; got != c.paths || v.Port != c.port || v.Image != c.byself || v.ModelPath != c.model || p.Code != c.code {
				t.Errorf("serves %+v, code %q", v, p.Code)
			}
			if (p.Command == "") != c.byself {
				t.Errorf("command %q", p.Command)
			}
			for _, w := range c.holds {
				if !strings.Contains(p.Command, w) {
					t.Errorf("command lacks %q:\n%s", w, p.Command)
				}
			}
			for name, value := range c.vars {
				if p.Env[name] != value {
					t.Errorf("variables %v, want %s=%s", p.Env, name, value)
				}
			}
			if len(p.Warnings) != len(c.warns) || slices.ContainsFunc(c.warns, func(w string) bool { return !strings.Contains(strings.Join(p.Warnings, "\n"), w) }) {
				t.Errorf("warnings %q, want %q", p.Warnings, c.warns)
			}
			for _, w := range c.packs {
				if !strings.Contains(p.Environment.CondaFile, w) {
					t.Errorf("conda file lacks %q:\n%s", w, p.Environment.CondaFile)
				}
			}
			if p.Environment.Image != c.image || p.Environment.Hash != EnvironmentHash(p.Environment) {
				t.Errorf("environment %+v", p.Environment)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		ask   Request
		words string
	}{
		{"too long", ask(func(r *Request) { r.Spec.RequestSettings = &trainyard.RequestSettings{RequestTimeout: "PT181S"} }), "request_settings.request_timeout_ms is 181000 ms (PT181S), and of a managed deployment it can be more than 0 and at most 180000 ms"},
		{"too long elsewhere", ask(func(r *Request) {
			r.Spec.EndpointComputeType, r.Spec.RequestSettings = trainyard.ServeKubernetes, &trainyard.RequestSettings{RequestTimeout: "PT301S"}
		}), "at most 300000 ms"},
		{"no time at all", ask(func(r *Request) { r.Spec.RequestSettings = &trainyard.RequestSettings{RequestTimeout: "PT0S"} }), "request_timeout_ms is 0 ms"},
		{"no duration", ask(func(r *Request) { r.Spec.RequestSettings = &trainyard.RequestSettings{MaxQueueWait: "fast"} }), "max_queue_wait_ms"},
		{"fewer than none", ask(func(r *Request) {
			r.Spec.RequestSettings = &trainyard.RequestSettings{MaxConcurrentRequestsPerInstance: -1}
		}), "max_concurrent_requests_per_instance is -1"},
		{"probe without a period", ask(func(r *Request) { r.Spec.LivenessProbe = &trainyard.ProbeSettings{Period: "PT0S"} }), "liveness_probe.period is PT0S"},
		{"probe with a bad threshold", ask(func(r *Request) { r.Spec.ReadinessProbe = &trainyard.ProbeSettings{FailureThreshold: -2} }), "readiness_probe.failure_threshold is -2"},
		{"script outside", ask(func(r *Request) { r.ScoringScript = "../score.py" }), `scoring_script is "../score.py"`},
		{"nothing", ask(func(r *Request) { r.ScoringScript, r.HasModel = "", false }), "nothing to serve"},
		{"custom model without script", ask(func(r *Request) { r.ScoringScript = "" }), "needs a code_configuration with a scoring_script"},
		{"custom container as a process", ask(func(r *Request) {
			r.ScoringScript, r.Environment, r.InferenceRoutes = "", env("tf", ""), &Routes{}
		}), "deploy it where there is a container engine"},
		{"two ports", ask(func(r *Request) {
			r.ScoringScript, r.Contained, r.Environment, r.InferenceRoutes = "", true, env("ts", ""), &Routes{Scoring: &Route{"/p", 8080}, Liveness: &Route{"/l", 8081}}
		}), "liveness_route has port 8081 and scoring_route has port 8080"},
		{"a path with a space", ask(func(r *Request) {
			r.ScoringScript, r.Contained, r.Environment, r.InferenceRoutes = "", true, env("ts", ""), &Routes{Scoring: &Route{"/my model", 8080}}
		}), `inference_config.scoring_route.path is "/my model", which has the character ' '`},
		{"a path that ends its line", ask(func(r *Request) {
			r.ScoringScript, r.Contained, r.Environment, r.InferenceRoutes = "", true, env("ts", ""), &Routes{Readiness: &Route{"/a\r\nX:1", 8080}}
		}), `inference_config.readiness_route.path is "/a\r\nX:1", which has the character '\r'`},
		{"a path of Triton with a byte that is no letter", ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.Contained, r.Environment, r.ModelFiles = "", tritonModel, true, env("any", ""), []string{"a/config.pbtxt"}
			r.InferenceRoutes = &Routes{Liveness: &Route{Path: "/\x7f"}}
		}), `inference_config.liveness_route.path is "/\x7f", which has the character '\x7f'`},
		{"mounted nowhere", ask(func(r *Request) {
			r.ScoringScript, r.Contained, r.Environment, r.ModelMountPath = "", true, env("ts", ""), "models"
		}), "model_mount_path"},
		{"MLflow without MLmodel", ask(func(r *Request) { r.ScoringScript, r.ModelType = "", mlflowModel }), "has no file MLmodel"},
		{"MLflow without pyfunc", ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.MLmodel = "", mlflowModel, []byte("flavors: {spark: {}}")
		}), "python_function"},
		{"Triton as a process", ask(func(r *Request) { r.ScoringScript, r.ModelType = "", tritonModel }), "tritonserver"},
		{"Triton without an image", ask(func(r *Request) { r.ScoringScript, r.ModelType, r.Contained = "", tritonModel, true }), "names no image"},
		{"Triton without a model", ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.Contained, r.Environment, r.ModelFiles = "", tritonModel, true, env("any", ""), []string{"model.onnx", "a/b/model.onnx"}
		}), "has no model in it: register the folder that holds NAME/config.pbtxt or NAME/1/model.onnx (the latter as the backend calls it), or the folder NAME itself; it has model.onnx, a/b/model.onnx"},
		{"conda file of something else", ask(func(r *Request) { r.Environment = env("", "- a\n- b\n") }), "environment mine:1: its conda file is not what conda reads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Make(c.ask); err == nil || !strings.Contains(err.Error(), c.words) || trainyard.CodeOf(err) == "" {
				t.Errorf("got %v, want %q", err, c.words)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	p, err := Make(ask(func(*Request) {}))
	well := trainyard.Probe{Path: "/", Delay: 10 * time.Second, Period: 10 * time.Second, Timeout: 2 * time.Second, Successes: 1, Failures: 30}
	want := trainyard.Serve{Scoring: "/score", Liveness: well, Readiness: well, Concurrency: 1, Queue: 500 * time.Millisecond, Timeout: 5 * time.Second, Drain: 5 * time.Second}
	if err != nil || !reflect.DeepEqual(p.Serve, want) {
		t.Errorf("by default %+v, %v", p.Serve, err)
	}
	p, err = Make(ask(func(r *Request) {
		r.Spec = &trainyard.DeploymentSpec{EndpointComputeType: trainyard.ServeLocal,
			RequestSettings: &trainyard.RequestSettings{RequestTimeout: "PT4M30S", MaxConcurrentRequestsPerInstance: 3, MaxQueueWait: "PT0S"},
			LivenessProbe:   &trainyard.ProbeSettings{InitialDelay: "PT0S", Period: "PT1S", Timeout: "PT0.5S", SuccessThreshold: 2, FailureThreshold: 3},
			StartupProbe:    &trainyard.ProbeSettings{InitialDelay: "PT5S", Period: "PT2S", FailureThreshold: 10}}
		r.Env = map[string]string{"WORKER_COUNT": "3"}
	}))
	live := trainyard.Probe{Path: "/", Delay: 25 * time.Second, Period: time.Second, Timeout: 500 * time.Millisecond, Successes: 2, Failures: 3}
	want = trainyard.Serve{Scoring: "/score", Liveness: live, Readiness: well, Concurrency: 3, Timeout: 270 * time.Second, Drain: 270 * time.Second}
	if err != nil || !reflect.DeepEqual(p.Serve, want) {
		t.Errorf("as asked %+v, %v", p.Serve, err)
	}
}

func TestPackagesAreAddedToACondaFile(t *testing.T) {
	for name, c := range map[string]struct{ have, want string }{
		"what has it is not touched":      {"dependencies: [python=3.10, pip: ['AzureML.Inference_Server-HTTP[x]==1.4']] # mine\n", "dependencies: [python=3.10, pip: ['AzureML.Inference_Server-HTTP[x]==1.4']] # mine\n"},
		"what has azureml-defaults too":   {"dependencies:\n- pip:\n  - azureml-defaults~=1.5\n", "dependencies:\n- pip:\n  - azureml-defaults~=1.5\n"},
		"to the list that is there":       {"# mine\nname: x\ndependencies:\n- python=3.10 # this one\n- pip:\n  - numpy\n", "- numpy\n"},
		"a list where there is none":      {"channels: [conda-forge]\ndependencies:\n- python=3.10\n", "- pip\n"},
		"dependencies where there is nil": {"name: x\ndependencies:\n", "dependencies:\n"},
		"dependencies where there is no":  {"name: x\n", "dependencies:\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := addPackages(c.have, serverNeed)
			if err != nil || !strings.Contains(got, c.want) {
				t.Fatalf("got %q, %v", got, err)
			}
			again, err := addPackages(got, serverNeed)
			if err != nil || again != got {
				t.Errorf("a second time: %q, %v", again, err)
			}
			if c.have == c.want {
				return
			}
			_, deps, err := openConda(got)
			if err != nil {
				t.Fatal(err)
			}
			if _, have := packages(deps); !slices.Contains(have, serverPackage) || strings.Contains(c.have, "# mine") && !(strings.Contains(got, "# mine") && strings.Contains(got, "python=3.10 # this one")) {
				t.Errorf("got %q", got)
			}
		})
	}
	for _, bad := range []string{"dependencies: 3\n", "[1]", "a: [", ""} {
		if got, err := addPackages(bad, serverNeed); err == nil {
			t.Errorf("%q was taken: %q", bad, got)
		}
	}
}

func TestSnapshot(t *testing.T) {
	if names := slices.Sorted(maps.Keys(Files())); !slices.Equal(names, []string{"score.py"}) || len(Hash()) != 64 {
		t.Errorf("%v %s", names, Hash())
	}
}
