package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// source is where values come from: a file, or an argument such as --set.
type source struct {
	name  string   // as the user wrote it
	dir   string   // relative paths in it count from here; absolute
	lines []string // of the text, for pointing into it; none for an argument
}

// place is a place in a source; line 0 means the whole of it.
type place struct {
	src       *source
	line, col int
}

func (p place) String() string {
	if p.line == 0 {
		return p.src.name
	}
	return fmt.Sprintf("%s:%d:%d", p.src.name, p.line, p.col)
}

type nodeKind int

const (
	scalar nodeKind = iota
	mapping
	list
)

// node is a value of a document: aliases unfolded, merge keys merged, scalars resolved as PyYAML does.
type node struct {
	place
	kind   nodeKind
	typ    scalarType
	text   string // of a scalar, as written
	value  string // of a scalar, as Python's str() writes it
	keys   []*node
	values []*node // of a mapping, beside keys; of a list
}

// get finds a mapping's value by key; nil if it is not there.
func (n *node) get(key string) *node {
	if i := n.index(key); i >= 0 {
		return n.values[i]
	}
	return nil
}

func (n *node) index(key string) int {
	if n == nil || n.kind != mapping {
		return -1
	}
	return slices.IndexFunc(n.keys, func(k *node) bool { return k.text == key })
}

func (n *node) null() bool { return n == nil || n.kind == scalar && n.typ == isNull }

// words says what a node is, for "got …".
func (n *node) words() string {
	switch {
	case n.null():
		return "nothing"
	case n.kind == mapping:
		return "a map"
	case n.kind == list:
		return "a list"
	}
	text := []rune(n.text)
	if len(text) > 60 {
		return strconv.Quote(string(text[:57])) + "…"
	}
	return strconv.Quote(n.text)
}

// plain is the node as Go values for encoding/json: what a JSON reader of the same file would hold.
func (n *node) plain() any {
	switch {
	case n.null():
		return nil
	case n.kind == mapping:
		m := make(map[string]any, len(n.keys))
		for i, k := range n.keys {
			m[k.text] = n.values[i].plain()
		}
		return m
	case n.kind == list:
		all := make([]any, 0, len(n.values))
		for _, v := range n.values {
			all = append(all, v.plain())
		}
		return all
	}
	switch n.typ {
	case isBool:
		return n.value == "True"
	case isInt:
		return json.Number(n.value)
	case isFloat:
		if !strings.ContainsAny(n.value, "in") { // JSON has no inf and no nan
			return json.Number(n.value)
		}
		return n.value
	}
	return n.text
}

// problem is one thing that is wrong with a file.
type problem struct {
	place
	field string
	text  string
}

func (p problem) String() string {
	if p.field == "" {
		return p.place.String() + ": " + p.text
	}
	return p.place.String() + ": " + p.field + ": " + p.text
}

// maxSaid is how many problems are said at once; whoever has more has the wrong file.
const maxSaid = 100

// problems collects everything that is wrong, and everything that a user should know, so that both are said at once.
type problems struct {
	list  []problem
	notes []string
}

func (p *problems) at(where place, field, format string, args ...any) {
	p.list = append(p.list, problem{where, field, fmt.Sprintf(format, args...)})
}

func (p *problems) note(format string, args ...any) {
	p.notes = trainyard.Warn(p.notes, fmt.Sprintf(format, args...))
}

func (p *problems) clone() *problems {
	return &problems{slices.Clone(p.list), slices.Clone(p.notes)}
}

// err is nil if nothing is wrong; else one Error with a detail for each problem in order of place.
func (p *problems) err(file string) error {
	if len(p.list) == 0 {
		return nil
	}
	rank := map[string]int{file: 0} // of sources: the file first, then in order of first use
	for _, one := range p.list {
		if _, known := rank[one.src.name]; !known {
			rank[one.src.name] = len(rank)
		}
	}
	slices.SortStableFunc(p.list, func(a, b problem) int {
		return cmp.Or(cmp.Compare(rank[a.src.name], rank[b.src.name]), cmp.Compare(a.line, b.line), cmp.Compare(a.col, b.col))
	})
	if len(p.list) == 1 {
		e := trainyard.Invalid("%s", p.list[0].String())
		e.Target = p.list[0].field
		return e
	}
	e := trainyard.Invalid("%s has %d mistakes:", file, len(p.list))
	for i, one := range p.list {
		if i == maxSaid {
			e.Details = append(e.Details, trainyard.Error{Code: trainyard.CodeInvalid, Message: fmt.Sprintf("and %d more", len(p.list)-i)})
			break
		}
		e.Details = append(e.Details, trainyard.Error{Code: trainyard.CodeInvalid, Message: one.String(), Target: one.field})
	}
	return e
}

func join(path, name string) string {
	if path == "" || strings.HasPrefix(name, "[") {
		return path + name
	}
	return path + "." + name
}
