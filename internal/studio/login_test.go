package studio_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

var ada = trainyard.User{Name: "ada", Role: trainyard.RoleAdmin}

// ticket asks for an address that logs a browser in, as the command line does.
func (b *browser) ticket(token, next string) answer {
	b.t.Helper()
	return b.do(http.MethodPost, "/studio/tickets", strings.NewReader(`{"next": "`+next+`"}`), "Authorization: Bearer "+token)
}

func (b *browser) path(a answer) string {
	b.t.Helper()
	var got struct{ URL string }
	a.json(b.t, &got)
	path, ok := strings.CutPrefix(got.URL, b.URL)
	if !ok {
		b.t.Fatalf("the address %q is not on %s", got.URL, b.URL)
	}
	return path
}

func TestTicketLogsABrowserInOnce(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	b := w.browser()
	login := b.path(b.ticket(w.token(ada), "/jobs/calm_river"))
	a := b.get(login)
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/jobs/calm_river" {
		t.Fatalf("%s to %q", a.Status, a.Header.Get("Location"))
	}
	c := a.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure || strings.Contains(login, c.Value) {
		t.Errorf("cookie %+v", c)
	}
	expect(t, b.page("/jobs/calm_river"), "Train calm_river", "ada")
	if a := b.get(login); a.StatusCode != http.StatusSeeOther {
		t.Errorf("the link again, in a browser that is logged in: %s", a.Status)
	}
	if a := w.browser().get(login); a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) > 0 {
		t.Errorf("the link again, in another browser: %s", a.Status)
	} else {
		expect(t, a.tree(t), "was used already", "Log in")
	}
}

func TestTicketExpires(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	login := b.path(b.ticket(w.token(ada), "/jobs"))
	w.pass(identity.TicketLife)
	if a := b.get(login); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s", a.Status)
	}
}

func TestTicketsAreForPeople(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"of a job":  {w.token(trainyard.User{Name: "job", Role: trainyard.RoleJob, Scope: scope, Job: "j"}), http.StatusForbidden},
		"of a node": {w.token(trainyard.User{Name: "n", Role: trainyard.RoleAgent, Node: "n"}), http.StatusForbidden},
		"no token":  {"abc", http.StatusUnauthorized},
	} {
		if a := b.ticket(c.token, "/jobs"); a.StatusCode != c.want {
			t.Errorf("%s: %s", name, a.Status)
		}
		if a := b.post("/studio/login", url.Values{"token": {c.token}}); a.StatusCode != c.want || len(a.Cookies()) > 0 {
			t.Errorf("form, %s: %s", name, a.Status)
		}
	}
	if a := b.do(http.MethodPost, "/studio/tickets", nil); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a header: %s", a.Status)
	}
	if a := w.admin().do(http.MethodPost, "/studio/tickets", nil); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("a session made a ticket: %s", a.Status)
	}
}

