package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// people is a console that a person of a terminal this wide reads.
func people(width int) (*app, *bytes.Buffer, *bytes.Buffer) {
	var out, err bytes.Buffer
	return &app{console: &console{in: strings.NewReader(""), out: &out, err: &err, outTTY: width > 0, width: width, now: func() time.Time { return noon }}}, &out, &err
}

func TestTable(t *testing.T) {
	a, out, _ := people(0)
	tab := &table{heads: []string{"Name", "Nodes", "Empty", "Why"}, right: []bool{1: true}}
	tab.add("a", "1", "", "because\nof \x1b[31mred")
	tab.add("longer", "100", "", "")
	tab.print(a.console, a.out)
	want := "Name    Nodes  Why\na           1  because of [31mred\nlonger    100\n"
	if out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
}

func TestTableFitsItsTerminal(t *testing.T) {
	for _, width := range []int{40, 60, 80} {
		a, out, _ := people(width)
		tab := &table{heads: []string{"Name", "Status", "Why"}}
		tab.add("calm_river_7x2kq9d1aa", "Queued", strings.Repeat("cpu-cluster is at its maximum ", 5))
		tab.print(a.console, a.out)
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line of %d characters on a terminal of %d: %q", n, width, line)
			}
		}
		if !strings.Contains(out.String(), "…") || width > 40 && !strings.Contains(out.String(), "calm_river_7x2kq9d1aa") {
			t.Errorf("nothing shows that text was cut, or the name was:\n%s", out.String())
		}
	}
}

func TestNarrowTerminalGoesWithoutSpareColumns(t *testing.T) {
	a, out, _ := people(50)
	a.jobTable([]any{map[string]any{"name": "calm_river_7x2kq9d1aa", "display_name": "a display name", "status": "Queued", "compute": "azureml:cpu-cluster",
		"experiment_name": "an experiment", "reason": map[string]any{"message": "cpu-cluster is at its maximum of 2 nodes"}}}).print(a.console, a.out)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 50 {
			t.Errorf("a line of %d characters: %q", n, line)
		}
	}
	for _, want := range []string{"calm_river_7x2kq9d1aa", "Queued", "cpu-clu"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestColourOnlyWhereItIsWanted(t *testing.T) {
	a, out, _ := people(80)
	a.color = true
	a.jobTable([]any{map[string]any{"name": "j", "status": "Failed"}}).print(a.console, a.out)
	if !strings.Contains(out.String(), "\x1b[31mFailed\x1b[0m") {
		t.Errorf("no red in %q", out.String())
	}
	a, out, _ = people(80)
	a.jobTable([]any{map[string]any{"name": "j", "status": "Failed"}}).print(a.console, a.out)
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("colour in %q", out.String())
	}
}

func TestFormats(t *testing.T) {
	list := []any{map[string]any{"name": "a", "n": 2.0, "ok": true, "tags": map[string]any{"x": "<y>"}, "l": []any{1.0, 2.0}, "nil": nil},
		map[string]any{"name": "b", "n": 2.5}}
	for _, tt := range []struct {
		name, output, query string
		result              any
		want                string
	}{
		{"json is indented, sorted and not escaped for HTML", "json", "[0].tags", list, "{\n  \"x\": \"<y>\"\n}\n"},
		{"a piped result is json without asking", "", "[].name", list, "[\n  \"a\",\n  \"b\"\n]\n"},
		{"nothing is null in json", "json", "nope", list[0], "null\n"},
		{"nothing is nothing in tsv", "tsv", "nope", list[0], ""},
		{"tsv of a value", "tsv", "[0].name", list, "a\n"},
		{"tsv of a number", "tsv", "[].n", list, "2\n2.5\n"},
		{"tsv in the query's order", "tsv", "[].{Z:name, A:n}", list, "a\t2\nb\t2.5\n"},
		{"tsv as az writes what is no text", "tsv", "[0:1].[ok, l, tags, \"nil\"]", list, "True\t2\t\tNone\n"},
		{"yaml", "yaml", "[0].tags", list, "x: <y>\n"},
		{"table of a query", "table", "[].{Z:name, A:n}", list, "Z  A\na  2\nb  2.5\n"},
		{"table of values", "table", "[].name", list, "Column1\na\nb\n"},
		{"none", "none", "", list, ""},
		{"a number comparison", "tsv", "[?n > `2`].name", list, "b\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, out, _ := people(0)
			a.output, a.query = tt.output, tt.query
			if err := a.print(tt.result, view{}); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out.String(), tt.want)
			}
		})
	}
}

func TestOutputThatCannotBeIsRefused(t *testing.T) {
	a, _, _ := people(0)
	for _, tt := range []struct{ output, query, want string }{{"jsn", "", "want one of json"}, {"", "[?", "is not a JMESPath expression"}} {
		a.output, a.query = tt.output, tt.query
		if err := a.checkOutput(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want one with %q", err, tt.want)
		}
	}
}

