package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/trainyard/trainyard"
)

// batchDriver is a scoring script that does what its files say. MARKS is a folder that all tries share.
const batchDriver = `
import json, os, signal, time

def init():
    global factor
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "factor.json")) as f:
        factor = json.load(f)["factor"]

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name, (word, value) = os.path.basename(path), open(path).read().split()
        mark = os.path.join(os.environ["MARKS"], name)
        if word == "slow":
            open(mark, "a").write("x")
            time.sleep(0.25)
        if word == "fail":
            raise ValueError("no good: " + name)
        if word == "once" and not os.path.exists(mark):
            open(mark, "w").close()
            raise ValueError("not yet: " + name)
        if word == "hang":
            time.sleep(300)
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word != "skip":
            rows.append("%s,%d,%s" % (name, int(value) * factor, os.environ.get("RANK", "0")))
    return rows
`

// batchLab is a server with a cluster of two nodes, an endpoint, and a deployment of a model that triples.
func batchLab(t *testing.T) (l *lab, marks string) {
	t.Helper()
	marks = t.TempDir()
	l = newLab(t)
	l.cluster("cpu-cluster", "Standard_F2s_v2", 2, 120)
	l.file("code/batch_driver.py", batchDriver)
	l.file("model/factor.json", `{"factor": 3}`)
	l.cli("batch-endpoint", "create", "-n", "scoring", "-o", "none")
	l.cli("batch-deployment", "create", "--set-default", "-o", "none", "-f", l.file("deployment.yml", `
$schema: https://azuremlschemas.azureedge.net/latest/modelBatchDeployment.schema.json
name: triple
endpoint_name: scoring
type: model
model: {path: model}
code_configuration: {code: code, scoring_script: batch_driver.py}
environment_variables: {MARKS: "`+marks+`"}
compute: azureml:cpu-cluster
resources: {instance_count: 2}
settings:
  max_concurrency_per_instance: 2
  mini_batch_size: 4
  retry_settings: {max_retries: 1, timeout: 2}
`))
	return l, marks
}

// batchFiles writes files for the driver: a line for each that says what to do and which number it is.
func (l *lab) batchFiles(folder string, words ...string) string {
	l.t.Helper()
	for i, w := range words {
		l.file(fmt.Sprintf("%s/f%03d.txt", folder, i), fmt.Sprintf("%s %d", w, i))
	}
	return filepath.Join(filepath.Dir(l.data), folder)
}

func repeated(word string, n int) []string { return slices.Repeat([]string{word}, n) }

// scores are the rows of a job, without who made them, and the ranks that did.
func (l *lab) scores(job string) (rows []string, ranks map[string]int) {
	l.t.Helper()
	dir := filepath.Join(filepath.Dir(l.data), "scores-"+job)
	l.cli("job", "download", "-n", job, "--output-name", "score", "--download-path", dir)
	ranks = map[string]int{}
	for line := range strings.Lines(readFile(filepath.Join(dir, "named-outputs", "score", "predictions.csv"))) {
		p := strings.Split(strings.TrimSpace(line), ",")
		if len(p) != 3 {
			l.t.Fatalf("row %q", line)
		}
		rows = append(rows, p[0]+","+p[1])
		ranks[p[2]]++
	}
	return rows, ranks
}

