package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/process"
)

// hostEnv makes the test binary the agent of node-1, with real processes in the folder that it names, until it is killed.
const hostEnv = "TRAINYARD_TEST_REPLICA_AGENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(hostEnv); dir != "" {
		fmt.Println(hostReplicas(context.Background(), dir, os.Getenv(hostEnv+"_SERVER")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// groupOf is a name for the tasks of a test that no other test has, of another process either: who shares one ends the tasks of the other.
func groupOf(dir string) string {
	return "replicas-" + filepath.Base(filepath.Dir(dir)) + "-" + filepath.Base(dir)
}

func hostReplicas(ctx context.Context, dir, url string) error {
	d, err := (&process.Config{}).Open(ctx, target.Env{Dir: filepath.Join(dir, "tasks"), Group: groupOf(dir)})
	if err != nil {
		return err
	}
	defer d.(target.Closer).Close()
	link, err := agentlink.Dial(agentlink.DialConfig{URL: url, Node: "node-1", JoinToken: "join"})
	if err != nil {
		return err
	}
	defer link.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return agent.New(agent.Config{Node: "node-1", JoinToken: "join", Link: link, Driver: d, Stage: folderStage(dir), Dir: filepath.Join(dir, "agent"), Direct: true, Log: log}).Run(ctx)
}

// folderStage is a Stager that makes an empty working directory.
type folderStage string

func (s folderStage) Prepare(_ context.Context, t trainyard.Task, _ trainyard.Progress) (trainyard.Task, error) {
	dir := filepath.Join(string(s), "work", t.ID.Dir())
	t.Run = trainyard.Run{Command: t.Command, Env: maps.Clone(t.Env), Dir: dir, LogDir: dir, Root: dir}
	return t, os.MkdirAll(dir, 0o755)
}
func (s folderStage) Finish(context.Context, trainyard.Task, trainyard.Result, trainyard.Progress) error {
	return nil
}
func (s folderStage) Remove(_ context.Context, id trainyard.TaskID) error {
	return os.RemoveAll(filepath.Join(string(s), "work", id.Dir()))
}

// replicaServer is a web server that is as well as files in $STATE say. It says its process on /, and takes two seconds for /slow.
const replicaServer = `import http.server, os, signal, sys, threading, time
state = os.environ["STATE"]
there = lambda name: os.path.exists(os.path.join(state, name))
while there("loading"): time.sleep(0.01)
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        if self.path == "/slow": time.sleep(2)
        code = 500 if there("sick") and self.path == "/live" else 503 if there("busy") and self.path == "/ready" else 200
        body = (str(os.getpid()) if code == 200 else "the model is gone").encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
server = Server(("127.0.0.1", int(os.environ["SERVER_PORT"])), Handler)
def end(*_):
    open(os.path.join(state, "asked"), "w").close()
    threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, end)
print("serving on", os.environ["PORT"], os.environ["HEALTH_PORT"], flush=True)
server.serve_forever()
server.server_close()
`

// office is a server over HTTP, an agent with real processes, and one replica.
type office struct {
	*testing.T
	srv   *server
	web   *httptest.Server
	conns chan net.Conn
	dir   string
	state string
	job   trainyard.Task
}

// Dialled takes connections that the agent was asked for.
func (o *office) Dialled(_ context.Context, node trainyard.NodeID, id string, conn net.Conn, why error) error {
	if node != "node-1" || why != nil {
		return errors.Join(why, trainyard.NotFound("nobody waits for %q", id))
	}
	o.conns <- conn
	return nil
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{T: t, srv: newServer(), conns: make(chan net.Conn, 8), dir: t.TempDir(), state: t.TempDir()}
	o.srv.lease.Renew = 200 * time.Millisecond
	auth := func(string) (trainyard.User, error) {
		return trainyard.User{Role: trainyard.RoleAgent, Node: "node-1"}, nil
	}
	o.web = httptest.NewServer(agentlink.Handler(agentlink.Config{Server: o.srv, Tunnels: o, Auth: auth}))
	t.Cleanup(o.web.Close)
	script := filepath.Join(o.state, "serve.py")
	if err := os.WriteFile(script, []byte(replicaServer), 0o644); err != nil {
		t.Fatal(err)
	}
	o.job = task("replica", "exec python3 "+script)
	o.job.Env = map[string]string{"STATE": o.state}
	probe := trainyard.Probe{Period: 100 * time.Millisecond, Timeout: 2 * time.Second, Successes: 1, Failures: 3}
	o.job.Serve = &trainyard.Serve{Endpoint: "e", Deployment: "d", Drain: 20 * time.Second, Liveness: probe, Readiness: probe}
	o.job.Serve.Liveness.Path, o.job.Serve.Readiness.Path = "/live", "/ready"
	t.Cleanup(func() { o.sweep() })
	return o
}

// sweep ends what a test that failed has left.
func (o *office) sweep() {
	d, err := (&process.Config{}).Open(context.Background(), target.Env{Dir: filepath.Join(o.dir, "tasks"), Group: groupOf(o.dir)})
	if err != nil {
		o.Errorf("open the driver to clear up: %v", err)
		return
	}
	_ = d.Remove(context.Background(), o.job.ID)
	_ = d.(target.Closer).Close()
}

// begin runs an agent in this process.
func (o *office) begin() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- hostReplicas(ctx, o.dir, o.web.URL) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			o.Errorf("the agent: %v", err)
		}
	}
}

