package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/trainyard/trainyard"
)

// Profile is what a command line knows of its server. It holds a token, so it is written for its owner alone.
type Profile struct {
	URL           string `json:"url"`
	Token         string `json:"token"`
	CA            string `json:"ca,omitempty"` // a path, or the PEM text itself
	Subscription  string `json:"subscription,omitempty"`
	ResourceGroup string `json:"resourceGroup,omitempty"`
	Workspace     string `json:"workspace,omitempty"`
}

// Environment variables that stand above the profile.
const (
	EnvURL       = "TRAINYARD_URL"
	EnvToken     = "TRAINYARD_TOKEN"
	EnvConfigDir = "TRAINYARD_CONFIG_DIR"
)

// ConfigDir is the folder of the profile: TRAINYARD_CONFIG_DIR, or "trainyard" in the user's configuration folder.
func ConfigDir() (string, error) {
	if dir := os.Getenv(EnvConfigDir); dir != "" {
		return dir, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find your configuration folder (set %s instead): %w", EnvConfigDir, err)
	}
	return filepath.Join(dir, "trainyard"), nil
}

func profilePath(dir string) string { return filepath.Join(dir, "profile.json") }

// ReadProfile reads the profile in dir; empty: ConfigDir. A profile that others on this computer can read is refused, because the token
// in it is not secret any more. That no profile is there is fs.ErrNotExist.
func ReadProfile(dir string) (Profile, error) {
	var p Profile
	if dir == "" {
		var err error
		if dir, err = ConfigDir(); err != nil {
			return p, err
		}
	}
	path := profilePath(dir)
	info, err := os.Stat(path)
	if err != nil {
		return p, fmt.Errorf("read profile: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return p, trainyard.Invalid("%s holds a token and others can read it (mode %04o): run \"chmod 600 %s\"", path, info.Mode().Perm(), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return p, fmt.Errorf("read profile: %w", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, trainyard.Invalid("%s is not a profile: %v", path, err)
	}
	return p, nil
}

// ProfilePath is where WriteProfile writes; empty if this user has no configuration folder.
func ProfilePath() string {
	dir, err := ConfigDir()
	if err != nil {
		return ""
	}
	return profilePath(dir)
}

// WriteProfile writes p into ConfigDir, made if it is missing, for the owner alone, and whole or not at all.
func WriteProfile(p Profile) error {
	dir, err := ConfigDir()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encode profile: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	f, err := os.CreateTemp(dir, "profile-*.tmp") // made with mode 0600
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), profilePath(dir))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write profile: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// ProfileConfig is the configuration that the profile in dir and the environment make: TRAINYARD_URL and TRAINYARD_TOKEN stand above the
// profile, which need not exist when both are set. A profile's token and CA are not used for another server than the profile's own.
func ProfileConfig(dir string) (Config, error) {
	at, token := os.Getenv(EnvURL), os.Getenv(EnvToken)
	p, err := ReadProfile(dir)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		p = Profile{}
	case at != "" && token != "":
		p = Profile{} // the environment says all that is needed
	default:
		return Config{}, err
	}
	if at != "" {
		p.Token = p.sameServer(at)
		p.URL = at
	}
	if token != "" {
		p.Token = token
	}
	c := Config{URL: p.URL, Token: p.Token, Subscription: p.Subscription, ResourceGroup: p.ResourceGroup, Workspace: p.Workspace}
	if strings.Contains(p.CA, "-----BEGIN") {
		c.CAPEM = []byte(p.CA)
	} else {
		c.CAFile = p.CA
	}
	return c, nil
}

// sameServer is the profile's token if other is the same host and port, by another scheme or another name for this computer, and nothing
// otherwise: a token is shown to nobody but the server that gave it.
func (p Profile) sameServer(other string) string {
	host := func(s string) string {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			return s
		}
		if trainyard.Loopback(u.Hostname()) {
			return "this computer:" + u.Port()
		}
		return strings.ToLower(u.Host)
	}
	if host(other) == host(p.URL) {
		return p.Token
	}
	return ""
}

// FromProfile makes a client of the profile in dir and the environment; see ProfileConfig.
func FromProfile(dir string) (*Client, error) {
	c, err := ProfileConfig(dir)
	if err != nil {
		return nil, err
	}
	return New(c)
}
