package control

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// complaints are the last lines of what ends a replica: a Python exception, or a sentence of what starts the model's server.
var complaints = regexp.MustCompile(`^(?:(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?|The (?:environment|scoring script)\b.*)$`)

// tritonComplaint is Triton's, in quotes; what follows the first line of it, a traceback for one, is behind the characters \n.
var tritonComplaint = regexp.MustCompile(`^E\d{4} \S+ \d+ \S+\] "(failed to load (?:model )?'(?:[^"\\]|\\[^n])*)`)

// complaint is the line of a log that says what was wrong, "" if none does. Of an exception that was raised from another, the other counts:
// the inference server wraps those of the scoring script.
func complaint(log string) string {
	last := ""
	for line := range strings.Lines(log) {
		if m := tritonComplaint.FindStringSubmatch(line); m != nil {
			last = strings.ReplaceAll(m[1], `\"`, `"`)
		} else if line = strings.TrimSpace(line); complaints.MatchString(line) && !strings.HasPrefix(line, "azureml_inference_server_http.") {
			last = line
		}
	}
	if r := []rune(last); len(r) > 300 {
		last = string(r[:300]) + "…"
	}
	return last
}

// wide are the long runs of one character that tables have.
var wide = regexp.MustCompile(` {9,}|-{9,}`)

// lastWords are what the end of a log complains of, and so much of that end as goes into a reason. The complaint may stand before that.
func lastWords(log string) (said, end string) { return complaint(log), squeeze(log, replicaTail) }

// squeeze makes tables narrower, for the end of a log to hold more than those that Triton prints last, and returns at most so many bytes at
// the end, of whole lines as far as wholeLines has that.
func squeeze(text string, most int) string {
	text = wide.ReplaceAllStringFunc(text, func(run string) string { return run[:3] })
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(wholeLines(text[len(text)-most:]), "\uFFFD")
}

// wholeLines drops the first line of a text that was cut off in the middle of that. A line that is most of the text stays as it is: without
// it little would be left, or nothing.
func wholeLines(text string) string {
	if i := strings.IndexByte(text, '\n'); i >= 0 && i < len(text)/2 {
		return text[i+1:]
	}
	for i := 0; i < len(text) && i < utf8.UTFMax; i++ {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}
