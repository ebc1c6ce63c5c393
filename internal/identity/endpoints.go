package identity

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Tenant is the directory that every token names: there is one, and it means nothing.
const Tenant = "00000000-0000-0000-0000-00000000aaaa"

// exchangeLife is how long a token got for another one is good, at most; clients come back by themselves.
const exchangeLife = 24 * time.Hour

// maxForm bounds the body of a token request.
const maxForm = 64 << 10

// endpoint is one row of the table of Handler: a path ends so, and this answers it.
type endpoint struct {
	method string
	path   string // exact in lower case, or a suffix if it begins with "…"
	do     func(*Service, http.ResponseWriter, *http.Request)
}

// endpoints is all that Handler answers. Tenants and authority prefixes stand where the "…" is.
var endpoints = []endpoint{
	{"GET", "/metadata/endpoints", (*Service).metadata},
	{"GET", "/discovery", (*Service).discovery},
	{"GET", "…/.well-known/openid-configuration", (*Service).openid},
	{"GET", "…/discovery/v2.0/keys", (*Service).keys},
	{"GET", "…/common/discovery/instance", (*Service).instance},
	{"POST", "…/oauth2/v2.0/token", (*Service).exchange},
	{"POST", "…/oauth2/token", (*Service).exchange},
	{"GET", "/msi/token", (*Service).managed},
	{"GET", "/subscriptions", (*Service).subscriptions},
	{"GET", "/subscriptions/" + trainyard.DefaultSubscription, (*Service).subscription},
	{"GET", "/tenants", (*Service).tenants},
}

// Handler answers cloud metadata, discovery, OpenID configuration, token exchange, managed identity, and the lists of subscriptions and
// tenants that Azure's clients ask for before anything else; every other request goes to next.
func (s *Service) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if do := find(r.Method, r.URL.Path); do != nil {
			do(s, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func find(method, path string) func(*Service, http.ResponseWriter, *http.Request) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	// Cheap for the paths that come often: everything below /subscriptions/{id}/ is another door's.
	if len(path) > 256 || strings.Count(path, "/") > 6 {
		return nil
	}
	low := strings.TrimRight(strings.ToLower(path), "/")
	for _, e := range endpoints {
		tail, anywhere := strings.CutPrefix(e.path, "…")
		if e.method == method && (low == tail || anywhere && strings.HasSuffix(low, tail)) {
			return e.do
		}
	}
	return nil
}

func (s *Service) openid(w http.ResponseWriter, r *http.Request) {
	base := s.external(r)
	authority, v2 := strings.CutSuffix(strings.TrimSuffix(r.URL.Path, "/.well-known/openid-configuration"), "/v2.0")
	issuer, oauth := base+authority, base+authority+"/oauth2"
	if v2 {
		issuer, oauth = issuer+"/v2.0", oauth+"/v2.0"
	}
	reply(w, http.StatusOK, map[string]any{
		"issuer":                                issuer,
		"authorization_endpoint":                oauth + "/authorize",
		"token_endpoint":                        oauth + "/token",
		"device_authorization_endpoint":         oauth + "/devicecode",
		"jwks_uri":                              base + authority + "/discovery/v2.0/keys",
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"},
		"response_types_supported":              []string{"token"},
		"grant_types_supported":                 []string{"client_credentials"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"HS256"},
		"scopes_supported":                      []string{"openid", "profile"},
	})
}

// keys is empty: tokens are checked by the server that made them, with a key that nobody else has.
func (s *Service) keys(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{"keys": []any{}})
}

func (s *Service) instance(w http.ResponseWriter, r *http.Request) {
	base := s.external(r)
	host := strings.TrimPrefix(strings.TrimPrefix(base, "https://"), "http://")
	reply(w, http.StatusOK, map[string]any{
		"tenant_discovery_endpoint": base + "/" + Tenant + "/v2.0/.well-known/openid-configuration",
		"api-version":               "1.1",
		"metadata":                  []any{map[string]any{"preferred_network": host, "preferred_cache": host, "aliases": []string{host}}},
	})
}

