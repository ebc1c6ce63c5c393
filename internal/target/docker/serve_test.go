//go:build !windows

package docker

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
)

// webServer says what is in $FOLDER/model.
const webServer = `exec python3 -u -c '
import http.server, os
os.chdir(os.environ["FOLDER"])
print("serving", flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["SERVER_PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()'`

// newReplica makes a replica as the agent would.
func newReplica(t testing.TB) trainyard.Task {
	task := newTestTask(t, webServer)
	task.Serve = &trainyard.Serve{}
	task.Run.Env = map[string]string{"FOLDER": task.Run.Seen(task.Run.Dir), "SERVER_PORT": "5001", "PORT": "5001"}
	if err := os.WriteFile(filepath.Join(task.Run.Dir, "model"), []byte("the model"), 0o644); err != nil {
		t.Fatal(err)
	}
	return task
}

// newNetwork makes a network of its own on the engine.
func newNetwork(t *testing.T, c Config) string {
	t.Helper()
	e, err := dial(c.Host)
	if err != nil {
		t.Fatal(err)
	}
	name := groupName(t)
	if _, err := e.NetworkCreate(t.Context(), name, client.NetworkCreateOptions{Driver: bridge}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := e.NetworkRemove(context.Background(), name, client.NetworkRemoveOptions{}); err != nil {
			t.Error(err)
		}
		e.close()
	})
	return name
}

// answers waits until the replica answers, and returns where and what.
func answers(t *testing.T, d *Driver, id trainyard.TaskID) (address, text string) {
	t.Helper()
	late := time.After(patience)
	for {
		o := find(t, d, id)
		if o == nil || o.State == trainyard.TaskEnded {
			t.Fatalf("the replica is %+v; log: %s", o, logOf(t, d, id))
		}
		if o.Address != "" {
			if res, err := http.Get("http://" + o.Address + "/model"); err == nil {
				data, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err == nil && res.StatusCode == http.StatusOK {
					return o.Address, string(data)
				}
			}
		}
		select {
		case <-late:
			t.Fatalf("no answer from %+v; log: %s", o, logOf(t, d, id))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serves holds a driver to what is promised of two replicas beside each other.
func serves(t *testing.T, c Config) {
	dir := t.TempDir()
	d := reopen(t, c, dir, trainyard.Resources{})
	t.Cleanup(func() { d.Close() })
	first, second := newReplica(t), newReplica(t)
	for _, task := range []trainyard.Task{first, second} {
		start(t, d, task)
		t.Cleanup(func() { _ = d.Remove(context.Background(), task.ID) })
	}
	a, text := answers(t, d, first.ID)
	b, other := answers(t, d, second.ID)
	if a == b || text != "the model" || other != text || !strings.HasPrefix(a, "127.0.0.1:") {
		t.Errorf("they answer at %s and %s: %q, %q", a, b, text, other)
	}
	if u, err := d.Usage(t.Context(), first.ID); err != nil || u.CPU <= 0 || u.MemoryMB <= 0 || u.MemoryMB > 500 {
		t.Errorf("it uses %+v, %v", u, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = reopen(t, c, dir, trainyard.Resources{})
	if again, _ := answers(t, d, first.ID); again != a {
		t.Errorf("after a restart of the agent it is at %s, before at %s", again, a)
	}
	if err := d.Remove(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if res, err := http.Get("http://" + a + "/model"); err == nil {
		res.Body.Close()
		t.Error("it answers after it was removed")
	}
}

func TestReplicasInNetworksOfTheirOwnArePublishedOnLoopback(t *testing.T) {
	c := needEngine(t)
	c.Network = newNetwork(t, c)
	serves(t, c)
}

func TestReplicasInTheComputersNetworkGetPortsOfTheirOwn(t *testing.T) {
	c := needEngine(t)
	c.Network = hostNetwork
	serves(t, c)
}

func TestAnImageServesWithItsOwnEntryPointAndTheModelWhereItLooks(t *testing.T) {
	c := needEngine(t)
	base := c.Image
	c.Network = newNetwork(t, c)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	folder := t.TempDir()
	recipe := "FROM " + base + "\nENV FOLDER=/models/one/1\nWORKDIR /srv\nENTRYPOINT [\"python3\", \"-u\", \"-c\", \"import http.server, os, sys; " +
		"print(os.getcwd(), sys.argv[1:], flush=True); os.chdir(os.environ['FOLDER']); " +
		"http.server.ThreadingHTTPServer(('0.0.0.0', 8501), http.server.SimpleHTTPRequestHandler).serve_forever()\"]\nCMD [\"it's\", \"$HOME\"]\n"
	if err := os.WriteFile(filepath.Join(folder, "Dockerfile"), []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
	task := newReplica(t)
	task.Environment = &trainyard.EnvironmentPlan{Name: "own", Hash: groupName(t), Context: "x", Dockerfile: "Dockerfile"}
	task.Run.Context, task.Run.Command = folder, ""
	model := filepath.Join(task.Run.Root, "model.bin")
	if err := os.WriteFile(model, []byte("the model"), 0o644); err != nil {
		t.Fatal(err)
	}
	task.Serve = &trainyard.Serve{Image: true, Port: 8501, ModelPath: "/models/one/1/model"}
	task.Run.Env = map[string]string{modelVariable: task.Run.Seen(model)}
	if err := d.Prepare(t.Context(), task, quietly{}); err != nil {
		t.Fatal(err)
	}
	start(t, d, task)
	if _, text := answers(t, d, task.ID); text != "the model" {
		t.Errorf("it says %q", text)
	}
	if got := logOf(t, d, task.ID); !strings.HasPrefix(got, "/srv [\"it's\", '$HOME']\n") {
		t.Errorf("its log is %q", got)
	}
	none := newReplica(t)
	none.Environment = &trainyard.EnvironmentPlan{Name: "none", Hash: groupName(t) + "none", Context: "x", Dockerfile: "Dockerfile"}
	none.Serve, none.Run.Context = task.Serve, t.TempDir()
	if err := os.WriteFile(filepath.Join(none.Run.Context, "Dockerfile"), []byte("FROM "+base+"\nENTRYPOINT []\nCMD []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Prepare(t.Context(), none, quietly{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), none); trainyard.ClassOf(err) != trainyard.ClassEnvironment || !strings.Contains(err.Error(), "neither ENTRYPOINT nor CMD") {
		t.Errorf("an image that serves nothing: %v", err)
	}
}

// quietly is a Progress that nobody reads.
type quietly struct{}

func (quietly) Say(string)                                {}
func (quietly) Span(string, time.Time, time.Time, string) {}
func (quietly) Log(string, []byte)                        {}
