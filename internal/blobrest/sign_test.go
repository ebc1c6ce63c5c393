package blobrest_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blobrest"
)

func TestSignaturesReachWhatTheySay(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := blobrest.Signer{Key: []byte("k"), Now: func() time.Time { return now }}
	for name, c := range map[string]struct {
		prefix, perms, key string
		perm               byte
		want               trainyard.ErrorCode
	}{
		"a blob of the container":     {"c", "rl", "c/a/b", 'r', ""},
		"a list of the container":     {"c", "rl", "c/", 'l', ""},
		"the container itself":        {"c", "rl", "c", 'r', ""},
		"a container named alike":     {"c", "rl", "c2/a", 'r', trainyard.CodeForbidden},
		"a folder":                    {"c/run/dcid.j1", "rl", "c/run/dcid.j1/x", 'r', ""},
		"a folder named alike":        {"c/run/dcid.j1", "rl", "c/run/dcid.j10/x", 'r', trainyard.CodeForbidden},
		"a list of it":                {"c/run/dcid.j1/", "rl", "c/run/dcid.j1/", 'l', ""},
		"a list of more":              {"c/run/dcid.j1", "rl", "c/run/", 'l', trainyard.CodeForbidden},
		"a list that shows its peers": {"c/run/dcid.j1", "rl", "c/run/dcid.j1", 'l', trainyard.CodeForbidden},
		"no such permission":          {"c", "rl", "c/x", 'w', trainyard.CodeForbidden},
		"nothing":                     {"", "rl", "c/x", 'r', trainyard.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			q := s.Sign(c.prefix, c.perms, now.Add(time.Hour))
			if err := s.Verify(q, c.key, c.perm); trainyard.CodeOf(err) != c.want {
				t.Errorf("Verify = %v, want %q", err, c.want)
			}
		})
	}
	good := s.Sign("c", "r", now.Add(time.Hour))
	for name, value := range map[string]string{"si": "d", "sp": "rw", "se": now.Add(2 * time.Hour).Format(time.RFC3339), "sig": "AAAA"} {
		forged, _ := url.ParseQuery(good.Encode())
		forged.Set(name, value)
		if err := s.Verify(forged, "c/x", 'r'); trainyard.CodeOf(err) != trainyard.CodeUnknown {
			t.Errorf("with another %s: %v", name, err)
		}
	}
	if err := (blobrest.Signer{Key: []byte("other")}).Verify(good, "c/x", 'r'); trainyard.CodeOf(err) != trainyard.CodeUnknown {
		t.Errorf("of another server: %v", err)
	}
	if err := (blobrest.Signer{}).Verify(blobrest.Signer{}.Sign("c", "r", now.Add(time.Hour)), "c/x", 'r'); err == nil {
		t.Error("an empty key verifies what an empty key signed")
	}
	now = now.Add(time.Hour)
	if err := s.Verify(good, "c/x", 'r'); trainyard.CodeOf(err) != trainyard.CodeUnknown || !strings.Contains(err.Error(), "expired") {
		t.Errorf("at its expiry: %v", err)
	}
}
