package stage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestContainedTaskIsToldWhereItSeesItsFolder(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"data/iris.csv": "x", "more/m.txt": "y"})
	s := stager(t, st)
	tk := task("contained")
	tk.Contained = true
	tk.Inputs = map[string]trainyard.TaskInput{
		"lr":     {Type: "literal", Value: "1e-05"},
		"shared": {Type: "uri_file", Key: "data/iris.csv", URI: "azureml://datastores/d/paths/iris.csv", Mode: "ReadOnlyMount"},
		"own":    {Type: "uri_folder", Key: "more/", URI: "azureml://datastores/d/paths/more/", Mode: "Download"},
		"raw":    {Type: "uri_folder", Key: "data/", URI: "azureml://datastores/d/paths/", Mode: "Direct"},
	}
	tk.Outputs = map[string]trainyard.TaskOutput{
		"model": {Type: "uri_folder", Key: "out/model", Mode: "ReadWriteMount"},
		"score": {Type: "uri_file", Key: "out/score.txt", Mode: "Upload"},
	}
	tk.Command = "${{inputs.lr}} ${{inputs.own}} ${{inputs.raw}} ${{outputs.model}} ${{outputs.score}} ${{inputs.shared}}"
	for range 2 { // again as after a crash
		got, _ := prepare(t, s, tk)
		run, folder, view := got.Run, s.folder(tk.ID), trainyard.ContainedView
		want := "1e-05 " + view + "/inputs/own azureml://datastores/d/paths/ " + view + "/outputs-named/model " + view + "/outputs-named/score/score.txt "
		shared, cut := strings.CutPrefix(run.Command, want)
		if !cut || len(run.Shared) == 0 || !slices.ContainsFunc(run.Shared, func(dir string) bool { return strings.HasPrefix(shared, dir) }) {
			t.Errorf("its command is %q, and it shares %q; want %q and a path in the cache", run.Command, run.Shared, want)
		}
		if run.Root != folder || run.View != view || run.Dir != filepath.Join(folder, workPart) || run.LogDir != filepath.Join(folder, logsPart) {
			t.Errorf("the node is told %+v", run)
		}
		if env := run.Env; env["AZURE_ML_INPUT_own"] != view+"/inputs/own" || env["AZUREML_DATAREFERENCE_model"] != view+"/outputs-named/model" ||
			env["AZUREML_SCRIPT_DIRECTORY_NAME"] != view+"/work" || env["AZURE_ML_INPUT_shared"] != shared {
			t.Errorf("its environment is %v", env)
		}
		for seen, there := range map[string]string{view + "/inputs/own/m.txt": folder + "/inputs/own/m.txt", view: folder, shared: shared, view + "x": view + "x"} {
			if run.Unseen(seen) != there || run.Seen(there) != seen {
				t.Errorf("%s is %s on the node, and %s is %s in there", seen, run.Unseen(seen), there, run.Seen(there))
			}
		}
		if data, err := os.ReadFile(run.Unseen(run.Env["AZURE_ML_INPUT_own"] + "/m.txt")); string(data) != "y" {
			t.Errorf("its input is %q, %v", data, err)
		}
	}
}

func TestLinksOfAContainedTaskAreFollowedAsItMadeThem(t *testing.T) {
	st := newStore(t)
	s := stager(t, st)
	tk := task("links")
	tk.Contained = true
	got, _ := prepare(t, s, tk)
	const work = trainyard.ContainedView + "/" + workPart
	script := `mkdir runs runs/7; echo w > runs/7/weights; ln -s ` + work + `/runs/7 runs/last; cd outputs
		ln -s ` + work + `/runs/last latest; ln -s ` + work + `/runs/last/weights best; ln -s ../runs/last/weights relative
		ln -s ` + work + `/gone broken; ln -s ` + work + `/../../secret above; ln -s latest/../../../.. far
		mkdir -p ../deep/er; echo right > ../deep/f; echo wrong > ../f; ln -s ` + work + `/deep/er ../cur; ln -s ` + work + `/cur/../f climbs`
	mustShell(t, got, script)
	p := finish(t, s, got)
	prefix := "artifacts/links/outputs/"
	if keys := st.keys(t, prefix); !slices.Equal(keys, []string{prefix + "best", prefix + "climbs", prefix + "latest/weights", prefix + "relative"}) {
		t.Errorf("stored %q; said %s", keys, p.all())
	}
	if text, err := os.ReadFile(filepath.Join(st.dir, filepath.FromSlash(prefix), "climbs")); string(text) != "right\n" {
		t.Errorf("a link that climbs leads to %q, %v", text, err)
	}
	for _, words := range []string{"nowhere (above, broken)", "outside the job's folder (far)"} {
		if !strings.Contains(p.all(), words) {
			t.Errorf("did not say %q:\n%s", words, p.all())
		}
	}
	if err := os.Symlink(work+"/outputs/round", filepath.Join(got.Run.Dir, "outputs", "round")); err != nil {
		t.Fatal(err)
	}
	err := s.Finish(t.Context(), got, trainyard.Result{Class: trainyard.ClassOK}, &teller{})
	wantFault(t, err, trainyard.ClassData, "round", "more than 255 links")
}
