//go:build linux

package kube

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// plain is a cluster of which pods see no folder of this computer's, so that they have no volume.
func plain(c *Config) { c.shared = "" }

// here is a task for a pod that sees no folder of this computer's.
func (b *bench) here(command string) trainyard.Task {
	k := b.task(1, "")
	k.Run.Command, k.Run.Dir = command, "/"
	return k
}

// startAs starts a task as Start does, with a Job whose containers a policy of the cluster has changed.
func (b *bench) startAs(t trainyard.Task, security object) {
	b.Helper()
	p, err := b.newPlan(t)
	b.must(err)
	k, err := b.claim(p)
	b.must(err)
	defer k.op.Unlock()
	b.must(b.note(k, p))
	b.must(b.save(k, nil))
	o := p.job()
	pod := o["spec"].(object)["template"].(object)["spec"].(object)
	if volumes := pod["volumes"].([]object); len(volumes) > 0 {
		b.Fatalf("the pod has volumes: %v", volumes)
	}
	pod["containers"].([]object)[0]["securityContext"] = security
	j := &job{}
	b.must(b.api.create(b.Context(), b.api.path(jobs), o, j))
	b.must(b.made(k, j))
}

func TestWhereAPodMayWrite(t *testing.T) {
	t.Run("a user who is not root has the folder for temporary files", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, plain)
		k := b.here("id -u; echo $TMPDIR")
		b.startAs(k, object{"runAsUser": 1234})
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); len(got) < 25 || got[:25] != "1234\n/tmp/trainyard/work/" {
			t.Errorf("log is %q", got)
		}
	})
	t.Run("a container whose disk is read-only gets a volume, and so do all after it", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, plain)
		k := b.here("echo $TMPDIR")
		b.startAs(k, object{"readOnlyRootFilesystem": true})
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); len(got) < 16 || got[:16] != "/trainyard/work/" {
			t.Errorf("log is %q", got)
		}
		if p, err := b.newPlan(k); err != nil || !p.disk {
			t.Errorf("the next task's pod has no volume (%v)", err)
		}
	})
	t.Run("one that a volume was no help to ends", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, plain)
		k := b.here("true")
		p, err := b.newPlan(k)
		b.must(err)
		made, err := b.claim(p)
		b.must(err)
		made.op.Unlock()
		b.must(b.save(made, func(r *record) { r.Disk = true }))
		b.startAs(k, object{"readOnlyRootFilesystem": true})
		b.ends(k, trainyard.ClassEnvironment, "Read-only file system")
		if p, err := b.newPlan(k); err != nil || p.disk {
			t.Errorf("the next task's pod has a volume (%v)", err)
		}
	})
}

func TestATaskThatNobodyKnowsAnyMoreIsLost(t *testing.T) {
	b := newBench(t, plain)
	k := b.here("true")
	b.start(k)
	b.must(os.Remove(filepath.Join(b.dir, k.ID.Dir(), orderFile)))
	b.ends(k, trainyard.ClassNodeLost, "lost the folder of this compute before the task began")
	b.must(b.Remove(t.Context(), k.ID))
	b.start(k)
	b.ends(k, trainyard.ClassOK, "")
}

// A Job is made again once at most, and only while nothing of it has run.
func TestWhatBecomesOfATaskWhosePodsCanWriteNothing(t *testing.T) {
	for name, c := range map[string]struct {
		rec   record
		why   string
		class trainyard.Class
	}{
		"a Job whose pods have no volume is made again": {rec: record{Sent: true}},
		"one with a volume ends":                        {rec: record{Sent: true, Disk: true}, why: "mkdir: not found", class: trainyard.ClassEnvironment},
		"one of which a rank runs ends":                 {rec: record{Sent: true, Begun: map[string]bool{"u": true}}, class: trainyard.ClassEnvironment},
		"a replica ends":                                {rec: record{Main: containerName}, class: trainyard.ClassEnvironment},
		"a full disk is one":                            {rec: record{Disk: true}, why: "No space left on device", class: trainyard.ClassDisk},
	} {
		d := newMemoryDriver(t, nil)
		c.rec.ID, c.rec.Name = "default/default/j#1.0", "j"
		e := (&tender{Driver: d, task: d.newTask(c.rec)}).nowhere(fmt.Errorf("send: %w: %s", errNowhere, c.why))
		switch {
		case e == nil && c.class != "":
			t.Errorf("%s: it is made again", name)
		case e != nil && (e.Result.Class != c.class || !strings.Contains(e.Result.Message, "neither to /trainyard nor to /tmp/trainyard: "+c.why)):
			t.Errorf("%s: it ends as %+v", name, e.Result)
		}
	}
	away := errors.New("the connection was lost")
	if err := joinSent([]error{errNowhere, away}); errors.Is(err, errNowhere) || !errors.Is(err, away) {
		t.Errorf("with a pod that may have begun sending says %v", err)
	}
	if err := joinSent([]error{nil, errNowhere}); !errors.Is(err, errNowhere) {
		t.Errorf("with a pod that can write nothing sending says %v", err)
	}
}

