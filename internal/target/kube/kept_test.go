//go:build linux

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
	quota  int    // of ConfigMaps; 0: none
	busy   int    // it has no time when that many have been made; 0: it always has
	maps   map[string]*made
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
		if k.quota > 0 && len(k.maps) == k.quota {
			return 403, `{"message":"exceeded quota: none"}`
		}
		if k.busy > 0 && k.next >= k.busy {
			return 500, `{"message":"no time"}`
		}
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
			if words := strings.Split(o.Meta.Name, "-"); key != words[3]+"."+words[len(words)-1] {
				k.t.Errorf("%s holds %s", o.Meta.Name, key)
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
	d.kept.ours = nil
	if keeps(); k.next != n+3 {
		t.Error("ConfigMaps that may be anybody's are used")
	}
	write(t, filepath.Join(d.env.Dir, keptFile), "{") // the disk was full
	d.kept.ours = nil
	keeps()
	dir := d.env.Dir
	d.env.Dir = filepath.Join(dir, "gone") // and is
	n = k.next
	if keeps(); k.next != n {
		t.Error("what is there is made again, since it cannot be written down")
	}
	d.env.Dir = dir

	write(t, d.program.files["amd64"], "another version")
	if other := keeps(); len(k.maps) != 1 || other.name == s.name {
		t.Errorf("of two versions %s and %s %d are left, want 1", s.name, other.name, len(k.maps))
	}
	k.refuse = "GET configmaps"
	if err := d.Leave(t.Context()); !isForbidden(err) {
		t.Errorf("when it may not look at what it made, leaving says %v", err)
	}
	k.refuse = ""
	if err := d.Leave(t.Context()); err != nil || len(k.maps) != 0 {
		t.Errorf("it leaves %d behind (%v)", len(k.maps), err)
	}
}

func TestTheClusterKeepsNoProgram(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*kept, *Driver)
		again  bool // it is tried again soon
	}{
		"that there is none of":             {func(k *kept, _ *Driver) { k.arches = []string{"s390x"} }, false},
		"without the right to list what is": {func(k *kept, _ *Driver) { k.refuse = "GET configmaps" }, false},
		"without the right to make them":    {func(k *kept, _ *Driver) { k.refuse = "POST configmaps" }, false},
		"beyond its quota":                  {func(k *kept, _ *Driver) { k.quota = 2 }, false},
		"when it has no time":               {func(k *kept, _ *Driver) { k.busy = 2 }, true},
		"that is larger than etcd should be": {func(_ *kept, d *Driver) {
			write(t, d.program.files["amd64"], strings.Repeat("a", mostPieces*piece+1))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k, d := newKept(t)
			c.change(k, d)
			s, err := d.keepProgram(t.Context())
			if s != nil || (err != nil && !refused(err)) != c.again {
				t.Errorf("it keeps %+v (%v)", s, err)
			}
			if !c.again && len(k.maps) != 0 {
				t.Errorf("%d ConfigMaps are left", len(k.maps))
			}
			k.busy = 0
			if n := k.next; c.again {
				if _, err := d.keepProgram(t.Context()); err != nil || k.next != 3 {
					t.Errorf("of %d that are there %d are made again (%v)", n, k.next-3, err)
				}
			}
			if err := d.Leave(t.Context()); err != nil || len(k.maps) != 0 {
				t.Errorf("it leaves %d (%v)", len(k.maps), err)
			}
		})
	}
}

// It is kept for the kind of processor that most nodes have.
func TestWhichProgramTheClusterKeeps(t *testing.T) {
	for _, c := range []struct {
		arches []string
		refuse string
		want   string
	}{
		{[]string{"arm64", "amd64", "arm64"}, "", "arm64"}, {[]string{"arm64", "amd64", "amd64"}, "", "amd64"}, {nil, "", thisArch}, {[]string{"arm64"}, "GET nodes", thisArch},
	} {
		k, d := newKept(t)
		k.arches, k.refuse = c.arches, c.refuse
		d.program.files = map[string]string{"amd64": d.program.files["amd64"], "arm64": d.program.files["amd64"]}
		if s, err := d.keepProgram(t.Context()); err != nil || s.arch != c.want {
			t.Errorf("for nodes of %q it keeps %+v (%v), want %s", c.arches, s, err, c.want)
		}
	}
}

// Whoever lets the compute go ends what is being made, and nothing is made after.
func TestNothingIsKeptAfterTheComputeWasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, d := newKept(t)
		d.api.http.Transport = answers(func(r *http.Request) (int, string) {
			if r.Method == http.MethodPost {
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
					return 500, `{"message":"nobody listens"}`
				}
			}
			return k.answer(r)
		})
		d.lookAfterKept()
		<-time.After(time.Second + time.Millisecond)
		if err := d.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		<-time.After(2 * keptNever)
		d.lookAfterKept()
		d.members.Wait()
		if k.next != 1 || len(k.maps) != 0 {
			t.Errorf("%d ConfigMaps were made and %d are left, want 1 that was before, and none", k.next, len(k.maps))
		}
		d.cancel()
	})
}

