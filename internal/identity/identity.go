// Package identity says who is asking and what they may do: it makes and checks tokens, holds the one table of permissions, answers the
// token, metadata and discovery endpoints that Azure's clients look for before their first call, and owns the server's certificates and
// its port. It knows no jobs or computes beyond their names. A token is all there is to know of a user; a browser gets a signed session for
// one, which never outlives it, and of which only tickets and log-outs are remembered, until the server stops.
package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Settings is where the server's secret and its admin token are kept. A key that was never put is either not found or empty.
type Settings interface {
	Setting(ctx context.Context, key string) ([]byte, error)
	PutSetting(ctx context.Context, key string, value []byte) error
}

// Keys of what identity keeps in Settings. Both are secrets.
const (
	settingSecret = "identity.secret"      // signs tokens
	settingAdmin  = "identity.admin-token" // the token made at first start
)

// Config is what New needs. Only Settings must be set.
type Config struct {
	Settings    Settings
	Now         func() time.Time           // nil: time.Now
	ExternalURL func(*http.Request) string // where clients reach this server, without a slash at the end; nil: External
	Log         *slog.Logger               // nil: slog.Default
}

// Service makes and checks tokens. It is safe for concurrent use, and nothing in it changes after New.
type Service struct {
	settings Settings
	now      func() time.Time
	external func(*http.Request) string
	log      *slog.Logger
	secret   []byte
}

// New loads the server's secret, or makes one at the first start. Tokens signed with another secret are strangers.
func New(c Config) (*Service, error) {
	s := &Service{settings: c.Settings, now: c.Now, external: c.ExternalURL, log: c.Log}
	if s.settings == nil {
		return nil, errors.New("identity: Config.Settings is nil")
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.external == nil {
		s.external = External
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	ctx := context.Background()
	text, err := s.setting(ctx, settingSecret)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		text = []byte(hex.EncodeToString(random(32)))
		if err := s.settings.PutSetting(ctx, settingSecret, text); err != nil {
			return nil, fmt.Errorf("store the server's secret: %w", err)
		}
	}
	if s.secret, err = hex.DecodeString(string(text)); err != nil || len(s.secret) < 32 {
		return nil, fmt.Errorf("the setting %s is not 64 hexadecimal digits; take it from a backup, or delete it to make a new one and all tokens invalid", settingSecret)
	}
	return s, nil
}

// adminLife is how long the admin token is good; within adminRenew of its end AdminToken makes another.
const (
	adminLife  = 10 * 365 * 24 * time.Hour
	adminRenew = 30 * 24 * time.Hour
)

// AdminToken is the token of the user who started the server first. It is made once and kept, so every start hands out the same one,
// until it is about to expire.
func (s *Service) AdminToken(ctx context.Context) (string, error) {
	kept, err := s.setting(ctx, settingAdmin)
	if err != nil {
		return "", err
	}
	if c, err := s.verify(string(kept)); err == nil && time.Unix(c.Expires, 0).Sub(s.now()) > adminRenew {
		return string(kept), nil
	}
	token, err := s.Mint(trainyard.User{Name: "admin", Role: trainyard.RoleAdmin}, Audience, adminLife)
	if err != nil {
		return "", err
	}
	if err := s.settings.PutSetting(ctx, settingAdmin, []byte(token)); err != nil {
		return "", fmt.Errorf("store the admin token: %w", err)
	}
	return token, nil
}

func (s *Service) setting(ctx context.Context, key string) ([]byte, error) {
	v, err := s.settings.Setting(ctx, key)
	if err != nil && !trainyard.IsNotFound(err) {
		return nil, fmt.Errorf("read the setting %s: %w", key, err)
	}
	return v, nil
}

// Authenticate says whose token the request carries in "Authorization: Bearer …". The error has CodeUnknown.
func (s *Service) Authenticate(r *http.Request) (trainyard.User, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(token) == "" {
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown,
			"this request carries no token; send the header Authorization: Bearer TOKEN (on the server's own machine the command line finds its token by itself, elsewhere set TRAINYARD_TOKEN)")
	}
	return s.Check(strings.TrimSpace(token))
}

// External is the URL under which r reached this server: its scheme and Host.
func External(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// random returns n random bytes; crypto/rand never fails since Go 1.24.
func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}
