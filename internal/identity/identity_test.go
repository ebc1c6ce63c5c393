package identity_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// settings is a Settings in memory, as the store is one on disk.
type settings struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (s *settings) Setting(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[key]
	if !ok {
		return nil, trainyard.NotFound("no setting %q", key)
	}
	return v, nil
}

func (s *settings) PutSetting(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string][]byte{}
	}
	s.values[key] = value
	return nil
}

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func service(t *testing.T, kept *settings, c *clock) *identity.Service {
	t.Helper()
	s, err := identity.New(identity.Config{Settings: kept, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestATokenSpeaksForItsUserUntilItExpires(t *testing.T) {
	c := &clock{start}
	s := service(t, &settings{}, c)
	for _, u := range []trainyard.User{
		{Name: "ann", Role: trainyard.RoleReader},
		{Name: "job train-1", Role: trainyard.RoleJob, Job: "train-1", Scope: trainyard.Scope{Subscription: "S", ResourceGroup: "Rg", Workspace: "Ws"}},
		{Name: "node n1", Role: trainyard.RoleAgent, Node: "n1"},
		{Name: "Zoë \"quoted\"", Role: trainyard.RoleAdmin},
	} {
		token, err := s.Mint(u, "https://ml.azure.localhost", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Check(token); err != nil || got != u {
			t.Errorf("Check = %+v, %v; want %+v", got, err, u)
		}
		if aud := claim(t, token, "aud"); aud != "https://ml.azure.localhost" {
			t.Errorf("aud = %v", aud)
		}
		c.t = start.Add(time.Hour - time.Second)
		if _, err := s.Check(token); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		c.t = start.Add(time.Hour)
		if _, err := s.Check(token); trainyard.CodeOf(err) != trainyard.CodeUnknown || !strings.Contains(err.Error(), "expired") {
			t.Errorf("at its end: %v", err)
		}
		c.t = start
	}
}

func TestATokenThatWasTamperedWithIsRefused(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	other := service(t, &settings{}, &clock{start})
	token, _ := s.Mint(trainyard.User{Name: "ann", Role: trainyard.RoleReader}, "", time.Hour)
	foreign, _ := other.Mint(trainyard.User{Name: "ann", Role: trainyard.RoleAdmin}, "", time.Hour)
	part := strings.Split(token, ".")
	payload, _ := base64.RawURLEncoding.DecodeString(part[1])
	admin := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(payload), "reader", "admin", 1)))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	for name, bad := range map[string]string{
		"of another server":   foreign,
		"with another role":   part[0] + "." + admin + "." + part[2],
		"without a signature": none + "." + part[1] + ".",
		"with another header": none + "." + part[1] + "." + part[2],
		"cut short":           token[:len(token)-1],
		"with a part more":    token + ".x",
		"empty":               "",
		"dots":                "..",
		"huge":                strings.Repeat("a", 1<<20),
	} {
		if u, err := s.Check(bad); trainyard.CodeOf(err) != trainyard.CodeUnknown {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
}

func TestMintRefusesNobodyAndNoTime(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	for _, u := range []trainyard.User{{}, {Name: "a"}, {Role: trainyard.RoleAdmin}} {
		if _, err := s.Mint(u, "", time.Hour); err == nil {
			t.Errorf("minted for %+v", u)
		}
	}
	if _, err := s.Mint(trainyard.User{Name: "a", Role: trainyard.RoleAdmin}, "", 0); err == nil {
		t.Error("minted a token that lives for no time")
	}
}

func TestTheAdminTokenIsKeptAcrossStartsAndRenewedInTime(t *testing.T) {
	kept, c, ctx := &settings{}, &clock{start}, context.Background()
	first, err := service(t, kept, c).AdminToken(ctx)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := service(t, kept, c).AdminToken(ctx)
	if again != first {
		t.Error("the second start made another admin token")
	}
	if u, err := service(t, kept, c).Check(first); err != nil || u.Role != trainyard.RoleAdmin {
		t.Errorf("%+v, %v", u, err)
	}
	c.t = start.Add(10*365*24*time.Hour - 29*24*time.Hour)
	s := service(t, kept, c)
	renewed, err := s.AdminToken(ctx)
	if err != nil || renewed == first {
		t.Errorf("not renewed: %v", err)
	}
	if _, err := s.Check(first); err != nil {
		t.Errorf("the old one is good until its end: %v", err)
	}
}

func TestDerivedKeysAreKeptAndDiffer(t *testing.T) {
	kept, c := &settings{}, &clock{start}
	a, b := service(t, kept, c).Derive("blob"), service(t, kept, c).Derive("blob")
	if len(a) != 32 || string(a) != string(b) || string(a) == string(service(t, kept, c).Derive("other")) || string(a) == string(service(t, &settings{}, c).Derive("blob")) {
		t.Errorf("%x %x", a, b)
	}
}

func TestADamagedSecretIsAnErrorAndNotANewSecret(t *testing.T) {
	kept := &settings{values: map[string][]byte{"identity.secret": []byte("short")}}
	if _, err := identity.New(identity.Config{Settings: kept}); err == nil || !strings.Contains(err.Error(), "identity.secret") {
		t.Errorf("err = %v", err)
	}
}

type brokenSettings struct{ settings }

func (*brokenSettings) Setting(context.Context, string) ([]byte, error) {
	return nil, errors.New("disk on fire")
}

func TestSettingsThatCannotBeReadStopTheStart(t *testing.T) {
	if _, err := identity.New(identity.Config{Settings: &brokenSettings{}}); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("err = %v", err)
	}
}

func TestAuthenticateReadsBearerTokensOnly(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	token, _ := s.Mint(trainyard.User{Name: "ann", Role: trainyard.RoleAdmin}, "", time.Hour)
	for header, good := range map[string]bool{
		"Bearer " + token: true, "bearer " + token: true, "Bearer  " + token: true,
		"": false, token: false, "Basic " + token: false, "Bearer": false, "Bearer ": false, "Bearer x": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", header)
		if _, err := s.Authenticate(r); (err == nil) != good {
			t.Errorf("%q: %v", header, err)
		}
	}
}

func TestTheTableOfPermissions(t *testing.T) {
	here := trainyard.Scope{Subscription: "s", ResourceGroup: "rg", Workspace: "ws"}
	HERE := trainyard.Scope{Subscription: "S", ResourceGroup: "RG", Workspace: "WS"}
	there := trainyard.Scope{Subscription: "s", ResourceGroup: "rg", Workspace: "other"}
	above := trainyard.Scope{Subscription: "s"}
	admin := trainyard.User{Name: "root", Role: trainyard.RoleAdmin}
	held := trainyard.User{Name: "kim", Role: trainyard.RoleAdmin, Scope: here}
	reader := trainyard.User{Name: "ann", Role: trainyard.RoleReader}
	job := trainyard.User{Name: "job j1", Role: trainyard.RoleJob, Scope: here, Job: "j1"}
	agent := trainyard.User{Name: "node n1", Role: trainyard.RoleAgent, Node: "n1"}
	const ok, no, who = trainyard.ErrorCode(""), trainyard.CodeForbidden, trainyard.CodeUnknown
	for _, c := range []struct {
		says  string
		who   trainyard.User
		verb  string
		scope trainyard.Scope
		kind  trainyard.Kind
		name  string
		want  trainyard.ErrorCode
	}{
		{"an admin may write anywhere", admin, "write", there, "computes", "c", ok},
		{"an admin may see secrets", admin, "secrets", here, "datastores", "d", ok},
		{"an admin may list workspaces", admin, "read", above, "workspaces", "", ok},
		{"an admin of one workspace may act in it", held, "act", HERE, "computes", "c", ok},
		{"an admin of one workspace may not act in another", held, "act", there, "computes", "c", no},
		{"an admin of one workspace may not list the others", held, "read", above, "workspaces", "", no},
		{"a reader may read anywhere", reader, "read", there, "jobs", "j", ok},
		{"a reader may not write", reader, "write", here, "jobs", "j", no},
		{"a reader may not delete", reader, "delete", here, "jobs", "j", no},
		{"a reader may not cancel", reader, "act", here, "jobs", "j", no},
		{"a reader may not see secrets", reader, "secrets", here, "datastores", "d", no},
		{"a job may read its workspace", job, "read", HERE, "data", "d", ok},
		{"a job may read sizes", job, "read", above, "locations", "local", ok},
		{"a job may not change quotas", job, "write", above, "locations", "local", no},
		{"a job may not read another workspace", job, "read", there, "data", "d", no},
		{"a job may write its own run", job, "write", here, "jobs", "j1", ok},
		{"a job may not write another run", job, "write", here, "jobs", "j2", no},
		{"a job may not write data assets", job, "write", here, "data", "j1", no},
		{"a job may not delete its own run", job, "delete", here, "jobs", "j1", no},
		{"a job may not cancel", job, "act", here, "jobs", "j1", no},
		{"a job may open its workspace's datastores", job, "secrets", here, "datastores", "d", ok},
		{"a job may not open another workspace's datastores", job, "secrets", there, "datastores", "d", no},
		{"a job may not see a compute's keys", job, "secrets", here, "computes", "c", no},
		{"a job token without a job may write nothing", trainyard.User{Name: "x", Role: trainyard.RoleJob}, "write", here, "jobs", "", no},
		{"an agent may not even read", agent, "read", here, "jobs", "j", no},
		{"an unknown role may not read", trainyard.User{Name: "x", Role: "wizard"}, "read", here, "jobs", "j", no},
		{"nobody is told to send a token", trainyard.User{}, "read", here, "jobs", "j", who},
	} {
		if err := identity.Allow(c.who, c.verb, c.scope, c.kind, c.name); trainyard.CodeOf(err) != c.want {
			t.Errorf("%s: got %v, want code %q", c.says, err, c.want)
		}
	}
}

func TestARefusalNamesWhoWhatAndWhere(t *testing.T) {
	err := identity.Allow(trainyard.User{Name: "ann", Role: trainyard.RoleReader}, "delete", trainyard.DefaultScope(), "computes", "cpu-cluster")
	want := `user "ann" with the role "reader" may not delete computes "cpu-cluster" in workspace "default"; that needs a token with the role "admin"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// call sends a request through the handler; the next handler answers 418.
func call(s *identity.Service, method, target, body string, header map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })).ServeHTTP(w, r)
	return w
}

func decode(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return m
}

func claim(t *testing.T, token, name string) any {
	t.Helper()
	part := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(part[1])
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(payload, &m); err != nil {
		t.Fatal(err)
	}
	return m[name]
}

func TestMetadataIsAListForTheSDKAndACloudForAz(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	w := call(s, "GET", "https://example.org:7878/metadata/endpoints?api-version=2019-05-01", "", nil)
	var list []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != 1 {
		t.Fatalf("%s: %v", w.Body, err)
	}
	// The SDK takes the cloud whose resourceManager is a part of the URL it asked.
	if rm := list[0]["resourceManager"]; rm != "https://example.org:7878/" {
		t.Errorf("resourceManager = %v", rm)
	}
	cloud := decode(t, call(s, "GET", "https://127.0.0.1:7878/metadata/endpoints?api-version=2022-09-01", "", nil))
	if got := cloud["suffixes"].(map[string]any)["storage"]; got != "core.localhost:7878" {
		t.Errorf("storage suffix = %v", got)
	}
	for _, want := range []string{"name", "portal", "authentication", "resourceManager", "graph", "graphAudience", "media", "batch", "gallery",
		"vmImageAliasDoc", "microsoftGraphResourceId", "appInsightsResourceId", "sqlManagement", "activeDirectoryDataLake", "logAnalyticsResourceId"} {
		if cloud[want] == nil {
			t.Errorf("no %s", want)
		}
	}
}

func TestDiscoverySendsEveryServiceHere(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	m := decode(t, call(s, "GET", "https://h:1/discovery", "", nil))
	for _, k := range []string{"api", "history", "studio", "experimentation", "modelmanagement"} {
		if m[k] != "https://h:1" {
			t.Errorf("%s = %v", k, m[k])
		}
	}
}

func TestAClientSecretIsTradedForATokenOfTheAudienceAskedFor(t *testing.T) {
	c := &clock{start}
	s := service(t, &settings{}, c)
	user := trainyard.User{Name: "ann", Role: trainyard.RoleReader, Scope: trainyard.DefaultScope()}
	token, _ := s.Mint(user, "", 2*time.Hour)
	conf := decode(t, call(s, "GET", "https://h:1/some-tenant/v2.0/.well-known/openid-configuration", "", nil))
	if conf["token_endpoint"] != "https://h:1/some-tenant/oauth2/v2.0/token" || conf["issuer"] != "https://h:1/some-tenant/v2.0" {
		t.Errorf("%v", conf)
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {"x"}, "client_secret": {token}, "scope": {"https://ml.azure.localhost/.default"}}
	w := call(s, "POST", "https://h:1/some-tenant/oauth2/v2.0/token", form.Encode(), nil)
	m := decode(t, w)
	if w.Code != 200 || m["token_type"] != "Bearer" || m["expires_in"] != 7200.0 {
		t.Fatalf("%d %v", w.Code, m)
	}
	fresh := m["access_token"].(string)
	if aud := claim(t, fresh, "aud"); aud != "https://ml.azure.localhost" {
		t.Errorf("aud = %v", aud)
	}
	if got, err := s.Check(fresh); err != nil || got != user {
		t.Errorf("%+v, %v", got, err)
	}
	c.t = start.Add(2 * time.Hour)
	if _, err := s.Check(fresh); err == nil {
		t.Error("the new token outlives the one it was made from")
	}
	form.Set("grant_type", "password")
	if w := call(s, "POST", "https://h:1/t/oauth2/v2.0/token", form.Encode(), nil); w.Code != 400 || decode(t, w)["error"] != "unsupported_grant_type" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	form.Set("grant_type", "client_credentials")
	form.Set("client_secret", "guess")
	if w := call(s, "POST", "https://h:1/t/oauth2/v2.0/token", form.Encode(), nil); w.Code != 401 || decode(t, w)["error"] != "invalid_client" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestManagedIdentityInBothStyles(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	token, _ := s.Mint(trainyard.User{Name: "job j", Role: trainyard.RoleJob, Job: "j"}, "", 100*time.Hour)
	for _, h := range []string{"X-IDENTITY-HEADER", "secret"} {
		w := call(s, "GET", "http://127.0.0.1:1/msi/token?api-version=2019-08-01&resource=https://management.azure.com/", "", map[string]string{h: token})
		m := decode(t, w)
		if w.Code != 200 || m["resource"] != "https://management.azure.com/" || m["expires_on"] != "1772452800" {
			t.Fatalf("%s: %d %v", h, w.Code, m)
		}
		if aud := claim(t, m["access_token"].(string), "aud"); aud != "https://management.azure.com/" {
			t.Errorf("aud = %v", aud)
		}
	}
	if w := call(s, "GET", "/msi/token?resource=r", "", map[string]string{"secret": "wrong"}); w.Code != 401 {
		t.Errorf("wrong secret: %d", w.Code)
	}
	if w := call(s, "GET", "/msi/token", "", map[string]string{"secret": token}); w.Code != 400 {
		t.Errorf("no resource: %d", w.Code)
	}
}

func TestSubscriptionsNeedATokenAndOtherPathsGoOn(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	token, _ := s.Mint(trainyard.User{Name: "ann", Role: trainyard.RoleReader}, "", time.Hour)
	auth := map[string]string{"Authorization": "Bearer " + token}
	if w := call(s, "GET", "/subscriptions?api-version=2022-12-01", "", nil); w.Code != 401 || !strings.Contains(w.Body.String(), "AuthenticationFailed") {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
	m := decode(t, call(s, "GET", "/subscriptions?api-version=2022-12-01", "", auth))
	sub := m["value"].([]any)[0].(map[string]any)
	if sub["subscriptionId"] != trainyard.DefaultSubscription || sub["state"] != "Enabled" || sub["tenantId"] == nil {
		t.Errorf("%v", sub)
	}
	if w := call(s, "GET", "/tenants", "", auth); w.Code != 200 {
		t.Errorf("tenants: %d", w.Code)
	}
	for _, path := range []string{"/", "/subscriptions/s/resourceGroups/rg/providers/P/workspaces/w", "/history/v1.0/x", "/Metadata", "/msi", "/discovery/x"} {
		if w := call(s, "GET", path, "", auth); w.Code != http.StatusTeapot {
			t.Errorf("%s was answered here: %d", path, w.Code)
		}
	}
	if w := call(s, "DELETE", "/subscriptions", "", auth); w.Code != http.StatusTeapot {
		t.Errorf("DELETE was answered here: %d", w.Code)
	}
}

func FuzzCheck(f *testing.F) {
	s, err := identity.New(identity.Config{Settings: &settings{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9..")
	f.Fuzz(func(t *testing.T, token string) {
		if u, err := s.Check(token); err == nil {
			t.Fatalf("%q speaks for %+v", token, u)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	s, _ := identity.New(identity.Config{Settings: &settings{}})
	token, _ := s.Mint(trainyard.User{Name: "ann", Role: trainyard.RoleAdmin}, "", time.Hour)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
