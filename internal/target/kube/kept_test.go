package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
)

// kept is a cluster's ConfigMaps and nodes.
type kept struct {
	t      *testing.T
	arches []string
	refuse string // a method and a kind that are forbidden
	maps   map[string]*made
	calls  []string
	next   int
}

// made is a ConfigMap as the API server has it.
type made struct {
	uid  string
	data []byte
}

func (k *kept) answer(r *http.Request) (int, string) {
	rest := r.URL.Path[strings.LastIndex(r.URL.Path, "/n/")+3:]
	if strings.HasSuffix(r.URL.Path, "/nodes") {
		rest = nodes
	}
	kind, name, _ := strings.Cut(rest, "/")
	call := r.Method + " " + kind
	if call == k.refuse {
		return 403, `{"message":"user cannot ` + call + `"}`
	}
	if r.Method == http.MethodGet && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		k.t.Errorf("%s is asked for whole", kind)
	}
	var items []any
	item := func(meta object) { items = append(items, object{"metadata": meta}) }
	switch call {
	case "GET nodes":
		for _, a := range k.arches {
			item(object{"name": "n", "labels": object{archLabel: a}})
		}
	case "GET configmaps":
		for name, m := range k.maps {
			item(object{"name": name, "uid": m.uid})
		}
	case "POST configmaps":
		var o struct {
			Meta      meta              `json:"metadata"`
			Immutable bool              `json:"immutable"`
			Data      map[string][]byte `json:"binaryData"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &o)
		}
		if err != nil || !o.Immutable || len(o.Data) != 1 {
			k.t.Errorf("it makes %.200s (%v)", body, err)
		}
		k.next++
		m := &made{uid: fmt.Sprint("uid-", k.next)}
		for key, data := range o.Data {
			if want := "program." + o.Meta.Name[len(o.Meta.Name)-2:]; key != want {
				k.t.Errorf("%s holds %s, want %s", o.Meta.Name, key, want)
			}
			m.data = data
		}
		k.maps[o.Meta.Name] = m
		return 201, fmt.Sprintf(`{"metadata":{"uid":%q}}`, m.uid)
	case "DELETE configmaps":
		delete(k.maps, name)
		return 200, `{"kind":"Status"}`
	default:
		k.t.Errorf("it asks for %s", call)
	}
	text, err := json.Marshal(object{"items": items})
	if err != nil {
		k.t.Error(err)
	}
	return 200, string(text)
}

// whole is what pods put together.
func (k *kept) whole(s *stock) []byte {
	var all []byte
	for i := range s.pieces {
		if m := k.maps[s.piece(i)]; m != nil {
			all = append(all, m.data...)
		}
	}
	return all
}

// newKept is a cluster of one kind of nodes, and a driver on it with a program of two pieces and a bit.
func newKept(t *testing.T) (*kept, *Driver) {
	k := &kept{t: t, arches: []string{"amd64", "amd64"}, maps: map[string]*made{}}
	d := newMemoryDriver(t, k.answer)
	d.cfg.Queue, d.cfg.Image, d.group = "", "img:1", "g"
	path := filepath.Join(t.TempDir(), "program")
	write(t, path, strings.Repeat("a", piece)+strings.Repeat("b", piece)+"c")
	d.program = &program{files: map[string]string{"amd64": path}}
	return k, d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestTheClusterKeepsTheProgram(t *testing.T) {
	k, d := newKept(t)
	keeps := func() *stock {
		t.Helper()
		s, err := d.keepProgram(t.Context())
		if err != nil || s == nil {
			t.Fatalf("it keeps %+v (%v)", s, err)
		}
		data, err := os.ReadFile(d.program.files["amd64"])
		if err != nil || string(k.whole(s)) != string(data) {
			t.Fatalf("the pieces are not the program (%v)", err)
		}
		return s
	}
	s := keeps()
	if s.pieces != 3 || len(k.maps) != 3 {
		t.Errorf("it has %d pieces in %d ConfigMaps, want 3", s.pieces, len(k.maps))
	}
	n := k.next
	if keeps(); k.next != n {
		t.Error("what is there is made again")
	}
	delete(k.maps, s.piece(1))
	if keeps(); k.next != n+1 {
		t.Errorf("of one that was deleted %d are made", k.next-n)
	}

	k.maps[s.piece(0)] = &made{uid: "another", data: []byte("evil")} // somebody made one in its place
	keeps()

	n = k.next
	if err := os.Remove(filepath.Join(d.env.Dir, keptFile)); err != nil { // it died before it wrote down what it made
		t.Fatal(err)
	}
	if keeps(); k.next != n+3 {
		t.Error("ConfigMaps that may be anybody's are used")
	}
	write(t, filepath.Join(d.env.Dir, keptFile), "{") // the disk was full
	keeps()

	waits := memoryTask(d, 1)
	waits.rec.Kept = s.name
	write(t, d.program.files["amd64"], "another version")
	other := keeps()
	if len(k.maps) != 3+1 || other.name == s.name {
		t.Errorf("beside %s there are %d ConfigMaps, want those of %s that a task waits for, and one", other.name, len(k.maps), s.name)
	}
	waits.end = &ending{}
	if keeps(); len(k.maps) != 1 {
		t.Errorf("%d ConfigMaps are left of two versions, want 1", len(k.maps))
	}
	if err := d.Leave(t.Context()); err != nil || len(k.maps) != 0 {
		t.Errorf("it leaves %d behind (%v)", len(k.maps), err)
	}
}

func TestTheClusterKeepsNoProgram(t *testing.T) {
	for name, change := range map[string]func(*kept, *Driver){
		"for several kinds of nodes":         func(k *kept, _ *Driver) { k.arches = append(k.arches, "arm64") },
		"for no nodes":                       func(k *kept, _ *Driver) { k.arches = nil },
		"for nodes that there is none for":   func(k *kept, _ *Driver) { k.arches = []string{"s390x"} },
		"without the right to list nodes":    func(k *kept, _ *Driver) { k.refuse = "GET nodes" },
		"without the right to list what is":  func(k *kept, _ *Driver) { k.refuse = "GET configmaps" },
		"without the right to make them":     func(k *kept, _ *Driver) { k.refuse = "POST configmaps" },
		"that is larger than etcd should be": func(_ *kept, d *Driver) { write(t, d.program.files["amd64"], strings.Repeat("a", mostPieces*piece+1)) },
	} {
		t.Run(name, func(t *testing.T) {
			k, d := newKept(t)
			change(k, d)
			s, err := d.keepProgram(t.Context())
			if s != nil || len(k.maps) != 0 || isForbidden(err) != (k.refuse != "") || err != nil && k.refuse == "" {
				t.Errorf("it keeps %+v in %d (%v)", s, len(k.maps), err)
			}
			if err := d.Leave(t.Context()); err != nil {
				t.Errorf("leave: %v", err)
			}
		})
	}
}

// Of many tasks at once the last ones are not sent the program, once the cluster keeps it; nor is any where sending takes long.
func TestWhoIsSentTheProgram(t *testing.T) {
	for name, c := range map[string]struct {
		others int // that have not begun
		change func(*Driver, *trainyard.Task)
		sent   bool
	}{
		"alone":             {0, nil, true},
		"with another":      {crowd - 2, nil, true},
		"in a crowd":        {crowd - 1, nil, false},
		"alone, and far":    {0, func(d *Driver, _ *trainyard.Task) { d.api.far.Store(true) }, false},
		"a gang":            {crowd, func(_ *Driver, t *trainyard.Task) { t.Hi = 2 }, true},
		"in a queue":        {crowd, func(d *Driver, _ *trainyard.Task) { d.cfg.Queue = "q" }, true},
		"for other nodes":   {crowd, func(_ *Driver, t *trainyard.Task) { t.InstanceType = "arm" }, true},
		"for its own nodes": {crowd, func(_ *Driver, t *trainyard.Task) { t.InstanceType = "amd" }, false},
		"among those that run": {crowd, func(d *Driver, _ *trainyard.Task) {
			for _, k := range d.tasks {
				k.rec.Kept, k.rec.Begun = "kept", nil
				p := &pod{}
				if err := json.Unmarshal([]byte(`{"spec":{"containers":[{"name":"task"}]},"status":`+runningJSON+`}`), p); err != nil {
					t.Fatal(err)
				}
				k.pods["p"] = &podSeen{pod: p}
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, d := newKept(t)
				d.cfg.InstanceTypes = map[string]InstanceType{"arm": {NodeSelector: map[string]string{archLabel: "arm64"}}, "amd": {NodeSelector: map[string]string{archLabel: "amd64"}}}
				for n := range c.others {
					memoryTask(d, n+1)
				}
				id := trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "mine"), 1, 0)
				task := trainyard.Task{ID: id, JobName: "mine", Hi: 1}
				if c.change != nil {
					c.change(d, &task)
				}
				p, err := d.newPlan(task)
				if err != nil || !p.sent() {
					t.Fatalf("before the cluster keeps it: sent %v (%v)", p.sent(), err)
				}
				synctest.Wait()
				if p, err = d.newPlan(task); err != nil || p.sent() != c.sent {
					t.Fatalf("sent %v (%v), want %v", p.sent(), err, c.sent)
				}
				made := &job{}
				text, err := json.Marshal(p.job())
				if err == nil {
					err = json.Unmarshal(text, made)
				}
				if err != nil || made.sent() != p.sent() || made.kept() != p.keptName() || (made.kept() == "") != c.sent {
					t.Errorf("its Job is read as sent %v, kept %q (%v)", made.sent(), made.kept(), err)
				}
				d.cancel()
				d.members.Wait()
			})
		})
	}
}

// The API server is asked about the ConfigMaps once in a while, however many tasks begin, and soon again when it had no time or pods wait for them.
func TestWhatIsKeptIsLookedAfterOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, fails := 0, false
		k, d := newKept(t)
		d.api.http.Transport = answers(func(r *http.Request) (int, string) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, configMaps) {
				looks++
			}
			if fails {
				return 500, `{"message":"no time"}`
			}
			return k.answer(r)
		})
		for _, step := range []struct {
			after, within time.Duration
			fails         bool
			looks         int
		}{
			{0, keptLook, false, 1}, {time.Minute, keptLook, false, 1}, {0, keptAgain, false, 2}, {time.Second, keptAgain, false, 2},
			{keptLook, keptLook, true, 3}, {time.Second, keptLook, true, 3}, {keptAgain, keptLook, false, 4}, {time.Second, keptAgain, false, 4},
		} {
			<-time.After(step.after)
			fails = step.fails
			for range 10 {
				d.lookAfterKept(step.within)
			}
			synctest.Wait()
			if looks != step.looks {
				t.Fatalf("after %+v it has looked %d times", step, looks)
			}
		}
		d.mu.Lock()
		d.closed = true
		d.mu.Unlock()
		<-time.After(time.Hour)
		d.lookAfterKept(0)
		d.cancel()
		d.members.Wait()
		if looks != 4 {
			t.Error("it goes on when it is closed")
		}
	})
}

// A pod puts the program together and becomes it, or ends with the reason why it cannot.
func TestAPodPutsTheProgramTogether(t *testing.T) {
	for name, c := range map[string]struct {
		parts   []string
		in, say string
	}{
		"of its pieces, in their order": {[]string{"#!/bin/sh\necho $1 ", "of ", "$4\n"}, "", "task of DIR/task/task.json\n"},
		"of none":                       {nil, "", "the program cannot be written to the pod's disk: "},
		"on a disk that is full":        {[]string{strings.Repeat("x", 100_000)}, "ulimit -f 1; trap '' XFSZ; ", "the program cannot be written to the pod's disk: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "task"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "task", taskFile), "the task")
			for i, text := range c.parts {
				write(t, filepath.Join(dir, "task", fmt.Sprintf("program.%02d", i)), text)
			}
			script := strings.ReplaceAll(inFolder(dir, bootstrap), "/dev/termination-log", dir+"/said")
			pod := exec.CommandContext(t.Context(), "/bin/sh", "-c", c.in+script, "trainyard", "0", "", dir+"/task/"+keptPattern, "ty-this")
			out, err := pod.Output()
			want := strings.ReplaceAll(c.say, "DIR", dir)
			if !strings.HasPrefix(string(out), want) || (err == nil) != strings.HasPrefix(c.say, "task") {
				t.Errorf("it says %q (%v), want %q", out, err, want)
			}
			if said, _ := os.ReadFile(dir + "/said"); err != nil && string(said) != string(out) {
				t.Errorf("it leaves %q behind, want %q", said, out)
			}
		})
	}
}

// A task finds the program in the cluster, whatever becomes of that, and nothing of it stays when the compute is let go of.
func TestAProgramThatTheClusterKeepsIsNotSent(t *testing.T) {
	b := newBench(t, nil)
	b.api.far.Store(true)
	run := func(n int) trainyard.Task {
		t.Helper()
		k := b.task(1, "echo hello")
		k.ID = trainyard.MakeTaskID(k.ID.Job(), n, 0)
		b.start(k)
		return k
	}
	hello := func(k trainyard.Task) {
		t.Helper()
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); got != "hello\n" {
			t.Errorf("log is %q", got)
		}
		b.ran(k, 1)
	}
	keeps := func() []string {
		t.Helper()
		eventually(t, "the cluster keeps it", func() bool {
			b.kept.mu.Lock()
			defer b.kept.mu.Unlock()
			return b.kept.stock != nil
		})
		there, err := b.listKept(t.Context())
		b.must(err)
		var names []string
		for name := range there {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	hello(run(1)) // it is sent
	maps := keeps()
	if len(maps) == 0 {
		t.Fatal("there are no ConfigMaps")
	}
	files := b.program.files
	b.program.files = map[string]string{thisArch: "/nowhere"} // it cannot be sent
	b.api.far.Store(true)
	k := run(2)
	hello(k)
	var j job
	b.must(b.api.get(t.Context(), b.api.path(jobs, b.nameOf(k.ID)), nil, &j))
	if !strings.HasPrefix(maps[0], j.kept()+"-") || j.kept() == "" {
		t.Errorf("its Job says that it is kept as %q, want %s", j.kept(), maps[0])
	}

	b.program.files = files
	b.must(b.Remove(t.Context(), k.ID))
	eventually(t, "the kubelet has none of them any more", func() bool { return b.known(k, pods) == 0 })
	for _, name := range maps { // somebody has tidied up
		b.must(b.api.remove(t.Context(), b.api.path(configMaps, name), nil))
	}
	k = run(3)
	b.says(k, "not found")
	hello(k)
	if again := keeps(); !slices.Equal(again, maps) {
		t.Errorf("there are %q, want %q again", again, maps)
	}

	k = run(4) // its server loses all that it knew while it runs
	b.must(b.Close())
	b.must(os.RemoveAll(b.dir))
	b.Driver = openDriver(t, b.cfg, b.dir)
	hello(k)

	b.must(b.Leave(t.Context()))
	left, err := b.listKept(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left (%v)", left, err)
	}
}
