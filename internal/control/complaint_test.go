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
		"": "",
		"ValueError: " + strings.Repeat("x", 500): "ValueError: " + strings.Repeat("x", 288) + "…",
	} {
		if got := complaint(log); got != want {
			t.Errorf("of %q: %q, want %q", log, got, want)
		}
	}
}