// tripled are the rows that the files numbered so must give, in the order of the input.
func tripled(numbers ...int) (rows []string) {
	for _, n := range numbers {
		rows = append(rows, fmt.Sprintf("f%03d.txt,%d", n, 3*n))
	}
	return rows
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func (l *lab) batchLog(job string) string {
	l.t.Helper()
	out, err := l.try("job", "logs", "-n", job)
	if err != nil {
		l.t.Fatal(out)
	}
	return out
}

func TestBatchEndpoints(t *testing.T) {
	l, _ := batchLab(t)
	invoke := func(t *testing.T, job, input string, args ...string) *lab {
		c := l.in(t)
		c.cli(append([]string{"batch-endpoint", "invoke", "-n", "scoring", "--job-name", job, "--input", input, "-o", "none"}, args...)...)
		return c
	}

	t.Run("a hundred files on two nodes with two workers each, every row once and in order", func(t *testing.T) {
		c := invoke(t, "hundred", l.batchFiles("hundred", append(repeated("good", 60), repeated("slow", 40)...)...), "--mini-batch-size", "2")
		c.until("hundred", trainyard.JobCompleted)
		rows, ranks := c.scores("hundred")
		if want := tripled(upTo(100)...); !slices.Equal(rows, want) {
			t.Errorf("rows %v, want %v", rows, want)
		}
		if ranks["0"] == 0 || ranks["1"] == 0 {
			t.Errorf("only some nodes worked: %v", ranks)
		}
		if log := c.batchLog("hundred"); !strings.Contains(log, "100 files in 50 mini-batches, for 2 workers on each of 2 nodes") || !strings.Contains(log, "50 of 50 mini-batches done, 0 files failed") {
			t.Errorf("log: %s", log)
		}
	})

	t.Run("a try that fails, hangs or dies costs its mini-batch a try, and the job goes on", func(t *testing.T) {
		input := l.batchFiles("trouble", append(repeated("good", 6), "once", "hang", "die", "skip", "fail")...)
		c := invoke(t, "trouble", input, "--mini-batch-size", "1")
		c.until("trouble", trainyard.JobCompleted)
		if rows, _ := c.scores("trouble"); !slices.Equal(rows, tripled(0, 1, 2, 3, 4, 5, 6)) {
			t.Errorf("rows %v", rows)
		}
		log := c.batchLog("trouble")
		for _, want := range []string{"(f006.txt) failed, try 1 of 2, it is tried again", "(f007.txt) failed, try 2 of 2: it took longer than retry_settings.timeout, 2 s",
			"(f008.txt) failed, try 2 of 2: its worker process died of SIGKILL", "11 files, 4 failed"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q: %s", want, log)
			}
		}
		errors := c.artifact("trouble", "batch_errors.txt")
		if !strings.Contains(errors, "run() returned 0 results for 1 files") || !strings.Contains(errors, "ValueError: no good: f010.txt") {
			t.Errorf("batch_errors.txt: %s", errors)
		}
	})

	t.Run("as many files may fail as error_threshold says", func(t *testing.T) {
		input := l.batchFiles("threshold", append(repeated("good", 8), "fail", "fail")...)
		for most, end := range map[string]trainyard.JobState{"2": trainyard.JobCompleted, "1": trainyard.JobFailed, "0": trainyard.JobFailed} {
			job := "threshold-" + most
			c := invoke(t, job, input, "--mini-batch-size", "1", "--set", "error_threshold="+most)
			c.until(job, end)
			if log := c.batchLog(job); strings.Contains(log, "error_threshold lets "+most+" fail") != (end == trainyard.JobFailed) {
				t.Errorf("%s: %s", job, log)
			}
		}
	})

	t.Run("inputs of every type in one job", func(t *testing.T) {
		c := l.in(t)
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "good 40") }))
		defer web.Close()
		c.cli("data", "create", "-n", "rows", "-v", "1", "--type", "uri_folder", "--path", c.batchFiles("asset", "good", "good"), "-o", "none")
		path := c.cli("data", "show", "-n", "rows", "-v", "1", "--query", "path", "-o", "tsv")
		table := c.batchFiles("table", "good", "good", "good")
		c.file("table/MLTable", "type: mltable\npaths:\n  - file: ./f002.txt\n")
		c.cli("batch-endpoint", "invoke", "-n", "scoring", "--job-name", "every", "-o", "none", "--set", "inputs.a_asset.path=azureml:rows:1", "inputs.a_asset.type=uri_folder",
			"inputs.b_store.path="+strings.TrimSuffix(path, "/")+"/f001.txt", "inputs.b_store.type=uri_file", "inputs.c_web.path="+web.URL+"/f040.txt", "inputs.c_web.type=uri_file",
			"inputs.d_table.path="+table, "inputs.d_table.type=mltable", "inputs.e_file.path="+filepath.Join(table, "f000.txt"), "inputs.word=hello")
		c.until("every", trainyard.JobCompleted)
		if rows, _ := c.scores("every"); !slices.Equal(rows, tripled(0, 1, 1, 40, 2, 0)) {
			t.Errorf("rows %v", rows)
		}
	})

	t.Run("canceled in the middle, nothing is left running", func(t *testing.T) {
		c := invoke(t, "stopped", l.batchFiles("stopped", repeated("slow", 400)...), "--mini-batch-size", "1")
		c.wait("it scores", func() bool { return strings.Contains(c.batchLogIfAny("stopped"), "mini-batches done") })
		c.cli("job", "cancel", "-n", "stopped")
		c.until("stopped", trainyard.JobCanceled)
		c.wait("no worker is left", func() bool { return len(c.processes("runner.py --worker")) == 0 })
	})

	t.Run("custom outputs", func(t *testing.T) {
		c := l.in(t)
		c.file("writer/write.py", "import os\ndef init():\n    pass\ndef run(files):\n    for f in files:\n        open(os.path.join(os.environ['AZUREML_BI_OUTPUT_PATH'], 'scored-' + os.path.basename(f)), 'w').write(open(f).read())\n    return files\n")
		c.cli("batch-deployment", "create", "-o", "none", "-f", c.file("writer.yml", "name: writer\nendpoint_name: scoring\ncode_configuration: {code: writer, scoring_script: write.py}\n"+
			"compute: azureml:cpu-cluster\nresources: {instance_count: 2}\nmini_batch_size: 1\noutput_action: summary_only\nmax_concurrency_per_instance: 1\n"))
		invoke(t, "custom", c.batchFiles("custom", repeated("good", 12)...), "--deployment-name", "writer")
		c.until("custom", trainyard.JobCompleted)
		dir := filepath.Join(filepath.Dir(c.data), "custom-out")
		c.cli("job", "download", "-n", "custom", "--output-name", "score", "--download-path", dir)
		found, err := filepath.Glob(filepath.Join(dir, "named-outputs", "score", "*"))
		if err != nil || len(found) != 12 || readFile(filepath.Join(dir, "named-outputs", "score", "scored-f011.txt")) != "good 11" {
			t.Errorf("found %v, %v", found, err)
		}
	})

	t.Run("jobs are listed under the endpoint and the deployment", func(t *testing.T) {
		c := l.in(t)
		if got := c.cli("batch-endpoint", "list-jobs", "-n", "scoring", "--query", "[].name", "-o", "tsv"); !strings.HasPrefix(got, "custom\nstopped\n") || !strings.HasSuffix(got, "hundred") {
			t.Errorf("jobs of the endpoint: %q", got)
		}
		if got := c.cli("batch-deployment", "list-jobs", "-e", "scoring", "-n", "writer", "--query", "[].{n:name,s:status}", "-o", "tsv"); got != "custom\tCompleted" {
			t.Errorf("jobs of the deployment: %q", got)
		}
		if got := c.cli("job", "show", "-n", "custom", "--query", "[type,tags.\"azureml.batchrun\"]", "-o", "tsv"); got != "pipeline\ttrue" && got != "pipeline\ntrue" {
			t.Errorf("the job is %q", got)
		}
	})
}

