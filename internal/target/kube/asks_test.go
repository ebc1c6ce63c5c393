//go:build linux

package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agentlink"
)

// A pod that asks is told its task when it may begin, and that it has is written down before.
func TestWhoIsToldItsTask(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Driver, *task)
		ticket func(*ticket)
		code   trainyard.ErrorCode // "" if it is told
	}{
		"its pod":                        {nil, nil, ""},
		"its pod again":                  {func(_ *Driver, k *task) { k.rec.Begun["uid-p"] = true }, nil, ""},
		"with another task's ticket":     {nil, func(k *ticket) { k.audience = audience("ty-other") }, trainyard.CodeForbidden},
		"with one for the API server":    {nil, func(k *ticket) { k.audience = "https://kubernetes.default.svc" }, trainyard.CodeForbidden},
		"with one of another namespace":  {nil, func(k *ticket) { k.namespace = "other" }, trainyard.CodeForbidden},
		"with one that is no pod's":      {nil, func(k *ticket) { k.pod = "" }, trainyard.CodeForbidden},
		"with an old one":                {nil, func(k *ticket) { k.until = time.Now().Add(-2 * time.Minute) }, trainyard.CodeForbidden},
		"with one of another cluster":    {nil, func(k *ticket) { k.key = other }, trainyard.CodeForbidden},
		"with one by an unknown key":     {nil, func(k *ticket) { k.id = "other" }, trainyard.CodeBusy},
		"with one that nobody signed":    {nil, func(k *ticket) { k.text = "eyJhbGciOiJub25lIn0.e30." }, trainyard.CodeForbidden},
		"without one":                    {nil, func(k *ticket) { k.text = " " }, trainyard.CodeForbidden},
		"a pod that was not heard of":    {nil, func(k *ticket) { k.pod = "uid-q" }, trainyard.CodeBusy},
		"one that was not to ask":        {func(_ *Driver, k *task) { k.job.Meta.Annotations = nil }, nil, trainyard.CodeForbidden},
		"one whose Job is suspended":     {func(_ *Driver, k *task) { k.job.Spec.Suspend = true }, nil, trainyard.CodeBusy},
		"before all of the task is made": {func(_ *Driver, k *task) { k.rec.UID = "" }, nil, trainyard.CodeBusy},
		"when that cannot be kept": {func(_ *Driver, k *task) {
			if err := os.Mkdir(filepath.Join(k.dir, recordFile+".new"), 0o700); err != nil {
				t.Error(err)
			}
		}, nil, trainyard.CodeBusy},
		"after it was told to end": {func(_ *Driver, k *task) {
			now := t0
			k.rec.Stop = &now
		}, nil, trainyard.CodeForbidden},
		"after it has ended":  {func(_ *Driver, k *task) { k.end = &ending{} }, nil, trainyard.CodeForbidden},
		"while it is removed": {func(_ *Driver, k *task) { k.removing = true }, nil, trainyard.CodeForbidden},
		"while another pod of it has begun": {func(_ *Driver, k *task) {
			k.pods["q"] = &podSeen{pod: podJSON(t, "q", runningJSON)}
			k.rec.Begun["uid-q"] = true
		}, nil, trainyard.CodeForbidden},
		"after another pod of it had begun": {func(_ *Driver, k *task) { k.rec.Begun["uid-q"] = true }, nil, trainyard.CodeForbidden},
		"when its end is not written down yet": {func(_ *Driver, k *task) {
			k.rec.Begun["uid-p"] = true
			k.pods["p"] = &podSeen{pod: podJSON(t, "p", `{"phase":"Failed","containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":1}}}]}`)}
		}, nil, trainyard.CodeForbidden},
		"a pod that is to be gone": {func(_ *Driver, k *task) { now := t0; k.pods["p"].pod.Meta.Deleted = &now }, nil, trainyard.CodeBusy},
		"one that has begun and is to be gone": {func(_ *Driver, k *task) {
			now := t0
			k.rec.Begun["uid-p"], k.pods["p"].pod.Meta.Deleted = true, &now
		}, nil, ""},
		"while the compute is set up anew": {func(d *Driver, _ *task) { d.closed = true }, nil, trainyard.CodeBusy},
		"before the keys are known":        {func(d *Driver, _ *task) { d.keys.all = nil }, nil, trainyard.CodeBusy},
	} {
		t.Run(name, func(t *testing.T) {
			d := newMemoryDriver(t, nil)
			d.keys.all = &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "RS256", Use: "sig"}}}
			d.keys.next = time.Now().Add(time.Hour)
			k := memoryTask(d, 1)
			k.job = &job{}
			k.job.Meta.Annotations = map[string]string{asksAnnotation: "true"}
			k.pods["p"] = &podSeen{pod: podJSON(t, "p", runningJSON)}
			if err := os.MkdirAll(k.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(k.dir, orderFile), []byte(`"the task"`), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(d, k)
			}
			shows := &ticket{key: key, id: "one", audience: audience(k.name), namespace: d.api.namespace, pod: "uid-p", until: time.Now().Add(time.Minute)}
			if c.ticket != nil {
				c.ticket(shows)
			}
			had := k.rec.Begun["uid-p"]
			order, err := d.Tell(t.Context(), k.id, shows.sign(t))
			if trainyard.CodeOf(err) != c.code && err != nil || (err == nil) != (c.code == "") || err == nil && string(order) != `"the task"` {
				t.Fatalf("it is told %q (%v), want %s", order, err, c.code)
			}
			if err != nil && k.rec.Begun["uid-p"] != had {
				t.Error("it is taken to have begun")
			}
			var kept record
			data, err := os.ReadFile(filepath.Join(k.dir, recordFile))
			if err == nil {
				err = json.Unmarshal(data, &kept)
			}
			if name == "its pod" && (err != nil || !kept.Begun["uid-p"]) {
				t.Errorf("what is written down is %s (%v)", data, err)
			}
		})
	}
}

