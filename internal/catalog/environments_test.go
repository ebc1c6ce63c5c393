package catalog_test

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
)

func TestResolveFindsCuratedEnvironmentsInEverySpelling(t *testing.T) {
	for ref, want := range map[string]string{
		"azureml://registries/azureml/environments/sklearn-1.5/labels/latest":            "sklearn-1.5",
		"azureml://registries/azureml/environments/sklearn-1.5/versions/32":              "sklearn-1.5",
		"azureml://registries/azureml/environments/sklearn-1.5":                          "sklearn-1.5",
		"azureml:AzureML-sklearn-1.5@latest":                                             "sklearn-1.5",
		"AzureML-sklearn-1.5@latest":                                                     "sklearn-1.5",
		"azureml:azureml-SKLEARN-1.5:3":                                                  "sklearn-1.5",
		"azureml:AzureML-lightgbm-3.3@latest":                                            "lightgbm-3.3",
		"azureml:AzureML-tensorflow-2.16-cuda12@latest":                                  "tensorflow-2.16-cuda12",
		"azureml://registries/azureml/environments/acpt-pytorch-2.8-cuda12.6/versions/1": "acpt-pytorch-2.8-cuda12.6",
		"azureml://registries/azureml/environments/model-evaluation/versions/6":          "model-evaluation",
		"azureml://registries/azureml/environments/responsibleai-tabular/versions/28":    "responsibleai-tabular",
	} {
		c, err := catalog.Resolve(ref)
		if err != nil || c.Name != want {
			t.Errorf("Resolve(%q) = %q, %v, want %q", ref, c.Name, err, want)
		}
		if !catalog.IsCurated(ref) {
			t.Errorf("%q is not taken for a curated environment", ref)
		}
	}
	for _, ref := range []string{"azureml:my-env:1", "azureml:sklearn-1.5@latest", "", "azureml:azureml-examples/x"} {
		if catalog.IsCurated(ref) {
			t.Errorf("%q is taken for a curated environment", ref)
		}
	}
}

func TestResolveSaysWhatIsThereInstead(t *testing.T) {
	for ref, want := range map[string]string{
		"azureml:AzureML-sklearn-1.0@latest":                                  "did you mean sklearn-1.5?",
		"azureml:AzureML-lightgmb-3.3@latest":                                 "did you mean lightgbm-3.3?",
		"azureml:AzureML-sklearn-1.5@newest":                                  "has no label \"newest\": write @latest",
		"azureml:AzureML-AutoML@prod":                                         "cannot be had here: it holds parts of Azure's AutoML service",
		"azureml:AzureML-R-4.2@latest":                                        "and it is R",
		"azureml://registries/other/environments/sklearn-1.5/labels/latest":   "of the registry \"other\"",
		"azureml://registries/azureml/environments/zzzzzzzzzzz/labels/latest": "there are sklearn-1.5, lightgbm-3.3,",
		"sklearn": "is no reference",
	} {
		_, err := catalog.Resolve(ref)
		if err == nil || !strings.Contains(err.Error(), want) || trainyard.CodeOf(err) == trainyard.CodeInternal {
			t.Errorf("Resolve(%q) says %v, want %q in it", ref, err, want)
		}
	}
}

// The pins were found to resolve on PyPI for Python 3.11; this holds what must stay true when somebody edits them.
func TestCondaFilesKeepTheirPromises(t *testing.T) {
	all := catalog.Environments()
	if len(all) < 8 {
		t.Fatalf("there are %d environments", len(all))
	}
	for _, c := range all {
		texts := []string{c.CondaFile}
		if c.CondaFileCPU != "" {
			texts = append(texts, c.CondaFileCPU)
		}
		for _, text := range texts {
			checkConda(t, c.Name, text)
		}
		if c.Description == "" || c.Image == "" || c.Version == "" {
			t.Errorf("%s is not whole: %+v", c.Name, c)
		}
	}
	c, _ := catalog.Environment("sklearn-1.5", "latest")
	for _, pin := range []string{"- scikit-learn~=1.5", "- mlflow>=2.17,<3", "- azureml-inference-server-http"} {
		if !strings.Contains(c.CondaFile, pin) {
			t.Errorf("sklearn-1.5 lacks %q", pin)
		}
	}
	tf, _ := catalog.Environment("AzureML-tensorflow-2.16-cuda12", "latest")
	if !strings.Contains(tf.Conda(false), "tensorflow-cpu") || strings.Contains(tf.Conda(true), "tensorflow-cpu") {
		t.Error("TensorFlow's GPU parts are not chosen by the node")
	}
}

func checkConda(t *testing.T, name, text string) {
	t.Helper()
	if !strings.Contains(text, "\nname: "+name+"\n") || !strings.Contains(text, "\n  - pip:\n") || strings.Contains(text, "\t") {
		t.Errorf("%s: the conda file is not as expected:\n%s", name, text)
	}
	if strings.Contains(text, "azureml-core") {
		t.Errorf("%s holds azureml-core, which needs an Azure workspace", name)
	}
	if strings.Contains(text, "- pandas") && !(strings.Contains(text, "- pandas~=1.5.3\n") && strings.Contains(text, ",<2\n")) {
		t.Errorf("%s does not hold pandas below 2 and numpy below 2:\n%s", name, text)
	}
}
