package mlflow

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// However a record's file is broken, it is read without harm; every whole line of it counts, and nothing else.
func FuzzReplay(f *testing.F) {
	l, _ := json.Marshal(line{Info: &info{Kind: kindRun, Name: "n"}, Metrics: []metric{{Key: "a", Value: double(math.NaN()), Time: 1}}, Params: []pair{{"k", "v"}},
		Tags: []pair{{"t", "u"}}, Untag: []string{"x"}, Makes: []modelLink{{ID: "m", Step: 1}}, Inputs: []datasetInput{{Dataset: dataset{Name: "d"}}}})
	f.Add(append(l, '\n'), 3)
	f.Add([]byte("{}\n{\"m\":[{\"k\":\"a\",\"v\":\"Infinity\"}]}\n!\n{\"t\":[{"), 7)
	f.Add([]byte("null\n[]\n1e999\n{\"v\":1}\n{\"m\":[{\"v\":1e999}]}\n"), 1)
	f.Add(bytes.Repeat([]byte("x"), 70_000), 69_000)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		rec, err := replay(bytes.NewReader(data))
		if err != nil || rec.size != int64(len(data)) || rec.torn != (len(data) > 0 && data[len(data)-1] != '\n') {
			t.Fatalf("%v: %d bytes, torn %t", err, rec.size, rec.torn)
		}
		// A torn end is as if it was not there, and as what is made of it when the next line is written.
		cut = max(0, min(cut, len(data)))
		whole := data[:bytes.LastIndexByte(data[:cut], '\n')+1]
		a, _ := replay(bytes.NewReader(data[:cut]))
		b, _ := replay(bytes.NewReader(whole))
		c, _ := replay(strings.NewReader(string(data[:cut]) + tornEnd))
		for _, r := range []*record{b, c} {
			if show(t, a) != show(t, r) {
				t.Fatalf("%s is not %s", show(t, a), show(t, r))
			}
		}
		if rec.weight < 0 {
			t.Fatalf("the weight is %d", rec.weight)
		}
	})
}

// show is what a record says, without what it knows of its file.
func show(t *testing.T, r *record) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"info": r.info, "modified": r.modified, "params": r.params, "tags": r.tags, "untagged": r.untagged, "metrics": r.metrics,
		"inputs": r.inputs, "uses": r.uses, "makes": r.makes, "doc": string(r.doc)})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// No filter does harm, and one that is understood means the same whatever the space in it.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{"metrics.`val loss` < 0.2 AND params.model LIKE 'res%'", "run_id IN ('a', \"b\",) and tags.\"x\" IS NOT NULL", "status='x'AND end_time>=1e3",
		"dataset.name NOT IN ('''')", "name RLIKE '('", "metrics.a = -.5", "a.b.c", "tags.`", "'", "é = 'é'", "tags.a\x00 = 'b'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, filter string) {
		for _, g := range []*grammar{&runGrammar, &experimentGrammar, &registeredGrammar, &versionGrammar, &modelGrammar, &traceGrammar} {
			clauses, err := g.parse(filter)
			if err != nil {
				if utf8.ValidString(filter) && !utf8.ValidString(err.Error()) {
					t.Fatalf("the message is not text: %q", err)
				}
				continue
			}
			again, err := g.parse("\t\n " + filter + " \r\n")
			if err != nil || len(again) != len(clauses) {
				t.Fatalf("%q and space: %v", filter, err)
			}
			for i := range clauses {
				clauses[i].pattern, again[i].pattern = nil, nil
			}
			if !sameClauses(clauses, again) {
				t.Fatalf("%q and space: %v, was %v", filter, again, clauses)
			}
			for _, r := range []*run{{}, {ID: "a", tags: map[string]string{"x": "y"}, metrics: map[string]metric{"a": {Value: 1}}}} {
				if g == &runGrammar {
					holds(clauses, r)
				}
			}
			_, _ = g.orders([]string{filter})
		}
	})
}

func sameClauses(a, b []clause) bool {
	for i := range a {
		if a[i].number != b[i].number && !math.IsNaN(a[i].number) {
			return false
		}
		a[i].number, b[i].number = 0, 0
	}
	return reflect.DeepEqual(a, b)
}

func TestLike(t *testing.T) {
	for _, c := range []struct {
		text, pattern string
		want          bool
	}{
		{"", "", true}, {"", "%", true}, {"a", "", false}, {"abc", "a%", true}, {"abc", "%c", true}, {"abc", "a_c", true}, {"abc", "a_", false},
		{"abcabc", "%b_a%", true}, {"héé", "h__", true}, {"a.c", "a.c", true}, {"abc", "a.c", false}, {"aaa", "%a%a%a%a%", false}, {"x%y", "x%%y", true},
		{strings.Repeat("a", 5000), strings.Repeat("%a", 500) + "b", false},
	} {
		if got := like([]rune(c.text), []rune(c.pattern)); got != c.want {
			t.Errorf("%.20q LIKE %.20q is %t", c.text, c.pattern, got)
		}
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]float64{`1`: 1, `"1.5"`: 1.5, `-1e3`: -1000, `"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1), `1e999`: math.Inf(1)} {
		var d double
		if err := json.Unmarshal([]byte(text), &d); err != nil || float64(d) != want {
			t.Errorf("%s is %v, %v", text, d, err)
		}
		back, err := json.Marshal(d)
		var again double
		if err != nil || json.Unmarshal(back, &again) != nil || again != d {
			t.Errorf("%s becomes %s", text, back)
		}
	}
	for text, want := range map[string]int64{`1`: 1, `"-9007199254740993"`: -9007199254740993, `9007199254740993`: 9007199254740993, `1e3`: 1000, `2.0`: 2, `null`: 0} {
		var i integer
		if err := json.Unmarshal([]byte(text), &i); err != nil || int64(i) != want {
			t.Errorf("%s is %v, %v", text, i, err)
		}
	}
	for _, text := range []string{`"x"`, `1.5`, `true`, `""`, `1e30`} {
		var i integer
		if err := json.Unmarshal([]byte(text), &i); err == nil {
			t.Errorf("%s is %v", text, i)
		}
	}
}
