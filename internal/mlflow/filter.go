package mlflow

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

// The filter language of MLflow's searches: comparisons joined by AND, such as
//
//	metrics.`val loss` < 0.2 AND params.model LIKE 'res%' AND attributes.run_id IN ('a', 'b')

// What a comparison is about.
const (
	ofAttribute = "attribute"
	ofMetric    = "metric"
	ofParam     = "param"
	ofTag       = "tag"
	ofDataset   = "dataset"
	ofMetadata  = "metadata"
)

// grammar says what a search knows.
type grammar struct {
	what     string            // "run", for messages
	entities map[string]string // "params" → ofParam
	attrs    map[string]bool   // attribute → whether it is a number
	alias    map[string]string // attribute → the one that it stands for
	order    []string          // attributes that only order
}

var (
	tagEntities = map[string]string{"tag": ofTag, "tags": ofTag, "attribute": ofAttribute, "attributes": ofAttribute, "attr": ofAttribute}
	runGrammar  = grammar{"run", map[string]string{"metric": ofMetric, "metrics": ofMetric, "param": ofParam, "params": ofParam, "parameter": ofParam,
		"parameters": ofParam, "tag": ofTag, "tags": ofTag, "attribute": ofAttribute, "attributes": ofAttribute, "attr": ofAttribute, "run": ofAttribute,
		"dataset": ofDataset, "datasets": ofDataset},
		map[string]bool{"run_id": false, "run_name": false, "user_id": false, "status": false, "artifact_uri": false, "start_time": true, "end_time": true},
		map[string]string{"created": "start_time", "Created": "start_time", "run name": "run_name", "Run name": "run_name", "Run Name": "run_name"},
		[]string{"experiment_id"}}
	experimentGrammar = grammar{"experiment", tagEntities,
		map[string]bool{"name": false, "experiment_id": false, "creation_time": true, "last_update_time": true}, nil, nil}
	registeredGrammar = grammar{"registered model", tagEntities, map[string]bool{"name": false}, map[string]string{"timestamp": "last_updated_timestamp"},
		[]string{"creation_timestamp", "last_updated_timestamp"}}
	versionGrammar = grammar{"model version", tagEntities,
		map[string]bool{"name": false, "version_number": true, "run_id": false, "source_path": false, "current_stage": false}, nil,
		[]string{"creation_timestamp", "last_updated_timestamp"}}
	modelGrammar = grammar{"logged model", map[string]string{"attributes": ofAttribute, "metrics": ofMetric, "params": ofParam, "tags": ofTag},
		map[string]bool{"name": false, "model_id": false, "model_type": false, "status": false, "source_run_id": false, "experiment_id": false,
			"creation_timestamp": true, "last_updated_timestamp": true},
		map[string]string{"creation_time": "creation_timestamp", "creation_timestamp_ms": "creation_timestamp",
			"last_updated_timestamp_ms": "last_updated_timestamp"}, nil}
	traceGrammar = grammar{"trace", map[string]string{"tag": ofTag, "tags": ofTag, "attribute": ofAttribute, "attributes": ofAttribute, "attr": ofAttribute,
		"trace": ofAttribute, "metadata": ofMetadata, "request_metadata": ofMetadata},
		map[string]bool{"request_id": false, "trace_id": false, "client_request_id": false, "status": false, "name": false, "run_id": false,
			"timestamp": true, "execution_time": true, "end_time": true},
		map[string]string{"timestamp_ms": "timestamp", "execution_time_ms": "execution_time", "end_time_ms": "end_time", "state": "status", "id": "trace_id"},
		[]string{"experiment_id"}}
)

// clause is one comparison.
type clause struct {
	of, key string
	op      string // =, !=, <, <=, >, >=, LIKE, ILIKE, RLIKE, IN, NOT IN, IS NULL, IS NOT NULL
	number  float64
	text    string
	list    []string
	pattern *regexp.Regexp // of RLIKE
}

// parse reads a filter. Every clause must hold; none holds always.
func (g *grammar) parse(filter string) ([]clause, error) {
	p := &parser{g: g, text: filter, rest: filter}
	var all []clause
	for {
		if p.skip(); p.rest == "" {
			if len(all) > 0 {
				return nil, p.wrong("something after AND")
			}
			return nil, nil
		}
		cl, err := p.clause()
		if err != nil {
			return nil, err
		}
		all = append(all, cl)
		if p.skip(); p.rest == "" {
			return all, nil
		}
		if !p.word("AND") {
			return nil, p.wrong("AND")
		}
	}
}

