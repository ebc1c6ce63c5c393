package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/jmespath/go-jmespath"
	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
)

// formats are the values of -o.
var formats = []string{"json", "jsonc", "yaml", "yamlc", "table", "tsv", "none"}

// view is how a command's result looks to a person. The functions are called only where a person reads, or asked for a table.
type view struct {
	table  func(items []any) *table // rows of a list, or of the one thing
	detail func(item map[string]any)
}

// checkOutput refuses what -o or --query cannot mean, before anything is done.
func (a *app) checkOutput() error {
	if a.output != "" && !slices.Contains(formats, strings.ToLower(a.output)) {
		return usagef("--output is %q, want one of %s", a.output, strings.Join(formats, ", "))
	}
	if a.query != "" {
		if _, err := jmespath.Compile(a.query); err != nil {
			return usagef("--query %q is not a JMESPath expression: %v", a.query, err)
		}
	}
	return nil
}

// print shows the result of a command: a map, a list of maps, or nil. -o wins; without it a terminal gets the view, anything else JSON.
func (a *app) print(result any, v view) error {
	if err := a.checkOutput(); err != nil {
		return err
	}
	a.done()
	picked := a.query != ""
	if picked {
		var err error
		if result, err = jmespath.Search(a.query, result); err != nil {
			return usagef("--query %q: %v", a.query, err)
		}
	}
	format := strings.ToLower(a.output)
	if format == "" {
		format = "json"
		if a.outTTY && !picked {
			format = "people"
		}
	}
	if result == nil && format != "json" && format != "jsonc" {
		return nil
	}
	switch format {
	case "people", "table":
		return a.printView(result, v, picked, format == "people")
	case "json", "jsonc":
		return a.printJSON(result, format == "jsonc")
	case "yaml", "yamlc":
		return a.printYAML(result, format == "yamlc")
	case "tsv":
		return a.printTSV(result)
	}
	return nil // none
}

func (a *app) printView(result any, v view, picked, people bool) error {
	item, isMap := result.(map[string]any)
	switch {
	case isMap && people && v.detail != nil:
		v.detail(item)
		return nil
	case !picked && v.table != nil:
		t := v.table(listOf(result))
		if len(t.rows) == 0 && people {
			a.note("nothing found")
			return nil
		}
		t.print(a.console, a.out)
		return nil
	}
	a.plainTable(listOf(result)).print(a.console, a.out)
	return nil
}

func listOf(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{v}
}

// plainTable is a table of whatever a query made.
func (a *app) plainTable(items []any) *table {
	t := &table{}
	names := map[string]bool{}
	most := 0
	for _, it := range items {
		switch x := it.(type) {
		case map[string]any:
			for k, v := range x {
				if scalar(v) {
					names[k] = true
				}
			}
		case []any:
			most = max(most, len(x))
		default:
			most = max(most, 1)
		}
	}
	keys := a.columns(names)
	for _, k := range keys {
		t.heads = append(t.heads, strings.ToUpper(k[:1])+k[1:])
	}
	for i := range most {
		t.heads = append(t.heads, "Column"+strconv.Itoa(i+1))
	}
	for _, it := range items {
		row := make([]string, len(t.heads))
		switch x := it.(type) {
		case map[string]any:
			for i, k := range keys {
				row[i] = plain(x[k])
			}
		case []any:
			for i, v := range x {
				row[len(keys)+i] = plain(v)
			}
		default:
			row[len(keys)] = plain(x)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func scalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// columns puts the names of a query's objects into the order in which the query writes them, which JMESPath does not keep.
func (a *app) columns(names map[string]bool) []string {
	at := map[string]int{}
	keys := make([]string, 0, len(names))
	for k := range names {
		keys = append(keys, k)
		at[k] = len(a.query)
		if m := regexp.MustCompile(`[{,]\s*"?` + regexp.QuoteMeta(k) + `"?\s*:`).FindStringIndex(a.query); m != nil {
			at[k] = m[0]
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		if at[keys[i]] != at[keys[j]] {
			return at[keys[i]] < at[keys[j]]
		}
		return keys[i] < keys[j]
	})
	return keys
}

func (a *app) printJSON(v any, color bool) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	text := b.String()
	if color && a.color {
		text = paintKeys(a.console, text, jsonKey, jsonWord)
	}
	_, err := io.WriteString(a.out, text)
	return err
}

func (a *app) printYAML(v any, color bool) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	text := string(data)
	if color && a.color {
		text = paintKeys(a.console, text, yamlKey, nil)
	}
	_, err = io.WriteString(a.out, text)
	return err
}

var (
	jsonKey  = regexp.MustCompile(`(?m)^\s*("(?:[^"\\]|\\.)*"):`)
	jsonWord = regexp.MustCompile(`(?m)(?:: |^\s*)("(?:[^"\\]|\\.)*"|-?[0-9.eE+-]+|true|false|null),?$`)
	yamlKey  = regexp.MustCompile(`(?m)^[\s-]*([^\s:#"'][^:\n]*):(?: |$)`)
)

// paintKeys colours the first group of what the patterns find.
func paintKeys(c *console, text string, key, value *regexp.Regexp) string {
	type mark struct {
		from, to int
		code     string
	}
	var marks []mark
	for _, m := range key.FindAllStringSubmatchIndex(text, -1) {
		marks = append(marks, mark{m[2], m[3], cyan})
	}
	if value != nil {
		for _, m := range value.FindAllStringSubmatchIndex(text, -1) {
			code := yellow
			if text[m[2]] == '"' {
				code = green
			}
			marks = append(marks, mark{m[2], m[3], code})
		}
	}
	slices.SortFunc(marks, func(a, b mark) int { return a.from - b.from })
	var b strings.Builder
	at := 0
	for _, m := range marks {
		if m.from < at {
			continue
		}
		b.WriteString(text[at:m.from] + c.paint(m.code, text[m.from:m.to]))
		at = m.to
	}
	return b.String() + text[at:]
}

// printTSV writes values without quotes, one item a line, as scripts read them: lists count, objects are empty, as in az.
func (a *app) printTSV(v any) error {
	var b strings.Builder
	for _, item := range listOf(v) {
		switch x := item.(type) {
		case map[string]any:
			names := map[string]bool{}
			for k := range x {
				names[k] = true
			}
			for i, k := range a.columns(names) {
				if i > 0 {
					b.WriteByte('\t')
				}
				b.WriteString(tsvCell(x[k]))
			}
		case []any:
			for i, e := range x {
				if i > 0 {
					b.WriteByte('\t')
				}
				b.WriteString(tsvCell(e))
			}
		default:
			b.WriteString(tsvCell(x))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

func tsvCell(v any) string {
	switch x := v.(type) {
	case []any:
		return strconv.Itoa(len(x))
	case map[string]any:
		return ""
	case bool:
		if x {
			return "True"
		}
		return "False"
	case nil:
		return "None"
	}
	return plain(v)
}

// plain is a value as text.
func plain(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case bool:
		return strconv.FormatBool(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// decode reads JSON into maps, lists, strings, numbers and booleans.
func decode(data []byte) (map[string]any, error) {
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, trainyard.Errorf(trainyard.CodeInternal, "the server's answer is not a JSON object: %v", err)
	}
	return m, nil
}
