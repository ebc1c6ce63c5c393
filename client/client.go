// Package client is the Go client of a Trainyard server's public API: Azure Resource Manager paths for everything that is named, the blob
// subset for bytes, run history for logs. The command line is built on it. It decides nothing, stores nothing but a profile, and knows of
// the server only what it answers over HTTP.
package client

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// apiVersion is sent with every call. Servers answer one shape whatever it says.
const apiVersion = "2025-09-01"

// Defaults of Config.Patience: a server that has answered before is waited for longer than one that was never there.
const (
	defaultPatience = time.Minute
	firstPatience   = 1200 * time.Millisecond
)

// Config says which server, as whom, and in which workspace.
type Config struct {
	URL           string // https://host:port, or http://127.0.0.1:port on the server's own computer
	Token         string // sent as bearer; never over plain HTTP to another computer
	CAFile        string // PEM file of the authority that signed the server's certificate; empty with no CAPEM: the system's authorities
	CAPEM         []byte // the same, as text; wins over CAFile
	Subscription  string // empty: trainyard.DefaultSubscription, and so on
	ResourceGroup string
	Workspace     string

	Patience time.Duration                                                  // how long to go on when a server that has answered before is gone or says 5xx; 0: a minute
	OnRetry  func(err error)                                                // told before each repeat, with why; may be nil
	Trace    func(method, url string, status int, d time.Duration, e error) // told after each exchange; may be nil
	HTTP     *http.Client                                                   // replaces the client made from the fields above; for tests
}

// Client talks to one server about one workspace. It is safe for use by several goroutines.
type Client struct {
	base     *url.URL
	token    string
	scope    trainyard.Scope
	http     *http.Client
	patience time.Duration
	onRetry  func(error)
	trace    func(string, string, int, time.Duration, error)
	reached  *atomic.Bool // the server has answered once
}

// Validate says what is wrong with the configuration, for a person.
func (c Config) Validate() error {
	if c.URL == "" {
		return trainyard.Invalid("no server is known: start one on this computer with \"trainyard server\", or set TRAINYARD_URL and TRAINYARD_TOKEN")
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return trainyard.Invalid("%q is not the URL of a server: want https://HOST:PORT, or http://127.0.0.1:PORT on the server's own computer", c.URL)
	}
	if u.Scheme == "http" && !trainyard.Loopback(u.Hostname()) {
		return trainyard.Invalid("%s is plain HTTP to another computer, which would show your token to the network: use https://%s", c.URL, u.Host)
	}
	return nil
}

// New makes a client. It does not connect.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	base, _ := url.Parse(strings.TrimRight(c.URL, "/")) // Validate has parsed it
	hc := c.HTTP
	if hc == nil {
		var err error
		if hc, err = httpClient(c, base); err != nil {
			return nil, err
		}
	}
	return &Client{
		base:  base,
		token: c.Token,
		scope: trainyard.Scope{
			Subscription:  cmp.Or(c.Subscription, trainyard.DefaultSubscription),
			ResourceGroup: cmp.Or(c.ResourceGroup, trainyard.DefaultResourceGroup),
			Workspace:     cmp.Or(c.Workspace, trainyard.DefaultWorkspace),
		},
		http:     hc,
		patience: cmp.Or(c.Patience, defaultPatience),
		onRetry:  c.OnRetry,
		trace:    c.Trace,
		reached:  new(atomic.Bool),
	}, nil
}

func httpClient(c Config, base *url.URL) (*http.Client, error) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	pem := c.CAPEM
	if len(pem) == 0 && c.CAFile != "" && base.Scheme == "https" {
		data, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the server's certificate authority: %w", err)
		}
		pem = data
	}
	if len(pem) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, trainyard.Invalid("the certificate authority %sholds no PEM certificate", nameOf(c.CAFile))
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: t}, nil
}

func nameOf(file string) string {
	if file == "" {
		return ""
	}
	return "in " + file + " "
}

// Scope is the workspace that the client's relative paths are of.
func (c *Client) Scope() trainyard.Scope { return c.scope }

// URL is the server's address, without a slash at its end.
func (c *Client) URL() string { return c.base.String() }

// In returns a client of the same server and connections for another workspace. Empty fields keep what they are.
func (c *Client) In(s trainyard.Scope) *Client {
	other := *c
	other.scope = trainyard.Scope{
		Subscription:  cmp.Or(s.Subscription, c.scope.Subscription),
		ResourceGroup: cmp.Or(s.ResourceGroup, c.scope.ResourceGroup),
		Workspace:     cmp.Or(s.Workspace, c.scope.Workspace),
	}
	return &other
}

// Patient returns a client of the same server and connections that waits up to d for a server that has gone away, and tells onRetry why it
// waits.
func (c *Client) Patient(d time.Duration, onRetry func(error)) *Client {
	other := *c
	other.patience, other.onRetry = d, onRetry
	return &other
}

// Path is the URL path of something in the workspace: Path("jobs", "calm_river_7"). Segments are escaped.
func (c *Client) Path(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	path := trainyard.Scope{
		Subscription:  url.PathEscape(c.scope.Subscription),
		ResourceGroup: url.PathEscape(c.scope.ResourceGroup),
		Workspace:     url.PathEscape(c.scope.Workspace),
	}.ID()
	if len(escaped) == 0 {
		return path
	}
	return path + "/" + strings.Join(escaped, "/")
}

// GroupPath is the URL path of the provider in the workspace's resource group: where workspaces are listed.
func (c *Client) GroupPath(parts ...string) string {
	p := c.Path()
	return strings.TrimSuffix(p, "/workspaces/"+url.PathEscape(c.scope.Workspace)) + "/" + strings.Join(parts, "/")
}

// ProviderPath is the URL path of the provider in the subscription: ProviderPath("locations", "local", "vmSizes").
func (c *Client) ProviderPath(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return "/subscriptions/" + url.PathEscape(c.scope.Subscription) + "/providers/" + trainyard.Provider + "/" + strings.Join(escaped, "/")
}

// Token is what the client speaks with. It is a secret.
func (c *Client) Token() string { return c.token }