// parser goes through a filter from left to right.
type parser struct {
	g          *grammar
	text, rest string
}

func (p *parser) skip() { p.rest = strings.TrimLeftFunc(p.rest, unicode.IsSpace) }

func (p *parser) wrong(want string) error {
	at := "at its end"
	if p.rest != "" {
		at = "at \"" + cut(p.rest, 40) + "\""
	}
	return trainyard.Invalid("Invalid clause(s) in filter string \"%s\": want %s %s. Comparisons are joined by AND, as in: "+
		"metrics.loss < 0.2 AND params.model = 'tree' AND tags.`my tag` LIKE 'a%%'", cut(p.text, 400), want, at)
}

// word takes a keyword, of any case, that ends there.
func (p *parser) word(w string) bool {
	p.skip()
	if len(p.rest) < len(w) || !strings.EqualFold(p.rest[:len(w)], w) {
		return false
	}
	next, _ := utf8.DecodeRuneInString(p.rest[len(w):])
	if len(p.rest) > len(w) && (next == '_' || next == '.' || unicode.IsLetter(next) || unicode.IsDigit(next)) {
		return false
	}
	p.rest = p.rest[len(w):]
	return true
}

func (p *parser) clause() (cl clause, err error) {
	name, err := p.name()
	if err != nil {
		return cl, err
	}
	if cl.of, cl.key, err = p.g.identify(name, false); err != nil {
		return cl, err
	}
	if err := p.operator(&cl); err != nil {
		return cl, err
	}
	switch {
	case strings.HasPrefix(cl.op, "IS "):
	case strings.HasSuffix(cl.op, "IN"):
		cl.list, err = p.list()
	case p.g.numeric(cl.of, cl.key):
		cl.number, err = p.number(cl)
	default:
		if cl.text, err = p.quoted(); err == nil && cl.op == "RLIKE" {
			if cl.pattern, err = regexp.Compile(cl.text); err != nil {
				err = trainyard.Invalid("Invalid regular expression in filter string: %v", err)
			}
		}
	}
	return cl, err
}

// name reads an identifier as it stands: words and quoted parts, joined by dots.
func (p *parser) name() ([]string, error) {
	p.skip()
	var parts []string
	for {
		part := ""
		if p.rest != "" && (p.rest[0] == '`' || p.rest[0] == '"') {
			end := strings.IndexByte(p.rest[1:], p.rest[0])
			if end < 0 {
				return nil, p.wrong("the end of a quoted name")
			}
			part, p.rest = p.rest[1:1+end], p.rest[2+end:]
		} else {
			n := strings.IndexFunc(p.rest, func(r rune) bool {
				return r != '_' && r != '/' && r != '-' && r != ':' && r != '@' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
			})
			if n < 0 {
				n = len(p.rest)
			}
			part, p.rest = p.rest[:n], p.rest[n:]
		}
		if part == "" {
			return nil, p.wrong("a name such as metrics.loss")
		}
		parts = append(parts, part)
		if !strings.HasPrefix(p.rest, ".") {
			return parts, nil
		}
		p.rest = p.rest[1:]
	}
}

// identify says what a name is the name of.
func (g *grammar) identify(name []string, ordering bool) (of, key string, err error) {
	of, key = ofAttribute, name[0]
	if len(name) > 1 {
		known := false
		if of, known = g.entities[name[0]]; !known {
			return "", "", trainyard.Invalid("Invalid entity type '%s'. Valid values of a %s are %v", name[0], g.what, slices.Sorted(maps.Keys(g.entities)))
		}
		key = strings.Join(name[1:], ".")
	}
	switch of {
	case ofAttribute:
		if to, ok := g.alias[key]; ok {
			key = to
		}
		if _, ok := g.attrs[key]; !ok && !(ordering && slices.Contains(g.order, key)) {
			valid := slices.Sorted(maps.Keys(g.attrs))
			if ordering {
				valid = append(valid, g.order...)
			}
			return "", "", trainyard.Invalid("Invalid attribute key '%s' specified. Valid keys of a %s are %v", key, g.what, valid)
		}
	case ofDataset:
		if !slices.Contains([]string{"name", "digest", "context"}, key) {
			return "", "", trainyard.Invalid("Invalid dataset key '%s' specified. Valid keys are 'name', 'digest', 'context'", key)
		}
	}
	return of, key, nil
}

