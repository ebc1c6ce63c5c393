package studio

import (
	"bytes"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

//go:embed *.html
var templates embed.FS

// parse reads all templates. One that is wrong is found at the start, not by the first who looks.
func parse() *template.Template {
	return template.Must(template.New("studio").ParseFS(templates, "*.html"))
}

// visit is one request by somebody who is logged in.
type visit struct {
	*http.Request
	w     http.ResponseWriter
	who   trainyard.User
	scope trainyard.Scope
	now   time.Time
}

// frame is what every page has round it.
type frame struct {
	Title     string
	Tab       string // "jobs", "computes", "endpoints" or "models"
	User      string
	Role      string
	Workspace string
	Nav       map[string]string // addresses of the pages, in the workspace that is shown
	CSS, JS   string
	Icon      string
	Live      string // address of the stream that keeps the page up to date; "" for none
	Now       int64  // of the server, in Unix milliseconds
	Next      string // of the login form
}

func (d *door) frame(v *visit, title, tab string) frame {
	return frame{Title: title, Tab: tab, Now: v.now.UnixMilli(), User: v.who.Name, Role: string(v.who.Role), Workspace: v.scope.Workspace,
		Nav: map[string]string{"jobs": v.link("/jobs"), "computes": v.link("/computes"), "endpoints": v.link("/endpoints"), "models": v.link("/models"),
			"workspaces": v.link("/studio/workspaces")},
		CSS: d.assets.url("studio.css"), JS: d.assets.url("studio.js"), Icon: d.assets.url("icon.svg")}
}

// bareFrame is the frame of pages for somebody who is not logged in.
func (d *door) bareFrame(title string) frame {
	return frame{Title: title, CSS: d.assets.url("studio.css"), JS: d.assets.url("studio.js"), Icon: d.assets.url("icon.svg")}
}

// home is the workspace that addresses without a wsid mean to a user.
func home(who trainyard.User) trainyard.Scope {
	if who.Scope != (trainyard.Scope{}) {
		return who.Scope
	}
	return trainyard.DefaultScope()
}

// link is the address of a page in the workspace that is shown. The query's values come in pairs; empty ones are left out.
func (v *visit) link(path string, query ...string) string {
	var b strings.Builder
	b.WriteString(path)
	sep := "?"
	add := func(key, value string) {
		// A slash may stand in a query as it is, and the ids of workspaces are full of them.
		b.WriteString(sep + key + "=" + strings.ReplaceAll(url.QueryEscape(value), "%2F", "/"))
		sep = "&"
	}
	if v.scope.Fold() != home(v.who).Fold() {
		add("wsid", v.scope.ID())
	}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			add(query[i], query[i+1])
		}
	}
	return b.String()
}

func (v *visit) jobLink(name string, query ...string) string {
	return v.link("/jobs/"+url.PathEscape(name), query...)
}

func (v *visit) computeLink(name string) string { return v.link("/computes/" + url.PathEscape(name)) }

// may says whether the visitor may do verb to the thing named.
func (v *visit) may(verb string, kind trainyard.Kind, name string) error {
	return identity.Allow(v.who, verb, v.scope, kind, name)
}

// page serves what needs a session and the right to read kind in the workspace.
func (d *door) page(kind trainyard.Kind, do func(*door, *visit) error) http.Handler {
	return d.guarded(identity.Read, kind, do)
}

// act serves what changes something.
func (d *door) act(kind trainyard.Kind, do func(*door, *visit) error) http.Handler {
	return d.guarded(identity.Act, kind, do)
}

func (d *door) guarded(verb string, kind trainyard.Kind, do func(*door, *visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		v := &visit{Request: r, w: w, now: d.Now()}
		err := d.admit(v, verb, kind)
		if err == nil {
			err = do(d, v)
		}
		if err != nil {
			d.fail(v, err)
		}
	})
}

// admit finds who visits and which workspace they ask for, and refuses those who may not.
func (d *door) admit(v *visit, verb string, kind trainyard.Kind) error {
	who, err := d.session(v.Request)
	if err != nil {
		return err
	}
	v.who, v.scope = who, home(who)
	if wsid := v.URL.Query().Get("wsid"); wsid != "" {
		id, err := trainyard.ParseID(wsid)
		if err != nil || id.Kind != trainyard.KindWorkspace {
			return trainyard.Invalid("wsid=%s is not the id of a workspace", wsid)
		}
		v.scope = id.Scope
	}
	return v.may(verb, kind, v.PathValue("name"))
}

// secure sets what tells a browser to run and load nothing but what is ours, and to show us in no frame.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// render makes HTML of a template: the whole of it, or an error and nothing.
func (d *door) render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := d.pages.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

func (d *door) show(w http.ResponseWriter, status int, name string, data any) error {
	body, err := d.render(name, data)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // if the browser is gone there is nobody to tell
	return nil
}

type errorPage struct {
	frame
	Message string
	Back    string
}

// fail shows an error: the login form to those who are not logged in, a page with the error's words to all others.
func (d *door) fail(v *visit, err error) {
	e, ok := errors.AsType[*trainyard.Error](err)
	if !ok {
		if v.Context().Err() != nil {
			return // the browser is gone
		}
		d.Log.Error("page", "method", v.Method, "path", v.URL.Path, "error", err)
		e = trainyard.Errorf(trainyard.CodeInternal, "the server could not do this; its log says why")
	}
	if e.Code == trainyard.CodeUnknown {
		d.showLogin(v.w, v.Request, http.StatusUnauthorized, "", here(v.Request))
		return
	}
	status := e.Code.Status()
	page := errorPage{frame: d.frame(v, http.StatusText(status), ""), Message: e.Error(), Back: v.link("/jobs")}
	if err := d.show(v.w, status, "error", page); err != nil {
		d.Log.Error("page of an error", "path", v.URL.Path, "error", err)
	}
}

// here is the page that a request asked for, to come back to it.
func here(r *http.Request) string {
	if r.Method != http.MethodGet {
		return "/jobs"
	}
	return r.URL.RequestURI()
}

// nowhere answers for paths below ours at which there is nothing.
func (d *door) nowhere(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	v := &visit{Request: r, w: w, now: d.Now()}
	if err := d.admit(v, identity.Read, trainyard.KindJob); err != nil {
		d.fail(v, err)
		return
	}
	d.fail(v, trainyard.NotFound("there is no page at %s", r.URL.Path))
}
