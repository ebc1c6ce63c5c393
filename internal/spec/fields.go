package spec

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard/internal/catalog"
)

// fields reads a map field by field. Every field asked for becomes known; done says which of the map's are not. A fields of a map that is
// not there answers that nothing is set.
type fields struct {
	p     *problems
	n     *node  // nil: the map is not there
	path  string // "resources"; "" for the document
	known []string
}

func (f *fields) at(name string) string { return join(f.path, name) }

// get is a field's value as it is; nil where it is absent or null.
func (f *fields) get(name string) *node {
	f.known = append(f.known, name)
	if v := f.n.get(name); !v.null() {
		return v
	}
	return nil
}

// has says whether a field is set to something.
func (f *fields) has(name string) bool { return !f.n.get(name).null() }

// silent makes fields known that say nothing to us: what "show" prints and people leave in their files.
func (f *fields) silent(names ...string) {
	f.known = append(f.known, names...)
}

// place is where a field stands, or where the map stands if it is absent.
func (f *fields) place(name string) place {
	if i := f.n.index(name); i >= 0 {
		return f.n.values[i].place
	}
	return f.n.place
}

func (f *fields) wrong(n *node, name, want string) {
	f.p.at(n.place, f.at(name), "got %s, want %s", n.words(), want)
}

// text is a string field. Numbers and dates count as they are written.
func (f *fields) text(name string) string {
	n := f.get(name)
	switch {
	case n == nil:
		return ""
	case n.kind != scalar:
		f.wrong(n, name, "a string")
		return ""
	}
	return n.text
}

// need is text that must be there.
func (f *fields) need(name string) string {
	if f.n != nil && !f.has(name) {
		f.p.at(f.place(name), f.at(name), "it is missing")
	}
	return f.text(name)
}

// version is a version: a string, or a number as Python writes it, so that 01 is "1".
func (f *fields) version(name string) string {
	n := f.get(name)
	if n == nil {
		return ""
	}
	if n.kind != scalar || n.typ == isBool {
		f.wrong(n, name, "a version such as 1 or \"2024-05\"")
		return ""
	}
	return n.value
}

// integer is a whole number of at least low; nil where it is not set.
func (f *fields) integer(name string, low int) *int {
	n := f.get(name)
	if n == nil {
		return nil
	}
	if i, ok := n.whole(); ok && i >= low {
		return &i
	}
	f.wrong(n, name, "an integer of at least "+strconv.Itoa(low))
	return nil
}

// whole reads a scalar as an integer; one in quotes counts too, as it does for the Python SDK.
func (n *node) whole() (int, bool) {
	if n.kind != scalar || n.typ != isInt && n.typ != isString {
		return 0, false
	}
	i, err := strconv.ParseInt(strings.TrimSpace(n.value), 10, 64)
	return int(i), err == nil && i >= 0 && i <= math.MaxInt32
}

func (f *fields) boolean(name string) *bool {
	n := f.get(name)
	if n == nil {
		return nil
	}
	if n.kind == scalar && (n.typ == isBool || n.typ == isString) {
		if typ, value := resolve(n.text); typ == isBool {
			b := value == "True"
			return &b
		}
	}
	f.wrong(n, name, "true or false")
	return nil
}

// choice is a field that is one of a few words, in any case. words are pairs: as written in files, as ARM spells it; a word whose pair is
// in brackets is understood and not offered.
func (f *fields) choice(name string, words ...string) string {
	n := f.get(name)
	if n == nil {
		return ""
	}
	var offered []string
	for i := 0; i < len(words); i += 2 {
		if n.kind == scalar && strings.EqualFold(n.text, words[i]) {
			return strings.Trim(words[i+1], "()")
		}
		if !strings.HasPrefix(words[i+1], "(") {
			offered = append(offered, words[i])
		}
	}
	hint := ""
	if n.kind == scalar {
		if near := catalog.Nearest(n.text, offered); len(near) > 0 {
			hint = "; did you mean " + near[0] + "?"
		}
	}
	f.wrong(n, name, "one of "+strings.Join(offered, ", ")+hint)
	return ""
}

// sub is a field that is a map.
func (f *fields) sub(name string) *fields {
	n := f.get(name)
	if n != nil && n.kind != mapping {
		f.wrong(n, name, "a map")
		n = nil
	}
	return &fields{p: f.p, n: n, path: f.at(name)}
}

// each calls do for every pair of a field that is a map. Values may be null.
func (f *fields) each(name string, do func(key, value *node, path string)) {
	if m := f.sub(name); m.n != nil {
		for i, k := range m.n.keys {
			do(k, m.n.values[i], m.at(k.text))
		}
	}
}

// texts is a field that is a map of strings; asPython writes values as Python's str() does. nil where it is not set.
func (f *fields) texts(name string, asPython bool) map[string]string {
	var all map[string]string
	f.each(name, func(k, v *node, path string) {
		if all == nil {
			all = map[string]string{}
		}
		switch {
		case v.null():
			all[k.text] = ""
		case v.kind != scalar:
			f.p.at(v.place, path, "got %s, want a string", v.words())
		case asPython:
			all[k.text] = v.value
		default:
			all[k.text] = v.text
		}
	})
	return all
}

// noted makes a field known that is understood and not acted on: it says so, and hands the value on for storing.
func (f *fields) noted(name, why string) *node {
	n := f.get(name)
	if n != nil {
		f.p.note("%s is kept and not acted on: %s", f.at(name), why)
	}
	return n
}

// done reports the fields of the map that nobody asked for.
func (f *fields) done() {
	if f.n == nil {
		return
	}
	known, free := map[string]bool{}, []string{}
	for _, name := range f.known {
		if !known[name] && name != "$schema" && f.n.index(name) < 0 {
			free = append(free, name)
		}
		known[name] = true
	}
	slices.Sort(free)
	for _, k := range f.n.keys {
		if !known[k.text] {
			f.p.at(k.place, f.at(k.text), "there is no such field%s", instead(k.text, free))
		}
	}
}

// instead names what could have been meant by word.
func instead(word string, among []string) string {
	if near := catalog.Nearest(word, among); len(near) > 0 {
		return "; did you mean " + near[0] + "?"
	}
	if len(among) > 0 && len(among) <= 8 {
		return "; there are " + strings.Join(among, ", ")
	}
	return ""
}
