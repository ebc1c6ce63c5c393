package blobrest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Signer makes and checks shared access signatures: queries that let their bearer do some things to the keys under a prefix until some
// time. They are ours, not Azure's, but spelt in Azure's parameters, since clients drop those that they do not know: si holds the prefix.
type Signer struct {
	Key []byte           // secret of the server; an empty one signs nothing and verifies nothing
	Now func() time.Time // nil: time.Now
}

const signedVersion = "2021-12-02"

// Sign lets the bearer do perms ("rwdl" or some of it) to prefix and what is under it, a container or "container/folder", until expiry.
func (s Signer) Sign(prefix, perms string, expiry time.Time) url.Values {
	prefix = strings.TrimSuffix(prefix, "/")
	q := url.Values{}
	q.Set("sv", signedVersion)
	q.Set("sr", "c")
	q.Set("si", prefix)
	q.Set("sp", perms)
	q.Set("se", expiry.UTC().Format(time.RFC3339))
	q.Set("sig", s.mac(prefix, perms, q.Get("se")))
	return q
}

func (s Signer) mac(prefix, perms, expiry string) string {
	m := hmac.New(sha256.New, s.Key)
	for _, part := range []string{"trainyard sas 1", prefix, perms, expiry} {
		m.Write([]byte(part))
		m.Write([]byte{0})
	}
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func (s Signer) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Verify says whether the query lets its bearer do perm to key. For List, key is what the listed keys begin with, and must reach beyond
// the signed prefix's slash, so that "c/job1" does not show "c/job10".
func (s Signer) Verify(q url.Values, key string, perm byte) error {
	prefix, perms, expiry := q.Get("si"), q.Get("sp"), q.Get("se")
	if len(s.Key) == 0 || !hmac.Equal([]byte(s.mac(prefix, perms, expiry)), []byte(q.Get("sig"))) {
		return trainyard.Errorf(trainyard.CodeUnknown, "the shared access signature is not one of this server's, or was changed; ask for a new one")
	}
	until, err := time.Parse(time.RFC3339, expiry)
	if err != nil || !s.now().Before(until) {
		return trainyard.Errorf(trainyard.CodeUnknown, "the shared access signature expired at %s; ask for a new one", expiry)
	}
	if prefix == "" || !strings.HasPrefix(key, prefix+"/") && (perm == List || key != prefix) {
		return trainyard.Errorf(trainyard.CodeForbidden, "the shared access signature is for %q and does not reach %q", prefix, key)
	}
	if strings.IndexByte(perms, perm) < 0 {
		return trainyard.Errorf(trainyard.CodeForbidden, "the shared access signature allows %q and not %q, which this request needs", perms, perm)
	}
	return nil
}

// clockSkew is how far a signed request's date may be from ours, as in Azure.
const clockSkew = 15 * time.Minute

// verifySharedKey checks "Authorization: SharedKey account:signature".
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
func (h *handler) verifySharedKey(r *request, credential string) error {
	account, signature, _ := strings.Cut(credential, ":")
	var key []byte
	if h.AccountKey != nil {
		key = h.AccountKey(account)
	}
	if len(key) == 0 {
		return refuse(http.StatusForbidden, "AuthenticationFailed", "the account %q has no shared key here; use a shared access signature or a bearer token", account)
	}
	date := r.Header.Get("x-ms-date")
	if date == "" {
		date = r.Header.Get("Date")
	}
	at, err := http.ParseTime(date)
	now := h.Signer.now()
	if err != nil || at.Before(now.Add(-clockSkew)) || at.After(now.Add(clockSkew)) {
		return refuse(http.StatusForbidden, "AuthenticationFailed", "the request is dated %q, more than %v from this server's clock", date, clockSkew)
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(stringToSign(r.Request, account)))
	if !hmac.Equal([]byte(base64.StdEncoding.EncodeToString(m.Sum(nil))), []byte(signature)) {
		return refuse(http.StatusForbidden, "AuthenticationFailed", "the request's signature is not made with the key of account %q", account)
	}
	return nil
}

// signedHeaders stand in the string to sign by position.
var signedHeaders = []string{"Content-Encoding", "Content-Language", "Content-Length", "Content-Md5", "Content-Type", "Date",
	"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"}

func stringToSign(r *http.Request, account string) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n")
	for _, name := range signedHeaders {
		value := r.Header.Get(name)
		switch {
		case name == "Content-Length" && r.ContentLength > 0:
			value = r.Header.Get("Content-Length")
			if value == "" {
				value = formatInt(r.ContentLength) // net/http takes the header out
			}
		case name == "Content-Length", name == "Date" && r.Header.Get("x-ms-date") != "":
			value = ""
		}
		b.WriteString(value + "\n")
	}
	var names []string
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			names = append(names, name)
		}
	}
	sort.Slice(names, func(i, j int) bool { return headerWeights(names[i]) < headerWeights(names[j]) })
	for _, name := range names {
		b.WriteString(name + ":" + strings.Join(r.Header.Values(name), ",") + "\n")
	}
	// The path as it was sent, whatever it was mounted under.
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if u, err := url.Parse(r.RequestURI); err == nil && u.IsAbs() {
		path = u.EscapedPath()
	}
	b.WriteString("/" + account + path)
	b.WriteString(canonicalQuery(r.URL.Query()))
	return b.String()
}

// headerWeights maps a header's name to a string that sorts as Azure sorts it: a collation in which hyphens do not count at first.
func headerWeights(name string) string {
	strip := strings.Map(func(c rune) rune {
		if c == '-' || c == '\'' {
			return -1
		}
		return c
	}, name)
	// '_' (0x71c+) and punctuation come before digits, and those before letters, as in ASCII but for '_'.
	return strings.ReplaceAll(strip, "_", "!") + "\x00" + name
}

func canonicalQuery(q url.Values) string {
	byName := map[string][]string{}
	var names []string
	for name, values := range q {
		name = strings.ToLower(name)
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], values...)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		values := byName[name]
		sort.Strings(values)
		b.WriteString("\n" + name + ":" + strings.Join(values, ","))
	}
	return b.String()
}
