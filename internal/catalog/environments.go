package catalog

import (
	"embed"
	"regexp"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

//go:embed environments/*.yml
var condaFiles embed.FS

// Curated is an environment that is there without anybody registering it.
type Curated struct {
	Name         string   // "sklearn-1.5"
	Aliases      []string // other names of it, without the prefix "AzureML-"
	Version      string   // the only one there is; every version or label asked for is answered with it
	Description  string
	Image        string // what Azure runs it in; for reference
	CondaFile    string // YAML text; everything in it comes from PyPI
	CondaFileCPU string // what to use instead where there is no GPU; empty: the same
	Notes        []string
}

// Conda is the conda file to build for a node with or without a GPU.
func (c Curated) Conda(gpu bool) string {
	if !gpu && c.CondaFileCPU != "" {
		return c.CondaFileCPU
	}
	return c.CondaFile
}

const imagePrefix = "mcr.microsoft.com/azureml/curated/"

// curated is read only; its conda files are read when one is asked for.
var curated = []Curated{
	{Name: "sklearn-1.5", Description: "scikit-learn 1.5 with pandas 1.5, NumPy, SciPy, matplotlib, MLflow 2 and the scoring server"},
	{Name: "lightgbm-3.3", Description: "LightGBM 4 and XGBoost 1.7 on top of sklearn-1.5"},
	{Name: "xgboost-sklearn-py38", Aliases: []string{"xgboost-sklearn"}, Description: "XGBoost 1.7 on top of sklearn-1.5"},
	{Name: "tensorflow-2.16-cuda12", Aliases: []string{"tensorflow-2.16-cuda11"}, Description: "TensorFlow 2.16; without its GPU parts where there is no GPU"},
	{Name: "acpt-pytorch-2.8-cuda12.6", Aliases: []string{"pytorch-2.8"}, Description: "PyTorch 2.8 and torchvision on top of sklearn-1.5",
		Notes: []string{"on Linux the torch of PyPI brings its CUDA libraries, about 7 GB on disk, also where there is no GPU"}},
	{Name: "model-evaluation", Description: "metrics for models and texts: evaluate, rouge-score and nltk on top of sklearn-1.5"},
	{Name: "responsibleai-tabular", Description: "the Responsible AI toolbox for tables"},
	{Name: "minimal", Aliases: []string{"minimal-py311-inference", "minimal-py312-inference", "minimal-ubuntu22.04-py39-cpu-inference",
		"minimal-ubuntu20.04-py38-cpu-inference"}, Description: "Python and the scoring server, nothing else"},
}

// absent lists curated environments of Azure that cannot be had here, by the start of their names, and why.
var absent = []struct{ prefix, why string }{
	{"automl", "it holds parts of Azure's AutoML service"},
	{"ai-ml-automl", "it holds parts of Azure's AutoML service"},
	{"designer", "it holds parts of Azure's designer"},
	{"r-", "environments here are made of Python packages, and it is R; use an image that has R"},
	{"triton", "it is the Triton server's container image"},
	{"acft-", "it is a container image for fine-tuning foundation models"},
	{"foundation-model", "it is a container image for serving foundation models"},
	{"vllm", "it is a container image for serving foundation models"},
	{"rai-llm", "it holds parts of an Azure service"},
}

// Environments lists what there is. The caller owns the list.
func Environments() []Curated {
	var all []Curated
	for _, c := range curated {
		all = append(all, filled(c))
	}
	return all
}

// Environment finds a curated environment by name, with or without "AzureML-", in any case, and a version or label. There is one version
// of each: every number, "latest" and "" mean it, and another label is not found.
func Environment(name, versionOrLabel string) (Curated, bool) {
	if !knownVersion(versionOrLabel) {
		return Curated{}, false
	}
	want := shortName(name)
	for _, c := range curated {
		same := func(n string) bool { return strings.EqualFold(n, want) }
		if same(c.Name) || slices.ContainsFunc(c.Aliases, same) {
			return filled(c), true
		}
	}
	return Curated{}, false
}

var (
	registryRef  = regexp.MustCompile(`(?i)^azureml://registries/([^/]+)/environments/([^/]+)(?:/(?:labels|versions)/([^/]+))?/?$`)
	curatedRef   = regexp.MustCompile(`(?i)^(?:azureml:)?(AzureML-[^:@/]+)(?:[:@]([^:@/]+))?$`)
	versionWords = regexp.MustCompile(`(?i)^(latest|[0-9]+(\.[0-9]+)*)?$`)
)

// IsCurated says whether ref is written as curated environments are: azureml://registries/…/environments/… or azureml:AzureML-….
func IsCurated(ref string) bool {
	return registryRef.MatchString(ref) || curatedRef.MatchString(ref)
}

// Resolve finds the curated environment that ref names. Its error says what is there instead.
func Resolve(ref string) (Curated, error) {
	name, version := "", ""
	if m := registryRef.FindStringSubmatch(ref); m != nil {
		if !strings.EqualFold(m[1], "azureml") {
			return Curated{}, trainyard.NotFound("%q is of the registry %q, and only the registry azureml is here", ref, m[1])
		}
		name, version = m[2], m[3]
	} else if m := curatedRef.FindStringSubmatch(ref); m != nil {
		name, version = m[1], m[2]
	} else {
		return Curated{}, trainyard.Invalid("%q is no reference to a curated environment: want azureml://registries/azureml/environments/NAME/labels/latest or azureml:AzureML-NAME@latest", ref)
	}
	if c, ok := Environment(name, version); ok {
		return c, nil
	}
	if c, ok := Environment(name, ""); ok {
		return Curated{}, trainyard.NotFound("the curated environment %s has no label %q: write @latest", c.Name, version)
	}
	return Curated{}, notHere(name)
}

func notHere(name string) error {
	short := shortName(name)
	for _, a := range absent {
		if strings.HasPrefix(strings.ToLower(short), a.prefix) {
			return trainyard.Errorf(trainyard.CodeUnsupported, "the curated environment %s cannot be had here: %s", name, a.why)
		}
	}
	var names []string
	for _, c := range curated {
		names = append(names, c.Name)
	}
	if near := Nearest(short, names); len(near) > 0 {
		return trainyard.NotFound("there is no curated environment %s here; did you mean %s?", name, strings.Join(near, " or "))
	}
	return trainyard.NotFound("there is no curated environment %s here; there are %s", name, strings.Join(names, ", "))
}

func knownVersion(v string) bool { return versionWords.MatchString(v) }

func shortName(name string) string {
	if len(name) >= 8 && strings.EqualFold(name[:8], "AzureML-") {
		return name[8:]
	}
	return name
}

func filled(c Curated) Curated {
	c.Version, c.Image = "1", imagePrefix+c.Name+":latest"
	c.Aliases, c.Notes = slices.Clone(c.Aliases), slices.Clone(c.Notes)
	c.CondaFile = condaFile(c.Name)
	c.CondaFileCPU = condaFile(c.Name + ".cpu")
	return c
}

// condaFile is the text of an embedded file, or "" where there is none.
func condaFile(name string) string {
	data, err := condaFiles.ReadFile("environments/" + name + ".yml")
	if err != nil {
		return ""
	}
	return string(data)
}
