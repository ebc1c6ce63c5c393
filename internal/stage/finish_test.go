package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func finish(t *testing.T, s *Stager, tk trainyard.Task) *teller {
	t.Helper()
	p := &teller{}
	if err := s.Finish(t.Context(), tk, trainyard.Result{Class: trainyard.ClassOK}, p); err != nil {
		t.Fatalf("Finish: %v", err)
	}
	return p
}

func TestEverythingWrittenComesHome(t *testing.T) {
	st := newStore(t)
	s := stager(t, st)
	tk := task("home")
	tk.Outputs = map[string]trainyard.TaskOutput{
		"model":  {Type: "uri_folder", Key: "ws/azureml/home/model/", Mode: "ReadWriteMount"},
		"score":  {Type: "uri_file", Key: "ws/azureml/home/score.txt", Mode: "Upload"},
		"inner":  {Type: "uri_file", Key: "ws/azureml/home/inner/", Mode: "Upload"},
		"direct": {Type: "uri_folder", URI: "azureml://x", Mode: "Direct"},
		"none":   {Type: "uri_folder", Key: "ws/azureml/home/none", Mode: "Upload"},
	}
	tk.Command = `mkdir ${{outputs.model}}/sub; echo w > ${{outputs.model}}/sub/weights; echo 0.9 > ${{outputs.score}}; echo i > ${{outputs.inner}};
		echo o > outputs/o.txt; mkdir logs/tb; echo l > logs/tb/events; echo not > elsewhere`
	got, _ := prepare(t, s, tk)
	if out, err := shell(t, got); err != nil {
		t.Fatal(out)
	}
	p := finish(t, s, tk)
	want := []string{"artifacts/home/logs/tb/events", "artifacts/home/outputs/o.txt", "ws/azureml/home/inner/inner",
		"ws/azureml/home/model/sub/weights", "ws/azureml/home/score.txt"}
	if keys := st.keys(t, ""); !slices.Equal(keys, want) {
		t.Errorf("stored %v", keys)
	}
	if !strings.Contains(p.all(), "uploading outputs: 5 files, 12 B") {
		t.Errorf("said %s", p.all())
	}
	finish(t, s, tk) // as after a crash
	if keys := st.keys(t, ""); !slices.Equal(keys, want) {
		t.Errorf("after a second Finish: %v", keys)
	}
}

func TestOutputsOfTheOtherKindComeHome(t *testing.T) {
	st := newStore(t)
	s := stager(t, st)
	tk := task("kinds")
	tk.Outputs = map[string]trainyard.TaskOutput{
		"folder": {Type: "uri_folder", Key: "ws/folder", Mode: "Upload"},
		"file":   {Type: "uri_file", Key: "ws/file", Mode: "Upload"},
	}
	tk.Command = "rmdir ${{outputs.folder}}; echo f > ${{outputs.folder}}; mkdir ${{outputs.file}}; echo g > ${{outputs.file}}/g"
	got, _ := prepare(t, s, tk)
	if out, err := shell(t, got); err != nil {
		t.Fatal(out)
	}
	finish(t, s, tk)
	if keys := st.keys(t, ""); !slices.Equal(keys, []string{"ws/file/g", "ws/folder/folder"}) {
		t.Errorf("stored %v", keys)
	}
}

func TestWritableInputsAreWrittenBack(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"c/in/same": "same", "c/in/edit": "old", "c/in/gone": "gone", "c/one.txt": "1"})
	s := stager(t, st)
	tk := task("rw")
	tk.Inputs = map[string]trainyard.TaskInput{
		"in":  {Type: "uri_folder", Key: "c/in/", URI: "azureml://in", Mode: "ReadWriteMount"},
		"one": {Type: "uri_file", Key: "c/one.txt", URI: "azureml://one", Mode: "ReadWriteMount"},
	}
	tk.Command = "cd ${{inputs.in}}; echo new! > edit; echo more > more; rm gone; echo 22 > ${{inputs.one}}"
	got, _ := prepare(t, s, tk)
	if out, err := shell(t, got); err != nil {
		t.Fatal(out)
	}
	before, _ := st.info("c/in/same")
	p := finish(t, s, tk)
	after, _ := st.info("c/in/same")
	if before.ETag != after.ETag {
		t.Error("an unchanged file was written back")
	}
	files := tree(t, st.dir)
	if files["c/in/edit"] != "new!\n" || files["c/in/more"] != "more\n" || files["c/one.txt"] != "22\n" || files["c/in/gone"] != "gone" {
		t.Errorf("store holds %v", files)
	}
	if !strings.Contains(p.all(), "gone") {
		t.Errorf("the deleted file was not mentioned: %s", p.all())
	}
}

