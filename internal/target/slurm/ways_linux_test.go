package slurm

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
	"github.com/trainyard/trainyard/internal/slurm/slurmtest"
	"github.com/trainyard/trainyard/internal/target"
)

// sshd of the login node is ended with all its connections in the middle of a job, and comes back later: the job is not lost, does not run
// twice, and people read why nothing is heard of it.
func TestLoginNodeAwayInTheMiddleOfAJob(t *testing.T) {
	s := labBy(t, byLogin)
	s.Folder = t.TempDir()
	d := open(t, s, t.TempDir())
	goes, waits := makeTask(t, "goes-on", "echo ran >> runs; until test -e go; do sleep 0.05; done; echo done; exit 4", 1), makeTask(t, "later", "echo late", 1)
	stopped := makeTask(t, "stopped-meanwhile", "sleep 600", 1)
	start(t, d, goes)
	start(t, d, stopped)
	running(t, d, goes.ID)
	running(t, d, stopped.ID)
	back := stopLogin(t, s)
	var why error
	until(t, time.Minute, "the list fails", func() bool { // at first perhaps because it was cut in the middle
		_, why = d.Observe(t.Context())
		if why != nil && !slurm.Away(why) {
			t.Fatalf("it says %v", why)
		}
		return why != nil && strings.Contains(why.Error(), "login node 127.0.0.1: out of reach since ")
	}, func() string { return fmt.Sprint(why) })
	until(t, time.Minute, "it says that nobody answers", func() bool {
		_, why = d.Observe(t.Context())
		return why != nil && strings.Contains(why.Error(), "refuses connections; check that sshd runs there")
	}, func() string { return fmt.Sprint(why) })
	start(t, d, waits) // it is accepted
	if err := d.Stop(t.Context(), stopped.ID, 0); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := os.WriteFile(filepath.Join(goes.Run.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	back("")
	if o := ended(t, d, goes.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 4 || logOf(t, d, goes.ID) != "done\n" {
		t.Errorf("result is %+v", *o.Result)
	}
	if data, err := os.ReadFile(filepath.Join(goes.Run.Dir, "runs")); err != nil || string(data) != "ran\n" {
		t.Errorf("the command wrote %q (%v), want that it ran once", data, err)
	}
	if o := ended(t, d, stopped.ID); o.Result.Class != trainyard.ClassCanceled {
		t.Errorf("result is %+v", *o.Result)
	}
	if o := ended(t, d, waits.ID); o.Result.Class != trainyard.ClassOK || logOf(t, d, waits.ID) != "late\n" {
		t.Errorf("result is %+v", *o.Result)
	}
}

// Connections that break off at any time while tasks are handed over cost none, and make none run twice.
func TestConnectionThatBreaksOffWhileTasksStart(t *testing.T) {
	s := labBy(t, byLogin)
	s.Folder = t.TempDir()
	d := open(t, s, t.TempDir())
	for round := range 6 {
		task := makeTask(t, fmt.Sprintf("cut-%d", round), "echo ran >> runs", 1)
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			<-time.After(time.Duration(round*15) * time.Millisecond)
			endConnections(t, s)
		}()
		start(t, d, task)
		<-cut
		if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassOK {
			t.Errorf("round %d: result is %+v", round, *o.Result)
		}
		if data, err := os.ReadFile(filepath.Join(task.Run.Dir, "runs")); err != nil || string(data) != "ran\n" {
			t.Errorf("round %d: the command wrote %q (%v), want that it ran once", round, data, err)
		}
	}
}

// A task that is stopped before its login node was ever reached ends there and then.
func TestStoppedBeforeTheLoginNodeWasReached(t *testing.T) {
	s := labBy(t, byLogin)
	s.Folder = t.TempDir()
	d := open(t, s, t.TempDir())
	back := stopLogin(t, s)
	task := makeTask(t, "never", "true", 1)
	start(t, d, task)
	if err := d.Stop(t.Context(), task.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	done := d.tasks[task.ID.Dir()].done
	d.mu.Unlock()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it waits for the login node")
	}
	back("")
	if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassCanceled {
		t.Errorf("result is %+v", *o.Result)
	}
}

func TestChangedHostKeyIsRefused(t *testing.T) {
	s := labBy(t, byLogin)
	s.Folder = t.TempDir()
	dir := t.TempDir()
	found, err := (&Config{Settings: s}).Probe(t.Context())
	if err != nil || !strings.HasPrefix(found.HostKey, "ssh-ed25519 ") || !strings.Contains(strings.Join(found.Notes, "\n"), "SHA256:") {
		t.Fatalf("%+v, %v", found, err)
	}
	if err := reopen(t, s, dir).Close(); err != nil { // believes the first key, and keeps it
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "other")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	back := stopLogin(t, s)
	back(key)
	const words = "the host key of 127.0.0.1:"
	_, err = (&Config{Settings: s}).open(t.Context(), target.Env{Dir: dir, Program: self(t)}, nil)
	if err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "Nothing was sent to it") {
		t.Errorf("opened with the key that was kept: %v", err)
	}
	pinned := *s.Login
	pinned.HostKey = found.HostKey
	s.Login = &pinned
	if _, err = (&Config{Settings: s}).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("probed with the key that was pinned: %v", err)
	}
}