// Of many tasks at once the last ones are not sent the program, once the cluster keeps it; nor is any where sending takes long.
func TestWhoIsSentTheProgram(t *testing.T) {
	for name, c := range map[string]struct {
		others int // that have not begun
		change func(*Driver, *trainyard.Task)
		sent   bool
	}{
		"alone":          {0, nil, true},
		"with another":   {crowd - 2, nil, true},
		"in a crowd":     {crowd - 1, nil, false},
		"alone, and far": {0, func(d *Driver, _ *trainyard.Task) { d.api.far.Store(true) }, false},
		"alone, and far no more": {0, func(d *Driver, _ *trainyard.Task) {
			d.api.far.Store(true)
			d.api.near.Store(true)
		}, true},
		"a gang":            {crowd, func(_ *Driver, t *trainyard.Task) { t.Hi = 2 }, false},
		"in a queue":        {crowd, func(d *Driver, _ *trainyard.Task) { d.cfg.Queue = "q" }, false},
		"a replica":         {crowd, func(_ *Driver, t *trainyard.Task) { t.Serve = &trainyard.Serve{} }, true},
		"for other nodes":   {crowd, func(_ *Driver, t *trainyard.Task) { t.InstanceType = "arm" }, true},
		"for its own nodes": {crowd, func(_ *Driver, t *trainyard.Task) { t.InstanceType = "amd" }, false},
		"among those that run": {crowd, func(d *Driver, _ *trainyard.Task) {
			for _, k := range d.tasks {
				k.rec.Begun["p"] = true
			}
		}, true},
		"among replicas": {crowd, func(d *Driver, _ *trainyard.Task) {
			for _, k := range d.tasks {
				k.rec.Main = serveName
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
				if err != nil || p.kept != nil {
					t.Fatalf("before the cluster keeps it: %+v (%v)", p, err)
				}
				synctest.Wait()
				if p, err = d.newPlan(task); err != nil || (p.kept == nil) != c.sent {
					t.Fatalf("its pods have %+v (%v), want it sent: %v", p.kept, err, c.sent)
				}
				volumes, _ := p.volumes()
				has := slices.ContainsFunc(volumes, func(v object) bool { return v["name"] == "kept" })
				if has == c.sent {
					t.Errorf("its volumes are %v", volumes)
				}
				d.cancel()
				d.members.Wait()
			})
		})
	}
}

// The API server is asked about the ConfigMaps once in a while, however many tasks begin, soon again when it had no time, and seldom when it
// refused.
func TestWhatIsKeptIsLookedAfterOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, fails := 0, 0
		k, d := newKept(t)
		d.api.http.Transport = answers(func(r *http.Request) (int, string) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, configMaps) {
				looks++
			}
			if fails != 0 {
				return fails, `{"message":"user cannot now"}`
			}
			return k.answer(r)
		})
		for _, step := range []struct {
			after time.Duration
			fails int // an answer of the API server
			looks int
			kept  bool
		}{
			{0, 0, 1, true}, {time.Minute, 0, 1, true}, {keptLook, 500, 2, true}, {time.Second, 500, 2, true}, {keptAgain, 0, 3, true},
			{keptLook, 403, 4, false}, {keptLook, 0, 4, false}, {keptNever, 0, 5, true}, {time.Minute, 0, 5, true},
		} {
			<-time.After(step.after)
			fails = step.fails
			for range 10 {
				d.lookAfterKept()
			}
			synctest.Wait()
			if looks != step.looks {
				t.Fatalf("after %+v it has looked %d times", step, looks)
			}
			if has := d.keptHere() != nil; has != step.kept {
				t.Errorf("after %+v pods have it: %v", step, has)
			}
		}
		d.mu.Lock()
		d.closed = true
		d.mu.Unlock()
		<-time.After(time.Hour)
		d.lookAfterKept()
		d.cancel()
		d.members.Wait()
		if looks != 5 {
			t.Error("it goes on when it is closed")
		}
	})
}

