package studio

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// maxForm bounds the body of a login.
const maxForm = 64 << 10

type loginPage struct {
	frame
	Problem string
}

func (d *door) showLogin(w http.ResponseWriter, _ *http.Request, status int, problem, next string) {
	secure(w.Header())
	page := loginPage{frame: d.bareFrame("Log in"), Problem: problem}
	page.Next = local(next)
	if err := d.show(w, status, "login", page); err != nil {
		d.Log.Error("login page", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// local is next if it is one of our pages, and the list of jobs otherwise: a link to log in must not lead elsewhere.
func local(next string) string {
	const otherwise = "/jobs"
	if strings.ContainsAny(next, "\\\t\r\n") || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		return otherwise
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil {
		return otherwise
	}
	for _, ours := range []string{"/jobs", "/computes", "/endpoints", "/models", "/studio/workspaces"} {
		if u.Path == ours || strings.HasPrefix(u.Path, ours+"/") {
			return next
		}
	}
	return otherwise
}

// cookieName differs by port, since cookies do not: two servers on one computer must not log each other's users out.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "0"
	}
	if r.TLS != nil {
		return "__Host-trainyard-" + port // a browser takes this name from this host alone, with Secure
	}
	return "trainyard-" + port
}

// session is who is logged in.
func (d *door) session(r *http.Request) (trainyard.User, error) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown, "this browser is not logged in")
	}
	return d.Sessions.Check(c.Value)
}

// setCookie gives the browser a session; an empty value takes it away.
func setCookie(w http.ResponseWriter, r *http.Request, value string, expires time.Time) {
	c := &http.Cookie{Name: cookieName(r), Value: value, Path: "/", Expires: expires,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// redeem logs a browser in that comes with a ticket, and shows the form to one that comes without.
func (d *door) redeem(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	q := r.URL.Query()
	next := local(q.Get("next"))
	if r.Method == http.MethodHead { // who only looks at links must not use a ticket up
		w.WriteHeader(http.StatusOK)
		return
	}
	if !q.Has("ticket") {
		d.showLogin(w, r, http.StatusOK, "", next)
		return
	}
	s, err := d.Sessions.Redeem(q.Get("ticket"))
	if err != nil {
		if _, already := d.session(r); already == nil { // the link was clicked twice
			http.Redirect(w, r, next, http.StatusSeeOther)
			return
		}
		d.showLogin(w, r, http.StatusUnauthorized, err.Error(), next)
		return
	}
	setCookie(w, r, s.Value, s.Expires)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// login takes the form.
func (d *door) login(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	hurry(w)
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		d.showLogin(w, r, http.StatusBadRequest, "that was not a form with a token", "")
		return
	}
	next, from := local(r.PostForm.Get("next")), remote(r)
	if wait := d.logins.wait(from, d.Now()); wait > 0 {
		w.Header().Set("Retry-After", "60")
		d.showLogin(w, r, http.StatusTooManyRequests, "too many attempts failed; wait a minute and try again", next)
		return
	}
	s, err := d.Sessions.Begin(strings.TrimSpace(r.PostForm.Get("token")))
	if err != nil {
		d.logins.failed(from, d.Now())
		d.Log.Warn("login refused", "from", from, "error", err)
		d.showLogin(w, r, trainyard.CodeOf(err).Status(), err.Error(), next)
		return
	}
	setCookie(w, r, s.Value, s.Expires)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (d *door) logout(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if c, err := r.Cookie(cookieName(r)); err == nil {
		d.Sessions.End(c.Value)
	}
	setCookie(w, r, "", time.Time{})
	http.Redirect(w, r, "/studio/login", http.StatusSeeOther)
}

// hurry bounds how long a small body may take to arrive from somebody who is nobody yet.
func hurry(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second)) // not every writer can
}

// makeTicket answers a program that has a token with an address that logs a browser in: {"next": "/jobs/x"} in, {"url": …} out.
func (d *door) makeTicket(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	hurry(w)
	var ask struct {
		Next string `json:"next"`
	}
	if r.ContentLength != 0 {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxForm)).Decode(&ask); err != nil {
			answer(w, trainyard.Invalid(`the body is not a JSON object such as {"next": "/jobs/NAME"}: %v`, err), nil)
			return
		}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		answer(w, trainyard.Errorf(trainyard.CodeUnknown, "this request carries no token; send the header Authorization: Bearer TOKEN"), nil)
		return
	}
	ticket, err := d.Sessions.Ticket(strings.TrimSpace(token))
	if err != nil {
		answer(w, err, nil)
		return
	}
	next := strings.ReplaceAll(url.QueryEscape(local(ask.Next)), "%2F", "/") // slashes may stand in a query, and people read this
	answer(w, nil, map[string]string{"url": d.browserBase(r) + "/studio/login?ticket=" + ticket + "&next=" + next})
}

// browserBase is where a browser best reaches this server. On the server's own computer that is plain HTTP, which leaves it in no network
// and which no browser warns of, as each does of a certificate authority that it does not know.
func (d *door) browserBase(r *http.Request) string {
	base := d.External(r)
	rest, secure := strings.CutPrefix(base, "https://")
	u, err := url.Parse(base)
	from := net.ParseIP(remote(r))
	if !secure || err != nil || from == nil || !from.IsLoopback() {
		return base
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() || u.Hostname() == "localhost" {
		return "http://" + rest
	}
	return base
}

func answer(w http.ResponseWriter, err error, body any) {
	status := http.StatusOK
	if err != nil {
		e, ok := errors.AsType[*trainyard.Error](err)
		if !ok {
			e = trainyard.Errorf(trainyard.CodeInternal, "the server could not do this; its log says why")
		}
		status, body = e.Code.Status(), map[string]any{"error": e}
	}
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, nil
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// remote is the address that a request comes from, without its port.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