// artifact is a file that a job left in ./logs.
func (l *lab) artifact(job, name string) string {
	l.t.Helper()
	dir := filepath.Join(filepath.Dir(l.data), "artifacts-"+job)
	l.cli("job", "download", "-n", job, "--download-path", dir)
	return readFile(filepath.Join(dir, "artifacts", "logs", name))
}

func (l *lab) batchLogIfAny(job string) string {
	out, _ := l.try("job", "logs", "-n", job)
	return out
}

func TestABatchJobThatLosesANodeScoresEveryFileOnceInItsNextAttempt(t *testing.T) {
	l, marks := batchLab(t)
	input := l.batchFiles("lost", repeated("slow", 60)...)
	l.cli("batch-endpoint", "invoke", "-n", "scoring", "--job-name", "lost", "--input", input, "--mini-batch-size", "1", "-o", "none")
	l.wait("a third is scored", func() bool {
		done, err := os.ReadDir(marks)
		return err == nil && len(done) >= 20
	})
	nodes := strings.Fields(l.cli("compute", "list-nodes", "-n", "cpu-cluster", "--query", "[].node_id", "-o", "tsv"))
	if len(nodes) != 2 {
		t.Fatalf("nodes %v", nodes)
	}
	l.kill() // or its fleet would have an agent back before the machine is gone
	for range 3 {
		for _, pid := range l.processes(nodes[1]) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	machines, err := filepath.Glob(filepath.Join(l.data, "machines", "*", nodes[1]))
	if err != nil || len(machines) != 1 {
		t.Fatalf("machines %v, %v", machines, err)
	}
	if err := os.RemoveAll(machines[0]); err != nil {
		t.Fatal(err)
	}
	l.start()
	v := l.until("lost", trainyard.JobCompleted)
	if len(v.Attempts) != 2 {
		t.Errorf("%d attempts, want 2", len(v.Attempts))
	}
	if rows, _ := l.scores("lost"); !slices.Equal(rows, tripled(upTo(60)...)) {
		t.Errorf("rows %v", rows)
	}
}
