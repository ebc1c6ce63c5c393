package client

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProfileIsWrittenForItsOwnerAndReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	t.Setenv(EnvConfigDir, dir)
	t.Setenv(EnvURL, "")
	t.Setenv(EnvToken, "")
	want := Profile{URL: "https://127.0.0.1:7878", Token: "t", CA: "-----BEGIN CERTIFICATE-----\n…", Subscription: "s", ResourceGroup: "g", Workspace: "w"}
	for range 2 { // the second replaces the first
		if err := WriteProfile(want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(ProfilePath())
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v (%v), want the profile alone", left, err)
	}
	c, err := ProfileConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if c.URL != want.URL || c.Token != "t" || len(c.CAPEM) == 0 || c.CAFile != "" || c.Workspace != "w" {
		t.Errorf("configuration %+v", c)
	}
}

func TestProfileThatOthersCanReadIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // its files have no such modes
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "profile.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadProfile(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("error %v", err)
	}
}

func TestEnvironmentStandsAboveTheProfile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvConfigDir, dir)
	t.Setenv(EnvURL, "")
	t.Setenv(EnvToken, "")
	if _, err := ProfileConfig(""); !errors.Is(err, fs.ErrNotExist) && err != nil {
		t.Errorf("no profile: %v", err)
	}
	if err := WriteProfile(Profile{URL: "https://127.0.0.1:7878", Token: "profile's", CA: "/ca.pem"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, url, token, wantURL, wantToken string }{
		{"nothing set", "", "", "https://127.0.0.1:7878", "profile's"},
		{"same server by another scheme keeps the token", "http://127.0.0.1:7878/", "", "http://127.0.0.1:7878/", "profile's"},
		{"same server by another name for this computer", "http://localhost:7878", "", "http://localhost:7878", "profile's"},
		{"another server never gets the profile's token", "https://elsewhere:7878", "", "https://elsewhere:7878", ""},
		{"another server with its token", "https://elsewhere:7878", "own", "https://elsewhere:7878", "own"},
		{"another token", "", "own", "https://127.0.0.1:7878", "own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(EnvURL, tt.url)
			t.Setenv(EnvToken, tt.token)
			c, err := ProfileConfig("")
			if err != nil {
				t.Fatal(err)
			}
			if c.URL != tt.wantURL || c.Token != tt.wantToken {
				t.Errorf("%s with token %q, want %s with %q", c.URL, c.Token, tt.wantURL, tt.wantToken)
			}
		})
	}
}
