package spec

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

const (
	maxFile   = 1 << 20 // bytes of a YAML file
	maxNodes  = 10_000  // values of a document, aliases unfolded
	maxDepth  = 100
	emptyFile = "the file is empty"
)

// read makes a tree of a YAML text. It returns nil, with a problem said, for a text that cannot be read; a tree with problems beside it is
// whole enough for finding more of them.
func read(src *source, data []byte, p *problems) *node {
	whole := place{src: src}
	if len(data) > maxFile {
		p.at(whole, "", "the file is %d KiB, and at most %d KiB are read: is it the right file?", len(data)>>10, maxFile>>10)
		return nil
	}
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		p.at(whole, "", "the file is UTF-16: save it as UTF-8")
		return nil
	}
	data = bytes.ReplaceAll(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
	src.lines = strings.Split(string(data), "\n")
	if !readable(src, data, p) {
		return nil
	}
	root, ok := load(src, data, p)
	if !ok {
		return nil
	}
	if root == nil {
		p.at(whole, "", emptyFile)
		return nil
	}
	b := builder{src: src, p: p, open: map[*yaml.Node]bool{}}
	n := b.build(root, 0)
	if b.count > maxNodes {
		p.list = nil // the problems of an unfolded bomb are as many as its values
		p.at(whole, "", "it holds more than %d values, aliases unfolded: is it the right file?", maxNodes)
		return nil
	}
	return n
}

// readable looks for bytes that no YAML text holds, and says where the first is.
func readable(src *source, data []byte, p *problems) bool {
	line, col := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			p.at(place{src, line, col}, "", "the byte 0x%02x is not UTF-8: save the file as UTF-8", data[i])
			return false
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f, r == 0xfffe, r == 0xffff:
			p.at(place{src, line, col}, "", "a control character (0x%02x) stands here: is it a text file?", r)
			return false
		case r == '\n':
			line, col = line+1, 0
		}
		i, col = i+size, col+1
	}
	return true
}

// load returns the one document of the text; nil if there is none.
func load(src *source, data []byte, p *problems) (root *yaml.Node, ok bool) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		p.at(place{src: src}, "", "%v", err)
		return nil, false
	}
	var docs [2]yaml.Node
	for i := range docs {
		if err := loader.Load(&docs[i]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			where, words := syntax(src, err)
			p.at(where, "", "%s", words)
			return nil, false
		}
	}
	if second := &docs[1]; second.Kind != 0 {
		p.at(place{src, max(1, second.Line), max(1, second.Column)}, "", "a second document begins here: a file holds one; take the line --- away, or make two files")
		return nil, false
	}
	if docs[0].Kind == 0 || len(docs[0].Content) == 0 {
		return nil, true
	}
	return docs[0].Content[0], true
}

// builder turns the library's nodes into ours.
type builder struct {
	src   *source
	p     *problems
	count int
	open  map[*yaml.Node]bool // being built, so that an anchor inside itself is seen
}

func (b *builder) build(y *yaml.Node, depth int) *node {
	n := &node{place: place{b.src, y.Line, y.Column}}
	if b.count++; b.count > maxNodes {
		return n
	}
	if b.open[y] || depth > maxDepth {
		if b.open[y] {
			b.p.at(n.place, "", "the anchor &%s stands inside itself: that has no end", y.Anchor)
		} else {
			b.p.at(n.place, "", "values are nested more than %d deep", maxDepth)
		}
		n.typ = isNull
		return n
	}
	b.open[y] = true
	defer delete(b.open, y)
	switch y.Kind {
	case yaml.AliasNode:
		if y.Alias == nil {
			n.typ = isNull
			return n
		}
		return b.build(y.Alias, depth+1)
	case yaml.MappingNode:
		n.kind = mapping
		b.fill(n, y, depth)
	case yaml.SequenceNode:
		n.kind = list
		for _, c := range y.Content {
			if b.count > maxNodes {
				break
			}
			n.values = append(n.values, b.build(c, depth+1))
		}
	default:
		b.scalar(n, y)
	}
	return n
}

func (b *builder) fill(n *node, y *yaml.Node, depth int) {
	var merged []*node
	lines := map[string]int{}
	for i := 0; i+1 < len(y.Content) && b.count <= maxNodes; i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Value == "<<" && k.Style&quoted == 0 {
			merged = append(merged, b.build(v, depth+1))
			continue
		}
		key := b.build(k, depth+1)
		if key.kind != scalar {
			b.p.at(key.place, "", "a map or a list cannot be a key; put quotes around {{NAME}}, or a value in its place")
			continue
		}
		if first := lines[key.text]; first > 0 {
			b.p.at(key.place, key.text, "is there twice; it is also at line %d", first)
			continue
		}
		lines[key.text] = key.line
		n.keys, n.values = append(n.keys, key), append(n.values, b.build(v, depth+1))
	}
	for _, m := range merged {
		b.merge(n, m)
	}
}

// merge adds the pairs of m, the value of a key <<, that n does not have.
func (b *builder) merge(n, m *node) {
	switch m.kind {
	case list:
		for _, one := range m.values {
			b.merge(n, one)
		}
	case mapping:
		for i, k := range m.keys {
			if n.index(k.text) < 0 {
				n.keys, n.values = append(n.keys, k), append(n.values, m.values[i])
			}
		}
	default:
		b.p.at(m.place, "<<", "got %s, want a map or a list of maps to merge", m.words())
	}
}

const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func (b *builder) scalar(n *node, y *yaml.Node) {
	n.text, n.value = y.Value, y.Value
	if y.Style&yaml.TaggedStyle == 0 {
		if y.Style&quoted == 0 {
			n.typ, n.value = resolve(y.Value)
		}
		return
	}
	wanted, known := map[string]scalarType{"!!str": isString, "!": isString, "!!int": isInt, "!!float": isFloat, "!!bool": isBool,
		"!!null": isNull, "!!timestamp": isTime}[y.Tag]
	if !known {
		b.p.at(n.place, "", "the tag %s is not understood: leave it out", y.Tag)
		return
	}
	if wanted == isString {
		return
	}
	typ, value := resolve(y.Value)
	if wanted == isFloat && typ == isInt {
		typ, value = resolve(y.Value + ".0")
	}
	if typ != wanted {
		b.p.at(n.place, "", "%q is not %s, as its tag %s says", y.Value, wanted, y.Tag)
		return
	}
	n.typ, n.value = typ, value
}
