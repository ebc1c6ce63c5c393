package mlflow

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// value is what a thing that is searched has for a key: a number or a text.
type value struct {
	number  float64
	text    string
	numeric bool
}

func numberOf(v float64) []value { return []value{{number: v, numeric: true}} }
func textOf(s string) []value    { return []value{{text: s}} }

// found is what can be searched. look returns the values of a key: none if there is none, and several only for datasets, of which one
// must match.
type found interface {
	look(of, key string) []value
}

// holds says whether all clauses do.
func holds(clauses []clause, f found) bool {
	for i := range clauses {
		cl := &clauses[i]
		values := f.look(cl.of, cl.key)
		switch cl.op {
		case "IS NULL":
			if len(values) > 0 {
				return false
			}
		case "IS NOT NULL":
			if len(values) == 0 {
				return false
			}
		default:
			if !slices.ContainsFunc(values, cl.matches) {
				return false
			}
		}
	}
	return true
}

func (cl *clause) matches(v value) bool {
	if v.numeric {
		switch cl.op {
		case "=":
			return v.number == cl.number
		case "!=":
			return v.number != cl.number
		case "<":
			return v.number < cl.number
		case "<=":
			return v.number <= cl.number
		case ">":
			return v.number > cl.number
		}
		return v.number >= cl.number
	}
	switch cl.op {
	case "=":
		return v.text == cl.text
	case "!=":
		return v.text != cl.text
	case "LIKE":
		return like([]rune(v.text), []rune(cl.text))
	case "ILIKE":
		return like([]rune(strings.ToLower(v.text)), []rune(strings.ToLower(cl.text)))
	case "RLIKE":
		return cl.pattern.MatchString(v.text)
	case "IN":
		return slices.Contains(cl.list, v.text)
	}
	return !slices.Contains(cl.list, v.text)
}

// like matches a pattern in which % is any text and _ any character, in time at most the product of the two lengths.
func like(s, pattern []rune) bool {
	i, j, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case j < len(pattern) && pattern[j] == '%':
			star, mark = j, i
			j++
		case j < len(pattern) && (pattern[j] == '_' || pattern[j] == s[i]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
	for j < len(pattern) && pattern[j] == '%' {
		j++
	}
	return j == len(pattern)
}

// ordering is one of the keys that a search is sorted by.
type ordering struct {
	of, key string
	down    bool
}

// orders reads order_by: "metrics.`val loss` DESC".
func (g *grammar) orders(orderBy []string) ([]ordering, error) {
	var all []ordering
	for _, text := range orderBy {
		p := &parser{g: g, text: text, rest: text}
		name, err := p.name()
		if err != nil {
			return nil, trainyard.Invalid("Invalid order_by clause '%s'. Could not be parsed.", cut(text, 200))
		}
		o := ordering{}
		if o.of, o.key, err = g.identify(name, true); err != nil {
			return nil, err
		}
		if o.of == ofDataset {
			return nil, trainyard.Invalid("Invalid order_by entity type '%s'", o.of)
		}
		if o.down = p.word("DESC"); !o.down {
			p.word("ASC")
		}
		if p.skip(); p.rest != "" {
			return nil, trainyard.Invalid("Invalid ordering key in order_by clause '%s': want ASC or DESC.", cut(text, 200))
		}
		all = append(all, o)
	}
	return all, nil
}

// sortFound sorts by the orderings, the first being the most important; what has no value comes last whichever way, and before that what
// is not a number. Equal things stay as they were.
func sortFound[T found](list []T, by []ordering) {
	if len(by) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b T) int {
		for _, o := range by {
			if c := o.compare(a.look(o.of, o.key), b.look(o.of, o.key)); c != 0 {
				return c
			}
		}
		return 0
	})
}

func (o ordering) compare(a, b []value) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 || rank(a) > 0 {
		return c
	}
	c := cmp.Or(cmp.Compare(a[0].number, b[0].number), strings.Compare(a[0].text, b[0].text))
	if o.down {
		return -c
	}
	return c
}

func rank(v []value) int {
	switch {
	case len(v) == 0:
		return 2
	case v[0].numeric && math.IsNaN(v[0].number):
		return 1
	}
	return 0
}

// searchAsk is what all searches are asked.
type searchAsk struct {
	Filter  string   `json:"filter"`
	Max     integer  `json:"max_results"`
	OrderBy []string `json:"order_by"`
	Token   string   `json:"page_token"`
}

// answer does a search: gather returns what the clauses hold for, in the order that is usual. A page has usual things if none says
// otherwise, and never more than most.
func answer[T found](g *grammar, ask searchAsk, usual, most int, gather func([]clause) ([]T, error)) ([]T, string, error) {
	clauses, err := g.parse(ask.Filter)
	if err != nil {
		return nil, "", err
	}
	by, err := g.orders(ask.OrderBy)
	if err != nil {
		return nil, "", err
	}
	all, err := gather(clauses)
	if err != nil {
		return nil, "", err
	}
	sortFound(all, by)
	return cutPage(all, ask.Token, int(min(ask.Max, integer(most)+1)), usual, most)
}

// viewsOf is the views of a list; never nil, so that clients get a list and not a null.
func viewsOf[T, V any](list []T, view func(T) V) []V {
	views := make([]V, 0, len(list))
	for _, x := range list {
		views = append(views, view(x))
	}
	return views
}

// cutPage returns the part of a list that a page token and a size ask for, and the token of the next.
func cutPage[T any](list []T, token string, size, usual, most int) ([]T, string, error) {
	var at struct {
		Offset int `json:"offset"`
	}
	if token != "" {
		text, err := base64.StdEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(text, &at) != nil || at.Offset < 0 {
			return nil, "", trainyard.Invalid("Invalid page token %q: begin the search again", cut(token, 80))
		}
	}
	if size < 0 || size > most {
		return nil, "", trainyard.Invalid("Invalid value %d for parameter 'max_results' supplied. It must be a positive integer of at most %d.", size, most)
	}
	if size == 0 {
		size = usual
	}
	from := min(at.Offset, len(list))
	to := min(from+size, len(list))
	if to == len(list) {
		return list[from:], "", nil
	}
	text, err := json.Marshal(map[string]int{"offset": to})
	return list[from:to], base64.StdEncoding.EncodeToString(text), err
}
