package taskrun

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// slim builds the small program once.
var slim = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "trainyard-task")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "trainyard-task")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/trainyard/trainyard/cmd/trainyard-task").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := slim(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// desk is a folder as an engine lays it out for a task.
type desk struct {
	t   *testing.T
	bin string
	dir string
}

func newDesk(t *testing.T, command string) *desk {
	t.Helper()
	bin, err := slim()
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, bin: bin, dir: t.TempDir()}
	data, err := json.Marshal(trainyard.Task{ID: "scope/job.1.0", JobName: "job", Node: "n", Hi: 1, Nodes: 1, Processes: 1, Hosts: []string{"127.0.0.1"},
		Command: command, Env: map[string]string{"DESK": d.dir}, Server: "http://127.0.0.1:1", Token: "t"})
	if err == nil {
		err = os.WriteFile(d.path("task.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) path(name string) string { return filepath.Join(d.dir, name) }

// start starts the program as engines do.
func (d *desk) start(more ...string) *exec.Cmd {
	d.t.Helper()
	said, err := os.Create(d.path("said"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.CommandContext(d.t.Context(), d.bin, append([]string{"task", "--file", d.path("task.json"), "--result", d.path("sign.0")}, more...)...)
	cmd.Stderr = said
	cmd.Env = append(os.Environ(), "TMPDIR="+d.dir)
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	return cmd
}

// said is what the newest start said on standard error.
func (d *desk) said() string {
	data, _ := os.ReadFile(d.path("said"))
	return string(data)
}

func (d *desk) end() trainyard.TaskEnd {
	d.t.Helper()
	data, err := os.ReadFile(d.path("sign.0"))
	if err != nil {
		d.t.Fatal(err)
	}
	var end trainyard.TaskEnd
	if err := json.Unmarshal(data, &end); err != nil {
		d.t.Fatal(err)
	}
	return end
}

// ran is how often the user's command began.
func (d *desk) ran() int {
	data, _ := os.ReadFile(d.path("ran"))
	return strings.Count(string(data), "x")
}

func (d *desk) wait(what string, holds func() bool) {
	d.t.Helper()
	for late := time.After(time.Minute); !holds(); {
		select {
		case <-late:
			d.t.Fatalf("%s never was: %s", what, d.said())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestTheSmallProgramRunsATaskToItsEnd(t *testing.T) {
	d := newDesk(t, "echo x >>$DESK/ran; echo hello; exit 3")
	cmd := exec.CommandContext(t.Context(), d.bin, "task", "--file", d.path("task.json"), "--result", d.path("sign.0"))
	out, _ := cmd.Output()
	if string(out) != "hello\n" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it printed %q and ended with %d", out, cmd.ProcessState.ExitCode())
	}
	if end := d.end(); end.Result.Class != trainyard.ClassUser || end.Result.ExitCode != 3 || end.Started.IsZero() || end.LogBytes != 6 {
		t.Errorf("it left %+v", end)
	}
}

func TestASecondStartRunsNothingAndEndsAsTheFirst(t *testing.T) {
	d := newDesk(t, "echo x >>$DESK/ran; until [ -e $DESK/go ]; do sleep 0.01; done; exit 4")
	first := d.start()
	d.wait("the first start", func() bool { return d.ran() == 1 })
	second := d.start()
	over := make(chan error, 1)
	go func() { over <- second.Wait() }()
	select {
	case <-over:
		t.Fatal("the second start did not wait for the first")
	case <-time.After(3 * lookAgain): // it has looked several times
	}
	if err := os.WriteFile(d.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	<-over
	if a, b := first.ProcessState.ExitCode(), second.ProcessState.ExitCode(); a != 4 || b != 4 {
		t.Errorf("they ended with %d and %d", a, b)
	}
	third := d.start()
	_ = third.Wait()
	if d.ran() != 1 || third.ProcessState.ExitCode() != 4 {
		t.Errorf("the command ran %d times; the third start ended with %d", d.ran(), third.ProcessState.ExitCode())
	}
}

func TestAStartAfterOneThatWasKilledRunsNothingAndSaysNothingOfTheCommand(t *testing.T) {
	d := newDesk(t, "echo x >>$DESK/ran; until [ -e $DESK/go ]; do sleep 0.01; done")
	first := d.start()
	d.wait("the first start", func() bool { return d.ran() == 1 })
	_ = first.Process.Kill()
	_ = first.Wait()
	second := d.start()
	if err := second.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := os.Stat(d.path("sign.0")); err == nil {
		t.Errorf("it left %+v", d.end())
	}
	if d.ran() != 1 || !strings.Contains(d.said(), "does not run a second time") {
		t.Errorf("the command ran %d times; it said %q", d.ran(), d.said())
	}
	_ = os.WriteFile(d.path("go"), nil, 0o600) // the command, which nobody looks after now
}

func TestAFreshStartRunsAgain(t *testing.T) {
	d := newDesk(t, "echo x >>$DESK/ran")
	for range 2 {
		if err := d.start("--fresh", "--dir", d.path("work")).Wait(); err != nil {
			t.Fatalf("%v: %s", err, d.said())
		}
	}
	if d.ran() != 2 {
		t.Errorf("the command ran %d times", d.ran())
	}
}

// A job may name files beside its working directory as the program names its own, and be the leader of a session.
func TestTheFilesOfAJobAreInNobodysWay(t *testing.T) {
	d := newDesk(t, "rm -rf ../tasks; for name in task tasks log tmp command work stop.json end.json; do mkdir -p ../$name/x; done; "+
		`setsid bash -c "sleep 0.1; echo x >>$DESK/ran"`)
	if err := d.start().Wait(); err != nil {
		t.Errorf("%v: %s", err, d.said())
	}
	left, _ := filepath.Glob(d.path(tempPrefix + "*"))
	if end := d.end(); end.Result.Class != trainyard.ClassOK || d.ran() != 1 || len(left) > 0 {
		t.Errorf("it left %+v and %q; the command got to its end %d times", end.Result, left, d.ran())
	}
}

func TestASecondStartInAFolderThatIsKeptGoesOnWithTheFirst(t *testing.T) {
	d := newDesk(t, "echo x >>$DESK/ran; until [ -e $DESK/go ]; do sleep 0.01; done; exit 4")
	start := func() *exec.Cmd { // as in a pod: the end goes to a device, and there is no mark beside the task
		cmd := exec.CommandContext(t.Context(), d.bin, "task", "--file", d.path("task.json"), "--result", "/dev/null", "--dir", d.path("kept"))
		cmd.Env = append(os.Environ(), "TMPDIR="+d.dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	first := start()
	d.wait("the first start", func() bool { return d.ran() == 1 })
	_ = first.Process.Kill()
	_ = first.Wait()
	second := start()
	if err := os.WriteFile(d.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = second.Wait()
	if code := second.ProcessState.ExitCode(); code != 4 || d.ran() != 1 {
		t.Errorf("it ended with %d, and the command ran %d times", code, d.ran())
	}
}

// An engine says how long a task has when it ends it, and may say less later. What does not heed SIGTERM is killed then, which is said once.
func TestTheEngineMayShortenTheGrace(t *testing.T) {
	for name, said := range map[string][]string{"at first": {"200\n"}, "later": {"3600000\n", "200\n"}} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "trap 'touch $DESK/told' TERM; echo x >>$DESK/ran; while :; do sleep 0.05; done")
			data, err := os.ReadFile(d.path("task.json"))
			var task trainyard.Task
			if err == nil {
				err = json.Unmarshal(data, &task)
			}
			task.Grace = time.Hour
			if err == nil {
				data, err = json.Marshal(task)
			}
			if err == nil {
				err = os.WriteFile(d.path("task.json"), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv(graceVariable, d.path("grace"))
			cmd := d.start()
			d.wait("the start", func() bool { return d.ran() == 1 })
			for i, ms := range said {
				if err := os.WriteFile(d.path("grace"), []byte(ms), 0o600); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					_ = cmd.Process.Signal(syscall.SIGTERM)
					d.wait("SIGTERM", func() bool { _, err := os.Stat(d.path("told")); return err == nil })
				}
			}
			_ = cmd.Wait()
			if end := d.end(); strings.Count(strings.Join(end.Warnings, "; "), "the process was killed: it had not ended") != 1 || end.Result.ExitCode != 137 {
				t.Errorf("it left %+v", end)
			}
		})
	}
}

func TestOneProcessorUntilThereAreFilesToBring(t *testing.T) {
	had := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(had)
	for name, set := range map[string]struct {
		serve *trainyard.Serve
		want  string
	}{"a job": {nil, "blobs 1, blob 2"}, "a model": {&trainyard.Serve{}, "blobs 2, blob 2"}} {
		runtime.GOMAXPROCS(2)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var seen []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf("%s %d", path.Base(r.URL.Path), runtime.GOMAXPROCS(0)))
			if path.Base(r.URL.Path) == "blobs" {
				fmt.Fprint(w, `[{"key": "c/in/a", "size": 1}]`)
				return
			}
			cancel() // enough was seen
			http.Error(w, "", http.StatusNotFound)
		}))
		dir := t.TempDir()
		data, err := json.Marshal(trainyard.Task{ID: "scope/job.1.0", JobName: "job", Node: "n", Hi: 1, Nodes: 1, Processes: 1, Hosts: []string{"127.0.0.1"}, Command: "true",
			Serve: set.serve, Inputs: map[string]trainyard.TaskInput{"in": {Type: "uri_folder", Key: "c/in/", Mode: "Download"}}, Server: server.URL, Token: "t"})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "task.json"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		o := Options{File: filepath.Join(dir, "task.json"), Result: filepath.Join(dir, "sign"), Cache: filepath.Join(dir, "cache"), Rank: -1}
		code, err := o.Run(ctx, io.Discard)
		server.Close()
		cancel()
		if got := strings.Join(slices.Compact(seen), ", "); got != set.want {
			t.Errorf("%s: the server was asked for %s (code %d, %v)", name, got, code, err)
		}
	}
}

func TestWhatAKilledProgramLeavesGoesAtTheNextStartAndNothingElse(t *testing.T) {
	d := newDesk(t, "echo x >>$DESK/ran; until [ -e $DESK/go ]; do sleep 0.01; done")
	folders := func() []string { out, _ := filepath.Glob(d.path(tempPrefix + "*")); return out }
	old := func(dirs ...string) {
		for _, dir := range dirs {
			if err := os.Chtimes(dir, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed := d.start("--result", d.path("a"))
	d.wait("the first start", func() bool { return d.ran() == 1 })
	left := folders()
	_ = killed.Process.Kill()
	_ = killed.Wait()
	lives := d.start("--result", "/dev/null") // another task, as far as the mark goes
	d.wait("the second start", func() bool { return d.ran() == 2 })
	all := folders()
	users := d.path("users")
	if err := os.MkdirAll(filepath.Join(users, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(users, d.path(tempPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	old(append(all, users)...)
	sweepTemp(d.dir)
	now := folders()
	if len(now) != 2 { // the link, and the one that lives
		t.Errorf("it is now %q", now)
	}
	if err := os.WriteFile(d.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || len(all) != 2 || slices.Contains(now, left[0]) {
		t.Errorf("first there was %q, then %q, and it is now %q", left, all, now)
	}
	if _, err := os.Stat(filepath.Join(users, "file")); err != nil {
		t.Errorf("what a link leads to: %v", err)
	}
	if err := lives.Wait(); err != nil || !slices.Contains(now, d.path(tempPrefix+"link")) {
		t.Errorf("the one that lives ended with %v: %s", err, d.said())
	}
}
