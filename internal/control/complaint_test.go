package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestTheLineThatSaysWhatWasWrong(t *testing.T) {
	const wrapped = "\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"x.py\", line 1\n" +
		"azureml_inference_server_http.server.user_script.UserScriptException: Caught an unhandled exception from the user script\n\n" +
		"2026-01-02 03:04:05,678 E [5] gunicorn.error - Reason: Worker failed to boot.\n"
	for log, want := range map[string]string{
		"Traceback (most recent call last):\n  File \"score.py\", line 1, in <module>\n    import joblib\nModuleNotFoundError: No module named 'joblib'\n" + wrapped: "ModuleNotFoundError: No module named 'joblib'",
		"sklearn.exceptions.NotFittedError: this one\n" + wrapped:                                 "sklearn.exceptions.NotFittedError: this one",
		"KeyError: 'first'\nValueError: last\n":                                                   "ValueError: last",
		"The scoring script 'score.py' is not in the code; there is: a.py\n":                      "The scoring script 'score.py' is not in the code; there is: a.py",
		"2026-01-02 03:04:05,678 E [5] gunicorn.error - Worker failed\nno Error: in the middle\n": "",
		"E0102 03:04:05.678901 9 model_lifecycle.cc:642] \"failed to load 'a' version 1: Internal: ValueError: \\\"odd\\\" name\\n\\nAt:\\n  model.py(12): initialize\\n\"\n" +
			"I0102 03:04:05.678902 9 model_lifecycle.cc:777] \"failed to load 'a'\"\nerror: creating server: Internal - failed to load all models\n": `failed to load 'a' version 1: Internal: ValueError: "odd" name`,
		"E0102 03:04:05.678901 1 model_repository_manager.cc:724] \"failed to load model 'b': at least one version must be available\"\n": "failed to load model 'b': at least one version must be available",
		"": "",
		"ValueError: " + strings.Repeat("x", 500): "ValueError: " + strings.Repeat("x", 288) + "…",
	} {
		if got := complaint(log); got != want {
			t.Errorf("of %q: %q, want %q", log, got, want)
		}
	}
}

func TestTheEndOfALogHasRoomBesideTables(t *testing.T) {
	said := "E0102 03:04:05.678901 9 model_lifecycle.cc:642] \"failed to load 'a'\"\n"
	table := strings.Repeat("|"+strings.Repeat(" ", 200)+"|\n+"+strings.Repeat("-", 200)+"+\n", 20)
	if got := squeeze(said+table, 1000); !strings.HasPrefix(got, said) || len(got) > 1000 || !strings.HasSuffix(got, "|   |\n+---+\n") {
		t.Errorf("a table is left as %q", got)
	}
	if got := squeeze("Traceback:\n        deep in it\nand the end of it, ä\n", 30); got != "and the end of it, ä\n" {
		t.Errorf("the last whole line is %q", got)
	}
	if got := squeeze("Traceback:\n        deep in it\nä\n", 17); got != "   deep in it\nä\n" {
		t.Errorf("where a line is most of what there is room for: %q", got)
	}
	if got := squeeze(strings.Repeat("ä", 20)+"\n", 10); got != "ääää\n" {
		t.Errorf("of a long line that ends: %q", got)
	}
	if got := squeeze("", 10); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// Triton writes a whole traceback in one line.
func TestALongLineIsNotLostForItsLength(t *testing.T) {
	line := "E0102 03:04:05.678901 9 model_lifecycle.cc:642] \"failed to load 'halves' version 1: Internal: ValueError: odd\\n\\nAt:" +
		strings.Repeat("\\n  model.py(12): initialize", 200) + "\"\n"
	const after = "I0102 03:04:05.678902 9 server.cc:1] \"closed\"\nerror: creating server: Internal\n"
	if len(line) <= replicaTail {
		t.Fatalf("the line has only %d bytes", len(line))
	}
	said, end := lastWords("I0102 03:04:05.600000 9 server.cc:1] \"begins\"\n" + line + after)
	if said != "failed to load 'halves' version 1: Internal: ValueError: odd" {
		t.Errorf("it complains of %q", said)
	}
	if len(end) < replicaTail-4 || len(end) > replicaTail || !strings.HasSuffix(end, "model.py(12): initialize\"\n"+after) {
		t.Errorf("its end has %d bytes: %q", len(end), end)
	}
}

func TestTheEndOfAReplicasLogIsNotNothing(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	for name, log := range map[string]struct{ text, want string }{
		"one-line": {strings.Repeat("ä", 20) + "\n", "äää"},
		"lines":    {"one\ntwo\nthree\n", "three"},
		"short":    {"ä\nb\n", "ä\nb"},
	} {
		if _, err := c.Output.Append(t.Context(), scope, name, replicaLog, 0, []byte(log.text)); err != nil {
			t.Fatal(err)
		}
		if got := c.replicaTail(t.Context(), &trainyard.Job{Scope: scope, Name: name}, 8); got != log.want {
			t.Errorf("%s: %q, want %q", name, got, log.want)
		}
	}
}
