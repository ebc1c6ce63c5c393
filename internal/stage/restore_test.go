package stage

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// attemptOf prepares an attempt on a node of its own, runs its command and stores what it left, as preempted.
func attemptOf(t *testing.T, st *store, tk trainyard.Task, command string) {
	t.Helper()
	s := stager(t, st)
	got, _ := prepare(t, s, tk)
	mustShell(t, got, strings.NewReplacer("$model", filepath.Join(s.folder(tk.ID), outputsPart, "model"), "$score", filepath.Join(s.folder(tk.ID), outputsPart, "score", "score.txt")).Replace(command))
	preempted(t, s, tk)
}

func preempted(t *testing.T, s *Stager, tk trainyard.Task) {
	t.Helper()
	if err := s.Finish(t.Context(), tk, trainyard.Result{Class: trainyard.ClassPreempted}, &teller{}); err != nil {
		t.Fatalf("Finish: %v", err)
	}
}

// restoring is a job whose outputs are in places that others write to as well.
func restoring() (first, next trainyard.Task) {
	first = task("again")
	first.Outputs = map[string]trainyard.TaskOutput{
		"model": {Type: "uri_folder", Key: "ws/shared/", Mode: "Upload"},
		"score": {Type: "uri_file", Key: "ws/scores/score.txt", Mode: "Upload"},
	}
	next = first
	next.ID, next.Attempt, next.Restore = "s/g/w/again.2.0", 2, true
	return first, next
}

func TestRestoreBringsBackOnlyWhatTheAttemptLeft(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"ws/shared/theirs": "t", "ws/scores/other.txt": "o", "artifacts/again/outputs/old": "x"})
	first, next := restoring()
	attemptOf(t, st, first, "echo 1 > $model/step; echo 1 > $model/mine; echo 9 > $score; echo 1 > outputs/step")
	st.put(t, map[string]string{"ws/shared/mine": "taken over", "ws/shared/later": "l"})
	s := stager(t, st)
	prepare(t, s, next)
	got := tree(t, s.folder(next.ID))
	for _, name := range []string{stagedPart, restoredPart} {
		delete(got, name)
	}
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, pythonPart+"/") })
	want := map[string]string{"work/outputs/step": "1\n", "outputs-named/model/step": "1\n", "outputs-named/score/score.txt": "9\n"}
	if !maps.Equal(got, want) {
		t.Errorf("brought back %v", got)
	}
}

func TestRestoreIsNotStoredAgain(t *testing.T) {
	st := newStore(t)
	first, next := restoring()
	attemptOf(t, st, first, "echo 1 > $model/step; echo 1 > $model/last; echo 2 > $model/kept; echo 9 > $score; echo 1 > outputs/a; echo 2 > outputs/b")
	s := stager(t, st)
	got, _ := prepare(t, s, next)
	st.put(t, map[string]string{"ws/shared/step": "newer, of somebody else", "ws/scores/score.txt": "newer"})
	mustShell(t, got, "mv outputs/b outputs/a; cd "+filepath.Join(s.folder(next.ID), outputsPart, "model")+"; echo 7 > last")
	preempted(t, s, next)
	files := tree(t, st.dir)
	if files["ws/shared/step"] != "newer, of somebody else" || files["ws/scores/score.txt"] != "newer" {
		t.Errorf("an old copy replaced what is newer: %v", files)
	}
	if files["ws/shared/last"] != "7\n" || files["artifacts/again/outputs/a"] != "2\n" {
		t.Errorf("what changed was not stored: %v", files)
	}
	// The third attempt gets what the second stored, and what it had from the first; not what it deleted, nor what is another's now.
	third := next
	third.ID, third.Attempt = "s/g/w/again.3.0", 3
	s = stager(t, st)
	prepare(t, s, third)
	if got, want := tree(t, filepath.Join(s.folder(third.ID), outputsPart)), (map[string]string{"model/last": "7\n", "model/kept": "2\n"}); !maps.Equal(got, want) {
		t.Errorf("the third attempt has %v", got)
	}
	if got, want := tree(t, filepath.Join(s.folder(third.ID), workPart)), (map[string]string{"outputs/a": "2\n"}); !maps.Equal(got, want) {
		t.Errorf("the third attempt has %v", got)
	}
}

func TestRestoreWithoutAListBringsBackTheJobsOwnOutputs(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"ws/shared/theirs": "t", "ws/scores/score.txt": "s", "artifacts/again/outputs/step": "1", "artifacts/again/system_logs/checkpoint.json": "{"})
	_, next := restoring()
	s := stager(t, st)
	prepare(t, s, next)
	if got := tree(t, filepath.Join(s.folder(next.ID), outputsPart)); len(got) > 0 {
		t.Errorf("named outputs hold %v", got)
	}
	if got := tree(t, filepath.Join(s.folder(next.ID), workPart)); got["outputs/step"] != "1" {
		t.Errorf("the working directory holds %v", got)
	}
}

func TestRestoreReplacesWhatCameWithTheCode(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"codes/c/outputs/step": "0, of the code", "codes/c/outputs/way": "a file", "codes/c/outputs/dir/x": "x",
		"artifacts/again/outputs/step": "5", "artifacts/again/outputs/way/step": "6", "artifacts/again/outputs/dir": "7"})
	_, next := restoring()
	next.CodeKey = "codes/c"
	s := stager(t, st)
	prepare(t, s, next)
	want := map[string]string{"outputs/step": "5", "outputs/way/step": "6", "outputs/dir": "7"}
	if got := tree(t, filepath.Join(s.folder(next.ID), workPart)); !maps.Equal(got, want) {
		t.Errorf("the working directory holds %v", got)
	}
}

func TestRestoreMakesWayOnlyInTheTasksFolder(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "step"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "outputs")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := makeWay(root, filepath.Join("outputs", "step")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "step")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

func TestRestoreThatWasCutShortStoresNothing(t *testing.T) {
	st := newStore(t)
	first, next := restoring()
	attemptOf(t, st, first, "echo 1 > outputs/step")
	s := stager(t, st)
	prepare(t, s, next)
	if err := os.Remove(filepath.Join(s.folder(next.ID), stagedPart)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.folder(next.ID), workPart, "outputs", "step"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := tree(t, st.dir)
	preempted(t, s, next)
	if !maps.Equal(before, tree(t, st.dir)) {
		t.Errorf("half a copy was stored: %v", tree(t, st.dir))
	}
}

// Each node of a gang has its own part, and a second rank's checkpoint is stored though the attempt before stored one of that name.
func TestRestoreOfAGang(t *testing.T) {
	st := newStore(t)
	first, next := restoring()
	attemptOf(t, st, first, "echo 1 > outputs/zero; echo 1 > $model/zero")
	first.ID, first.Lo, first.Hi = "s/g/w/again.1.1", 1, 2
	attemptOf(t, st, first, "echo 1 > outputs/one; echo 1 > $model/one")
	next.ID, next.Lo, next.Hi = "s/g/w/again.2.1", 1, 2
	s := stager(t, st)
	got, _ := prepare(t, s, next)
	want := map[string]string{"model/zero": "1\n", "model/one": "1\n"}
	if got := tree(t, filepath.Join(s.folder(next.ID), outputsPart)); !maps.Equal(got, want) {
		t.Errorf("brought back %v", got)
	}
	mustShell(t, got, "test -f outputs/zero; echo 2 > outputs/one")
	preempted(t, s, next)
	if files := tree(t, st.dir); files["artifacts/again/outputs/one"] != "2\n" || files["artifacts/again/outputs/zero"] != "1\n" {
		t.Errorf("stored %v", files)
	}
}
