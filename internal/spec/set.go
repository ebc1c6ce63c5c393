package spec

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// step is one step of a path such as inputs.data[0].path: a key, or an index into a list (then key is "").
type step struct {
	key   string
	index int
}

func (s step) String() string {
	if s.key == "" {
		return fmt.Sprintf("[%d]", s.index)
	}
	return s.key
}

var stepPattern = regexp.MustCompile(`^(?:\.?([^.\[\]"']+)|\.?"([^"]+)"|\.?'([^']+)'|\[([0-9]{1,6})\]|\["([^"]+)"\]|\['([^']+)'\])`)

// steps reads a path: a.b[0].c, with quotes round a key that has dots or brackets in it.
func steps(path string) ([]step, bool) {
	var all []step
	for rest := path; rest != ""; {
		m := stepPattern.FindStringSubmatch(rest)
		if m == nil || len(all) == 0 && (rest[0] == '.' || m[4] != "") {
			return nil, false
		}
		if len(all) > 0 && rest[0] != '.' && rest[0] != '[' {
			return nil, false
		}
		one := step{key: m[1] + m[2] + m[3] + m[5] + m[6]}
		if m[4] != "" {
			one.index, _ = strconv.Atoi(m[4])
		}
		all, rest = append(all, one), rest[len(m[0]):]
	}
	return all, len(all) > 0
}

// set carries out one --set argument on the tree: it makes what is missing on the way. Relative paths in the value count from dir.
func set(root *node, arg, dir string, flags map[string]string, p *problems) {
	src := &source{name: "--set " + arg, dir: dir}
	path, text, found := strings.Cut(arg, "=")
	if flag := flags[path]; flag != "" {
		src.name = flag + " " + text
	}
	way, ok := steps(strings.TrimSpace(path))
	if !found || !ok {
		p.at(place{src: src}, "", "want NAME=VALUE, such as --set resources.instance_count=2 or --set a.b[0].c=x")
		return
	}
	value := argument(src, text, p)
	n, walked := root, ""
	for i, s := range way {
		walked = join(walked, s.String())
		if n.null() {
			*n = node{place: place{src: src}, kind: mapping}
			if s.key == "" {
				n.kind = list
			}
		}
		slot := n.slot(s, src, walked, p)
		if slot == nil {
			return
		}
		if i == len(way)-1 {
			*slot = *value
			return
		}
		n = slot
	}
}

// slot is the value that s leads to, made if need be; nil, with a problem said, where s cannot lead anywhere.
func (n *node) slot(s step, src *source, walked string, p *problems) *node {
	here := place{src: src}
	empty := &node{place: here, typ: isNull}
	switch {
	case s.key != "" && n.kind == mapping:
		if i := n.index(s.key); i >= 0 {
			return n.values[i]
		}
		n.keys = append(n.keys, &node{place: here, text: s.key, value: s.key})
	case s.key == "" && n.kind == list && s.index < len(n.values):
		return n.values[s.index]
	case s.key == "" && n.kind == list && s.index == len(n.values):
	case s.key == "" && n.kind == list:
		p.at(here, walked, "there are %d items: the next free place is [%d]", len(n.values), len(n.values))
		return nil
	case s.key == "":
		p.at(here, walked, "it is %s and not a list", n.words())
		return nil
	default:
		p.at(here, walked, "it is part of %s, which is no map: set the whole of that", n.words())
		return nil
	}
	n.values = append(n.values, empty)
	return empty
}

// argument reads a value given on the command line: a list or a map in YAML's flow style, or a scalar, with quotes if it must be a string.
func argument(src *source, text string, p *problems) *node {
	n := &node{place: place{src: src}, text: text}
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		scratch := &problems{}
		if tree := read(&source{name: src.name, dir: src.dir}, []byte(trimmed), scratch); tree != nil && tree.kind != scalar && len(scratch.list) == 0 {
			return tree.moved(src)
		}
		n.value = text
		return n
	}
	if q := len(trimmed) - 1; q > 0 && (trimmed[0] == '"' || trimmed[0] == '\'') && trimmed[q] == trimmed[0] {
		n.text = trimmed[1:q]
		n.value = n.text
		return n
	}
	n.typ, n.value = resolve(text)
	if n.typ == isNull && text == "" {
		n.typ, n.value = isString, "" // --set description= empties it
	}
	return n
}

// moved gives a tree another source.
func (n *node) moved(src *source) *node {
	n.place = place{src: src}
	for _, k := range n.keys {
		k.moved(src)
	}
	for _, v := range n.values {
		v.moved(src)
	}
	return n
}

// remove carries out one --remove argument on the tree.
func remove(root *node, path string, p *problems) {
	here := place{src: &source{name: "--remove " + path}}
	way, ok := steps(strings.TrimSpace(path))
	if !ok {
		p.at(here, "", "want a path, such as --remove tags.owner or --remove a.b[0]")
		return
	}
	n := root
	for i, s := range way {
		at := n.index(s.key)
		if s.key == "" && n.kind == list && s.index < len(n.values) {
			at = s.index
		}
		if at < 0 {
			p.at(here, "", "there is no such value")
			return
		}
		if i < len(way)-1 {
			n = n.values[at]
			continue
		}
		n.values = append(n.values[:at:at], n.values[at+1:]...)
		if n.kind == mapping {
			n.keys = append(n.keys[:at:at], n.keys[at+1:]...)
		}
	}
}
