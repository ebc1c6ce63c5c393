package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// pipelineFile is a pipeline whose steps write, once each time they run, to the folder MARKS; what the first does its input do says: slow,
// fail or nothing.
const pipelineFile = `
type: pipeline
name: letters
inputs:
  folder: {type: uri_folder}
  greeting: {type: string, default: hello}
  do: {type: string, default: nothing}
outputs:
  letter: {type: uri_folder}
jobs:
  left:
    type: command
    component: ./write.yml
    inputs: {data: "${{parent.inputs.folder}}", word: "${{parent.inputs.greeting}}", do: "${{parent.inputs.do}}"}
    environment_variables: {STEP: left}
  right:
    type: command
    component: ./write.yml
    inputs:
      data: {path: "${{parent.inputs.folder}}", mode: download}
      word: say ${{parent.inputs.greeting}}
    environment_variables: {STEP: right}
  after:
    type: command
    component: azureml:copy@latest
    inputs: {data: "${{parent.jobs.right.outputs.made}}"}
  join:
    command: echo x >> "$MARKS/join" && cat ${{inputs.a}}/word ${{inputs.b}}/word > ${{outputs.both}}/letter
    environment_variables: {MARKS: "@MARKS@"}
    inputs: {a: "${{parent.jobs.left.outputs.made}}", b: "${{parent.jobs.after.outputs.made}}"}
    outputs: {both: "${{parent.outputs.letter}}"}
`

const writeStep = `
type: command
code: src
inputs: {data: {type: uri_folder}, word: {type: string}, do: {type: string, optional: true}}
outputs: {made: {type: uri_folder}}
environment_variables: {MARKS: "@MARKS@", STEP: none}
command: sh write.sh ${{inputs.data}} "${{inputs.word}}" ${{outputs.made}} $[[${{inputs.do}}]]
`

const writeScript = `
echo x >> "$MARKS/$STEP"
case "$4" in
slow) while [ ! -e "$MARKS/go" ]; do sleep 0.1; done ;;
fail) exit 3 ;;
esac
(cat "$1/who"; echo "$2") > "$3/word"
`

// pipelineLab is a server with a cluster and a batch endpoint that has a pipeline of four steps as its default deployment.
func pipelineLab(t *testing.T) (l *lab, marks string) {
	t.Helper()
	marks = t.TempDir()
	with := func(text string) string { return strings.ReplaceAll(text, "@MARKS@", marks) }
	l = newLab(t)
	l.file("c/pipeline.yml", with(pipelineFile))
	l.file("c/write.yml", with(writeStep))
	l.file("c/src/write.sh", writeScript)
	l.file("in/who", "anna\n")
	l.cli("component", "create", "-o", "none", "-f", l.file("copy.yml", with("name: copy\ntype: command\ninputs: {data: {type: uri_folder}}\noutputs: {made: {type: uri_folder}}\n"+
		"environment_variables: {MARKS: \"@MARKS@\"}\ncommand: echo x >> \"$MARKS/after\" && cp ${{inputs.data}}/word ${{outputs.made}}/\n")))
	l.cli("batch-endpoint", "create", "-n", "post", "-o", "none")
	for name, more := range map[string]string{"keen": "true", "strict": "false"} {
		l.cli("batch-deployment", "create", "-o", "none", "-f", l.file(name+".yml", "name: "+name+"\nendpoint_name: post\ntype: pipeline\ncomponent: c/pipeline.yml\n"+
			"settings: {default_compute: local, continue_on_step_failure: "+more+"}\n"))
	}
	return l, marks
}

func (l *lab) post(job, deployment, do string) {
	l.t.Helper()
	l.cli("batch-endpoint", "invoke", "-n", "post", "-d", deployment, "--job-name", job, "-o", "none", "--set",
		"inputs.folder.path="+filepath.Join(filepath.Dir(l.data), "in"), "inputs.folder.type=uri_folder", "inputs.do="+do)
}

