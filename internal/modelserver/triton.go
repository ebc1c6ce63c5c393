package modelserver

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// tritonImage serves a triton_model whose deployment names no environment: Azure has an image of its own for those.
const tritonImage = "nvcr.io/nvidia/tritonserver:24.08-py3"

// TritonModel says whether a deployment of a model of this type, with or without a scoring script, is one for Triton.
func TritonModel(modelType, script string) bool {
	return strings.EqualFold(modelType, tritonModel) && script == ""
}

// TritonEnvironment is the environment of a triton_model whose deployment names none.
func TritonEnvironment() *trainyard.EnvironmentPlan {
	e := &trainyard.EnvironmentPlan{Name: "of Triton", Image: tritonImage}
	e.Hash = EnvironmentHash(e)
	return e
}

// TritonShm is how much shared memory a Triton wants that has a pod of its own: with it Python models get their tensors. Containers of an
// engine have as much anyway.
const TritonShm = "2g"

// triton serves a model repository with the image's Triton. It listens where the node says, as a scoring script's server does: replicas
// that share their node's network cannot all have port 8000, nor 8002, where Triton would tell of its metrics.
func (p *Plan) triton(r Request) error {
	const want = "an environment whose image has Triton, such as " + tritonImage
	switch {
	case !r.HasModel:
		return trainyard.Invalid("the deployment has no model; Triton serves a model of type triton_model")
	case !r.Contained:
		return trainyard.Errorf(trainyard.CodeUnsupported, "the model %s is a triton_model, which runs in a container, and the replica would run as a process: deploy it where there "+
			"is a container engine (or Kubernetes), with %s", r.ModelName, want)
	case !hasImage(r.Environment):
		return trainyard.Invalid("the model %s is a triton_model and environment %s names no image: give it %s", r.ModelName, r.environmentName(), want)
	}
	repo := repositoryOf(r.ModelRoot, r.ModelFiles)
	if len(repo.models) == 0 {
		return trainyard.Invalid("the model %s is a triton_model and has no model in it: register the folder that holds NAME/config.pbtxt or NAME/1/model.onnx (the latter as "+
			"the backend calls it), or the folder NAME itself; it has %s", r.ModelName, some(r.ModelFiles))
	}
	p.Environment = r.Environment
	v := &p.Serve
	v.Scoring, v.Liveness.Path, v.Readiness.Path, v.Bare = "/", "/v2/health/live", "/v2/health/ready", true
	if len(repo.models) == 1 {
		if strings.ContainsFunc(repo.models[0], func(c rune) bool { return c <= ' ' || c > '~' || c == '?' || c == '#' }) {
			return trainyard.Invalid("the model %s has %q in it, a name that no request's path can have, and Triton reads no percent signs there: call that folder by ASCII letters, "+
				"digits, '-', '_' and '.'", r.ModelName, repo.models[0])
		}
		v.Scoring = "/v2/models/" + repo.models[0] + "/infer"
	}
	if err := take(v, withoutPorts(r.InferenceRoutes)); err != nil {
		return err
	}
	p.Command = tritonCommand(r, repo, seconds(v.Drain))
	return nil
}

// withoutPorts are routes at whatever port the replica has.
func withoutPorts(in *Routes) *Routes {
	if in == nil {
		return nil
	}
	bare := func(r *Route) *Route {
		if r == nil {
			return nil
		}
		return &Route{Path: r.Path}
	}
	return &Routes{Liveness: bare(in.Liveness), Readiness: bare(in.Readiness), Scoring: bare(in.Scoring)}
}