func TestOddThingsInOutputsAreSkippedAndSaid(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	st := newStore(t)
	s := stager(t, st)
	tk := task("odd")
	tk.Command = `cd outputs; mkfifo pipe; ln -s ` + secret + ` stolen; ln -s / root; ln -s nowhere broken; ln -s . round; mkdir a b; ln -s ../b a/b; ln -s ../a b/a
		echo r > ../real; ln -s ../real inside; ln -s "$PWD/../real" absolute; echo b > b/file; printf x > 'odd name #?%'`
	got, _ := prepare(t, s, tk)
	if out, err := shell(t, got); err != nil {
		t.Fatal(out)
	}
	socket, err := net.Listen("unix", filepath.Join(got.Run.Dir, "outputs", "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	p := finish(t, s, tk)
	want := []string{"a/b/file", "absolute", "b/file", "inside", "odd name #?%"}
	var keys []string
	for _, k := range st.keys(t, "artifacts/odd/outputs/") {
		keys = append(keys, strings.TrimPrefix(k, "artifacts/odd/outputs/"))
	}
	if !slices.Equal(keys, want) {
		t.Errorf("stored %q", keys)
	}
	for _, words := range []string{"pipes and devices (pipe, s)", "outside the job's folder (root, stolen)", "nowhere (broken)", "holds them"} {
		if !strings.Contains(p.all(), words) {
			t.Errorf("did not say %q:\n%s", words, p.all())
		}
	}
}

func TestWorkingDirectoryThatWentIsNoError(t *testing.T) {
	for name, command := range map[string]string{
		"deleted":          `rm -rf "$PWD"`,
		"a link elsewhere": `cd ..; rm -rf work; ln -s / work`,
		"a file":           `rm -rf outputs; echo x > outputs`,
	} {
		st := newStore(t)
		s := stager(t, st)
		tk := task("went")
		tk.Command = command
		got, _ := prepare(t, s, tk)
		if out, err := shell(t, got); err != nil {
			t.Fatal(out)
		}
		finish(t, s, tk)
		if keys := st.keys(t, ""); len(keys) > 0 && name != "a file" {
			t.Errorf("%s: stored %v", name, keys)
		}
		if err := s.Remove(t.Context(), tk.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := stager(t, newStore(t)).Finish(t.Context(), task("never prepared"), trainyard.Result{}, &teller{}); err != nil {
		t.Errorf("a task without a folder: %v", err)
	}
}

// sink counts what it is given.
type sink struct {
	*store
	biggest int64
}

func (s *sink) Put(ctx context.Context, key string, r io.Reader) error {
	buf := make([]byte, 1<<20)
	var n int64
	for {
		k, err := r.Read(buf)
		n += int64(k)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	s.biggest = max(s.biggest, n)
	return nil
}

func TestBigSparseFileIsStreamed(t *testing.T) {
	st := &sink{store: newStore(t)}
	s := stager(t, st)
	tk := task("sparse")
	got, _ := prepare(t, s, tk)
	f, err := os.Create(filepath.Join(got.Run.Dir, "outputs", "big"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 5 << 30
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	p := finish(t, s, tk)
	if st.biggest != size {
		t.Errorf("stored %d bytes", st.biggest)
	}
	if !strings.Contains(p.all(), "uploading outputs: 1 file, 5.0 GiB") {
		t.Errorf("said %s", p.all())
	}
}

// growing is a file to which something still writes while it is stored.
func TestFileThatGrowsIsStoredAsItWas(t *testing.T) {
	st := newStore(t)
	s := stager(t, st)
	tk := task("grow")
	got, _ := prepare(t, s, tk)
	path := filepath.Join(got.Run.Dir, "outputs", "log")
	if err := os.WriteFile(path, []byte("12345"), 0o644); err != nil {
		t.Fatal(err)
	}
	st.refuse = func(string) error { return os.WriteFile(path, bytes.Repeat([]byte("1234567890"), 10), 0o644) }
	finish(t, s, tk)
	if text := tree(t, st.dir)["artifacts/grow/outputs/log"]; text != "12345" {
		t.Errorf("stored %q", text)
	}
}

func TestFirstRanksFilesStay(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		st := newStore(t)
		s := stager(t, st)
		var tasks []trainyard.Task
		for rank := range 2 {
			tk := task("gang")
			tk.ID = trainyard.TaskID(fmt.Sprintf("s/g/w/gang.1.%d", rank))
			tk.Lo, tk.Hi, tk.Nodes = rank, rank+1, 2
			tk.Command = fmt.Sprintf("echo %d > outputs/same; echo %d > outputs/own%d", rank, rank, rank)
			got, _ := prepare(t, s, tk)
			if out, err := shell(t, got); err != nil {
				t.Fatal(out)
			}
			tasks = append(tasks, tk)
		}
		for _, rank := range order {
			finish(t, s, tasks[rank])
		}
		files := tree(t, filepath.Join(st.dir, "artifacts/gang/outputs"))
		if files["same"] != "0\n" || files["own0"] != "0\n" || files["own1"] != "1\n" {
			t.Errorf("order %v: stored %v", order, files)
		}
	}
}

func TestUploadFailures(t *testing.T) {
	st := newStore(t)
	s := stager(t, st)
	tk := task("fails")
	got, _ := prepare(t, s, tk)
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(got.Run.Dir, "outputs", name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var tries atomic.Int64
	st.refuse = func(string) error {
		if tries.Add(1) == 1 {
			return errors.New("connection reset")
		}
		return nil
	}
	finish(t, s, tk)
	st.refuse = func(string) error { return errors.New("connection reset") }
	if err := s.Finish(t.Context(), tk, trainyard.Result{}, &teller{}); err == nil || trainyard.ClassOf(err) != "" {
		t.Errorf("a server that is gone: %v, of class %q", err, trainyard.ClassOf(err))
	}
	st.refuse = func(string) error { return trainyard.Errorf(trainyard.CodeForbidden, "read-only datastore") }
	wantFault(t, s.Finish(t.Context(), tk, trainyard.Result{}, &teller{}), trainyard.ClassData, "read-only datastore", "could not be stored")
}

func TestUnreadableOutputIsSaidAndTheRestComesHome(t *testing.T) {
	st := newStore(t)
	s := stager(t, st)
	tk := task("locked")
	got, _ := prepare(t, s, tk)
	for name, mode := range map[string]os.FileMode{"open": 0o644, "shut": 0} {
		if err := os.WriteFile(filepath.Join(got.Run.Dir, "outputs", name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	g := &gather{home: s.folder(tk.ID)}
	asNobody(t, s.folder(tk.ID), func() { g.take(filepath.Join(got.Run.Dir, "outputs"), "k", false) })
	if len(g.files) != 1 || g.files[0].key != "k/open" || len(g.errs) != 1 {
		t.Fatalf("files %v, errors %v", g.files, g.errs)
	}
	wantFault(t, g.errs[0], trainyard.ClassData, "shut", "permission denied")
}

func TestProgressIsSaidNowAndThen(t *testing.T) {
	calls := 0
	tell := throttle(time.Hour, func() { calls++ })
	for range 1000 {
		tell()
	}
	if calls != 0 {
		t.Errorf("told %d times in no time", calls)
	}
	tell = throttle(0, func() { calls++ })
	tell()
	if calls != 1 {
		t.Errorf("told %d times, want 1", calls)
	}
}

func TestManyIsCalledWhereThereAreFiles(t *testing.T) {
	for name, set := range map[string]struct {
		input         bool
		command       string
		before, after int // calls by the end of Prepare and of Finish
	}{
		"nothing": {false, "true", 0, 0},
		"outputs": {false, "echo o > outputs/o.txt", 0, 1},
		"input":   {true, "true", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			st.put(t, map[string]string{"c/in/a": "a"})
			s, calls := stager(t, st), 0
			s.many = func() { calls++ }
			tk := task("many")
			tk.Command = set.command
			if set.input {
				tk.Inputs = map[string]trainyard.TaskInput{"in": {Type: "uri_folder", Key: "c/in/", URI: "azureml://in", Mode: "Download"}}
			}
			got, _ := prepare(t, s, tk)
			if calls != set.before {
				t.Errorf("%d calls by the end of Prepare", calls)
			}
			if out, err := shell(t, got); err != nil {
				t.Fatal(out)
			}
			if finish(t, s, tk); calls != set.after {
				t.Errorf("%d calls by the end of Finish", calls)
			}
		})
	}
}