// letter is the pipeline's output.
func (l *lab) letter(job string) string {
	l.t.Helper()
	dir := filepath.Join(filepath.Dir(l.data), "letter-"+job)
	l.cli("job", "download", "-n", job, "--output-name", "letter", "--download-path", dir)
	return readFile(filepath.Join(dir, "named-outputs", "letter", "letter"))
}

const wholeLetter = "anna\nhello\nanna\nsay hello\n"

// steps are the jobs of a pipeline with their states, by name.
func (l *lab) steps(job string) string {
	l.t.Helper()
	lines := strings.Split(l.cli("job", "list", "--parent-job-name", job, "--query", "[].{n:name,s:status}", "-o", "tsv"), "\n")
	slices.Sort(lines)
	return strings.ReplaceAll(strings.Join(lines, " "), "\t", "=")
}

// ran says how often each step ran.
func ran(t *testing.T, marks string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, step := range []string{"left", "right", "after", "join"} {
		if data, err := os.ReadFile(filepath.Join(marks, step)); err == nil {
			out[step] = strings.Count(string(data), "x")
		}
	}
	return out
}

func TestPipelinesOfBatchEndpoints(t *testing.T) {
	l, marks := pipelineLab(t)

	t.Run("steps run in order and hand their outputs on", func(t *testing.T) {
		c := l.in(t)
		c.post("whole", "strict", "nothing")
		if out, err := c.try("job", "stream", "-n", "whole"); err != nil || !strings.Contains(out, "job whole of 4 steps") || !strings.Contains(out, "Completed") {
			t.Errorf("stream: %v %s", err, out)
		}
		log := c.cli("job", "logs", "-n", "whole")
		for _, step := range []string{"left ", "right", "after", "join "} {
			if strings.Count(log, step+"  Completed") != 1 {
				t.Errorf("the log does not tell of %s once:\n%s", step, log)
			}
		}
		if got := c.cli("job", "show", "-n", "whole", "--query", "steps[].[name,status]", "-o", "tsv"); got != "left\tCompleted\nright\tCompleted\nafter\tCompleted\njoin\tCompleted" {
			t.Errorf("steps %q", got)
		}
		if got := c.letter("whole"); got != wholeLetter {
			t.Errorf("letter %q", got)
		}
		if got := c.steps("whole"); got != "whole-after=Completed whole-join=Completed whole-left=Completed whole-right=Completed" {
			t.Errorf("steps %s", got)
		}
		if got := c.cli("batch-endpoint", "list-jobs", "-n", "post", "--query", "[].name", "-o", "tsv"); got != "whole" {
			t.Errorf("jobs of the endpoint: %q", got)
		}
		if got := c.cli("job", "list", "--query", "[].name", "-o", "tsv"); got != "whole" {
			t.Errorf("the list of all jobs has %q", got)
		}
		if got := c.cli("job", "show", "-n", "whole-join", "--query", "properties.\"azureml.pipelinerunid\"", "-o", "tsv"); got != "whole" {
			t.Errorf("the parent of a step is %q", got)
		}
	})

	t.Run("a step that fails fails the pipeline, and what waits for it is not run", func(t *testing.T) {
		c := l.in(t)
		c.post("broken", "strict", "fail")
		v := c.until("broken", trainyard.JobFailed)
		if v.Failure == nil || !strings.Contains(v.Failure.Message, "step left failed (job broken-left): ") || !strings.Contains(v.Failure.Message, "not run: ") {
			t.Errorf("failure %+v", v.Failure)
		}
		out, err := c.try("job", "stream", "-n", "broken")
		for _, want := range []string{"left   Failed      ", "; see: trainyard job logs --name broken-left\n", "join   NotRun      it takes outputs of left, and there are none\n", "✗ Failed", "step left failed (job broken-left): "} {
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("the stream does not say %q: %v\n%s", want, err, out)
			}
		}
		if right := strings.Index(out, "right  Canceled"); right > 0 && !strings.HasPrefix(out[right:], "right  Canceled    canceled by pipeline broken as another step failed") {
			t.Errorf("who canceled the other step: %s", out[right:])
		}
		if got := c.steps("broken"); !strings.Contains(got, "broken-left=Failed") || strings.Contains(got, "join") {
			t.Errorf("steps %s", got)
		}
	})

	t.Run("with continue_on_step_failure the others go on", func(t *testing.T) {
		c := l.in(t)
		c.post("keen", "keen", "fail")
		c.until("keen", trainyard.JobFailed)
		if got := c.steps("keen"); got != "keen-after=Completed keen-left=Failed keen-right=Completed" {
			t.Errorf("steps %s", got)
		}
	})

	t.Run("a pipeline that is canceled takes its steps along", func(t *testing.T) {
		c := l.in(t)
		c.post("stopped", "strict", "slow")
		c.wait("a step runs and the reason says so", func() bool {
			v, err := c.show("stopped")
			return err == nil && strings.Contains(v.Reason.Message, "2 of 4 steps completed; running: left; waiting: join (for left)")
		})
		if out, err := c.try("job", "delete", "-n", "stopped-after", "--yes"); err == nil || !strings.Contains(out, "is a step of pipeline") {
			t.Errorf("a step of a live pipeline was deleted: %s", out)
		}
		c.cli("job", "cancel", "-n", "stopped")
		c.until("stopped", trainyard.JobCanceled)
		if got := c.steps("stopped"); got != "stopped-after=Completed stopped-left=Canceled stopped-right=Completed" {
			t.Errorf("steps %s", got)
		}
		c.cli("job", "delete", "-n", "stopped", "--yes")
		if out, err := c.try("job", "show", "-n", "stopped-right"); err == nil {
			t.Errorf("a step outlived its pipeline: %s", out)
		}
	})

	t.Run("a pipeline job is run by the same steps, and deployed", func(t *testing.T) {
		c := l.in(t)
		body := strings.ReplaceAll(strings.ReplaceAll(pipelineFile, "@MARKS@", marks), "name: letters\n", "compute: azureml:local\n")
		body = strings.Replace(body, "folder: {type: uri_folder}", "folder: {type: uri_folder, path: ../in}", 1)
		body = strings.Replace(strings.Replace(body, "{type: string, default: hello}", "hello", 1), "{type: string, default: nothing}", "nothing", 1)
		c.cli("job", "create", "-n", "direct", "-o", "none", "-f", c.file("c/job.yml", body))
		c.until("direct", trainyard.JobCompleted)
		if got := c.letter("direct"); got != wholeLetter {
			t.Errorf("letter %q", got)
		}
		if got := c.cli("component", "list", "--query", "[].name", "-o", "tsv"); strings.Contains(got, "anonymous") {
			t.Errorf("steps are listed as components: %s", got)
		}
		other := c.file("c/other.yml", strings.Replace(body, "cat ${{inputs.a}}/word ", "cat ", 1))
		if out, err := c.try("job", "create", "-n", "direct", "-f", other); err == nil || !strings.Contains(out, `job \"direct\" exists already with other steps`) && !strings.Contains(out, `job "direct" exists already with other steps`) {
			t.Errorf("another pipeline by the same name: %v %s", err, out)
		}
		c.cli("job", "create", "-n", "bare", "-o", "none", "-f", c.file("c/bare.yml", "type: pipeline\ncompute: azureml:local\njobs:\n"+
			"  one: {command: \"true\", outputs: {nothing: {type: uri_folder}}}\n"+
			"  two: {command: \"test -d ${{inputs.of}}\", inputs: {of: \"${{parent.jobs.one.outputs.nothing}}\"}}\n"))
		// an empty folder is handed on, too
		c.until("bare", trainyard.JobCompleted)
		c.cli("job", "create", "-n", "direct", "-o", "none", "-f", filepath.Join(filepath.Dir(other), "job.yml")) // the same one again
		c.cli("batch-deployment", "create", "-o", "none", "-f", c.file("again.yml", "name: again\nendpoint_name: post\ntype: pipeline\njob_definition: azureml:direct\nsettings: {default_compute: local}\n"))
		c.cli("batch-endpoint", "invoke", "-n", "post", "-d", "again", "--job-name", "again", "-o", "none")
		c.until("again", trainyard.JobCompleted)
		if got := c.letter("again"); got != wholeLetter {
			t.Errorf("letter %q", got)
		}
	})

	t.Run("what is wrong is said when it is made", func(t *testing.T) {
		c := l.in(t)
		for from, to := range map[string]string{
			"parent.jobs.right.outputs.made":   "c/bad.yml:26:20: jobs.after.inputs.data: there is no step wrong; there are: after, join, left, right",
			"do: \"${{parent.inputs.do}}\"}":   "c/bad.yml:14:91: jobs.left.inputs.dot: step left has no input dot; it has: data, do, word",
			"type: command\n    component: ./": "c/bad.yml:12:11: jobs.left.type: steps of type \"sweep\" are not run by this build",
		} {
			with := map[string]string{"parent.jobs.right.outputs.made": "parent.jobs.wrong.outputs.made", "do: \"${{parent.inputs.do}}\"}": "dot: \"${{parent.inputs.do}}\"}",
				"type: command\n    component: ./": "type: sweep\n    component: ./"}[from]
			c.file("c/bad.yml", strings.Replace(pipelineFile, from, with, 1))
			out, err := c.try("batch-deployment", "create", "-f", c.file("bad.yml", "name: bad\nendpoint_name: post\ntype: pipeline\ncomponent: c/bad.yml\n"))
			if err == nil || !strings.Contains(out, to) {
				t.Errorf("%s: want %q in %s", with, to, out)
			}
		}
		c.file("c/bad.yml", strings.Replace(pipelineFile, "{data: \"${{parent.jobs.right.outputs.made}}\"}", "{dat: 1}", 1)) // of a component that only the server knows
		out, err := c.try("batch-deployment", "create", "-f", c.file("bad.yml", "name: bad\nendpoint_name: post\ntype: pipeline\ncomponent: c/bad.yml\n"))
		if err == nil || !strings.Contains(out, "step after has no input dat; it has: data") || !strings.Contains(out, "the input data of step after (uri_folder) is given no value") {
			t.Errorf("got %s", out)
		}
		if out, err := c.try("batch-endpoint", "invoke", "-n", "post", "-d", "strict", "--set", "inputs.folder=text"); err == nil || !strings.Contains(out, "the input folder got a value, want data of type uri_folder") {
			t.Errorf("got %s", out)
		}
		if got := c.cli("job", "list", "--query", fmt.Sprintf("[?status=='%s'].name", trainyard.JobQueued), "-o", "tsv"); got != "" {
			t.Errorf("something half made is there: %s", got)
		}
	})
}

func TestAPipelineGoesOnWhenItsServerIsKilled(t *testing.T) {
	l, marks := pipelineLab(t)
	l.post("tough", "strict", "slow")
	l.wait("a step runs", func() bool { return ran(t, marks)["left"] == 1 })
	l.kill()
	l.start()
	l.wait("steps go on beside it", func() bool { return ran(t, marks)["after"] == 1 })
	l.kill()
	if err := os.WriteFile(filepath.Join(marks, "go"), nil, 0o600); err != nil { // the step ends while no server is there
		t.Fatal(err)
	}
	l.start()
	l.until("tough", trainyard.JobCompleted)
	if got := l.letter("tough"); got != wholeLetter {
		t.Errorf("letter %q", got)
	}
	log := l.cli("job", "logs", "-n", "tough")
	for _, step := range []string{"left ", "right", "after", "join "} {
		if strings.Count(log, step+"  Completed") != 1 {
			t.Errorf("the log does not tell of %s once:\n%s", step, log)
		}
	}
	for step, n := range ran(t, marks) {
		if n != 1 {
			t.Errorf("step %s ran %d times", step, n)
		}
	}
}
