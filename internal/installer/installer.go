// Package installer reads what pip, uv and conda print when they fail, and says in one line what was wrong. It runs none of them.
package installer

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// most is how long a cause may be, in characters.
const most = 1200

// Cause is why an installer failed, from what it printed: its errors, with what a traceback ends in instead of a line that only announces
// one; where it gives none, its last two lines. Line breaks, user names and passwords are left out.
func Cause(output string) string {
	r := reader{more: -1}
	for line := range strings.Lines(Redact(output)) {
		r.line(strings.TrimRight(line, "\r\n"))
	}
	text := joined(r.said)
	if text == "" {
		text = joined(r.last)
	}
	if long := []rune(text); len(long) > most {
		return string(long[:most]) + "…"
	}
	return text
}

// joined makes one line of sentences.
func joined(all []string) string {
	var out []string
	for _, s := range all {
		if s = strings.TrimRight(s, ".: "); s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, ": ")
}

// reader goes through an installer's output once.
type reader struct {
	said    []string // what is worth telling
	last    []string // the newest two lines
	collect string   // the package that pip was at
	from    string   // versions that pip's line before its last has; "none" is a word of pip's
	away    []string // why pip may have found none: what it did not reach, or did not ask
	trace   int      // how far the traceback is indented that is being read
	inTrace bool
	inner   bool // a line of the traceback was there
	ended   int  // 1 + index in said of what the last traceback ended in, while another may follow it
	more    int  // how far the error is indented that the next lines go on with if they are further; -1: none does
}

var (
	announces = pattern(`^(?i)(?:exception:|subprocess-exited-with-error|metadata-generation-failed|legacy-install-failure|` +
		`failed-wheel-build-for-install|see above for (?:output|details).*|\[\d+ lines of output\]|hint: (?:see above|build failures) .*|` +
		`resolutionimpossible: for help visit .*|encountered error while (?:generating package metadata|trying to install package)\.?)$`)
	collecting = pattern(`^Collecting (\S+)`)
	versions   = pattern(`^Could not find a version that satisfies the requirement .* \(from versions: (.*)\)$`)
	unnamed    = pattern(`^(?:python setup\.py egg_info|Preparing metadata|Getting requirements to build|pip subprocess to install build dependencies)`)
	raised     = pattern(`^(?:\w+\.)*(\w+(?:: .*)?)$`)
	chained    = pattern(`^(?:During handling of the above exception|The above exception was the direct cause)`)
	object     = pattern(`<[^<>]* object at 0x[0-9a-f]+>: `)
	retried    = pattern(`^WARNING: Retrying .* after connection broken by '(.*)': /`)
	untrusted  = pattern(`^WARNING: (The repository located at .* is being ignored)\.`)
	login      = pattern(`(://)[^/\s@]+@`)
	address    = pattern(`https?://[^\s)>'"\]]+`)
	network    = pattern(`(?i)error sending request|connection refused|connection reset|could not connect|name resolution|dns error|` +
		`failed to lookup address|name or service not known|no route to host|network is unreachable|tunnel error|operation timed out|timed out|` +
		`newconnectionerror|proxyerror|max retries exceeded|connection broken|connectionerror|certificate verify failed|invalid peer certificate|` +
		`could not resolve host|CondaHTTPError|download error|503 service unavailable|502 bad gateway`)
)

// pattern is a regular expression that is compiled when it is first used: programs that read no installer's words start faster.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Redact takes user names and passwords out of addresses.
func Redact(text string) string { return login().ReplaceAllString(text, "${1}****@") }

// Unreachable says whether an installer failed because it could not reach its index, or a file there.
func Unreachable(output string) bool {
	return network().MatchString(output) && !strings.Contains(output, "No solution found")
}

// Index names the package index that an installer's output speaks of, with its host and port if they are there.
func Index(output string) string {
	found := address().FindString(Redact(output))
	if found == "" {
		return "the package index"
	}
	_, rest, _ := strings.Cut(found, "://")
	host, _, _ := strings.Cut(rest, "/")
	return "the package index " + host[strings.LastIndex(host, "@")+1:]
}