func (g *grammar) numeric(of, key string) bool {
	return of == ofMetric || of == ofAttribute && g.attrs[key]
}

func (p *parser) operator(cl *clause) error {
	p.skip()
	for _, op := range []string{"<=", ">=", "!=", "<>", "=", "<", ">"} {
		if rest, ok := strings.CutPrefix(p.rest, op); ok {
			p.rest, cl.op = rest, op
			if op == "<>" {
				cl.op = "!="
			}
			if op != "=" && cl.op != "!=" && !p.g.numeric(cl.of, cl.key) {
				return trainyard.Invalid("Invalid comparator '%s' for %s '%s': it is a text, compared with =, !=, LIKE, ILIKE, IN", op, cl.of, cl.key)
			}
			return nil
		}
	}
	switch {
	case p.word("LIKE"), p.word("ILIKE"), p.word("RLIKE"), p.word("IN"):
		cl.op = strings.ToUpper(p.taken())
	case p.word("NOT"):
		if !p.word("IN") {
			return p.wrong("IN after NOT")
		}
		cl.op = "NOT IN"
	case p.word("IS"):
		cl.op = "IS NULL"
		if p.word("NOT") {
			cl.op = "IS NOT NULL"
		}
		if !p.word("NULL") {
			return p.wrong("NULL or NOT NULL after IS")
		}
		if cl.of == ofAttribute || cl.of == ofDataset {
			return trainyard.Invalid("IS NULL / IS NOT NULL is only supported for tags, params and metrics, not for %s '%s'", cl.of, cl.key)
		}
		return nil
	default:
		return p.wrong("a comparator")
	}
	if p.g.numeric(cl.of, cl.key) {
		return trainyard.Invalid("Invalid comparator '%s' for %s '%s': it is a number, compared with =, !=, <, <=, >, >=", cl.op, cl.of, cl.key)
	}
	return nil
}

// taken is the word that was taken last.
func (p *parser) taken() string {
	before := p.text[:len(p.text)-len(p.rest)]
	return before[strings.LastIndexFunc(before, func(r rune) bool { return !unicode.IsLetter(r) })+1:]
}

var number = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?`)

func (p *parser) number(cl clause) (float64, error) {
	p.skip()
	text := number.FindString(p.rest)
	v, err := strconv.ParseFloat(text, 64)
	if text == "" || err != nil && !math.IsInf(v, 0) {
		return 0, trainyard.Invalid("Expected numeric value type for %s '%s'. Found %s", cl.of, cl.key, cut(p.rest, 40))
	}
	p.rest = p.rest[len(text):]
	return v, nil
}

// quoted reads a text in quotes of either sort; two of them are one in it.
func (p *parser) quoted() (string, error) {
	p.skip()
	if p.rest == "" || p.rest[0] != '\'' && p.rest[0] != '"' {
		return "", p.wrong("a text in quotes, 'like this',")
	}
	q := p.rest[:1]
	var out strings.Builder
	rest := p.rest[1:]
	for {
		end := strings.Index(rest, q)
		if end < 0 {
			return "", p.wrong("the end of a quoted text")
		}
		out.WriteString(rest[:end])
		rest = rest[end+1:]
		if !strings.HasPrefix(rest, q) {
			p.rest = rest
			return out.String(), nil
		}
		out.WriteString(q)
		rest = rest[1:]
	}
}

// list reads ('a', 'b').
func (p *parser) list() ([]string, error) {
	p.skip()
	if !strings.HasPrefix(p.rest, "(") {
		return nil, p.wrong("a list ('a', 'b')")
	}
	p.rest = p.rest[1:]
	var all []string
	for {
		s, err := p.quoted()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		p.skip()
		if rest, ok := strings.CutPrefix(p.rest, ","); ok {
			p.rest = rest
			if p.skip(); !strings.HasPrefix(p.rest, ")") { // Python writes tuples of one as ('a',)
				continue
			}
		}
		rest, ok := strings.CutPrefix(p.rest, ")")
		if !ok {
			return nil, p.wrong("the end of a list")
		}
		p.rest = rest
		return all, nil
	}
}
