package slurm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/trainyard/trainyard"
)

// REST is how slurmrestd is reached. It never shows its token when it is printed or logged; only JSON has it.
type REST struct {
	URL       string `json:"url"`                 // https://HOST:PORT, or unix:/PATH of its socket
	User      string `json:"user,omitempty"`      // whose token it is; a socket may tell it by itself who asks
	Token     string `json:"token,omitempty"`     // secret
	TokenFile string `json:"tokenFile,omitempty"` // file of this computer's with the token, instead; read anew each time
}

// String is the URL.
func (r REST) String() string { return r.URL }

// GoString is String.
func (r REST) GoString() string { return r.URL }

func (r *REST) validate(s *Settings) error {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil, u.Scheme == "unix" && !strings.HasPrefix(u.Path, "/"), u.Scheme != "unix" && (u.Scheme != "https" && u.Scheme != "http" || u.Host == ""),
		u.User != nil, u.RawQuery != "", u.Fragment != "":
		return trainyard.Invalid("the URL %q of slurmrestd cannot be used; it must look like https://slurm.example.com:6820 or unix:/run/slurmrestd.sock", r.URL)
	case r.User == "" && (r.Token != "" || r.TokenFile != ""):
		return trainyard.Invalid("the token for slurmrestd at %s needs the name of its user", r.URL)
	case strings.ContainsAny(r.User+r.Token, "\r\n\x00"):
		return trainyard.Invalid("the user or the token for slurmrestd at %s holds a line's end; give the token alone", r.URL)
	case s.Folder == "":
		return trainyard.Invalid("folder is missing: slurmrestd gives no access to files, so name a folder that this server and the cluster's nodes see " +
			"under the same path; tasks, this program and logs pass through it")
	case len(s.Sbatch) > 0:
		return trainyard.Invalid("sbatch lines cannot be used with slurmrestd, which does not read them; leave them out, or reach Slurm through a login node")
	}
	return nil
}

// host is the computer that the service is on; "" for a socket here.
func (r *REST) host() string {
	if u, err := url.Parse(r.URL); err == nil {
		return u.Hostname()
	}
	return ""
}

// service asks slurmrestd.
type service struct {
	at   REST
	env  []string // of jobs
	base string
	http *http.Client
}

// api is the version of the interface. Slurm has it from 22.05 to 23.11.
const api = "v0.0.38"

// maxAnswer bounds an answer: a job takes some 4 KB.
const maxAnswer = 512 << 20

func newService(s Settings) *service {
	t := http.DefaultTransport.(*http.Transport).Clone()
	v := &service{at: *s.REST, base: strings.TrimRight(s.REST.URL, "/") + "/slurm/" + api, http: &http.Client{Transport: t},
		env: environ(command{folder: s.Commands, conf: s.ConfPath})}
	if path, ok := strings.CutPrefix(s.REST.URL, "unix:"); ok {
		path = "/" + strings.TrimLeft(path, "/")
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		t.Proxy, v.base = nil, "http://slurmrestd/slurm/"+api
	}
	return v
}

// answer is the part of every answer that says what went wrong.
type answer struct {
	Errors []struct {
		Error       string `json:"error"`
		Description string `json:"description"`
	} `json:"errors"`
}

// words are the errors in one line.
func (a *answer) words() string {
	var b strings.Builder
	for _, e := range a.Errors {
		b.WriteString(cmp.Or(e.Description, e.Error) + "\n")
		if e.Description != "" && !strings.Contains(e.Description, e.Error) && e.Error != "Unspecified error" {
			b.WriteString(e.Error + "\n")
		}
	}
	return lastWords(b.String())
}

// call asks, and reads the answer into out.
func (v *service) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	body := []byte(nil)
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, v.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := v.sign(req); err != nil {
		return err
	}
	resp, err := v.http.Do(req)
	if err != nil {
		if cause, ok := errors.AsType[*url.Error](err); ok {
			err = cause.Err
		}
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
			return v.failed(errAway, "who answers at %s is not believed: %v; if it is yours, add the certificate of its authority to this "+
				"computer's, or start the server with SSL_CERT_FILE, which names a file with it", v.at.URL, err)
		}
		return v.failed(errAway, "it cannot be reached at %s: %v", v.at.URL, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return v.failed(errAway, "its answer broke off: %v", err)
	}
	return v.read(resp, data, out)
}

// sign says who asks.
func (v *service) sign(req *http.Request) error {
	token := v.at.Token
	if v.at.TokenFile != "" {
		data, err := os.ReadFile(v.at.TokenFile)
		if err != nil {
			return v.failed(errAway, "the file with its token cannot be read: %v", err)
		}
		token = strings.TrimSpace(string(data))
	}
	req.Header.Set("Content-Type", "application/json")
	if v.at.User != "" {
		req.Header.Set("X-SLURM-USER-NAME", v.at.User)
	}
	if token != "" {
		req.Header.Set("X-SLURM-USER-TOKEN", token)
	}
	return nil
}

// read makes an answer of what came back, or an error in words.
func (v *service) read(resp *http.Response, data []byte, out any) error {
	var a answer
	known := json.Unmarshal(data, &a) == nil
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		who := "nobody in particular, for no user and token are given"
		if v.at.User != "" {
			who = "user " + v.at.User
		}
		where := "and attach the compute again with it"
		if v.at.TokenFile != "" {
			where = "and write it into " + v.at.TokenFile
		}
		return v.failed(errAway, "it does not let %s in (HTTP %d): a token may have run out; make another with \"scontrol token username=USER lifespan=SECONDS\", %s",
			who, resp.StatusCode, where)
	case resp.StatusCode == http.StatusNotFound && len(a.Errors) == 0:
		return v.failed(nil, "there is no %s at %s; start it with -s openapi/%s (Slurm 22.05 to 23.11)", api, v.at.URL, api)
	case !known && resp.StatusCode >= 500:
		return v.failed(errAway, "HTTP %d: %s", resp.StatusCode, lastWords(string(data)))
	case !known:
		return v.failed(nil, "HTTP %d, and not the answer of slurmrestd: %s", resp.StatusCode, lastWords(string(data)))
	case len(a.Errors) > 0 || resp.StatusCode >= 400:
		return v.failed(nil, "%s", cmp.Or(a.words(), resp.Status))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return v.failed(nil, "its answer cannot be read: %v", err)
	}
	return nil
}

func (v *service) failed(err error, format string, args ...any) error {
	return &Error{Command: "slurmrestd", Words: fmt.Sprintf(format, args...), Err: err}
}
