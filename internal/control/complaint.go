package control

import (
	"regexp"
	"strings"
)

// complaints are the last lines of what ends a replica: a Python exception, or a sentence of what starts the scoring script.
var complaints = regexp.MustCompile(`^(?:(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?|The (?:environment|scoring script)\b.*)$`)

// complaint is the line of a log that says what was wrong, "" if none does. Of an exception that was raised from another, the other counts:
// the inference server wraps those of the scoring script.
func complaint(log string) string {
	last := ""
	for line := range strings.Lines(log) {
		if line = strings.TrimSpace(line); complaints.MatchString(line) && !strings.HasPrefix(line, "azureml_inference_server_http.") {
			last = line
		}
	}
	if r := []rune(last); len(r) > 300 {
		last = string(r[:300]) + "…"
	}
	return last
}