// host runs an agent in a process of its own, until it is killed.
func (o *office) host() (kill func()) {
	o.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostEnv+"="+o.dir, hostEnv+"_SERVER="+o.web.URL)
	if err := cmd.Start(); err != nil {
		o.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	o.Cleanup(kill) // before sweep
	return kill
}

func (o *office) touch(name string) {
	o.Helper()
	if err := os.WriteFile(filepath.Join(o.state, name), nil, 0o644); err != nil {
		o.Fatal(err)
	}
}

func (o *office) there(name string) bool {
	_, err := os.Stat(filepath.Join(o.state, name))
	return err == nil
}

// until waits for something that must come.
func (o *office) until(what string, ok func() bool) {
	o.Helper()
	late, tick := time.After(40*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			o.Fatalf("waited in vain until %s; the last report: %+v; log: %s", what, o.last(), o.srv.log(o.job.ID, "user_logs/std_log.txt"))
		}
	}
}

// last is the newest report on the replica, with how it serves.
func (o *office) last() (r trainyard.TaskReport) {
	for _, t := range o.reports() {
		r = t
	}
	return r
}

func (o *office) reports() (out []trainyard.TaskReport) {
	for _, r := range o.srv.told() {
		out = append(out, r.Tasks...)
	}
	return out
}

func (o *office) untilReady() trainyard.Serving {
	o.Helper()
	o.until("the replica is ready", func() bool { s := o.last().Serving; return s != nil && s.Ready })
	return *o.last().Serving
}

