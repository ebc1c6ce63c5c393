package control

import (
	"strings"
	"testing"
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
	if got := squeeze("Traceback:\n        deep in it\nä\n", 17); got != "        deep in it\nä\n"[len("        deep in it\n"):] {
		t.Errorf("the last whole line is %q", got)
	}
	if got := squeeze("", 10); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