// What is in the pod already is not sent, if it is all of it, of this version, and for this machine.
func TestAPodHasTheProgramAlready(t *testing.T) {
	uname, err := exec.Command("uname", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := "#!/bin/sh\n" + strings.Repeat("# the program\n", 150_000) + "echo ran\n"
	path := filepath.Join(dir, "sent")
	write(t, path, text)
	d := &Driver{group: "g", program: &program{files: map[string]string{thisArch: path}}}
	s, data, err := d.program.stock(thisArch, d.group)
	if err != nil || s.pieces < 2 {
		t.Fatalf("%+v (%v)", s, err)
	}
	for name, c := range map[string]struct {
		there func(i int) string // a piece's name, "" for one that is missing
		cut   int                // bytes that are missing of each
		words string
		want  string
	}{
		"all of it":          {s.file, 0, s.words(), "kept"},
		"nothing":            {func(int) string { return "" }, 0, s.words(), "cat"},
		"a piece is missing": {func(i int) string { return map[int]string{1: s.file(1)}[i] }, 0, s.words(), "cat"},
		"another version":    {func(i int) string { return strings.Replace(s.file(i), s.sum, "0123456789abcdef", 1) }, 0, s.words(), "cat"},
		"another machine":    {s.file, 0, s.sum + " " + fmt.Sprint(s.pieces) + " s390x", "cat"},
		"not known here":     {s.file, 0, "", "cat"},
		"what is no program": {s.file, 1, s.words(), "kept"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "program"), 0o700); err != nil {
				t.Fatal(err)
			}
			for i := range s.pieces {
				if file := c.there(i); file != "" {
					write(t, filepath.Join(dir, "program", file), string(data[i*piece:min((i+1)*piece, len(data))-c.cut]))
				}
			}
			first, err := receive(t, dir, t.TempDir(), "near", path, 0, c.words)
			if want := fmt.Sprintf("need %s nothing %s", strings.TrimSpace(string(uname)), c.want); (err != nil) != (c.cut > 0) || first != want {
				t.Fatalf("it says %q (%v), want %q", first, err, want)
			}
			if c.cut > 0 {
				if _, err := os.Stat(filepath.Join(dir, "bin", "sent-ty-this")); err == nil {
					t.Error("it begins all the same")
				}
				return
			}
			got, err := os.ReadFile(filepath.Join(dir, "bin", "trainyard"))
			if err != nil || strings.TrimRight(string(got), "\x00") != text {
				t.Errorf("the program is %d bytes (%v), want %d", len(got), err, len(text))
			}
		})
	}
}

// A task has the program from the cluster, or is sent it, whatever becomes of what is kept; and nothing of that stays when the compute is let go of.
func TestAProgramThatTheClusterKeepsIsNotSent(t *testing.T) {
	b := newBench(t, nil)
	run := func(n int, ranks int) trainyard.Task {
		t.Helper()
		k := b.task(ranks, "echo hello; test -z \"$(ls /trainyard/program 2>/dev/null)\" || echo kept")
		k.ID = trainyard.MakeTaskID(k.ID.Job(), n, 0)
		b.start(k)
		return k
	}
	says := func(k trainyard.Task, want string) {
		t.Helper()
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); got != want {
			t.Errorf("log is %q, want %q", got, want)
		}
		b.ran(k, k.Hi)
	}
	s, err := b.keepProgram(t.Context())
	b.must(err)
	if s.pieces < 2 {
		t.Fatalf("the program has %d pieces", s.pieces)
	}
	b.keepsFor(s)
	files := b.program.files
	b.program.files = map[string]string{thisArch: filepath.Join(t.TempDir(), "program")} // it cannot be sent
	zeros := make([]byte, size(t, files[thisArch]))
	b.must(os.WriteFile(b.program.files[thisArch], zeros, 0o600))
	k := run(1, 1)
	says(k, "hello\nkept\n")
	b.must(b.Remove(t.Context(), k.ID))
	b.keepsFor(s)
	k = run(2, 2)
	says(k, "hello\nkept\n")
	b.must(b.Remove(t.Context(), k.ID))
	eventually(t, "the kubelet has none of it any more", func() bool { return b.known(k, pods) == 0 })

	b.program.files = files
	b.must(b.api.remove(t.Context(), b.api.path(configMaps, s.piece(0)), nil)) // by somebody who tidies up
	b.keepsFor(s)
	says(run(3, 1), "hello\nkept\n") // the volume has the others

	b.must(b.api.create(t.Context(), b.api.path(configMaps), object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": s.piece(0)},
		"data": object{s.file(0): "no program"}}, nil))
	b.keepsFor(s)
	says(run(5, 1), "hello\nkept\n") // it is sent after all
	b.must(b.api.remove(t.Context(), b.api.path(configMaps, s.piece(0)), nil))

	again, err := b.keepProgram(t.Context())
	b.must(err)
	b.keepsFor(again)
	says(run(4, 1), "hello\nkept\n")

	b.must(b.Leave(t.Context()))
	left, err := b.listKept(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left (%v)", left, err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
