//go:build linux

package kube

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// replica is a task that serves its folder.
func (b *bench) replica(before string) trainyard.Task {
	b.Helper()
	k := b.task(1, before+`
exec python3 -u -c '
import http.server, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("serving", flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["SERVER_PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()'`)
	k.Serve = &trainyard.Serve{Drain: 2 * time.Second,
		Readiness: trainyard.Probe{Path: "/model", Period: time.Second, Timeout: time.Second, Failures: 3},
		Liveness:  trainyard.Probe{Path: "/model", Period: time.Second, Timeout: time.Second, Failures: 3}}
	b.must(os.WriteFile(filepath.Join(k.Run.Dir, "model"), []byte("the model"), 0o644))
	return k
}

// asks makes a request through the driver.
func (b *bench) asks(k trainyard.Task, path string) (string, error) {
	conn, err := b.Dial(b.Context(), k.ID)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return string(data), err
}

func (b *bench) answers(k trainyard.Task, want string) {
	b.Helper()
	last := ""
	eventually(b.T, "the replica answers", func() bool {
		text, err := b.asks(k, "/model")
		if now := fmt.Sprint(text, err); now != last {
			last = now
			o, _ := b.find(k.ID)
			b.Logf("%q, %v; %s %s", text, err, o.State, o.Progress)
		}
		return err == nil && text == want
	})
}

func TestAReplicaServesThroughTheAPIServerUntilItIsStopped(t *testing.T) {
	b := newBench(t, nil)
	k := b.replica("")
	from := time.Now()
	b.start(k)
	b.reaches(k, trainyard.TaskRunning)
	b.answers(k, "the model")
	t.Logf("it answered after %s", time.Since(from))
	b.must(os.WriteFile(filepath.Join(k.Run.Dir, "big"), []byte(strings.Repeat("0123456789", 500_000)), 0o644))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if text, err := b.asks(k, "/big"); err != nil || len(text) != 5_000_000 {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
	all.Wait()
	used := func() (u target.Usage) {
		eventually(t, "its use is read", func() (ok bool) {
			var err error
			u, err = b.Usage(t.Context(), k.ID)
			return err == nil
		})
		return u
	}
	before := used()
	for range 10 {
		if _, err := b.asks(k, "/big"); err != nil {
			t.Error(err)
		}
	}
	if after := used(); before.CPU <= 0 || after.CPU <= before.CPU || after.MemoryMB <= 0 || after.MemoryMB > 500 {
		t.Errorf("it used %+v, and %+v after more requests", before, after)
	}
	b.reopen()
	eventually(t, "it is seen again", func() bool { o, ok := b.find(k.ID); return ok && o.State == trainyard.TaskRunning })
	b.answers(k, "the model")
	b.ran(k, 1)
	if !strings.HasPrefix(b.log(k), "serving\n") {
		t.Errorf("its log is %q", b.log(k))
	}
	b.must(b.Stop(t.Context(), k.ID, 2*time.Second))
	b.ends(k, trainyard.ClassCanceled, "")
	b.must(b.Remove(t.Context(), k.ID))
	for _, kind := range []string{deployments, secrets, services, pods} {
		eventually(t, "no "+kind+" are left", func() bool {
			var p page[pod]
			b.must(b.api.get(t.Context(), b.api.path(kind), map[string][]string{"labelSelector": {groupLabel + "=" + b.group}}, &p))
			return len(p.Items) == 0
		})
	}
}

func TestAReplicaThatEndsIsStartedAgain(t *testing.T) {
	b := newBench(t, nil)
	k := b.replica("echo $$ >pid")
	b.start(k)
	b.answers(k, "the model")
	eventually(t, "its node says that it is ready", func() bool { c := b.onlyPod(k).container(); return c != nil && c.Ready })
	b.must(os.Rename(filepath.Join(k.Run.Dir, "model"), filepath.Join(k.Run.Dir, "away"))) // it is not well
	eventually(t, "it is started again", func() bool { c := b.onlyPod(k).container(); return c != nil && c.Restarts > 0 })
	b.must(os.Rename(filepath.Join(k.Run.Dir, "away"), filepath.Join(k.Run.Dir, "model")))
	b.answers(k, "the model")
	if o, _ := b.find(k.ID); o.State != trainyard.TaskRunning {
		t.Errorf("it looks as %+v", o)
	}
	b.must(b.api.remove(t.Context(), b.api.path(pods, b.onlyPod(k).Meta.Name), object{"gracePeriodSeconds": 1}))
	eventually(t, "another pod takes its place", func() bool {
		data, _ := os.ReadFile(filepath.Join(k.Run.Dir, "runs"))
		return strings.Count(string(data), "\n") >= 3
	})
	b.answers(k, "the model")
}

func TestAReplicaThatCannotBeBroughtToAnswerEndsWithItsMessage(t *testing.T) {
	b := newBench(t, nil)
	k := b.replica("echo 'no module named sklearn'; exit 3")
	from := time.Now()
	b.start(k)
	if o := b.ends(k, trainyard.ClassUser, "exit code 3"); o.Result.ExitCode != 3 {
		t.Errorf("it ended %+v", o.Result)
	}
	t.Logf("it ended after %s", time.Since(from))
	if got := b.log(k); !strings.HasPrefix(got, "no module named sklearn\n") {
		t.Errorf("its log is %q", got)
	}
	b.ran(k, maxExits)
	eventually(t, "nothing of it runs", func() bool {
		var p page[pod]
		b.must(b.api.get(t.Context(), b.api.path(pods), map[string][]string{"labelSelector": {taskLabel + "=" + b.nameOf(k.ID)}}, &p))
		return len(p.Items) == 0
	})
}

func TestAnImageThatServesByItselfIsBroughtItsModel(t *testing.T) {
	b := newBench(t, nil)
	k := b.replica("")
	k.Run.Command = ""
	k.Run.Env = map[string]string{modelVariable: filepath.Join(k.Run.Dir, "model")}
	k.Inputs = map[string]trainyard.TaskInput{"model": {Type: "custom_model"}}
	k.Environment = &trainyard.EnvironmentPlan{Name: "own", Image: "trainyard.test/pause:1"}
	k.Serve.Image, k.Serve.ModelPath, k.Serve.Port = true, "/models/one/1/model", 8501
	b.start(k)
	b.reaches(k, trainyard.TaskRunning)
	p := b.onlyPod(k)
	brings, main := p.named(containerName), p.container()
	if brings.State.Terminated == nil || brings.State.Terminated.ExitCode != 0 || main.Name != serveName || main.State.Running == nil {
		t.Errorf("what brings the model: %+v; what serves: %+v", brings, main)
	}
	if u, err := b.Usage(t.Context(), k.ID); trainyard.CodeOf(err) != trainyard.CodeUnsupported { // it has nothing but its server
		t.Errorf("its use: %+v, %v", u, err)
	}
	b.must(b.Stop(t.Context(), k.ID, time.Second))
	b.ends(k, trainyard.ClassCanceled, "")
}
