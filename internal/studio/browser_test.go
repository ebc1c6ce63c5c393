package studio_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/trainyard/trainyard"
)

// browser is a client with cookies that follows no redirects.
type browser struct {
	*world
	base   string
	client *http.Client
}

type jar map[string]*http.Cookie

func (j jar) SetCookies(_ *url.URL, cookies []*http.Cookie) {
	for _, c := range cookies {
		if j[c.Name] = c; c.MaxAge < 0 {
			delete(j, c.Name)
		}
	}
}

func (j jar) Cookies(*url.URL) (out []*http.Cookie) {
	for _, c := range j {
		out = append(out, c)
	}
	return out
}

func (w *world) browser() *browser {
	return &browser{w, w.URL, &http.Client{Jar: jar{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// login is a browser that is logged in.
func (w *world) login(who trainyard.User) *browser {
	w.t.Helper()
	b := w.browser()
	a := b.post("/studio/login", url.Values{"token": {w.token(who)}})
	if a.StatusCode != http.StatusSeeOther {
		w.t.Fatalf("login: %s\n%s", a.Status, a.body)
	}
	return b
}

func (w *world) admin() *browser {
	return w.login(trainyard.User{Name: "ada", Role: trainyard.RoleAdmin})
}

type answer struct {
	*http.Response
	body string
}

func (b *browser) do(method, path string, body io.Reader, headers ...string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{res, string(data)}
}

func (b *browser) get(path string, headers ...string) answer {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil, headers...)
}

func (b *browser) post(path string, form url.Values, headers ...string) answer {
	b.t.Helper()
	return b.do(http.MethodPost, path, strings.NewReader(form.Encode()), append(headers, "Content-Type: application/x-www-form-urlencoded")...)
}

// page is a page that must be there, as a tree.
func (b *browser) page(path string) *node {
	b.t.Helper()
	a := b.get(path)
	if a.StatusCode != http.StatusOK {
		b.t.Fatalf("GET %s: %s\n%s", path, a.Status, a.body)
	}
	return a.tree(b.t)
}

func (a answer) tree(t testing.TB) *node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	return &node{root}
}

// json decodes an answer.
func (a answer) json(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// node is an element with what tests ask of it.
type node struct{ *html.Node }

func (n *node) attr(name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// all are the elements below n that match.
func (n *node) all(match func(*node) bool) (out []*node) {
	for d := range n.Descendants() {
		if e := (&node{d}); d.Type == html.ElementNode && match(e) {
			out = append(out, e)
		}
	}
	return out
}

func tag(name string) func(*node) bool { return func(n *node) bool { return n.Data == name } }

func class(name string) func(*node) bool {
	return func(n *node) bool { return slices.Contains(strings.Fields(n.attr("class")), name) }
}

// id is the element with an id; a test fails without it.
func (n *node) id(t testing.TB, id string) *node {
	t.Helper()
	found := n.all(func(e *node) bool { return e.attr("id") == id })
	if len(found) != 1 {
		t.Fatalf("%d elements with the id %q", len(found), id)
	}
	return found[0]
}

// link is where a link with such words leads; "" if there is none.
func (n *node) link(words string) string {
	for _, a := range n.all(tag("a")) {
		if strings.TrimSpace(a.text()) == words {
			return a.attr("href")
		}
	}
	return ""
}

// text is what one reads, spaces as they are.
func (n *node) text() string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// words is what one reads, with single spaces, and one between any two elements.
func (n *node) words() string {
	var words []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode && d.Parent.Data != "script" {
			words = append(words, strings.Fields(d.Data)...)
		}
	}
	return strings.Join(words, " ")
}

func expect(t testing.TB, n *node, sentences ...string) {
	t.Helper()
	got := n.words()
	for _, s := range sentences {
		if !strings.Contains(got, s) {
			t.Errorf("%q is not to be read in: %s", s, got)
		}
	}
}

func refuse(t testing.TB, n *node, sentences ...string) {
	t.Helper()
	got := n.words()
	for _, s := range sentences {
		if strings.Contains(got, s) {
			t.Errorf("%q is to be read in: %s", s, got)
		}
	}
}
