package studio

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

func TestPagesInABrowser(t *testing.T) {
	s := startServer(t)
	b := openTab(t, s)
	t.Run("without a session there is a form", func(t *testing.T) {
		b.open("/jobs")
		b.reads("main", "trainyard studio")
	})
	t.Run("a job is followed to its end", func(t *testing.T) { followJob(t, b) })
	t.Run("a log that is read stays where it is", func(t *testing.T) { readLog(t, b) })
	t.Run("a job is canceled by its button", func(t *testing.T) { cancelJob(t, b) })
	t.Run("the list shows new jobs by itself", func(t *testing.T) { watchList(t, b) })
	t.Run("a pipeline's steps are followed", func(t *testing.T) { followSteps(t, b) })
	t.Run("a page goes on after the server was away", func(t *testing.T) { restart(t, b) })
	t.Run("pages fit a phone", func(t *testing.T) { fit(t, b) })
	t.Run("computes are live", func(t *testing.T) { watchCompute(t, b) })
	t.Run("pages can be read without scripts", func(t *testing.T) { noScript(t, b) })
	t.Run("log out", func(t *testing.T) {
		b.open("/jobs")
		b.do(chromedp.Click(`.who button`, chromedp.NodeVisible))
		b.reads("main", "Log in")
		b.open("/computes")
		b.reads("main", "Log in")
	})
	for _, c := range b.complaints() {
		if !strings.Contains(c, "401") { // the pages that asked for a session
			t.Errorf("the browser complains: %s", c)
		}
	}
}

func followJob(t *testing.T, b *tab) {
	b.s.submit("grows", `for i in $(seq 1 12); do printf '\033[32mstep %d\033[0m\n' $i; printf '  half %d\r' $i; sleep 0.4; done; mkdir -p outputs; echo m > outputs/model.txt; echo bye`)
	b.do(chromedp.Navigate(b.s.ticket("/jobs/grows")))
	b.mark()
	b.reads("#log-text", "step 1")
	seen := map[int]bool{}
	b.until("the job is Completed", func() bool {
		seen[strings.Count(b.text("#log-text"), "step")] = true
		return strings.Contains(b.text("#job-head .state"), "Completed")
	})
	if len(seen) < 4 {
		t.Errorf("the log did not grow while one looked: it had %v lines", seen)
	}
	b.reads("#log-text", "bye")
	log := b.text("#log-text")
	if strings.Count(log, "step") != 12 || strings.Contains(log, "\x1b") || strings.Contains(log, "[32m") || strings.Contains(log, "half 3") {
		t.Errorf("the log reads %q", log)
	}
	b.reads("#job-files", "outputs/model.txt")
	b.reads("#job-head", "exit code 0")
	b.until("the title tells the state", func() bool { return strings.HasPrefix(eval[string](b, "document.title"), "Completed") })
	if !b.marked() {
		t.Error("the page was loaded anew")
	}
	if bars := eval[int](b, "document.querySelectorAll('.spans li').length"); bars < 2 {
		t.Errorf("the timeline has %d bars", bars)
	}
	if end := eval[bool](b, "(e => e.scrollHeight - e.scrollTop - e.clientHeight < 3)(document.getElementById('log-text'))"); !end {
		t.Error("the log did not keep to its end")
	}
}

func readLog(t *testing.T, b *tab) {
	b.s.submit("talks", `for i in $(seq 1 400); do echo "line $i"; sleep 0.02; done`)
	b.open("/jobs/talks")
	b.reads("#log-text", "line 100\n")
	b.do(chromedp.Evaluate[chromedp.Void]("document.getElementById('log-text').scrollTop = 40, undefined"))
	b.until("a way back to the end is offered", func() bool { return !eval[bool](b, "document.getElementById('log-jump').hidden") })
	b.reads("#job-head .state", "Completed")
	b.reads("#log-text", "line 400\n")
	if top := eval[int](b, "document.getElementById('log-text').scrollTop"); top != 40 {
		t.Errorf("the log moved to %d while it was read at 40", top)
	}
	b.do(chromedp.Click("#log-jump", chromedp.NodeVisible))
	if end := eval[bool](b, "(e => e.scrollHeight - e.scrollTop - e.clientHeight < 3)(document.getElementById('log-text'))"); !end {
		t.Error("the button does not lead to the end")
	}
}

func cancelJob(t *testing.T, b *tab) {
	b.s.submit("sleeps", "echo begun; sleep 600")
	b.open("/jobs/sleeps")
	b.reads("#log-text", "begun")
	if eval[bool](b, "!!document.querySelector('.ask[open]')") {
		t.Error("the question is asked before the button is pressed")
	}
	b.do(chromedp.Click(".ask summary", chromedp.NodeVisible), chromedp.Click(".ask form button", chromedp.NodeVisible))
	b.reads("#job-head .state", "Cancel") // Canceling or Canceled
	b.reads("#job-head .state", "Canceled")
	if eval[bool](b, "!!document.querySelector('.ask')") {
		t.Error("what is canceled can be canceled")
	}
	if got := b.s.run("job", "show", "--name", "sleeps", "--query", "status", "-o", "tsv"); strings.TrimSpace(got) != "Canceled" {
		t.Errorf("the job is %s", got)
	}
}

