package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/spec"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// job translates a job written in the test.
func job(t *testing.T, text string, opts spec.Options) (*spec.Job, error) {
	t.Helper()
	opts.Noun = "job"
	d, err := spec.Load(write(t, t.TempDir(), "job.yml", text), opts)
	if err != nil {
		return nil, err
	}
	return d.Job(trainyard.DefaultScope())
}

func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error lacks %q:\n%v", w, err)
		}
	}
	if trainyard.CodeOf(err) == trainyard.CodeInternal {
		t.Errorf("the error is not for a user: %v", err)
	}
}

func TestSetMakesWhatIsMissingAndReplacesWhatIsThere(t *testing.T) {
	j, err := job(t, "command: echo ${{inputs.lr}}\ninputs: {lr: 0.1}\nenvironment: azureml:e@latest\n", spec.Options{
		Set: []string{
			"resources.instance_count=3", "inputs.lr=1e-3", "tags.owner=me=you", `tags."a.b"='true'`, "inputs.on=on",
			"environment_variables={A: 1, B: two}", "resources.docker_args[0]=--ipc", "resources.docker_args[1]=host", "experiment_name=",
			"command=echo ${{inputs.lr}} {a: b}", "display_name={ not closed", "compute=azureml:cpu-cluster", "version_is_no_field_of_a_job=1",
		},
		Remove: []string{"environment", "tags.owner", "version_is_no_field_of_a_job"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := j.Spec
	if s.Resources.InstanceCount != 3 || s.Inputs["lr"].Value != "1e-3" || s.Inputs["on"].Value != "True" || s.Resources.DockerArgs != "--ipc host" {
		t.Errorf("set gave %+v, lr %+v, on %+v", s.Resources, s.Inputs["lr"], s.Inputs["on"])
	}
	if s.Command != "echo ${{inputs.lr}} {a: b}" || s.DisplayName != "{ not closed" || !strings.HasSuffix(s.ComputeID, "/computes/cpu-cluster") {
		t.Errorf("command %q, display name %q, compute %q", s.Command, s.DisplayName, s.ComputeID)
	}
	if s.EnvironmentID != "" || len(s.Tags) != 1 || s.Tags["a.b"] != "true" || s.EnvironmentVariables["A"] != "1" {
		t.Errorf("environment %q, tags %v, variables %v", s.EnvironmentID, s.Tags, s.EnvironmentVariables)
	}
}

func TestSetSaysWhatItCannotDo(t *testing.T) {
	_, err := job(t, "command: echo\nenvironment: azureml:e@latest\ntags: {a: b}\n", spec.Options{
		Set:    []string{"environment.image=x", "a..b=1", "=3", "tags", "tags[0]=x", "resources.docker_args[3]=x", "command.x=1", "resources.instance_count=two", "code=./nowhere"},
		Remove: []string{"tags.b", "tags[0]", "a..b"},
	})
	wantWords(t, err, `--set environment.image=x: environment.image: it is part of "azureml:e@latest", which is no map`, "--set a..b=1: want NAME=VALUE",
		"--set =3: want", "--set tags: want", "--set tags[0]=x: tags[0]: it is a map and not a list", "the next free place is [0]",
		`--set resources.instance_count=two: resources.instance_count: got "two", want an integer`, "--set code=./nowhere: code: there is no file or folder",
		"--remove tags.b: there is no such value", "--remove tags[0]: there is no such value", "--remove a..b: want a path")
}

func TestADocumentCanBeMadeOfSetAlone(t *testing.T) {
	d, err := spec.Load("", spec.Options{Noun: "compute", Set: []string{"name=c1", "size=Standard_DS3_v2", "max_instances=2", "type=amlcompute"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Compute(trainyard.DefaultScope())
	if err != nil || c.Name != "c1" || c.Spec.Properties.ScaleSettings.MaxNodeCount != 2 || d.Name != "c1" {
		t.Errorf("got %+v, %v", c, err)
	}
	d, err = spec.Load("", spec.Options{Noun: "compute"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Compute(trainyard.DefaultScope())
	wantWords(t, err, "the command line: name: it is missing")
}

// Who gave flags is told of flags that are missing, and who wrote a file of its fields.
func TestWhatAMachineLacksIsNamedAsItsUserKnowsIt(t *testing.T) {
	for _, tt := range []struct {
		file, set string
		want      []string
	}{
		{"", "", []string{"the command line: --address is missing", "the command line: nothing says how to log in: give --admin-username, and --admin-password or"}},
		{"", "ssh_settings.ssh_port=22", []string{"the command line: --admin-username is missing", "the command line: --admin-password or --ssh-private-key-file is missing"}},
		{"type: virtualmachine\n", "", []string{"compute.yml:1:1: address: it is missing", "ssh_settings: it is missing: give admin_username"}},
		{"type: virtualmachine\nssh_settings: {ssh_port: 22}\n", "", []string{"ssh_settings.admin_username: it is missing", "it has no admin_password and no ssh_private_key_file"}},
	} {
		path, opts := "", spec.Options{Noun: "compute", Set: []string{"type=virtualmachine", "name=pc"}}
		if tt.set != "" {
			opts.Set = append(opts.Set, tt.set)
		}
		if tt.file != "" {
			path = write(t, t.TempDir(), "compute.yml", tt.file)
		}
		d, err := spec.Load(path, opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Compute(trainyard.DefaultScope())
		wantWords(t, err, tt.want...)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"big.yml": "command: " + strings.Repeat("x", 10<<20), "wide.yml": strings.Repeat("a:\n", 30_000)} {
		_, err := spec.Load(write(t, dir, name, text), spec.Options{Noun: "job"})
		wantWords(t, err, name, "is it the right file?")
	}
	var many strings.Builder
	for i := range 12_000 {
		many.WriteString("k" + strings.Repeat("y", i%7) + string(rune('a'+i%26)) + strings.Repeat("z", i%11) + ":\n")
	}
	_, err := spec.Load(write(t, dir, "many.yml", many.String()), spec.Options{Noun: "job"})
	wantWords(t, err, "many.yml")
	_, err = spec.Load(dir, spec.Options{Noun: "job"})
	wantWords(t, err, "is a folder: name the YAML file in it")
	_, err = spec.Load(filepath.Join(dir, "none.yml"), spec.Options{Noun: "job"})
	wantWords(t, err, "there is no file")
	if trainyard.CodeOf(err) != trainyard.CodeNotFound {
		t.Errorf("the code is %s", trainyard.CodeOf(err))
	}
	_, err = job(t, "command: echo\ntags: "+strings.Repeat("[", 5000)+strings.Repeat("]", 5000), spec.Options{})
	wantWords(t, err, "job.yml:2:", "nested more than 100 deep")
}

func TestLineEndingsAndByteOrderMarksDoNotMatter(t *testing.T) {
	j, err := job(t, "\ufeffcommand: |\r\n  echo 1\r\n  echo 2\r\ntags:\r\n  a: b\r\n", spec.Options{})
	if err != nil || j.Spec.Command != "echo 1\necho 2\n" || j.Spec.Tags["a"] != "b" {
		t.Errorf("got %+v, %v", j, err)
	}
}

func TestTheNounSufficesAndTheFileMaySayTheKind(t *testing.T) {
	for text, want := range map[string]spec.Kind{
		"$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\n": spec.CommandJob,
		"$schema: http://azureml/sdk-2-0/CommandJob.json\n":                             spec.CommandJob,
		"type: command\n":                  spec.CommandJob,
		"type: AmlCompute\nname: x\n":      spec.Cluster,
		"type: uri_file\npath: x\n":        spec.Data,
		"type: azure_blob\n":               spec.Datastore,
		"$schema: x/azureFile.schema.json": spec.Datastore,
	} {
		d, err := spec.Parse("x.yml", []byte(text), t.TempDir(), spec.Options{})
		if err != nil || d.Kind != want {
			t.Errorf("%q is %v, %v, want %s", text, d, err, want)
		}
	}
	for text, words := range map[string]string{
		"name: x\n":                         "nothing says what this file is",
		"$schema: x/schedule.schema.json\n": "this build has no schedules",
		"type: sweep\n":                     "sweep jobs are not run by this build",
		"$schema: x/autoMLClassificationJob.schema.json\n": "automl jobs are not run by this build",
	} {
		_, err := spec.Parse("x.yml", []byte(text), t.TempDir(), spec.Options{})
		wantWords(t, err, words)
	}
	d, err := spec.Parse("x.yml", []byte("type: amlcompute\nname: x\n"), t.TempDir(), spec.Options{Noun: "compute"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Job(trainyard.DefaultScope())
	wantWords(t, err, "x.yml is of kind amlCompute, not commandJob")
}

func TestPathsCountFromTheFileThatHoldsThem(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	write(t, dir, "code/train.py", "")
	write(t, home, "iris.csv", "")
	file := write(t, dir, "jobs/a/job.yml", "command: echo\ncode: ../../code\ninputs:\n  i: {path: ~/iris.csv}\n  f: {path: 'file:../../code/train.py'}\n"+
		"  u: {path: 'file://"+filepath.ToSlash(filepath.Join(home, "iris.csv"))+"', type: uri_file}\n")
	d, err := spec.Load(file, spec.Options{Noun: "job"})
	if err != nil {
		t.Fatal(err)
	}
	j, err := d.Job(trainyard.DefaultScope())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "code"), filepath.Join(home, "iris.csv"), filepath.Join(dir, "code", "train.py"), filepath.Join(home, "iris.csv")}
	for i, u := range j.Uploads {
		if u.Path != want[i] || u.IsDir != (i == 0) {
			t.Errorf("%s is %s (folder: %v), want %s", u.Field, u.Path, u.IsDir, want[i])
		}
		u.Set("uri" + u.Field)
	}
	if len(j.Uploads) != 4 || j.Spec.Inputs["f"].URI != "uriinputs.f.path" || j.Spec.Inputs["f"].JobInputType != "uri_file" || j.Spec.CodeID != "uricode" {
		t.Errorf("after the uploads: %+v", j.Spec)
	}
}

func TestReferences(t *testing.T) {
	for compute, want := range map[string]string{
		"azureml:cpu-cluster": "/computes/cpu-cluster", "cpu-cluster": "/computes/cpu-cluster", "local": "/computes/local", "azureml:local": "/computes/local",
		"azureml:serverless": "", "serverless": "", "/subscriptions/s/resourcegroups/r/providers/microsoft.machinelearningservices/workspaces/w/computes/c": "/workspaces/w/computes/c",
	} {
		j, err := job(t, "command: echo\ncompute: "+compute+"\n", spec.Options{})
		if err != nil || !strings.HasSuffix(j.Spec.ComputeID, want) || (want == "") != (j.Spec.ComputeID == "") {
			t.Errorf("compute %s: %+v, %v, want …%s", compute, j, err, want)
		}
	}
	for env, want := range map[string]string{
		"azureml:my-env:3": "/environments/my-env/versions/3", "azureml:my-env@prod": "/environments/my-env/labels/prod", "azureml:my-env": "/environments/my-env/labels/latest",
		"azureml:my-env:latest": "/environments/my-env/labels/latest", "azureml:AzureML-sklearn-1.5@latest": "azureml:AzureML-sklearn-1.5@latest",
		"azureml:/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w/environments/e/versions/1": "/environments/e/versions/1",
	} {
		j, err := job(t, "command: echo\nenvironment: "+env+"\n", spec.Options{})
		if err != nil || !strings.HasSuffix(j.Spec.EnvironmentID, want) {
			t.Errorf("environment %s: %+v, %v, want …%s", env, j, err, want)
		}
	}
	_, err := job(t, "command: echo\nenvironment: azureml:AzureML-AutoML@prod\ncompute: /subscriptions/x\n", spec.Options{})
	wantWords(t, err, "cannot be had here: it holds parts of Azure's AutoML service", "want the ARM id of one of the workspace's computes")
}

func TestAnEnvironmentInAJobIsNamedForItsContent(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "docker/Dockerfile", "FROM python:3.11\n")
	text := "command: echo\nenvironment:\n  build: {path: docker}\n"
	version := func() string {
		d, err := spec.Load(write(t, dir, "job.yml", text), spec.Options{Noun: "job"})
		if err != nil {
			t.Fatal(err)
		}
		j, err := d.Job(trainyard.DefaultScope())
		if err != nil {
			t.Fatal(err)
		}
		return j.Environment.Version
	}
	first := version()
	if again := version(); again != first {
		t.Errorf("the same environment is %s and then %s", first, again)
	}
	write(t, dir, "docker/requirements.txt", "numpy\n")
	if changed := version(); changed == first {
		t.Error("a changed build context has the version of the old one")
	}
}

func TestJobsReadBackAsTheServerReadsThem(t *testing.T) {
	j, err := job(t, "command: echo ${{inputs.a}}\ninputs: {a: 1}\nparent_job_name: p\nservices: {s: {type: ssh}}\n", spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(j.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var back trainyard.JobSpec
	if err := json.Unmarshal(data, &back); err != nil || back.Inputs["a"].Value != "1" || string(back.Extra["parentJobName"]) != `"p"` {
		t.Errorf("%s is read back as %+v, %v", data, back, err)
	}
}