// Each Start that has no Job yet has what is to be sent written down anew; of a task that has begun nothing is.
func TestWhatIsToBeSentIsThatOfTheLastStart(t *testing.T) {
	d := newMemoryDriver(t, func(*http.Request) (int, string) { return 403, `{"message":"not now"}` })
	d.cfg = &Config{Image: baseImage, InstanceTypes: map[string]InstanceType{DefaultInstanceType: {}}}
	d.program = &program{files: map[string]string{thisArch: "/program"}}
	k := trainyard.Task{ID: trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "j"), 1, 0), Hi: 1, Nodes: 1}
	path := filepath.Join(d.env.Dir, k.ID.Dir(), orderFile)
	start := func(token string) trainyard.Task {
		k.Token = token
		if err := d.Start(t.Context(), k); (err == nil) != (d.tasks[d.nameOf(k.ID)].rec.UID != "") {
			t.Fatalf("start says %v", err)
		}
		var got trainyard.Task
		if err := readJSON(path, &got); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return got
	}
	for _, token := range []string{"first", "second"} {
		if got := start(token); got.Token != token {
			t.Errorf("%q is to be sent, want %q", got.Token, token)
		}
	}
	rec := &d.tasks[d.nameOf(k.ID)].rec
	rec.UID = "u"
	if got := start("third"); got.Token != "second" {
		t.Errorf("of a task that has a Job %q is to be sent", got.Token)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := start("fourth"); got.Token != "fourth" {
		t.Errorf("of a task whose folder was lost %q is to be sent", got.Token)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	rec.Begun = map[string]bool{"p": true}
	if got := start("fifth"); got.Token != "" {
		t.Errorf("of a task that has begun %q is written down", got.Token)
	}
}

// A job that is too long for a Secret is refused before anything is made.
func TestAJobThatIsTooLongIsRefused(t *testing.T) {
	d := newMemoryDriver(t, func(r *http.Request) (int, string) {
		t.Errorf("the cluster is asked for %s %s", r.Method, r.URL)
		return 403, `{"message":"not now"}`
	})
	d.cfg = &Config{Image: baseImage, InstanceTypes: map[string]InstanceType{DefaultInstanceType: {}}}
	d.program = &program{files: map[string]string{thisArch: "/program"}}
	k := trainyard.Task{ID: trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "j"), 1, 0), Hi: 1, Nodes: 1}
	k.Run.Command = strings.Repeat("x", 1<<20)
	if err := d.Start(t.Context(), k); trainyard.ClassOf(err) != trainyard.ClassUser || !strings.Contains(err.Error(), "put the command into a file") {
		t.Errorf("start says %v", err)
	}
}

// An image may be one that a pod was made into: what it holds is not what was sent.
func TestAnImageThatHoldsAProgramAndATaskIsSentItsOwn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	const say = "#!/bin/sh\necho PROGRAM; cat $4\n" // PROGRAM task --pod-log --file FILE
	write("bin/trainyard", strings.ReplaceAll(say, "PROGRAM", "the old program"))
	write("bin/sent-ty-other", "")
	write("task/task.json", "the old task\n")
	pod := exec.CommandContext(t.Context(), "/bin/sh", "-c", inFolder(dir, bootstrap), "trainyard", "0", "", "ty-this", "", "")
	said, err := pod.StdoutPipe()
	if err == nil {
		err = pod.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	send := func(program string) string {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", inFolder(dir, sendScript), "trainyard", "", "ty-this")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(out)
		first, _ := r.ReadString('\n')
		if strings.HasPrefix(first, "need ") && strings.HasSuffix(first, "gzip -dc\n") {
			packed := filepath.Join(t.TempDir(), "packed")
			write("plain", program)
			err := pack(filepath.Join(dir, "plain"), packed)
			data, e := os.ReadFile(packed)
			if err := errors.Join(err, e); err != nil {
				t.Fatal(err)
			}
			program = string(data)
		} else {
			program += strings.Repeat("\n", -len(program)&(pieces-1)) // of a shell's program, what zeros are of ours
		}
		io.WriteString(in, strconv.Itoa(len(program))+"\nthe new task\n"+program) // it may have had enough
		in.Close()
		rest, _ := io.ReadAll(r)
		if err := cmd.Wait(); err != nil {
			t.Errorf("sending says %v", err)
		}
		return first + string(rest)
	}
	if got := send(strings.ReplaceAll(say, "PROGRAM", "the new program")); !strings.HasPrefix(got, "need ") || !strings.Contains(got, " nothing ") || !strings.HasSuffix(got, "\ndone\n") {
		t.Fatalf("sending says %q", got)
	}
	if got := send("another"); got != "have\n" {
		t.Errorf("sending again says %q", got)
	}
	got, _ := io.ReadAll(said)
	if err := pod.Wait(); err != nil || string(got) != "the new program\nthe new task\n" {
		t.Errorf("the pod says %q (%v)", got, err)
	}
}
