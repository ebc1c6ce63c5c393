package modelserver

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
)

// mlModel is what the file MLmodel says of a model, as far as it matters here.
type mlModel struct {
	Version string               `yaml:"mlflow_version"`
	Flavors map[string]yaml.Node `yaml:"flavors"`
	python  string               // version
}

// parseMLmodel reads the file MLmodel.
func parseMLmodel(r Request) (mlModel, error) {
	var m mlModel
	if len(r.MLmodel) == 0 {
		return m, trainyard.Invalid("the model %s is an %s and has no file MLmodel at its root: register the folder that MLflow logged, or give a code_configuration with a scoring_script",
			r.ModelName, mlflowModel)
	}
	if err := yaml.Unmarshal(r.MLmodel, &m); err != nil {
		return m, trainyard.Invalid("the file MLmodel of the model %s is not what MLflow writes: %v", r.ModelName, err)
	}
	node, ok := m.Flavors["python_function"]
	if !ok {
		return m, trainyard.Invalid("the MLflow model %s has no python_function flavor, without which it cannot be scored without code: log it with one, "+
			"or give a code_configuration with a scoring_script", r.ModelName)
	}
	var f struct {
		Python string `yaml:"python_version"`
	}
	if err := node.Decode(&f); err == nil {
		m.python = f.Python
	}
	return m, nil
}

// mlflow serves an MLflow model that came without a script.
func (p *Plan) mlflow(r Request) error {
	if !r.HasModel {
		return trainyard.Invalid("the deployment has no model; give it one, or a code_configuration with a scoring_script")
	}
	m, err := parseMLmodel(r)
	if err != nil {
		return err
	}
	if p.Environment, err = p.mlflowEnvironment(r, m); err != nil {
		return err
	}
	p.Code = Snapshot
	p.Env["MLFLOW_MODEL_FOLDER"] = r.ModelRoot
	p.inference(r, snapshotScript)
	return nil
}

// mlflowEnvironment is the deployment's environment, or else the model's own, with what serving adds.
func (p *Plan) mlflowEnvironment(r Request, m mlModel) (*trainyard.EnvironmentPlan, error) {
	e := r.Environment
	needs := []need{serverNeed, {line: mlflowLine(m), met: []string{"mlflow", "mlflow-skinny"}}}
	if e != nil && !blank(e.CondaFile) {
		return p.extend(e, r.Contained, needs...)
	}
	base := trainyard.EnvironmentPlan{Name: "of model " + r.ModelName + ":" + r.ModelVersion, CondaFile: anyPatch(p.modelConda(r, m))}
	if hasImage(e) {
		if r.Contained {
			base.Image, base.Context, base.Dockerfile = e.Image, e.Context, e.Dockerfile
		} else {
			p.warn("the image of environment %s is not used: the replica runs as a process, in the environment that the model names", e.Name)
		}
	}
	if _, have := packagesOf(base.CondaFile); slices.Contains(have, "mlflow-skinny") && !slices.Contains(have, "mlflow") {
		needs = append(needs, need{line: "pandas", met: []string{"pandas"}}, need{line: "numpy", met: []string{"numpy"}})
	}
	return p.extend(&base, r.Contained, needs...)
}

func packagesOf(conda string) (*yaml.Node, []string) {
	_, deps, err := openConda(conda)
	if err != nil {
		return nil, nil
	}
	return packages(deps)
}

var plainVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*(rc[0-9]+)?$`)

// mlflowLine asks for the MLflow that logged the model.
func mlflowLine(m mlModel) string {
	if plainVersion.MatchString(m.Version) {
		return "mlflow==" + m.Version
	}
	return "mlflow"
}

var patchOfPython = regexp.MustCompile(`^python *={1,2} *([0-9]+\.[0-9]+)\.[0-9]+$`)

// anyPatch asks for the minor version of Python that a conda file names, whatever its patch: MLflow writes down the very one that a model
// was logged with, and few machines and images have that.
func anyPatch(conda string) string {
	doc, deps, err := openConda(conda)
	if err != nil {
		return conda // whoever adds to it says what is wrong
	}
	i := slices.IndexFunc(deps.Content, func(n *yaml.Node) bool { return patchOfPython.MatchString(strings.TrimSpace(n.Value)) })
	if i < 0 {
		return conda
	}
	deps.Content[i] = scalar("python=" + patchOfPython.FindStringSubmatch(strings.TrimSpace(deps.Content[i].Value))[1])
	out, err := yaml.Marshal(doc)
	if err != nil {
		return conda
	}
	return string(out)
}

var requirementsFile = regexp.MustCompile(`^(?:-r|--requirement)[\s=]*(?:\./)?requirements\.txt$`)

// modelConda is the conda file that the model brings, or one made of its requirements, or of what its flavors say.
func (p *Plan) modelConda(r Request, m mlModel) string {
	lines := requirementLines(r.ModelRequirements)
	if !blank(string(r.ModelConda)) {
		return inlineRequirements(string(r.ModelConda), lines)
	}
	python := defaultPython
	if plainVersion.MatchString(m.python) {
		python = "python=" + m.python
	}
	if len(lines) == 0 {
		lines = m.flavorLines()
		p.warn("the model %s brings neither conda.yaml nor requirements.txt: its environment is guessed from its MLmodel (%s)", r.ModelName, strings.Join(lines, ", "))
	}
	return condaText(python, lines)
}

// requirementLines are the packages of a requirements file.
func requirementLines(data []byte) []string {
	var out []string
	for line := range strings.Lines(string(data)) {
		if i := strings.Index(line, " #"); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// inlineRequirements puts the lines of requirements.txt where a conda file reads that file.
func inlineRequirements(conda string, lines []string) string {
	doc, deps, err := openConda(conda)
	if err != nil {
		return conda // whoever adds to it says what is wrong
	}
	pip, _ := packages(deps)
	if pip == nil {
		return conda
	}
	i := slices.IndexFunc(pip.Content, func(n *yaml.Node) bool { return requirementsFile.MatchString(strings.TrimSpace(n.Value)) })
	if i < 0 {
		return conda
	}
	var nodes []*yaml.Node
	for _, line := range lines {
		nodes = append(nodes, scalar(line))
	}
	pip.Content = slices.Replace(pip.Content, i, i+1, nodes...)
	out, err := yaml.Marshal(doc)
	if err != nil {
		return conda
	}
	return string(out)
}

// flavorPackages are what flavors are called on the package index, where that differs.
var flavorPackages = map[string]string{"sklearn": "scikit-learn", "pytorch": "torch", "xgb": "xgboost", "lgb": "lightgbm"}

// flavorLines are the packages that a model's flavors name by their version: flavors.sklearn.sklearn_version.
func (m mlModel) flavorLines() []string {
	var out []string
	for name, node := range m.Flavors {
		var f map[string]yaml.Node
		if name == "python_function" || node.Decode(&f) != nil {
			continue
		}
		for key, value := range f {
			base, ok := strings.CutSuffix(key, "_version")
			if !ok || value.Kind != yaml.ScalarNode || !plainVersion.MatchString(value.Value) {
				continue
			}
			if other, known := flavorPackages[base]; known {
				base = other
			}
			out = append(out, fmt.Sprintf("%s==%s", base, value.Value))
		}
	}
	slices.Sort(out)
	return append([]string{mlflowLine(m)}, slices.Compact(out)...)
}