// Full says whether an installer failed because a disk was full.
func Full(output string) bool {
	return strings.Contains(output, "No space left on device") || strings.Contains(output, "os error 28") || strings.Contains(output, "Errno 28")
}

func (r *reader) line(whole string) {
	line := strings.TrimSpace(whole)
	indent := len(whole) - len(strings.TrimLeft(whole, " "))
	if line == "" {
		r.more = -1
		return
	}
	r.last = append(r.last, line)
	r.last = r.last[max(0, len(r.last)-2):]
	switch {
	case r.traceback(line, indent):
	case r.more >= 0 && indent > r.more:
		r.said[len(r.said)-1] = strings.TrimSuffix(r.said[len(r.said)-1], ".") + "; " + line
	default:
		r.more = -1
		r.plain(line, indent)
	}
}

// traceback takes a line that belongs to a traceback of Python's: all of it comes down to its last line, and of several, one raised while
// another was handled, to that of the last.
func (r *reader) traceback(line string, indent int) bool {
	switch {
	case line == "Traceback (most recent call last):":
		r.inTrace, r.trace, r.inner = true, indent, false
		return true
	case r.inTrace && indent > r.trace:
		r.inner = true
		return true
	case r.inTrace:
		r.inTrace = false
		m := raised().FindStringSubmatch(line)
		if m == nil || !r.inner {
			return false
		}
		if r.ended = 0; r.add(object().ReplaceAllString(m[1], "")) {
			r.ended = len(r.said)
		}
		return true
	case chained().MatchString(line):
		if r.ended > 0 {
			r.said = slices.Delete(r.said, r.ended-1, r.ended)
			r.ended, r.more = 0, -1
		}
		return true
	}
	return false
}

// plain takes a line that is of no traceback.
func (r *reader) plain(line string, indent int) {
	if m := collecting().FindStringSubmatch(line); m != nil {
		r.collect = m[1]
		return
	}
	if m := retried().FindStringSubmatch(line); m != nil {
		r.away = append(r.away, object().ReplaceAllString(m[1], ""))
		return
	}
	if m := untrusted().FindStringSubmatch(line); m != nil {
		r.away = append(r.away, m[1])
		return
	}
	if line == "The conflict is caused by:" {
		if len(r.said) > 0 {
			r.more = indent
		}
		return
	}
	r.error(line, indent)
}

// error takes a line if it is of an error, less the marks before it.
func (r *reader) error(line string, indent int) {
	low := strings.ToLower(line)
	begins := func(word string) bool { return strings.HasPrefix(low, word) }
	if !slices.ContainsFunc([]string{"error:", "cause:", "×", "╰", "hint:", "critical"}, begins) && !strings.Contains(low, "no module named") {
		return
	}
	line = strings.TrimLeft(line, "×╰─▶> ")
	for _, word := range []string{"ERROR: ", "error: ", "cause: "} {
		line = strings.TrimPrefix(line, word)
	}
	if announces().MatchString(line) {
		return
	}
	if m := versions().FindStringSubmatch(line); m != nil { // the line after it names the package again
		r.from = m[1]
		return
	}
	switch {
	case strings.HasPrefix(line, "No matching distribution found for ") && r.from != "":
		if r.from == "none" {
			for _, why := range r.away {
				r.add(why)
			}
		}
		line += " (from versions: " + few(r.from) + ")"
	case begins("×") && unnamed().MatchString(line) && r.collect != "":
		line = r.collect + ": " + line
	case begins("hint:"): // its first sentence
		line, _, _ = strings.Cut(line, ". ")
	}
	if r.add(line) && begins("cause:") {
		r.more = indent
	}
}

// add takes a sentence, once.
func (r *reader) add(sentence string) bool {
	if slices.Contains(r.said, sentence) {
		return false
	}
	r.said = append(r.said, sentence)
	return true
}

// few are the newest of a list of versions.
func few(list string) string {
	const shown = 5
	all := strings.Split(list, ", ")
	if len(all) <= shown {
		return list
	}
	return "…, " + strings.Join(all[len(all)-shown:], ", ")
}