// exchange is OAuth 2's client credentials grant (RFC 6749, 4.4) with a token of ours for a secret: Azure's libraries know how to ask
// for a token with an id and a secret, and not how to be given one.
func (s *Service) exchange(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "the body is not a form: "+err.Error())
		return
	}
	if g := r.PostForm.Get("grant_type"); g != "client_credentials" {
		refuse(w, http.StatusBadRequest, "unsupported_grant_type",
			"grant_type is "+strconv.Quote(g)+" and only client_credentials is understood: use a client secret, and give a Trainyard token as that secret")
		return
	}
	secret := r.PostForm.Get("client_secret")
	if _, pass, ok := r.BasicAuth(); ok && secret == "" {
		secret = pass
	}
	audience := r.PostForm.Get("resource")
	if scope := r.PostForm.Get("scope"); scope != "" {
		first, _, _ := strings.Cut(scope, " ")
		audience = strings.TrimSuffix(first, "/.default")
	}
	token, left, err := s.trade(secret, audience)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "invalid_client", "client_secret must be a Trainyard token: "+err.Error())
		return
	}
	seconds := int64(left / time.Second)
	reply(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": seconds, "ext_expires_in": seconds, "access_token": token})
}

// managed is the managed identity endpoint, in the style of App Service (X-IDENTITY-HEADER) and of Azure ML (secret). The header
// proves that the caller may have a token, so here it is a token itself.
func (s *Service) managed(w http.ResponseWriter, r *http.Request) {
	secret := r.Header.Get("X-IDENTITY-HEADER")
	if secret == "" {
		secret = r.Header.Get("secret")
	}
	resource := r.URL.Query().Get("resource")
	if resource == "" {
		refuse(w, http.StatusBadRequest, "invalid_request", "the query has no resource: say for what the token is, as in ?resource=https://management.azure.com/")
		return
	}
	token, left, err := s.trade(secret, resource)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "unauthorized", "the header X-IDENTITY-HEADER (or secret) must be a Trainyard token: "+err.Error())
		return
	}
	seconds := int64(left / time.Second)
	reply(w, http.StatusOK, map[string]any{
		"access_token": token,
		"expires_on":   strconv.FormatInt(s.now().Unix()+seconds, 10),
		"expires_in":   strconv.FormatInt(seconds, 10),
		"resource":     resource,
		"token_type":   "Bearer",
		"client_id":    Tenant,
	})
}

// trade makes a token for another audience out of a valid one. It never outlives the one it was made from.
func (s *Service) trade(token, audience string) (string, time.Duration, error) {
	c, err := s.verify(token)
	if err != nil {
		return "", 0, err
	}
	who, err := s.Check(token)
	if err != nil {
		return "", 0, err
	}
	left := min(exchangeLife, time.Unix(c.Expires, 0).Sub(s.now()))
	fresh, err := s.Mint(who, audience, left)
	return fresh, left, err
}

func (s *Service) subscriptions(w http.ResponseWriter, r *http.Request) {
	s.known(w, r, map[string]any{"value": []any{subscriptionBody()}, "count": map[string]any{"type": "Total", "value": 1}})
}

func (s *Service) subscription(w http.ResponseWriter, r *http.Request) {
	s.known(w, r, subscriptionBody())
}

func (s *Service) tenants(w http.ResponseWriter, r *http.Request) {
	s.known(w, r, map[string]any{"value": []any{map[string]any{
		"id": "/tenants/" + Tenant, "tenantId": Tenant, "displayName": "Trainyard", "tenantType": "AAD", "tenantCategory": "Home",
		"defaultDomain": "trainyard.localhost", "domains": []string{"trainyard.localhost"},
	}}})
}

func subscriptionBody() map[string]any {
	return map[string]any{
		"id":                   "/subscriptions/" + trainyard.DefaultSubscription,
		"subscriptionId":       trainyard.DefaultSubscription,
		"tenantId":             Tenant,
		"displayName":          "Trainyard",
		"state":                "Enabled",
		"authorizationSource":  "RoleBased",
		"managedByTenants":     []any{},
		"subscriptionPolicies": map[string]any{"locationPlacementId": "Public_2014-09-01", "quotaId": "PayAsYouGo_2014-09-01", "spendingLimit": "Off"},
	}
}

// known replies with body to anybody with a token.
func (s *Service) known(w http.ResponseWriter, r *http.Request, body any) {
	if _, err := s.Authenticate(r); err != nil {
		e, _ := errors.AsType[*trainyard.Error](err)
		w.Header().Set("WWW-Authenticate", `Bearer authorization_uri="`+s.external(r)+"/"+Tenant+`"`)
		reply(w, http.StatusUnauthorized, map[string]any{"error": e})
		return
	}
	reply(w, http.StatusOK, body)
}

// refuse answers as OAuth 2 wants errors (RFC 6749, 5.2). MSAL and az print the description.
func refuse(w http.ResponseWriter, status int, code, description string) {
	reply(w, status, map[string]any{"error": code, "error_description": description})
}

func reply(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"internal"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	w.Write(data)
}
