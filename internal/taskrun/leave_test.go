package taskrun

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// What is left of a task has little room: the first warnings stay, and so does the end of a job that says much.
func TestAnEndHasRoomForItsFirstWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		warnings, message, note int // lengths
		of                      string
		kept                    int
	}{
		"all":                  {100, 100, 100, "é", 10},
		"the first":            {900, 100, 100, "é", 4},
		"beside a long end":    {900, 9000, 900, "é", 3},
		"none":                 {9000, 9000, 900, "é", 0},
		"what JSON makes long": {100, 9000, 900, "\x01", 0},
	} {
		end := trainyard.TaskEnd{Result: trainyard.Result{Class: trainyard.ClassUser, ExitCode: 3, Message: "x" + strings.Repeat(c.of, c.message/len(c.of))}, Spans: []trainyard.Span{{Name: "user",
			Start: time.Unix(1, 0), End: time.Unix(2, 0), Note: strings.Repeat("n", c.note)}}}
		for range 10 {
			end.Warnings = append(end.Warnings, strings.Repeat("w", c.warnings))
		}
		path := filepath.Join(t.TempDir(), "end")
		if err := leaveEnd(path, end); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var left trainyard.TaskEnd
		if err := json.Unmarshal(data, &left); err != nil || len(data) > maxEnd || left.Result.ExitCode != 3 || strings.ContainsRune(left.Result.Message, '\uFFFD') || len(left.Warnings) != c.kept {
			t.Errorf("%s: %d bytes with %d warnings are left (%v)", name, len(data), len(left.Warnings), err)
		}
	}
}