// A pod that runs and was not told is sent its task after a while, also one that was there before its task was known; after some that had to
// be, others are.
func TestAPodThatIsNotToldIsSentItsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMemoryDriver(t, nil)
		k := memoryTask(d, 1)
		k.job = &job{}
		k.job.Meta.Annotations = map[string]string{asksAnnotation: "true"}
		p := podJSON(t, "p", runningJSON)
		p.Status.IP = "192.0.2.1"
		d.strays = map[string]map[string]*pod{k.owner(): {"p": p}}
		ready := func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			v := judge(d.sight(k), time.Now())
			return v.ready || v.early
		}
		d.mu.Lock()
		d.adopt(k)
		d.mu.Unlock()
		if ready() {
			t.Error("it is sent its task while it asks")
		}
		<-time.After(sendAfter / 2)
		d.mu.Lock()
		k.pods["p"] = k.seen(p) // there is news
		d.mu.Unlock()
		<-time.After(sendAfter/2 - time.Millisecond)
		if ready() {
			t.Error("it is sent its task while it asks")
		}
		<-time.After(2 * time.Millisecond)
		if !ready() {
			t.Error("it is not sent its task")
		}

		d.env.Tells, d.keys.all = true, &jose.JSONWebKeySet{}
		next := &plan{task: trainyard.Task{Server: "https://server"}, kept: &stock{alone: true}}
		for n := range manyUnheard {
			if !d.mayAsk(next) {
				t.Errorf("after %d the next ones are not left to ask", n)
			}
			d.notHeard("p")
		}
		if d.mayAsk(next) {
			t.Errorf("after %d the next ones are left to ask", manyUnheard)
		}
		<-time.After(noAsking + time.Second)
		if !d.mayAsk(next) {
			t.Error("they are never left to again")
		}
	})
}