// ask asks the replica for its process.
func (o *office) ask(address string) int {
	o.Helper()
	res, err := http.Get("http://" + address + "/")
	if err != nil {
		o.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	pid, bad := strconv.Atoi(string(body))
	if err != nil || bad != nil {
		o.Fatalf("the replica says %q, %v", body, err)
	}
	return pid
}

func TestAReplicaServesUntilItsProcessIsKilled(t *testing.T) {
	o := newOffice(t)
	o.touch("loading")
	defer o.begin()()
	o.srv.want(o.job)
	o.until("it is asked and not ready", func() bool { s := o.last().Serving; return s != nil && strings.Contains(s.Why, "refused") })
	if err := os.Remove(filepath.Join(o.state, "loading")); err != nil {
		t.Fatal(err)
	}
	s := o.untilReady()
	if !s.Was || !s.Direct || s.Why != "" {
		t.Errorf("serving %+v", s)
	}
	pid := o.ask(s.Address)
	o.until("its port is in its log", func() bool {
		_, port, _ := net.SplitHostPort(s.Address)
		return o.srv.log(o.job.ID, "user_logs/std_log.txt") == fmt.Sprintf("serving on %s %s\n", port, port)
	})
	o.until("its load is told", func() bool {
		return slices.ContainsFunc(o.srv.told(), func(r trainyard.Report) bool {
			return len(r.Loads) == 1 && r.Loads[0].ID == o.job.ID && r.Loads[0].MemoryMB > 0
		})
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	o.until("its end is told", func() bool { return o.srv.result(o.job.ID) != nil })
	if res := o.srv.result(o.job.ID); res.Class != trainyard.ClassUser || res.ExitCode != 137 {
		t.Errorf("it ended %+v", res)
	}
	if r := o.srv.report(o.job.ID); r.Serving == nil || r.Serving.Ready || !r.Serving.Was {
		t.Errorf("at its end it serves %+v", r.Serving)
	}
}

func TestAReplicaThatIsBusyGetsNoRequestsAndOneThatIsUnwellIsEnded(t *testing.T) {
	o := newOffice(t)
	defer o.begin()()
	o.srv.want(o.job)
	o.untilReady()
	o.touch("busy")
	o.until("it is not ready", func() bool { s := o.last().Serving; return !s.Ready && s.Was && strings.Contains(s.Why, "503") })
	if err := os.Remove(filepath.Join(o.state, "busy")); err != nil {
		t.Fatal(err)
	}
	o.untilReady()
	o.touch("sick")
	o.until("it is ended", func() bool { return o.srv.result(o.job.ID) != nil })
	res := o.srv.result(o.job.ID)
	if res.Class != trainyard.ClassUnwell || !strings.Contains(res.Message, "3 times in a row") || !strings.Contains(res.Message, "500 Internal Server Error: the model is gone") {
		t.Errorf("it ended %+v", res)
	}
}

func TestAReplicaThatIsStoppedGetsNoNewRequestsAndFinishesThoseItHas(t *testing.T) {
	o := newOffice(t)
	defer o.begin()()
	o.srv.want(o.job)
	s := o.untilReady()
	slow := make(chan error, 1)
	go func() {
		res, err := http.Get("http://" + s.Address + "/slow")
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		slow <- err
	}()
	<-time.After(300 * time.Millisecond) // it is under way
	early := make(chan bool, 1)
	go func() {
		for !o.there("asked") && !o.Failed() {
			<-time.After(time.Millisecond)
		}
		early <- o.last().Serving.Ready
	}()
	o.srv.stop(o.job.ID, trainyard.ClassCanceled)
	if err := <-slow; err != nil {
		t.Errorf("a request that was under way: %v", err)
	}
	o.until("it is ended", func() bool { return o.srv.result(o.job.ID) != nil })
	if res := o.srv.result(o.job.ID); res.Class != trainyard.ClassCanceled {
		t.Errorf("it ended %+v", res)
	}
	if <-early {
		t.Error("it was told to end while it was still said to be ready")
	}
}

func TestAReplicaOutlivesItsAgentWhichFindsItAgain(t *testing.T) {
	o := newOffice(t)
	kill := o.host()
	o.srv.want(o.job)
	s := o.untilReady()
	pid := o.ask(s.Address)
	kill()
	if o.ask(s.Address) != pid {
		t.Error("the replica did not outlive its agent")
	}
	before, joins := len(o.reports()), len(o.srv.joined())
	defer o.host()()
	o.until("the new agent has joined and told of it", func() bool {
		return len(o.srv.joined()) > joins && len(o.reports()) > before && o.last().Serving != nil
	})
	if again := o.untilReady(); again != s || o.ask(again.Address) != pid {
		t.Errorf("it serves %+v, before %+v", again, s)
	}
	for _, r := range o.reports()[before:] {
		if r.State == trainyard.TaskRunning && (r.Serving == nil || !r.Serving.Ready) {
			t.Errorf("meanwhile it was said not to be ready: %+v", r.Serving)
		}
	}
	o.touch("busy")
	o.until("the new agent probes", func() bool { return !o.last().Serving.Ready })
	o.srv.stop(o.job.ID, trainyard.ClassCanceled)
	o.until("it is ended", func() bool { return o.srv.result(o.job.ID) != nil })
}

func TestTheServerReachesAReplicaThroughItsAgent(t *testing.T) {
	o := newOffice(t)
	defer o.begin()()
	o.srv.want(o.job)
	pid := o.ask(o.untilReady().Address)
	o.srv.change(func() {
		o.srv.dials = []trainyard.Dial{{ID: "one", Task: o.job.ID}, {ID: "two", Task: o.job.ID}, {ID: "none", Task: "a/b/c/none.1.0"}}
	})
	for range 2 {
		var conn net.Conn
		select {
		case conn = <-o.conns:
		case <-time.After(30 * time.Second):
			t.Fatal("the agent does not connect")
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: replica\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != strconv.Itoa(pid) {
			t.Errorf("the replica says %q, %v", body, err)
		}
	}
	o.srv.change(func() {}) // the same dials once more
	select {
	case <-o.conns:
		t.Error("a connection was made twice")
	case <-time.After(300 * time.Millisecond):
	}
}
