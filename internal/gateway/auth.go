package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// allow refuses a request that does not show a key or token of the endpoint.
func (g *Gateway) allow(e *endpoint, authorization []byte) *refusal {
	const scheme = "bearer "
	if len(authorization) <= len(scheme) || !equalFold(authorization[:len(scheme)], scheme) {
		return refuse(http.StatusUnauthorized, "Unauthorized", "endpoint "+e.name+" wants the header Authorization: Bearer KEY")
	}
	given := trim(authorization[len(scheme):])
	hash := sha256.Sum256(given)
	good := 0
	for i := range e.keys {
		good |= subtle.ConstantTimeCompare(hash[:], e.keys[i][:])
	}
	if good == 1 {
		return nil
	}
	if e.auth == "" || strings.EqualFold(e.auth, trainyard.AuthKey) {
		return refuse(http.StatusUnauthorized, "Unauthorized", "the key is not one of endpoint "+e.name)
	}
	return g.checkToken(e, string(given), hash)
}

const (
	maxTokens    = 10_000
	goodTokenFor = time.Minute      // at most, so that one that is taken back is not taken for longer
	badTokenFor  = 10 * time.Second // so that a wrong token does not become a question to the server each time
	askTimeout   = 10 * time.Second
)

// tokens remembers what the server said of tokens, by endpoint and SHA-256.
type tokens struct {
	mu   sync.Mutex
	seen map[tokenKey]tokenSeen
}

type tokenKey struct {
	scope    trainyard.Scope
	endpoint string
	hash     [sha256.Size]byte
}

type tokenSeen struct {
	until time.Time
	bad   *refusal // nil: it is good until then
}

func (t *tokens) get(k tokenKey, now time.Time) (tokenSeen, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.seen[k]
	return s, ok && now.Before(s.until)
}

func (t *tokens) put(k tokenKey, s tokenSeen, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil || len(t.seen) >= 2*maxTokens {
		t.seen = map[tokenKey]tokenSeen{}
	}
	if len(t.seen) >= maxTokens {
		for k, s := range t.seen {
			if !now.Before(s.until) {
				delete(t.seen, k)
			}
		}
	}
	t.seen[k] = s
}

func (g *Gateway) checkToken(e *endpoint, token string, hash [sha256.Size]byte) *refusal {
	k, now := tokenKey{e.scope, strings.ToLower(e.name), hash}, g.config.Now()
	if s, ok := g.tokens.get(k, now); ok {
		return s.bad
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	until, err := g.config.Source.CheckToken(ctx, e.name, token)
	switch code := trainyard.CodeOf(err); {
	case err == nil && now.Before(until):
		if soon := now.Add(goodTokenFor); until.After(soon) {
			until = soon
		}
		g.tokens.put(k, tokenSeen{until: until}, now)
		return nil
	case err == nil || code == trainyard.CodeUnknown || code == trainyard.CodeForbidden || code == trainyard.CodeNotFound || code == trainyard.CodeInvalid:
		bad := refuse(http.StatusUnauthorized, "Unauthorized", "the token is not good, or no longer, for endpoint "+e.name)
		if code == trainyard.CodeForbidden {
			bad = refuse(http.StatusForbidden, "Forbidden", "the token's owner may not send requests to endpoint "+e.name)
		}
		g.tokens.put(k, tokenSeen{until: now.Add(badTokenFor), bad: bad}, now)
		return bad
	}
	g.log.Warn("a token could not be checked", "endpoint", e.name, "error", err)
	return &refusal{status: http.StatusServiceUnavailable, code: "TokenNotChecked", retry: time.Second,
		message: "the server that checks tokens does not answer; try again, or use a key"}
}
