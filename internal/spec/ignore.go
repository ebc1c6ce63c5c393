package spec

import (
	"os"
	"path/filepath"
	"strings"
)

// rule is one line of an ignore file, with the meaning that git gives it (gitignore(5)).
type rule struct {
	base     string   // folder of the ignore file, relative to the root with slashes; "" for the root
	segments []string // between the slashes; "**" stands for any number of folders
	negated  bool
	dirOnly  bool
}

// The names of ignore files. Where a folder has both, the first alone counts.
var ignoreFiles = []string{".amlignore", ".gitignore"}

// history is never part of a snapshot, whatever the ignore files say: git has it so too.
const history = ".git"

// rulesIn reads the ignore file of a folder, if it has one. base is the folder relative to the root.
func rulesIn(dir, base string) ([]rule, error) {
	for _, name := range ignoreFiles {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		var rules []rule
		for _, line := range strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
			if r, ok := parseRule(strings.TrimSuffix(line, "\r"), base); ok {
				rules = append(rules, r)
			}
		}
		return rules, nil
	}
	return nil, nil
}

func parseRule(line, base string) (rule, bool) {
	r := rule{base: base}
	line = trimBlanks(line)
	if line == "" || line[0] == '#' {
		return r, false
	}
	if line[0] == '!' {
		r.negated, line = true, line[1:]
	}
	if strings.HasSuffix(line, "/") {
		r.dirOnly, line = true, strings.TrimSuffix(line, "/")
	}
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return r, false
	}
	r.segments = strings.Split(line, "/")
	if !anchored {
		r.segments = []string{"**", line}
	}
	return r, true
}

// trimBlanks takes blanks off the end, but not one behind a backslash.
func trimBlanks(line string) string {
	for strings.HasSuffix(line, " ") {
		before := strings.TrimSuffix(line, " ")
		if slashes := len(before) - len(strings.TrimRight(before, `\`)); slashes%2 == 1 {
			return line
		}
		line = before
	}
	return line
}

// ignored says whether a path (relative to the root, with slashes) is left out: the last rule that matches it decides. Rules are in order
// of their folders, the root's first. A path below a folder that is left out is never asked about.
func ignored(rules []rule, rel string, isDir bool) bool {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].matches(rel, isDir) {
			return !rules[i].negated
		}
	}
	return false
}

func (r *rule) matches(rel string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if r.base != "" {
		below, ok := strings.CutPrefix(rel, r.base+"/")
		if !ok {
			return false
		}
		rel = below
	}
	return matchPath(r.segments, strings.Split(rel, "/"))
}

func matchPath(pattern, parts []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			if len(pattern) == 1 {
				return len(parts) > 0
			}
			for skip := 0; skip < len(parts); skip++ {
				if matchPath(pattern[1:], parts[skip:]) {
					return true
				}
			}
			return false
		}
		if len(parts) == 0 || !matchName(pattern[0], parts[0]) {
			return false
		}
		pattern, parts = pattern[1:], parts[1:]
	}
	return len(parts) == 0
}

// matchName matches one name with *, ?, [a-z], [!a-z] and backslashes, as git's wildmatch does; two stars in a name are as one.
func matchName(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, retry := -1, 0 // the last star, and where in the name it was tried to end
	i, j := 0, 0
	for j < len(n) {
		switch ok, width := matchOne(p[i:], n[j]); {
		case i < len(p) && p[i] == '*':
			star, retry = i, j
			i++
		case ok:
			i, j = i+width, j+1
		case star >= 0:
			retry++
			i, j = star+1, retry
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// matchOne matches a letter with the first element of a pattern, and says how long that element is.
func matchOne(p []rune, r rune) (ok bool, width int) {
	switch {
	case len(p) == 0:
		return false, 0
	case p[0] == '?':
		return true, 1
	case p[0] == '[':
		return matchClass(p, r)
	case p[0] == '\\':
		return len(p) > 1 && p[1] == r, 2
	}
	return p[0] == r, 1
}

// matchClass matches a letter with a class such as [a-z]. A class that is not closed matches nothing.
func matchClass(p []rune, r rune) (ok bool, width int) {
	i, negated := 1, false
	if i < len(p) && (p[i] == '!' || p[i] == '^') {
		negated = true
		i++
	}
	for first := true; i < len(p); first = false {
		if p[i] == ']' && !first {
			return ok != negated, i + 1
		}
		low, next := literal(p, i)
		high := low
		if next+1 < len(p) && p[next] == '-' && p[next+1] != ']' {
			high, next = literal(p, next+1)
		}
		ok = ok || low <= r && r <= high
		i = next
	}
	return false, 1
}

// literal is the letter at i, with a backslash before it or without, and where the next one is.
func literal(p []rune, i int) (r rune, next int) {
	if p[i] == '\\' && i+1 < len(p) {
		return p[i+1], i + 2
	}
	return p[i], i + 1
}
