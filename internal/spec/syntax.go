package spec

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// syntaxWords says the YAML library's complaints in words that tell what to do. The first that fits counts.
var syntaxWords = []struct{ complaint, words string }{
	{"mapping values are not allowed", "a second \": \" in one value: put quotes around the value, or look at the indentation"},
	{"did not find expected ',' or ']'", "a list in [ ] is not closed, or a comma is missing"},
	{"did not find expected ',' or '}'", "a map in { } is not closed, or a comma is missing"},
	{"did not find expected key", "this does not fit the lines above it: look at the indentation, and at quotes and brackets that are not closed"},
	{"did not find expected '-' indicator", "this does not fit the list above it: look at the indentation"},
	{"did not find expected <document start>", "this does not fit the lines above it: look at the indentation"},
	{"could not find expected ':'", "a key without a \":\" after it: look at the lines above it, and at the indentation"},
	{"found unexpected end of stream", "a quote is opened and not closed"},
	{"found unknown escape character", "in double quotes a \\ begins an escape: double it, or use single quotes"},
	{"found unexpected document indicator", "--- or ... stands inside a quoted value"},
	{"block sequence entries are not allowed", "a list cannot begin here: put it on its own lines, below its key"},
}

var (
	placeholder   = regexp.MustCompile(`(^|[^$])\{\{`)
	unknownAnchor = regexp.MustCompile(`unknown anchor '([^']*)'`)
)

// syntax says where a text stops being YAML, and why, as far as one can tell.
func syntax(src *source, err error) (place, string) {
	where, complaint := place{src: src}, err.Error()
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		complaint = e.Message
		where.line, where.col = e.Mark.Line, max(1, e.Mark.Column)
		if where.line == 0 {
			where.line, where.col = e.ContextMark.Line, max(1, e.ContextMark.Column)
		}
		if opened := e.ContextMark; opened.Line > 0 && strings.Contains(e.Message, "unexpected end of stream") {
			where.line, where.col = opened.Line, max(1, opened.Column)
		}
	}
	line := ""
	if where.line > 0 && where.line <= len(src.lines) {
		line = src.lines[where.line-1]
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	if i := strings.IndexByte(indent, '\t'); i >= 0 {
		where.col = i + 1
		return where, "a tab indents this line: YAML wants spaces"
	}
	if at := placeholder.FindStringIndex(line); at != nil {
		where.col = at[1] - 1
		return where, "{{…}} looks like a place to fill in: put a value there, or quotes around it"
	}
	for _, s := range syntaxWords {
		if strings.Contains(complaint, s.complaint) {
			return where, s.words
		}
	}
	if m := unknownAnchor.FindStringSubmatch(complaint); m != nil {
		return where, fmt.Sprintf("there is no anchor &%s for *%s: put quotes around a value that begins with *", m[1], m[1])
	}
	if runes := []rune(line); strings.Contains(complaint, "cannot start any token") && where.col <= len(runes) {
		return where, fmt.Sprintf("a value cannot begin with %q: put quotes around it", runes[where.col-1])
	}
	return where, "YAML cannot be read here: " + complaint
}