// While the keys cannot be read, everything else goes on.
func TestKeysThatDoNotComeHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		d := newMemoryDriver(t, func(r *http.Request) (int, string) {
			if r.URL.Path == keysPath {
				<-gate
				return 500, `{"message":"no time"}`
			}
			return 200, `{"metadata":{"name":"x","uid":"u"},"items":[]}`
		})
		d.env.Tells = true
		path := filepath.Join(t.TempDir(), "trainyard")
		write(t, path, "the program")
		d.program = &program{files: map[string]string{thisArch: path}}
		d.lookAfterKept()
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.lookAfterKept()
			_ = d.keptHere()
			d.mu.Lock()
			defer d.mu.Unlock()
		}()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("the driver waits for the keys")
		}
		close(gate)
		synctest.Wait()
		<-done
		if d.keys.there() || d.keptHere() == nil {
			t.Error("what is kept is of no use without the keys")
		}
	})
}

// ticket is a token as an API server makes them.
type ticket struct {
	key                     *rsa.PrivateKey
	id, audience, namespace string
	pod                     string
	until                   time.Time
	text                    string // instead
}

func (k *ticket) sign(t *testing.T) string {
	t.Helper()
	if k.text != "" {
		return k.text
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: k.key, KeyID: k.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	more := object{"kubernetes.io": object{"namespace": k.namespace, "pod": object{"name": "p", "uid": k.pod}}}
	if k.pod == "" {
		delete(more["kubernetes.io"].(object), "pod")
	}
	text, err := jwt.Signed(s).Claims(jwt.Claims{Audience: jwt.Audience{k.audience}, Expiry: jwt.NewNumericDate(k.until)}).Claims(more).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A pod that has the program asks with it, and becomes it when it is told its task; else it waits to be sent that.
func TestAPodThatAsksBecomesTheProgram(t *testing.T) {
	uname, err := exec.Command("uname", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	const program = "#!/bin/sh\nif [ $1 = ask ]; then ANSWER; fi\necho \"became $1 of $(cat $4)\"\n"
	const told = "became task of the task\n"
	const tells = "echo the task >$5; exit 0"
	for name, c := range map[string]struct {
		answer, sum, question string
		count                 int
		machine               string
		more                  int  // bytes that are not there
		sent                  bool // it waits to be
		want                  string
	}{
		"it is told":              {answer: tells, want: told},
		"in its own words":        {answer: "[ \"$2\" = 'a \"question\"' ] && echo the task >$5; exit 0", question: `a "question"`, want: told},
		"it is refused":           {answer: "exit 1", sent: true},
		"it is no program":        {answer: "\nkill -KILL $$", sent: true},
		"it has not all of it":    {answer: tells, count: 3, sent: true},
		"a piece is short":        {answer: tells, more: 1, sent: true},
		"for another machine":     {answer: tells, machine: "s390x", sent: true},
		"one that is not to ask":  {answer: tells, question: "none", sent: true},
		"it is sent its task too": {answer: "echo another >DIR/shm/task.json; echo done >DIR/bin/sent-ty-this; exit 1", want: "sent\n"},
		"it is killed at first":   {answer: "[ -e DIR/tried ] || { : >DIR/tried; kill -KILL $$; }; echo the task >$5; exit 0", want: told},
		"there is no memory":      {answer: "mkdir -p DIR/task && echo the task >$6; exit 0", want: told},
		"it has no room for that": {answer: "exit 3", want: "the task cannot be written down in the pod\n"},
		"it cannot become that":   {answer: "rm -f $0; exit 0", want: "the task cannot be written down in the pod\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := strings.ReplaceAll(strings.NewReplacer("ANSWER", c.answer).Replace(program), "DIR", dir)
			for file, part := range map[string]string{"program/sum.00": text[:20], "program/sum.01": text[20:], "shm/x": "", "bin/trainyard": "#!/bin/sh\necho sent\n"} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, file), part)
			}
			words := fmt.Sprintf("sum %d %d %s", len(text)+c.more, cmp.Or(c.count, 2), cmp.Or(c.machine, strings.TrimSpace(string(uname))))
			question := cmp.Or(c.question, "a question")
			if question == "none" {
				words, question = "", ""
			}
			pod := exec.CommandContext(t.Context(), "/bin/sh", "-c", inFolder(dir, bootstrap), "trainyard", "0", "", "ty-this", words, question)
			out := &bytes.Buffer{}
			pod.Stdout = out
			if err := pod.Start(); err != nil {
				t.Fatal(err)
			}
			want, code := c.want, 0
			switch {
			case c.sent:
				want = "sent\n"
				<-time.After(1500 * time.Millisecond) // it waits
				write(t, filepath.Join(dir, "bin", "sent-ty-this"), "")
			case want != told && want != "sent\n":
				code = 75
			}
			err := pod.Wait()
			if pod.ProcessState.ExitCode() != code || out.String() != want {
				t.Errorf("it says %q (%v), want %q", out, err, want)
			}
			if _, err := os.Stat(filepath.Join(dir, "bin", "trainyard.asks")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what it asked with is left: %v", err)
			}
		})
	}
}

