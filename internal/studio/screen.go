package studio

import (
	"bytes"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// lineAtMost is where a line without an end is cut, so that the work for it stays in proportion.
const lineAtMost = 8 << 10

// screen turns a log's bytes into HTML as a terminal would show them: bytes that are no UTF-8 are replaced, a carriage return overwrites
// its line (progress bars do that), colours become classes, all other escape sequences and control characters are left out.
type screen struct {
	at    int64  // offset in the log of line's first byte
	line  []byte // what came after the last end of line: shown already, and may yet be overwritten
	style style  // at line's first byte
}

// write takes more of the log and returns the HTML of what is finished by it.
func (s *screen) write(data []byte) string {
	var done strings.Builder
	s.line = append(s.line, data...)
	rest := s.line
	take := func(n int, into *strings.Builder) {
		s.style = paint(into, rest[:n], s.style)
		rest = rest[n:]
	}
	for i := bytes.IndexByte(rest, '\n'); i >= 0; i = bytes.IndexByte(rest, '\n') {
		take(i+1, &done)
	}
	// What stands before the last carriage return is never seen again, unless that is the beginning of an end of line.
	if i := bytes.LastIndexByte(bytes.TrimRight(rest, "\r"), '\r'); i >= 0 {
		take(i+1, nil)
	}
	for len(rest) > lineAtMost {
		n := whole(rest[:lineAtMost])
		if n == 0 { // one sequence that never ends: it is not one
			n = lineAtMost
		}
		take(n, &done)
	}
	s.at += int64(len(s.line) - len(rest))
	s.line = bytes.Clone(rest)
	return done.String()
}

// open is the HTML of the line that is not finished.
func (s *screen) open() string {
	var b strings.Builder
	paint(&b, s.line[:whole(s.line)], s.style)
	return b.String()
}

// rest is the HTML of the unfinished line when nothing comes after it.
func (s *screen) rest() string {
	var b strings.Builder
	paint(&b, s.line, s.style)
	return b.String()
}

// whole is how much of line is left without a rune or an escape sequence at its end that is not there wholly.
func whole(line []byte) int {
	n := len(line)
	if i := bytes.LastIndexByte(line, esc); i >= 0 && n-i < 64 {
		if _, done := sequence(line[i:]); !done {
			n = i
		}
	}
	for i := 1; i < utf8.UTFMax && i <= n; i++ {
		if tail := line[n-i : n]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				n -= i
			}
			break
		}
	}
	return n
}

const esc = 0x1b

// sequence is how long the escape sequence at the beginning of b is (ECMA-48), and whether its end is there.
func sequence(b []byte) (n int, done bool) {
	if len(b) < 2 {
		return len(b), false
	}
	switch b[1] {
	case '[': // CSI: parameters and intermediates, then a final byte
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1, true
			}
			if b[i] < 0x20 || b[i] > 0x7e {
				return i, true // not a sequence after all
			}
		}
		return len(b), false
	case ']', 'P', '_', '^', 'X': // strings, to BEL or ST
		for i := 2; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1, true
			}
			if b[i] == esc && i+1 < len(b) && b[i+1] == '\\' {
				return i + 2, true
			}
		}
		return len(b), false
	}
	for i := 1; i < len(b); i++ {
		if b[i] < 0x20 || b[i] > 0x2f {
			return i + 1, true
		}
	}
	return len(b), false
}

// style is how text looks; the zero value is plain. Colours are 1 to 16, and 0 for none.
type style struct {
	fore, back                   int8
	bold, dim, italic, underline bool
}

// paint writes a line as HTML, in the style that holds at its beginning, and returns the one at its end. A nil b only follows the style.
func paint(b *strings.Builder, line []byte, st style) style {
	body, end := line, ""
	if n := len(line); n > 0 && line[n-1] == '\n' {
		body, end = line[:n-1], "\n"
	}
	body = bytes.TrimRight(body, "\r")
	if i := bytes.LastIndexByte(body, '\r'); i >= 0 && b != nil {
		st = paint(nil, body[:i+1], st)
		body = body[i+1:]
	}
	var text []byte
	flush := func() {
		if b != nil && len(text) > 0 {
			st.wrap(b, text)
		}
		text = text[:0]
	}
	for i := 0; i < len(body); {
		switch c := body[i]; {
		case c == esc:
			n, done := sequence(body[i:])
			if !done && n > 64 { // text that begins like a sequence: show it
				n = 2
			}
			if seq := body[i : i+n]; done && len(seq) > 2 && seq[1] == '[' && seq[n-1] == 'm' {
				flush()
				st = st.apply(string(seq[2 : n-1]))
			}
			i += n
		case c < 0x20 && c != '\t' || c == 0x7f:
			i++
		default:
			text = append(text, c)
			i++
		}
	}
	flush()
	if b != nil {
		b.WriteString(end)
	}
	return st
}

func (st style) wrap(b *strings.Builder, text []byte) {
	escaped := html.EscapeString(string(bytes.ToValidUTF8(text, []byte(string(utf8.RuneError)))))
	classes := st.classes()
	if classes == "" {
		b.WriteString(escaped)
		return
	}
	b.WriteString(`<span class="` + classes + `">` + escaped + `</span>`)
}

func (st style) classes() string {
	var c []string
	if st.fore > 0 {
		c = append(c, "f"+strconv.Itoa(int(st.fore-1)))
	}
	if st.back > 0 {
		c = append(c, "b"+strconv.Itoa(int(st.back-1)))
	}
	for _, on := range []struct {
		is   bool
		name string
	}{{st.bold, "bo"}, {st.dim, "di"}, {st.italic, "it"}, {st.underline, "un"}} {
		if on.is {
			c = append(c, on.name)
		}
	}
	return strings.Join(c, " ")
}

// apply follows a "select graphic rendition" sequence.
func (st style) apply(params string) style {
	list := strings.FieldsFunc(params+";", func(r rune) bool { return r == ';' || r == ':' })
	if len(list) == 0 {
		return style{}
	}
	for i := 0; i < len(list); i++ {
		n, err := strconv.Atoi(list[i])
		if err != nil {
			continue
		}
		switch {
		case n == 0:
			st = style{}
		case n == 1:
			st.bold = true
		case n == 2:
			st.dim = true
		case n == 3:
			st.italic = true
		case n == 4:
			st.underline = true
		case n == 22:
			st.bold, st.dim = false, false
		case n == 23:
			st.italic = false
		case n == 24:
			st.underline = false
		case n >= 30 && n <= 37:
			st.fore = int8(n - 29)
		case n >= 90 && n <= 97:
			st.fore = int8(n - 81)
		case n == 39:
			st.fore = 0
		case n >= 40 && n <= 47:
			st.back = int8(n - 39)
		case n >= 100 && n <= 107:
			st.back = int8(n - 91)
		case n == 49:
			st.back = 0
		case n == 38 || n == 48:
			color, used := extended(list[i+1:])
			if i += used; n == 38 {
				st.fore = color
			} else {
				st.back = color
			}
		}
	}
	return st
}

// extended reads the colour after 38 or 48, as far as it is one of the sixteen, and how many parameters it takes.
func extended(list []string) (color int8, used int) {
	switch {
	case len(list) >= 2 && list[0] == "5":
		if n, err := strconv.Atoi(list[1]); err == nil && n >= 0 && n < 16 {
			color = int8(n + 1)
		}
		return color, 2
	case len(list) >= 4 && list[0] == "2":
		return 0, 4
	}
	return 0, len(list)
}
