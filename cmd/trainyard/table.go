package main

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// table is rows of cells under headings.
type table struct {
	heads []string
	right []bool // columns of numbers
	rows  [][]string
	spare []int                             // columns that a narrow terminal goes without, the first first
	tint  func(col int, cell string) string // colour of a cell; nil: none
}

// add adds a row.
func (t *table) add(cells ...string) {
	row := make([]string, len(t.heads))
	for i := range row {
		if i < len(cells) {
			row[i] = clean(cells[i])
		}
	}
	t.rows = append(t.rows, row)
}

const (
	gap        = 2  // blanks between columns
	narrowCell = 10 // no column is squeezed below this
	narrowWhy  = 30 // and one with sentences only where nothing else helps
)

// narrowest is how far a column is squeezed before spare ones are left out.
func (t *table) narrowest(col int) int {
	if t.heads[col] == "Why" || t.heads[col] == "Away" {
		return narrowWhy
	}
	return narrowCell
}

// print writes the table. On a terminal that is narrower, it squeezes columns, the widest first and the first, which has the names, last;
// and where that is not enough it leaves spare ones out. Columns without any content are left out anyhow.
func (t *table) print(c *console, w io.Writer) {
	cols := t.filled()
	widths := make([]int, len(t.heads))
	for _, i := range cols {
		widths[i] = utf8.RuneCountInString(t.heads[i])
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i]))
		}
	}
	if c.outTTY && c.width > 0 {
		for _, i := range t.spare {
			if t.least(widths, cols) <= c.width {
				break
			}
			cols = slices.DeleteFunc(cols, func(col int) bool { return col == i })
		}
		squeeze(widths, cols, c.width, func(col int) int {
			if col == cols[0] {
				return widths[col]
			}
			return t.narrowest(col)
		})
		squeeze(widths, cols, c.width, func(int) int { return narrowCell })
	}
	t.line(c, w, cols, widths, t.heads, true)
	for _, r := range t.rows {
		t.line(c, w, cols, widths, r, false)
	}
}

func (t *table) filled() []int {
	var cols []int
	for i := range t.heads {
		if i == 0 || slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "" }) {
			cols = append(cols, i)
		}
	}
	return cols
}

// least is the width that columns need when all but the first are squeezed.
func (t *table) least(widths, cols []int) int {
	total := -gap
	for n, i := range cols {
		if n == 0 {
			total += widths[i] + gap
			continue
		}
		total += min(widths[i], t.narrowest(i)) + gap
	}
	return total
}

// squeeze takes width from the widest column, a character at a time, until all fit or none can give any more.
func squeeze(widths, cols []int, most int, narrowest func(col int) int) {
	for {
		total, widest := -gap, cols[0]
		for n, i := range cols {
			total += widths[i] + gap
			if n > 0 && widths[i] > narrowest(i) && (widest == cols[0] || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if total <= most || widths[widest] <= narrowest(widest) {
			return
		}
		widths[widest]--
	}
}

func (t *table) line(c *console, w io.Writer, cols, widths []int, cells []string, head bool) {
	var b strings.Builder
	for n, i := range cols {
		text := cut(cells[i], widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		code := ""
		switch {
		case head:
			code = bold
		case t.tint != nil:
			code = t.tint(i, cells[i])
		}
		last := n == len(cols)-1
		switch {
		case i < len(t.right) && t.right[i]:
			b.WriteString(pad + c.paint(code, text))
		case last:
			b.WriteString(c.paint(code, text))
		default:
			b.WriteString(c.paint(code, text) + pad)
		}
		if !last {
			b.WriteString(strings.Repeat(" ", gap))
		}
	}
	_, _ = io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n") // a closed pipe shows at the end of the command
}

// pairs writes labelled values below each other; those without a value are left out.
func (c *console) pairs(w io.Writer, rows [][2]string) {
	most := 0
	for _, r := range rows {
		if r[1] != "" {
			most = max(most, utf8.RuneCountInString(r[0]))
		}
	}
	for _, r := range rows {
		if r[1] == "" {
			continue
		}
		label := r[0] + strings.Repeat(" ", most-utf8.RuneCountInString(r[0]))
		for line := range strings.SplitSeq(strings.TrimRight(r[1], "\n"), "\n") {
			for _, part := range c.wrap(clean(line), most+4) {
				_, _ = io.WriteString(w, "  "+c.paint(grey, label)+"  "+part+"\n")
				label = strings.Repeat(" ", most)
			}
		}
	}
}

// wrap breaks a line between words where it would run over the terminal's edge, indent columns being taken. A word that is longer than a
// line, an address as a rule, stays whole so that it can be copied.
func (c *console) wrap(line string, indent int) []string {
	room := c.width - indent
	if !c.outTTY || room < 20 || utf8.RuneCountInString(line) <= room {
		return []string{line}
	}
	var parts []string
	for word := range strings.FieldsSeq(line) {
		length := utf8.RuneCountInString(word)
		if n := len(parts) - 1; n >= 0 && (length > room || utf8.RuneCountInString(parts[n])+1+length <= room) {
			parts[n] += " " + word
			continue
		}
		parts = append(parts, word)
	}
	return parts
}