func TestLoginLeadsNowhereElse(t *testing.T) {
	w := newWorld(t)
	token := w.token(ada)
	for next, want := range map[string]string{
		"/jobs/x?log=user_logs/std_log.txt": "/jobs/x?log=user_logs/std_log.txt", "/computes": "/computes", "/jobs?wsid=/a/b": "/jobs?wsid=/a/b",
		"": "/jobs", "https://evil.example/jobs": "/jobs", "//evil.example/jobs": "/jobs", "/\\\\evil.example": "/jobs", "/\\t/evil.example": "/jobs",
		"/studio/logout": "/jobs", "javascript:alert(1)": "/jobs", "/subscriptions/x": "/jobs", "jobs": "/jobs", "/jobsx": "/jobs", "/%2f/evil.example": "/jobs",
	} {
		b := w.browser()
		if a := b.get(b.path(b.ticket(token, next))); a.Header.Get("Location") != want {
			t.Errorf("by ticket, next %q leads to %q", next, a.Header.Get("Location"))
		}
		plain := strings.NewReplacer(`\\`, `\`, `\t`, "\t").Replace(next)
		if a := b.post("/studio/login", url.Values{"token": {token}, "next": {plain}}); a.Header.Get("Location") != want {
			t.Errorf("by form, next %q leads to %q", plain, a.Header.Get("Location"))
		}
		tree := b.get("/studio/login?" + url.Values{"next": {plain}}.Encode()).tree(t)
		for _, in := range tree.all(tag("input")) {
			if in.attr("name") == "next" && in.attr("value") != want {
				t.Errorf("the form for next %q has %q", plain, in.attr("value"))
			}
		}
	}
}

func TestPageWithoutASessionShowsTheForm(t *testing.T) {
	w := newWorld(t)
	w.add("secret_job", trainyard.JobRunning)
	b := w.browser()
	for _, path := range []string{"/jobs", "/jobs/secret_job?log=x", "/computes", "/computes/c", "/studio/live/jobs/secret_job", "/jobs/secret_job/files/user_logs/std_log.txt",
		"/studio/workspaces", "/studio/nothing", "/jobs/a/b/c"} {
		a := b.get(path)
		if a.StatusCode != http.StatusUnauthorized || strings.Contains(a.body, "Train") && strings.Contains(a.body, "secret_job</") {
			t.Errorf("%s: %s", path, a.Status)
		}
		tree := a.tree(t)
		expect(t, tree, "trainyard studio", "--web", "Token")
		if strings.HasPrefix(path, "/jobs/secret_job?") && !strings.Contains(a.body, `value="/jobs/secret_job?log=x"`) {
			t.Errorf("the form forgot where to go: %s", a.body)
		}
	}
	if a := b.post("/jobs/secret_job/cancel", nil); a.StatusCode != http.StatusUnauthorized || w.canceled != nil {
		t.Errorf("cancel without a session: %s", a.Status)
	}
	if a := b.get("/subscriptions"); a.StatusCode != http.StatusTeapot {
		t.Errorf("another door's path: %s", a.Status)
	}
	if a := b.get("/"); a.Header.Get("Location") != "/jobs" {
		t.Errorf("/ leads to %q", a.Header.Get("Location"))
	}
}

func TestFormIsThrottled(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	wrong := url.Values{"token": {"guess"}}
	for i := range 10 {
		if a := b.post("/studio/login", wrong); a.StatusCode != http.StatusUnauthorized {
			t.Fatalf("attempt %d: %s", i, a.Status)
		}
	}
	right := url.Values{"token": {w.token(ada)}}
	if a := b.post("/studio/login", right); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("the attempt after ten that failed: %s", a.Status)
	}
	w.pass(time.Minute)
	if a := b.post("/studio/login", right); a.StatusCode != http.StatusSeeOther {
		t.Errorf("a minute later: %s", a.Status)
	}
	if strings.Contains(w.log.String(), "guess") {
		t.Error("the log holds what was tried")
	}
}

func TestLogoutEndsTheSession(t *testing.T) {
	w := newWorld(t)
	b := w.admin()
	kept := jar{}
	for name, c := range b.client.Jar.(jar) {
		kept[name] = c
	}
	if a := b.post("/studio/logout", nil); a.StatusCode != http.StatusSeeOther || len(b.client.Jar.(jar)) > 0 {
		t.Errorf("%s, cookies %v", a.Status, b.client.Jar)
	}
	b.client.Jar = kept
	if a := b.get("/jobs"); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("the old cookie: %s", a.Status)
	}
}

func TestSessionEnds(t *testing.T) {
	w := newWorld(t)
	b := w.admin()
	w.pass(59 * time.Minute)
	b.page("/jobs")
	w.pass(time.Minute) // the token was for an hour
	if a := b.get("/jobs"); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the token's end: %s", a.Status)
	}
}

func TestOtherPagesCannotAct(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	b := w.admin()
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example", "Origin: null"} {
		if a := b.post("/jobs/calm_river/cancel", nil, header); a.StatusCode != http.StatusForbidden || w.canceled != nil {
			t.Errorf("%s: %s", header, a.Status)
		}
	}
	if a := b.get("/jobs/calm_river/cancel"); a.StatusCode == http.StatusOK || w.canceled != nil {
		t.Errorf("GET cancels: %s", a.Status)
	}
	a := b.post("/jobs/calm_river/cancel", nil, "Sec-Fetch-Site: same-origin")
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/jobs/calm_river" || len(w.canceled) != 1 || w.canceled[0] != "ada: calm_river" {
		t.Errorf("our own page: %s to %q, canceled %v", a.Status, a.Header.Get("Location"), w.canceled)
	}
}

func TestRoles(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	elsewhere := scope
	elsewhere.Workspace = "vision"
	other := w.login(trainyard.User{Name: "eve", Role: trainyard.RoleAdmin, Scope: elsewhere})
	wsid := "?wsid=" + scope.ID()
	for _, path := range []string{"/jobs", "/jobs/calm_river", "/computes", "/studio/live/jobs", "/jobs/calm_river/files/a"} {
		if a := other.get(path + wsid); a.StatusCode != http.StatusForbidden || strings.Contains(a.body, "Train calm_river") {
			t.Errorf("eve of vision at %s: %s", path, a.Status)
		}
	}
	if a := other.post("/jobs/calm_river/cancel"+wsid, nil); a.StatusCode != http.StatusForbidden || w.canceled != nil {
		t.Errorf("eve cancels: %s", a.Status)
	}
	refuse(t, other.page("/jobs"), "calm_river") // her own workspace
	rows := other.page("/studio/workspaces").all(tag("tr"))
	if len(rows) != 2 { // with the heading
		t.Errorf("eve sees %d workspaces", len(rows)-1)
	}

	reader := w.login(trainyard.User{Name: "rob", Role: trainyard.RoleReader})
	page := reader.page("/jobs/calm_river")
	expect(t, page, "Train calm_river")
	refuse(t, page, "Cancel job")
	if a := reader.post("/jobs/calm_river/cancel", nil); a.StatusCode != http.StatusForbidden || w.canceled != nil {
		t.Errorf("a reader cancels: %s", a.Status)
	}
}
