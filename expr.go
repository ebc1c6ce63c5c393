package trainyard

import (
	"reflect"
	"strings"
)

var (
	exprPattern  = pattern(`\$\{\{\s*([^{}]*?)\s*\}\}`)
	tokenPattern = pattern(`(?s)\$\[\[(.*?)\]\]|\$\{\{\s*[^{}]*?\s*\}\}`)
)

// Lookup finds the value of an expression such as "inputs.lr" or "outputs.model". ok is false for an optional input that was not
// given; an unknown name is an error.
type Lookup func(expr string) (value string, ok bool, err error)

// Render fills a command in: ${{inputs.x}} and ${{outputs.x}} become their values, and $[[ … ]] stands only if every expression in it
// has one. Other dollars pass through untouched, values are not looked into again, and quoting is the user's, as in Azure ML.
func Render(text string, find Lookup) (string, error) {
	var failed error
	fill := func(s string) (string, bool) {
		whole := true
		out := exprPattern().ReplaceAllStringFunc(s, func(m string) string {
			v, ok, err := find(exprPattern().FindStringSubmatch(m)[1])
			if err != nil && failed == nil {
				failed = err
			}
			whole = whole && ok
			return v
		})
		return out, whole
	}
	out := tokenPattern().ReplaceAllStringFunc(text, func(m string) string {
		if inner, optional := strings.CutPrefix(m, "$[["); optional {
			if part, whole := fill(strings.TrimSuffix(inner, "]]")); whole {
				return part
			}
			return ""
		}
		v, whole := fill(m)
		if !whole && failed == nil {
			failed = Invalid("the command uses %s, an optional input that was not given; write $[[ … %s … ]] round the part that needs it", m, m)
		}
		return v
	})
	return out, failed
}

// Expressions lists what text's ${{…}} name, in order.
func Expressions(text string) []string {
	var out []string
	for _, m := range exprPattern().FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

func lower(s string) string { return strings.ToLower(s) }

// jsonNames lists the JSON names of a struct's fields.
func jsonNames(v any) []string {
	t := reflect.TypeOf(v)
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