func watchList(t *testing.T, b *tab) {
	b.open("/jobs")
	b.reads("#jobs-list", "Train grows")
	b.mark()
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#job-grows a').focus(), undefined`))
	b.s.submit("appears", "echo hi")
	b.reads("#job-appears", "Completed")
	if first := eval[string](b, "document.querySelector('#jobs-list tbody tr').id"); first != "job-appears" {
		t.Errorf("the newest job is not the first: %s", first)
	}
	if focus := eval[string](b, "document.activeElement.textContent"); focus != "Train grows" || !b.marked() {
		t.Errorf("the focus is on %q after a change", focus)
	}
	b.do(chromedp.SetValue(`input[name="q"]`, "grows", chromedp.NodeVisible), chromedp.Click(".filter button", chromedp.NodeVisible))
	b.until("the list is filtered", func() bool { return eval[int](b, "document.querySelectorAll('#jobs-list tbody tr').length") == 1 })
}

func followSteps(t *testing.T, b *tab) {
	step := func(command string, inputs map[string]string) map[string]any {
		return map[string]any{"type": "command", "command": command, "inputs": inputs, "outputs": map[string]any{"out": map[string]string{"type": "uri_folder"}}}
	}
	b.s.create("steps", map[string]any{"type": "pipeline", "compute": "azureml:local", "jobs": map[string]any{
		"first":       step("echo from the first; until [ -e "+b.s.dir+"/go ]; do sleep 0.1; done; date > ${{outputs.out}}/now", nil),
		"beside":      step("exit 3", map[string]string{"in": "${{parent.jobs.first.outputs.out}}"}),
		"last_of_all": step("cat ${{inputs.in}}/now", map[string]string{"in": "${{parent.jobs.first.outputs.out}}"}),
		"never":       step("true", map[string]string{"in": "${{parent.jobs.beside.outputs.out}}"}),
	}, "settings": map[string]any{"continue_on_step_failure": true}})
	b.open("/jobs/steps")
	b.mark()
	b.reads(".steps", "waits for first")
	if err := os.WriteFile(filepath.Join(b.s.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.reads("#job-head .state", "Failed")
	for _, want := range []string{"exit code 3", "after first", "it takes outputs of beside, and there are none", "Completed"} {
		b.reads(".steps", want)
	}
	b.reads("#job-head", "step beside failed")
	b.reads("#log-text", "first        Completed")
	if bars := eval[int](b, "document.querySelectorAll('.steps rect').length"); bars != 3 || !b.marked() {
		t.Errorf("%d of 3 steps that ran have bars, or the page was loaded anew", bars)
	}
	b.do(chromedp.Click(`.steps a[href="/jobs/steps-first"]`, chromedp.NodeVisible))
	b.reads("#log-text", "from the first")
	b.do(chromedp.Click(`.crumb a[href="/jobs/steps"]`, chromedp.NodeVisible))
	b.reads("#steps-title", "2 of 4 completed")
	b.open("/jobs")
	if eval[bool](b, "!document.getElementById('job-steps') || !!document.getElementById('job-steps-first')") {
		t.Error("the list has steps beside their pipeline, or not the pipeline")
	}
}

func restart(t *testing.T, b *tab) {
	b.s.submit("survives", `for i in $(seq 1 150); do echo "line $i"; sleep 0.1; done; echo over`)
	b.open("/jobs/survives")
	b.reads("#log-text", "line 5\n")
	b.mark()
	b.s.stop()
	b.until("the page says that the server is away", func() bool { return !eval[bool](b, "document.getElementById('offline').hidden") })
	b.s.start()
	b.reads("#job-head .state", "Completed")
	b.reads("#log-text", "over")
	var want strings.Builder
	for i := range 150 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got := b.text("#log-text"); got != want.String()+"over\n" || !b.marked() {
		t.Errorf("after a restart the log reads %q", got)
	}
}

func fit(t *testing.T, b *tab) {
	b.s.submit("fails", `echo "$(head -c 300 /dev/zero | tr '\0' x)" >&2; exit 3`)
	b.open("/jobs/fails")
	b.reads("#job-head .state", "Failed")
	b.do(chromedp.EmulateViewport(430, 844)) // as wide as it takes for "Failed" to leave room
	b.open("/jobs")
	if got := eval[int](b, `[...document.querySelectorAll(".jobs tbody tr")].filter(r => r.cells[2].getBoundingClientRect().top < r.cells[0].getBoundingClientRect().bottom).length`); got > 0 {
		t.Errorf("of %d jobs the compute stands beside the name and the reason", got)
	}
	fitAll(t, b, "/jobs", "/jobs/grows", "/jobs/fails", "/jobs/steps", "/jobs/steps-last_of_all", "/jobs?state=Completed", "/computes", "/computes/local", "/studio/login", "/studio/workspaces")
}

func watchCompute(t *testing.T, b *tab) {
	b.open("/computes/local")
	b.reads("#compute-live", "idle")
	b.mark()
	b.s.submit("occupies", "sleep 600")
	b.reads("#compute-live .list", "occupies")
	b.s.run("job", "cancel", "--name", "occupies")
	b.until("the node is idle again", func() bool { return !strings.Contains(b.text("#compute-live .list"), "occupies") })
	if !b.marked() {
		t.Error("the page was loaded anew")
	}
}

func noScript(t *testing.T, b *tab) {
	off := func(disabled bool) {
		if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: disabled}); err != nil {
			t.Fatal(err)
		}
	}
	off(true)
	defer off(false)
	b.open("/jobs/grows")
	b.reads("#log-text", "bye")
	b.reads("#job-head .state", "Completed")
}