// tritonCommand runs Triton. Blob stores keep no empty folders, and a model needs one of a version, even if nothing is in it, as in an ensemble.
func tritonCommand(r Request, repo repository, drain int) string {
	var b strings.Builder
	layOut(&b, r)
	b.WriteString("PATH=\"$PATH:/opt/tritonserver/bin\"\n")
	b.WriteString("command -v tritonserver >/dev/null || { echo 'The environment has no tritonserver in its PATH, which serves models of type triton_model: give it an image of " +
		"Triton, or one made from it.' >&2; exit 1; }\n")
	dir := `"$AZUREML_MODEL_DIR"`
	if repo.dir != "" {
		dir += "/" + quote(repo.dir)
		fmt.Fprintf(&b, "[ -L \"$root\" ] || rm -rf %s/.[!.]* %s/%s\n", dir, dir, leftovers) // which Triton would take for models
	}
	for _, name := range repo.bare {
		fmt.Fprintf(&b, "[ -L \"$root\" ] || mkdir -p %s/%s/1\n", dir, quote(name))
	}
	fmt.Fprintf(&b, "exec tritonserver --model-repository=%s --http-address=0.0.0.0 --http-port=\"${SERVER_PORT:-%d}\" --allow-grpc=false --allow-metrics=false "+
		"--exit-timeout-secs=%d --exit-on-error=true\n", dir, inferencePort, drain)
	return b.String()
}

// repository is what Triton finds in a model's folder.
type repository struct {
	dir    string   // the repository, below AZUREML_MODEL_DIR; "": that itself
	models []string // by name
	bare   []string // those of models without a version
}

// repositoryOf finds the repository in a model: it is its folder, or the folder "triton" in it, as Azure ML had it before its version 2; or
// the folder is one model, and so alone in its parent.
func repositoryOf(root string, files []string) repository {
	if oneModel(files) {
		repo := repository{models: []string{root}}
		if !versioned(files) {
			repo.bare = repo.models
		}
		return repo
	}
	repo := repository{dir: root}
	within := children(files)
	if inner := within["triton"]; len(within) == 1 && len(inner) > 0 && !oneModel(inner) {
		repo.dir, within = path.Join(root, "triton"), children(inner)
	}
	for name, below := range within {
		if !oneModel(below) {
			continue
		}
		repo.models = append(repo.models, name)
		if !versioned(below) {
			repo.bare = append(repo.bare, name)
		}
	}
	slices.Sort(repo.models)
	slices.Sort(repo.bare)
	return repo
}

// leftovers is the folder that archives made on a Mac have beside what was put into them.
const leftovers = "__MACOSX"

// children are the files of each folder, without those that editors and archives leave behind.
func children(files []string) map[string][]string {
	out := map[string][]string{}
	for _, f := range files {
		if name, rest, ok := strings.Cut(f, "/"); ok && !strings.HasPrefix(name, ".") && name != leftovers {
			out[name] = append(out[name], rest)
		}
	}
	return out
}

// oneModel says whether files are those of one model: a config.pbtxt, or a version that is not itself a model with a number for a name. A
// number beside a model, with nothing in it that a backend would load, is no version.
func oneModel(files []string) bool {
	if slices.Contains(files, "config.pbtxt") {
		return true
	}
	version, others := false, false
	for name, below := range children(files) {
		switch {
		case !isVersion(name):
			others = others || oneModel(below)
		case slices.Contains(below, "config.pbtxt") || versioned(below):
		case slices.ContainsFunc(below, func(f string) bool { return strings.HasPrefix(f, "model.") }):
			return true
		default:
			version = true
		}
	}
	return version && !others
}

// versioned says whether there is a folder of a version.
func versioned(files []string) bool {
	return slices.ContainsFunc(files, func(f string) bool {
		name, _, ok := strings.Cut(f, "/")
		return ok && isVersion(name)
	})
}

func isVersion(name string) bool { return name != "" && strings.Trim(name, "0123456789") == "" }

// some are the first few of files, for people.
func some(files []string) string {
	const few = 5
	switch n := len(files); {
	case n == 0:
		return "no file"
	case n > few:
		return fmt.Sprintf("%s and %d more", strings.Join(files[:few], ", "), n-few)
	}
	return strings.Join(files, ", ")
}
