//go:build !windows

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
)

func TestAKnownBashRunsTheTask(t *testing.T) {
	c := needEngine(t)
	none, link := imageWithoutBash(t, c, "none", ""), imageWithoutBash(t, c, "link", " && ln -s sh /bin/bash")
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	for _, one := range []struct{ image, args, first, second string }{
		{c.Image, "--tmpfs /x", anyShell, anyShell}, // docker_args may put anything where bash is
		{c.Image, "", anyShell, bashPath},
		{c.Image, "--tmpfs /x", anyShell, anyShell},
		{none, "", anyShell, anyShell},
		{link, "", anyShell, anyShell}, // it may lead nowhere, and here leads to sh
	} {
		for _, want := range []string{one.first, one.second} {
			tk := newTestTask(t, "pwd && test -d \"$AT\"/../user_logs && echo here > made")
			tk.Environment = &trainyard.EnvironmentPlan{Name: "bash", Hash: key(groupName(t), one.image), Image: one.image}
			tk.DockerArgs = one.args
			tk.Run.Env = map[string]string{"AT": tk.Run.Seen(tk.Run.Dir)}
			if err := d.Prepare(t.Context(), tk, quietly{}); err != nil {
				t.Fatal(err)
			}
			if text, r := run(t, d, tk); r.Class != trainyard.ClassOK || text != trainyard.ContainedView+"/work\n" {
				t.Errorf("it ended with %+v, and wrote %q", r, text)
			}
			if data, err := os.ReadFile(filepath.Join(tk.Run.Dir, "made")); string(data) != "here\n" {
				t.Errorf("in its folder is %q, %v", data, err)
			}
			r, err := d.engine.ContainerInspect(t.Context(), d.container(&task{dir: tk.ID.Dir()}), client.ContainerInspectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Container.Path != want {
				t.Errorf("with image %s and docker_args %q it was started by %s; want %s", one.image, one.args, r.Container.Path, want)
			}
		}
	}
}

// imageWithoutBash builds an image without bash, and with what more does. It is taken away again.
func imageWithoutBash(t *testing.T, c Config, name, more string) string {
	t.Helper()
	name = fmt.Sprintf("trainyard-test/%s:%d", name, os.Getpid())
	if err := buildImage(c, name, map[string]string{"Dockerfile": "FROM " + c.Image + "\nRUN rm -f /bin/bash /usr/bin/bash" + more + "\n"}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dockerCLI(c, "rmi", name) })
	return name
}

func TestImageWithoutBash(t *testing.T) {
	c := needEngine(t)
	c.Image = imageWithoutBash(t, c, "plain", "")
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	plainShell(t, d)
	told := newTestTask(t, "echo $BASH_VERSION") // of bash elsewhere
	told.Run.Env = map[string]string{"BASH_VERSION": "5"}
	if text, r := run(t, d, told); r.Class != trainyard.ClassOK || text != "5\n" {
		t.Errorf("it ended with %+v, and wrote %q", r, text)
	}
}

// plainShell holds a driver whose image has only sh to the most important of the contract.
func plainShell(t *testing.T, d *Driver) {
	t.Helper()
	for command, code := range map[string]int{"exit 3": 3, "kill -KILL $$": 137, "test -z \"$BASH_VERSION\"": 0} {
		task := newTestTask(t, command)
		if _, r := run(t, d, task); r.ExitCode != code {
			t.Errorf("%q ended with %+v", command, r)
		}
	}
	left := newTestTask(t, "(while :; do echo more; done) & sleep 600 & echo x; exit 4")
	got, r := run(t, d, left)
	if r.ExitCode != 4 || !strings.Contains(got, "x\n") || logOf(t, d, left.ID) != got {
		t.Errorf("with children left it ended with %+v", r)
	}
	saves := newTestTask(t, "trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.02; done")
	ignores := newTestTask(t, "trap '' TERM; echo up; while :; do sleep 0.02; done")
	child := newTestTask(t, "(trap 'sleep 0.3; echo saved; exit' TERM; echo up; while :; do sleep 0.02; done) & wait")
	for _, task := range []trainyard.Task{saves, ignores, child} {
		start(t, d, task)
		until(t, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" })
		grace := time.Hour
		if task.ID == ignores.ID {
			grace = 200 * time.Millisecond
		}
		if err := d.Stop(t.Context(), task.ID, grace); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []struct {
		task trainyard.Task
		code int
		log  string
	}{{saves, 7, "saved\n"}, {ignores, 137, "up\n"}, {child, 143, "saved\n"}} {
		o := ended(t, d, end.task.ID)
		if o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != end.code || !strings.HasSuffix(logOf(t, d, end.task.ID), end.log) {
			t.Errorf("a stopped task ended with %+v, and wrote %q; want exit code %d", *o.Result, logOf(t, d, end.task.ID), end.code)
		}
	}
	big := newTestTask(t, "head -c 200000000 /dev/zero | tail | wc -c")
	big.Resources.MemoryMB = 100
	if _, r := run(t, d, big); r.PeakMB < 90 { // it is tail that is killed, and sh tells only of wc
		t.Errorf("the peak was not seen: %+v", r)
	}
}