func TestSlurmrestdThatLetsNobodyIn(t *testing.T) {
	s := labBy(t, byREST)
	s.Folder = t.TempDir()
	s.REST = &slurm.REST{URL: strings.Replace(s.REST.URL, "rest.sock", "locked.sock", 1), User: "root", Token: "e30.e30.secret"}
	_, err := (&Config{Settings: s}).Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), `slurmrestd: it does not let user root in (HTTP 401)`) || !strings.Contains(err.Error(), "scontrol token") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a bad token: %v", err)
	}
	d := open(t, s, t.TempDir())
	task := makeTask(t, "locked-out", "true", 1)
	if err := d.Start(t.Context(), task); err != nil { // tokens run out, and are made anew
		t.Errorf("start: %v", err)
	}
	if err := d.Stop(t.Context(), task.ID, 0); err != nil {
		t.Error(err)
	}
	s.REST = &slurm.REST{URL: "unix:" + filepath.Join(t.TempDir(), "none.sock")}
	if _, err := (&Config{Settings: s}).Probe(t.Context()); err == nil || !slurm.Away(err) || !strings.Contains(err.Error(), "it cannot be reached at unix:") {
		t.Errorf("no service: %v", err)
	}
}

func TestGangByEveryWay(t *testing.T) {
	for _, way := range waysIn {
		t.Run(way, func(t *testing.T) {
			s := labBy(t, way)
			s.Folder = t.TempDir()
			d := open(t, s, t.TempDir())
			task := makeTask(t, "gang", `echo "rank $RANK of $HOSTS with $SLURM_CPUS_PER_TASK"`, 2)
			task.Resources.CPUs = 2
			start(t, d, task)
			if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassOK {
				t.Fatalf("%+v; Slurm says %s", *o.Result, slurm.Tail(d.client, d.path(task.ID.Dir(), slurmFile)))
			}
			if got := logOf(t, d, task.ID); got != "rank 0 of 127.0.0.1,127.0.0.1 with 2\n" {
				t.Errorf("first rank wrote %q", got)
			}
			long := makeTask(t, "asked", "trap 'echo TERM; exit 0' TERM; echo up; while :; do sleep 0.05; done", 2)
			start(t, d, long)
			until(t, time.Minute, "it is up", func() bool { return logOf(t, d, long.ID) == "up\n" }, func() string { return logOf(t, d, long.ID) })
			if err := d.Stop(t.Context(), long.ID, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			if o := ended(t, d, long.ID); o.Result.Class != trainyard.ClassCanceled {
				t.Errorf("result is %+v", *o.Result)
			}
			if got := logOf(t, d, long.ID); !strings.HasPrefix(got, "up\n") || way != byREST && !strings.Contains(got, "TERM\n") {
				t.Errorf("first rank wrote %q", got)
			}
		})
	}
}

// A folder that a way in needs, and a server that nodes cannot reach, are said before anything is tried.
func TestWhatEveryWayNeeds(t *testing.T) {
	for text, want := range map[string]string{
		`{"login":{"address":"hpc","user":"u","password":"p"}}`:                         "folder is missing: name a folder of login node hpc",
		`{"rest":{"url":"https://hpc:6820"}}`:                                           "folder is missing: slurmrestd gives no access to files",
		`{"folder":"/f","rest":{"url":"hpc:6820"}}`:                                     "cannot be used; it must look like https://",
		`{"folder":"/f","rest":{"url":"https://hpc:6820","token":"x"}}`:                 "needs the name of its user",
		`{"folder":"/f","rest":{"url":"unix:/s"},"sbatch":["--nice=1"]}`:                "sbatch lines cannot be used with slurmrestd",
		`{"folder":"/f","login":{"address":"hpc","user":"u"}}`:                          "needs a password or a private key",
		`{"serverURL":"http://192.0.2.9:1234"}`:                                         `server_url: "http://192.0.2.9:1234" would send tokens`,
		`{"serverURL":"ftp://x"}`:                                                       "want https://HOST:PORT",
		`{"folder":"/f","rest":{"url":"unix:/s"},"login":{"address":"hpc","user":"u"}}`: "two ways to the same Slurm",
	} {
		var c Config
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var c Config
	if err := json.Unmarshal([]byte(`{"folder":"/f","login":{"address":"hpc.example","user":"u","password":"p"}}`), &c); err != nil {
		t.Fatal(err)
	}
	_, err := c.Open(t.Context(), target.Env{Dir: t.TempDir(), Program: "/p", Server: "http://127.0.0.1:7878"})
	if err == nil || !strings.Contains(err.Error(), "the nodes of the cluster behind hpc.example cannot reach this server at http://127.0.0.1:7878") {
		t.Errorf("a server on loopback: %v", err)
	}
	if got := fmt.Sprintf("%v %+v %#v", *c.Login, c.Login.Settings, c.Login.Settings); strings.Contains(got, "p}") || strings.Contains(got, "Password") {
		t.Errorf("it shows its password: %s", got)
	}
}

// loginPID is the process of sshd that listens.
func loginPID(t *testing.T, s slurm.Settings) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(s.ConfPath)), "run", "sshd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// endConnections ends all connections to the login node, with what runs in them, as a crash of it would.
func endConnections(t *testing.T, s slurm.Settings) {
	t.Helper()
	for _, pid := range descendants(loginPID(t, s)) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// stopLogin ends sshd of the login node and all its connections, and returns what starts it again, with another host key if one is named.
func stopLogin(t *testing.T, s slurm.Settings) (back func(key string)) {
	t.Helper()
	dir := filepath.Dir(filepath.Dir(s.ConfPath))
	end := func() {
		pid := loginPID(t, s)
		left := descendants(pid)
		for _, p := range append([]int{pid}, left...) {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		until(t, time.Minute, "sshd is gone", func() bool { return !listens(s) }, func() string { return "there" })
	}
	start := func(key string) {
		config := filepath.Join(dir, "etc", "sshd_config")
		if key != "" {
			text, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			config = filepath.Join(t.TempDir(), "sshd_config")
			if err := os.WriteFile(config, []byte(strings.Replace(string(text), filepath.Join(dir, "etc", "login", "host"), key, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := os.OpenFile(filepath.Join(dir, "log", "sshd.out"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", config) // it stays for the tests that follow, and for down.sh to end
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Release()
		until(t, time.Minute, "sshd answers", func() bool { return listens(s) }, func() string { return "silent; see " + dir })
	}
	usual := false
	t.Cleanup(func() {
		if usual {
			return
		}
		if listens(s) {
			end()
		}
		start("")
	})
	end()
	return func(key string) {
		start(key)
		usual = key == ""
	}
}

func listens(s slurm.Settings) bool {
	c, err := net.Dial("tcp", s.Login.Endpoint())
	if err == nil {
		c.Close()
	}
	return err == nil
}

func TestNothingStaysInTheSharedFolderWhenTheNodeIsLetGo(t *testing.T) {
	t.Parallel()
	lab(t)
	for _, way := range waysIn {
		t.Run(way, func(t *testing.T) {
			s := labBy(t, way)
			s.Folder = t.TempDir()
			file := filepath.Join(s.Folder, "of-the-user")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d := open(t, s, t.TempDir())
			if entries, _ := os.ReadDir(s.Folder); len(entries) != 2 {
				t.Fatalf("before there is %v", entries)
			}
			if err := d.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			if entries, _ := os.ReadDir(s.Folder); len(entries) != 1 || entries[0].Name() != "of-the-user" {
				t.Errorf("there stays %v", entries)
			}
			if err := d.Leave(t.Context()); err != nil {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

// Who is not named with the token of the day is let in nowhere; what waits for another goes on with it.
func TestSlurmrestdByHTTPSWithTokensThatChange(t *testing.T) {
	s := labBy(t, byREST)
	s.Folder = t.TempDir()
	site := slurmtest.New(t, s.REST.URL, "researcher", "first", true)
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	s.REST = &slurm.REST{URL: site.URL, User: site.User, TokenFile: file}

	_, err := (&Config{Settings: s}).Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.TLSClientConfig
	pool := x509.NewCertPool()
	pool.AddCert(site.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: pool} // as SSL_CERT_FILE does, which is read once in a process
	t.Cleanup(func() { transport.TLSClientConfig = before })

	if _, err := (&Config{Settings: s}).Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := open(t, s, t.TempDir())
	task := makeTask(t, "by-https", "echo up; while [ ! -e "+filepath.Join(s.Folder, "go")+" ]; do sleep 0.1; done; echo over", 1)
	start(t, d, task)
	until(t, time.Minute, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" }, func() string { return logOf(t, d, task.ID) })
	site.Give("second")
	late := makeTask(t, "late", "echo late", 1)
	start(t, d, late)
	said := func() string {
		list, err := d.Observe(t.Context())
		return fmt.Sprint(list, err)
	}
	until(t, time.Minute, "it is said", func() bool {
		return strings.Contains(said(), "does not let user researcher in") && strings.Contains(said(), "and write it into "+file)
	}, said)
	write("second")
	if err := os.WriteFile(filepath.Join(s.Folder, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[trainyard.TaskID]string{task.ID: "up\nover\n", late.ID: "late\n"} {
		if o := ended(t, d, id); o.Result.Class != trainyard.ClassOK || logOf(t, d, id) != want {
			t.Errorf("%v: %+v, log %q", id, *o.Result, logOf(t, d, id))
		}
	}
}
