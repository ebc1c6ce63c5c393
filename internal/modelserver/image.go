package modelserver

import (
	"path"
	"strings"

	"github.com/trainyard/trainyard"
)

// image serves with the image's own entry point.
func (p *Plan) image(r Request) error {
	v := &p.Serve
	p.Environment = r.Environment
	v.Image, v.Port = true, inferencePort
	v.Scoring, v.Liveness.Path, v.Readiness.Path = "/score", "/", "/"
	if err := take(v, r.InferenceRoutes); err != nil {
		return err
	}
	v.Bare = v.Scoring == "/"
	p.scriptCollections(r.Spec.DataCollector)
	if !r.HasModel {
		return nil
	}
	base := path.Join(appDir, "azureml-models")
	if r.ModelMountPath != "" {
		if !path.IsAbs(r.ModelMountPath) {
			return trainyard.Invalid("model_mount_path is %q, want a path that begins with '/'", r.ModelMountPath)
		}
		base = path.Clean(r.ModelMountPath)
	}
	// Wherever it is mounted, Azure keeps {name}/{version}/{root} below.
	dir := path.Join(base, safeName(r.ModelName), safeName(r.ModelVersion))
	v.ModelPath = path.Join(dir, r.ModelRoot)
	if _, ok := p.Env["AZUREML_MODEL_DIR"]; !ok {
		p.Env["AZUREML_MODEL_DIR"] = dir
	}
	return nil
}

// take puts in the paths and the port of an inferenceConfig. A replica is reached at one port.
func take(v *trainyard.Serve, in *Routes) error {
	if in == nil {
		return nil
	}
	ports := map[int]string{}
	first := 0
	for _, r := range []struct {
		name  string
		route *Route
		to    *string
	}{
		{"scoring_route", in.Scoring, &v.Scoring},
		{"liveness_route", in.Liveness, &v.Liveness.Path},
		{"readiness_route", in.Readiness, &v.Readiness.Path},
	} {
		if r.route == nil {
			continue
		}
		if r.route.Port < 0 || r.route.Port > 65535 {
			return trainyard.Invalid("inference_config.%s.port is %d, want 1 to 65535", r.name, r.route.Port)
		}
		if i := strings.IndexFunc(r.route.Path, func(c rune) bool { return c <= ' ' || c == 0x7f }); i >= 0 {
			return trainyard.Invalid("inference_config.%s.path is %q, which has the character %q that no request's path can have: write it with a percent sign, as a space is %%20",
				r.name, r.route.Path, r.route.Path[i])
		}
		if r.route.Path != "" {
			*r.to = "/" + strings.TrimLeft(r.route.Path, "/")
		}
		if port := r.route.Port; port != 0 && ports[port] == "" {
			if ports[port] = r.name; first == 0 {
				first = port
			} else {
				return trainyard.Errorf(trainyard.CodeUnsupported, "inference_config.%s has port %d and %s has port %d: a replica is reached at one port; have it answer its probes there",
					r.name, port, ports[first], first)
			}
		}
	}
	if first != 0 {
		v.Port = first
	}
	return nil
}
