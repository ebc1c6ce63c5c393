package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Audience is the "aud" of tokens that nobody asked to be for something else. This server accepts its own tokens whatever their
// audience: Azure's clients ask for one audience an endpoint and check the claim themselves, and here all endpoints are one server.
const Audience = "https://management.azure.com/"

// tokenHeader is the first part of every token. Only this algorithm is made or accepted, so nothing in a token chooses how it is checked.
var tokenHeader = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))

// maxToken bounds what Check looks at.
const maxToken = 8 << 10

// claims are a token's contents: the registered names of RFC 7519, those that Azure's clients read, and ours.
type claims struct {
	Issuer    string `json:"iss"`
	Subject   string `json:"sub"`
	Audience  string `json:"aud"`
	IssuedAt  int64  `json:"iat"`
	NotBefore int64  `json:"nbf"`
	Expires   int64  `json:"exp"`
	ID        string `json:"jti"`
	Tenant    string `json:"tid"` // Azure's clients show it
	Object    string `json:"oid"` // Azure's clients want an object id: a UUID made from the name
	Principal string `json:"upn"` // the name again, where Azure's clients look for it
	AppID     string `json:"appid"`

	Role  trainyard.Role   `json:"ty_role"`
	Scope string           `json:"ty_scope,omitempty"` // sub/rg/workspace as written
	Job   string           `json:"ty_job,omitempty"`
	Node  trainyard.NodeID `json:"ty_node,omitempty"`

	Endpoint string `json:"ty_endpoint,omitempty"`
	Epoch    int64  `json:"ty_epoch,omitempty"`
}

// Mint makes a token that speaks for user until ttl has passed. audience is the resource the token is asked for; empty means Audience.
func (s *Service) Mint(user trainyard.User, audience string, ttl time.Duration) (string, error) {
	if user.Name == "" || user.Role == "" {
		return "", trainyard.Invalid("a token needs a user with a name and a role")
	}
	if ttl <= 0 {
		return "", trainyard.Invalid("a token for %q needs a time to live, and %s is none", user.Name, ttl)
	}
	if audience == "" {
		audience = Audience
	}
	now := s.now()
	object := uuidOf("user", user.Name)
	c := claims{
		Issuer: "trainyard", Subject: user.Name, Audience: audience, ID: hex.EncodeToString(random(8)),
		IssuedAt: now.Unix(), NotBefore: now.Unix(), Expires: now.Add(ttl).Unix(),
		Tenant: Tenant, Object: object, Principal: user.Name, AppID: object,
		Role: user.Role, Job: user.Job, Node: user.Node, Endpoint: user.Endpoint, Epoch: user.Epoch,
	}
	if user.Scope != (trainyard.Scope{}) {
		c.Scope = user.Scope.Subscription + "/" + user.Scope.ResourceGroup + "/" + user.Scope.Workspace
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode the token of %s: %w", user.Name, err)
	}
	signed := tokenHeader + "." + base64.RawURLEncoding.EncodeToString(body)
	return signed + "." + base64.RawURLEncoding.EncodeToString(s.sign(signed)), nil
}

// Check says who a token speaks for. The error has CodeUnknown and says what is wrong with it.
func (s *Service) Check(token string) (trainyard.User, error) {
	c, err := s.verify(token)
	if err != nil {
		return trainyard.User{}, err
	}
	u := trainyard.User{Name: c.Subject, Role: c.Role, Job: c.Job, Node: c.Node, Endpoint: c.Endpoint, Epoch: c.Epoch}
	if c.Scope != "" {
		part := strings.SplitN(c.Scope, "/", 3)
		if len(part) != 3 {
			return trainyard.User{}, unknown("the token's scope %q is not subscription/resource group/workspace", c.Scope)
		}
		u.Scope = trainyard.Scope{Subscription: part[0], ResourceGroup: part[1], Workspace: part[2]}
	}
	return u, nil
}

// clockSkew is how far the clock of the machine that made a token may run ahead of ours.
const clockSkew = time.Minute

func (s *Service) verify(token string) (claims, error) {
	var c claims
	if len(token) > maxToken {
		return c, unknown("the token is longer than %d bytes", maxToken)
	}
	cut := strings.LastIndexByte(token, '.')
	if cut < 0 || strings.Count(token, ".") != 2 {
		return c, unknown("this is not a token of this server: want three parts with dots between them")
	}
	sum, err := base64.RawURLEncoding.DecodeString(token[cut+1:])
	if err != nil || !hmac.Equal(sum, s.sign(token[:cut])) {
		return c, unknown("the token was not made by this server, or the server's data directory is new; get a new one from the server's machine")
	}
	header, payload, _ := strings.Cut(token[:cut], ".")
	body, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || header != tokenHeader || json.Unmarshal(body, &c) != nil {
		return c, unknown("the token is damaged")
	}
	now := s.now()
	if end := time.Unix(c.Expires, 0); !now.Before(end) {
		return c, unknown("the token of %q expired at %s; get a new one", c.Subject, end.UTC().Format(time.RFC3339))
	}
	if start := time.Unix(c.NotBefore, 0); now.Add(clockSkew).Before(start) {
		return c, unknown("the token of %q is good from %s on; is this machine's clock right?", c.Subject, start.UTC().Format(time.RFC3339))
	}
	return c, nil
}

func (s *Service) sign(text string) []byte {
	m := hmac.New(sha256.New, s.secret)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// Derive makes a key for another purpose out of the server's secret, the same at every start: signatures of blob URLs have one. Who
// knows it can neither make tokens nor find the secret.
func (s *Service) Derive(purpose string) []byte {
	return s.sign("derive\x00" + purpose) // no token has a zero byte in it
}

func unknown(format string, args ...any) error {
	return trainyard.Errorf(trainyard.CodeUnknown, format, args...)
}

// uuidOf makes a UUID of words, the same every time (version 8 of RFC 9562).
func uuidOf(words ...string) string {
	h := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	x := hex.EncodeToString(h[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