// door is the server's, of one node.
type door struct {
	mu    sync.Mutex
	to    *Driver
	down  bool
	loses int // answers that go astray
	told  int
}

func (o *door) Tell(ctx context.Context, node trainyard.NodeID, task trainyard.TaskID, ticket string) (json.RawMessage, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if node != "n" || o.down {
		return nil, trainyard.Errorf(trainyard.CodeBusy, "not now")
	}
	order, err := o.to.Tell(ctx, task, ticket)
	if err == nil && o.loses > 0 {
		o.loses--
		return nil, trainyard.Errorf(trainyard.CodeBusy, "the connection is gone")
	}
	if err == nil {
		o.told++
	}
	return order, err
}

func (o *door) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// Pods of a crowd ask, and what was stopped, or is told by nobody, is as it ever was.
func TestPodsAskWhatTheyAreToRun(t *testing.T) {
	b := newBench(t, nil)
	o := &door{to: b.Driver}
	key, cert := selfSigned(t)
	s := httptest.NewUnstartedServer(agentlink.Handler(agentlink.Config{Tellers: o}))
	s.Listener.Close()
	var err error
	s.Listener, err = net.Listen("tcp", "0.0.0.0:0")
	b.must(err)
	pair, err := tls.X509KeyPair(cert, key)
	b.must(err)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	b.must(err)
	stock, err := b.keepProgram(t.Context())
	b.must(err)
	runs := 0
	run := func() trainyard.Task {
		t.Helper()
		b.env.Tells = true
		b.must(b.keys.read(t.Context(), b.api))
		b.keepsFor(stock)
		runs++
		k := b.task(1, "echo hello")
		k.ID = trainyard.MakeTaskID(k.ID.Job(), runs, 0)
		k.Server, k.CA, k.Node = "https://198.18.0.1:"+port, string(cert), "n"
		b.start(k)
		return k
	}
	ends := func(k trainyard.Task, told int) {
		t.Helper()
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); got != "hello\n" {
			t.Errorf("log is %q", got)
		}
		b.ran(k, 1)
		o.set(func() {
			if o.told != told {
				t.Errorf("%d were told, want %d", o.told, told)
			}
		})
	}
	ends(run(), 1)

	o.set(func() { o.loses = 2 })
	ends(run(), 2)

	o.set(func() { o.down = true })
	k := run() // it is sent
	ends(k, 2)
	b.reopen()
	k = run()
	b.reopen()
	o.set(func() { o.to, o.down = b.Driver, false })
	ends(k, 3)

	k = run()
	b.must(b.Stop(t.Context(), k.ID, time.Second))
	b.reaches(k, trainyard.TaskEnded)
	b.must(b.Remove(t.Context(), k.ID))
	b.must(b.Leave(t.Context()))
}

// selfSigned is a certificate for the address at which pods of test/engines/kube reach this computer, and its key.
func selfSigned(t *testing.T) (key, cert []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP("198.18.0.1")},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