func TestWordsForTimesAndSizes(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0ms", 42 * time.Millisecond: "42ms", 3240 * time.Millisecond: "3.2s", 42 * time.Second: "42s",
		92 * time.Second: "1m 32s", time.Minute: "1m", 2*time.Hour + 5*time.Minute: "2h 5m", 76 * time.Hour: "3d 4h", 59600 * time.Millisecond: "60s"} {
		if got := long(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1500: "1.5 kB", 64 << 20: "67 MB", 2 << 30: "2.1 GB", 999999: "1.0 MB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "now", 5 * time.Second: "5s ago", 90 * time.Minute: "1h ago", 50 * time.Hour: "2d ago", 20 * 24 * time.Hour: "2026-11-01"} {
		if got := ago(noon, noon.Add(-d)); got != want {
			t.Errorf("%v before is %q, want %q", d, got, want)
		}
	}
}

func TestTimelineAddsUp(t *testing.T) {
	a, out, _ := people(0)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	spans := []trainyard.Span{{Name: "queue", Start: at(0), End: at(2)}, {Name: "environment", Start: at(2), End: at(10), Note: "built in 8 s"},
		{Name: "user", Start: at(10), End: at(12)}}
	a.bars(a.out, spans)
	for _, want := range []string{"queue            2.0s", "environment      8.0s", "built in 8 s", "user             2.0s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if got := elapsed(spans); got != 12*time.Second {
		t.Errorf("in all %v", got)
	}
}

func TestAPipelineIsShownWithItsSteps(t *testing.T) {
	a, out, _ := people(0)
	a.jobDetail(map[string]any{"name": "p", "status": "Running", "steps": []any{
		map[string]any{"name": "read", "job": "p-read", "status": "Completed"}, map[string]any{"name": "fit_all", "job": "p-fit_all", "status": "Queued", "why": "no node\nis free"}}})
	for _, want := range []string{"read     Completed   job p-read\n", "fit_all  Queued      job p-fit_all: no node is free\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// A running job says nothing beside its state while it runs, and what is wrong once nothing is known of it.
func TestARunningJobSaysWhatIsWrong(t *testing.T) {
	for code, told := range map[string]bool{"": false, "Running": false, "Steps": false, "EngineAway": true, "NodeSilent": true} {
		e := map[string]any{"name": "j", "status": "Running", "reason": map[string]any{"code": code, "message": "what is said"}}
		a, out, _ := people(0)
		a.jobDetail(e)
		a.jobTable([]any{e}).print(a.console, a.out)
		want := 0
		if told {
			want = 2 // the line and the column
		}
		if got := strings.Count(out.String(), "what is said"); got != want {
			t.Errorf("%q is told %d times, want %d:\n%s", code, got, want, out.String())
		}
	}
}

func TestAComputeIsShownWithWhereItIs(t *testing.T) {
	shownAs := func(properties, location string) string {
		t.Helper()
		e, err := shown(trainyard.KindCompute, []byte(`{"id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/computes/c","name":"c","location":"`+location+`","properties":`+properties+`}`))
		if err != nil {
			t.Fatal(err)
		}
		a, out, _ := people(0)
		a.computeDetail(e)
		return out.String()
	}
	for _, tt := range []struct{ properties, location, want, not string }{
		{`{"computeType":"VirtualMachine","isAttachedCompute":true,"properties":{"address":"lab-pc","sshPort":2222,"administratorAccount":{"username":"ada"}}}`, "local", "address  ada@lab-pc:2222\n", "partition"},
		{`{"computeType":"VirtualMachine","isAttachedCompute":true,"properties":{"address":"lab-pc","sshPort":22}}`, "local", "address  lab-pc\n", "partition"},
		{`{"computeType":"Slurm","isAttachedCompute":true,"properties":{"address":"login","partition":"gpu,long"}}`, "local", "address    login\n  partition  gpu,long\n", "location"},
		{`{"computeType":"Slurm","isAttachedCompute":true,"properties":{"restURL":"https://slurm:6820","partition":"gpu"}}`, "local", "https://slurm:6820\n", ""},
		{`{"computeType":"Kubernetes","isAttachedCompute":true,"properties":{"context":"prod","namespace":"ml"}}`, "local", "address    prod\n  namespace  ml\n", "partition"},
		{`{"computeType":"AmlCompute","place":"lab","properties":{}}`, "local", "location  lab\n", "local"},
		{`{"computeType":"AmlCompute","place":"lab","properties":{}}`, "westeurope", "location  lab (westeurope)\n", ""},
	} {
		if got := shownAs(tt.properties, tt.location); !strings.Contains(got, tt.want) || tt.not != "" && strings.Contains(got, tt.not) {
			t.Errorf("%s is\n%s\nwant %q and not %q", tt.properties, got, tt.want, tt.not)
		}
	}
}

func TestASizeThatWasApprovedIsSaidToBe(t *testing.T) {
	got := sizeTable([]any{map[string]any{"name": "free", "approved": true}, map[string]any{"name": "granted", "needs_approval": true, "approved": true},
		map[string]any{"name": "withheld", "needs_approval": true, "approved": false}})
	for i, want := range []string{"", "approved", "yes"} {
		if row := got.rows[i]; row[len(row)-1] != want {
			t.Errorf("%q, want %q at its end", row, want)
		}
	}
}
