package spec

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

var (
	optionalPart = regexp.MustCompile(`(?s)\$\[\[.*?\]\]`)
	expression   = regexp.MustCompile(`\$\{\{\s*([^{}]*?)\s*\}\}`)
	inputRef     = regexp.MustCompile(`^(inputs|outputs)\.([A-Za-z0-9_.-]+)$`)
)

// command reads the command and checks that every expression in it has something to stand for, before a node finds out.
func (t *jobTranslator) command() {
	n := t.get("command")
	if n == nil {
		t.p.at(t.place("command"), "command", "it is missing")
		return
	}
	text := t.text("command")
	if n.kind != scalar {
		return
	}
	if strings.TrimSpace(text) == "" {
		t.p.at(n.place, "command", "it is empty")
	}
	t.job.Spec.Command = text
	optional := optionalPart.FindAllStringIndex(text, -1)
	seen := map[string]int{}
	for _, m := range expression.FindAllStringSubmatchIndex(text, -1) {
		whole := text[m[0]:m[1]]
		where := n.find(whole, seen[whole])
		seen[whole]++
		inside := false
		for _, o := range optional {
			inside = inside || m[0] >= o[0] && m[1] <= o[1]
		}
		t.expression(where, text[m[2]:m[3]], inside)
	}
	t.unclosed(n, text)
}

// unclosed reports every ${{ that begins no expression.
func (t *jobTranslator) unclosed(n *node, text string) {
	whole := map[int]bool{}
	for _, m := range expression.FindAllStringIndex(text, -1) {
		whole[m[0]] = true
	}
	for nth, from := 0, 0; ; nth++ {
		i := strings.Index(text[from:], "${{")
		if i < 0 {
			return
		}
		if from += i; !whole[from] {
			t.p.at(n.find("${{", nth), "command", "a ${{ is not closed with }}, or something other than a name is in it")
		}
		from += len("${{")
	}
}

// expression checks one ${{…}} of the command.
func (t *jobTranslator) expression(where place, text string, optional bool) {
	m := inputRef.FindStringSubmatch(text)
	switch {
	case m != nil:
		side := t.n.get(m[1])
		if !side.null() && side.kind != mapping {
			return // said already
		}
		at := side.index(m[2])
		switch {
		case at >= 0 && (m[1] == "outputs" || t.job.Spec.Inputs[m[2]] != nil || optional):
		case m[1] == "inputs" && optional:
		case at >= 0 && side.values[at].null():
			t.p.at(where, "command", "${{%s}}: the input %s is there and has no value", text, m[2])
		case at >= 0 && side.values[at].get("optional") != nil:
			t.p.at(where, "command", "${{%s}}: the input %s is optional and not given: write $[[ … ${{%s}} … ]] round the part that needs it", text, m[2], text)
		case at < 0:
			t.p.at(where, "command", "${{%s}}: %s has no %s%s", text, m[1], m[2], instead(m[2], side.names()))
		}
	case strings.HasPrefix(text, "search_space."):
		t.p.at(where, "command", "${{%s}}: a search space belongs to a sweep job", text)
	case strings.HasPrefix(text, "parent."):
		t.p.at(where, "command", "${{%s}}: parents belong to the steps of a pipeline", text)
	default:
		t.p.at(where, "command", "${{%s}}: want ${{inputs.NAME}} or ${{outputs.NAME}}", text)
	}
}

// names lists a mapping's keys.
func (n *node) names() []string {
	var all []string
	if n != nil {
		for _, k := range n.keys {
			all = append(all, k.text)
		}
	}
	return all
}

// find is the place of the nth occurrence (from 0) of a piece of a scalar's text: its own line in a block of several.
func (n *node) find(piece string, nth int) place {
	if n.line == 0 || strings.Contains(piece, "\n") {
		return n.place
	}
	for i := n.line - 1; i < len(n.src.lines); i++ {
		line, from := n.src.lines[i], 0
		if i == n.line-1 {
			from = len(line) - len(strings.TrimLeft(line, " ")) // the key stands here too; a key holds no expression
		}
		for {
			at := strings.Index(line[from:], piece)
			if at < 0 {
				break
			}
			if nth == 0 {
				return place{n.src, i + 1, utf8.RuneCountInString(line[:from+at]) + 1}
			}
			nth, from = nth-1, from+at+len(piece)
		}
	}
	return n.place
}
