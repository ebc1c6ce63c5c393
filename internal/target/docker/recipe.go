package docker

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// recipe is a conda file read for pip and uv, which are what most images have.
type recipe struct {
	Python string   // the version wanted, as pip writes one; "" for any
	Lines  []string // of a requirements file
	Conda  []string // packages that only conda has
	Notes  []string // what was left out
}

// condaOnly are packages that no Python package index has, beginnings of names with a * behind them.
var condaOnly = []string{"cudatoolkit", "cudatoolkit-dev", "cuda*", "cudnn", "nccl", "mkl-service", "openmpi", "mpich", "gcc*", "gxx*", "compilers", "libgcc*",
	"pytorch-cuda", "pytorch-mutex", "r-*", "nodejs", "openjdk", "ffmpeg", "git", "cmake", "make", "gdal", "libgdal", "graphviz", "openssl", "blas*", "_*"}

// renamed are packages that have another name on a Python package index.
var renamed = map[string]string{"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch", "matplotlib-base": "matplotlib", "py-xgboost": "xgboost",
	"py-opencv": "opencv-python", "opencv": "opencv-python", "pytables": "tables", "tensorflow-gpu": "tensorflow", "msgpack-python": "msgpack"}

// matchSpec is conda's way to name a package: channel::name, then a version, then a build.
var matchSpec = regexp.MustCompile(`^(?:[^\s:]+::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(.*)$`)

// parseRecipe reads a conda file. Errors are for its author.
func parseRecipe(text string) (recipe, error) {
	var file struct {
		Dependencies []yaml.Node `yaml:"dependencies"`
	}
	var r recipe
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return r, fmt.Errorf("its conda file is not what conda reads: %w", err)
	}
	var errs []error
	for i := range file.Dependencies {
		node := &file.Dependencies[i]
		var nested struct {
			Pip []string `yaml:"pip"`
		}
		switch {
		case node.Kind == yaml.ScalarNode:
			errs = append(errs, r.add(node.Value))
		case node.Decode(&nested) != nil || len(nested.Pip) == 0:
			errs = append(errs, fmt.Errorf("line %d of its conda file: want a package, or pip: with a list of packages", node.Line))
		default:
			r.Lines = append(r.Lines, nested.Pip...)
		}
	}
	return r, errors.Join(errs...)
}

// add reads one conda dependency.
func (r *recipe) add(spec string) error {
	plain, _, _ := strings.Cut(spec, " #")
	m := matchSpec.FindStringSubmatch(strings.TrimSpace(plain))
	if m == nil {
		return fmt.Errorf("its conda file asks for %q, which names no package", spec)
	}
	name := strings.ToLower(m[1])
	if other, ok := renamed[name]; ok {
		name = other
	}
	pin, simple := pipPin(strings.TrimSpace(m[2]))
	switch {
	case name == "python" && simple:
		r.Python = pin
	case name == "pip" || name == "setuptools" || name == "wheel":
		r.Notes = append(r.Notes, name+" is the image's own, unless conda installs the environment")
	case !simple || onlyConda(name):
		r.Conda = append(r.Conda, m[1])
	default:
		r.Lines = append(r.Lines, name+pin)
	}
	return nil
}

func onlyConda(name string) bool {
	for _, p := range condaOnly {
		if start, any := strings.CutSuffix(p, "*"); name == p || any && strings.HasPrefix(name, start) {
			return true
		}
	}
	return false
}

// plainVersion is a version that pip writes like conda, but for a single =.
var plainVersion = regexp.MustCompile(`^(==|=|>=|<=|<|>|!=|~=)?\s*([0-9][0-9A-Za-z.]*?)(\.?\*)?$`)

// pipPin turns conda's version into pip's: "=1.2" means 1.2 and what begins with it, "==1.2" that alone. simple is false for what only
// conda understands.
func pipPin(v string) (pin string, simple bool) {
	if v == "" || v == "*" {
		return "", true
	}
	var out []string
	for part := range strings.SplitSeq(v, ",") {
		m := plainVersion.FindStringSubmatch(strings.TrimSpace(part))
		switch {
		case m == nil:
			return "", false
		case m[1] == "=" || m[3] != "" && (m[1] == "" || m[1] == "=="):
			out = append(out, "=="+m[2]+".*")
		case m[1] == "":
			out = append(out, "=="+m[2])
		default:
			out = append(out, m[1]+m[2])
		}
	}
	return strings.Join(out, ","), true
}
