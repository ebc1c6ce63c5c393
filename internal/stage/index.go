package stage

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// toolEnv is the environment that tools of a build start from: the node's, without what would point them elsewhere, and without what is
// ours: building a package runs its author's code.
func toolEnv(env []string) []string {
	drop := []string{"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PIP_USER", "PIP_TARGET",
		"PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PIP_PYTHON", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT",
		"UV_TARGET", "UV_PREFIX", "UV_CACHE_DIR", "UV_OFFLINE"}
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(drop, name) || strings.HasPrefix(name, "TRAINYARD_")
	})
	return append(out, "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1", "PIP_ROOT_USER_ACTION=ignore", "NO_COLOR=1")
}

// indexEnv tells uv what the node's pip is set up to do: which index, which certificates, which proxy. uv reads none of pip's settings.
func (b *builder) indexEnv(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.python.Exe, "-m", "pip", "config", "list")
	cmd.Env = b.env
	out, err := cmd.Output()
	if err != nil {
		out = []byte(pipFiles(b.env)) // no pip: its files and variables count all the same
	}
	return uvEnv(pipConfig(string(out), b.env), b.env)
}

// pipFiles is what pip's configuration files say, in the words of "pip config list", for a Python that has no pip. Later files win
// (pip.pypa.io, Configuration, Location).
func pipFiles(env []string) string {
	vars := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	var out strings.Builder
	for _, path := range []string{"/etc/pip.conf", filepath.Join(vars["HOME"], ".pip", "pip.conf"), filepath.Join(cmp.Or(vars["XDG_CONFIG_HOME"], filepath.Join(vars["HOME"], ".config")), "pip", "pip.conf"), vars["PIP_CONFIG_FILE"]} {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		section := ""
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, "["); ok {
				section, _, _ = strings.Cut(name, "]")
				continue
			}
			if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
				fmt.Fprintf(&out, "%s.%s='%s'\n", section, strings.TrimSpace(key), strings.TrimSpace(value))
			}
		}
	}
	return out.String()
}

// pipConfig reads what "pip config list" prints, and pip's variables, into one map; what is closer to the command wins.
func pipConfig(listing string, env []string) map[string]string {
	rank := map[string]int{}
	conf := map[string]string{}
	set := func(key, value string, r int) {
		if r >= rank[key] && value != "" {
			rank[key], conf[key] = r, value
		}
	}
	for line := range strings.Lines(listing) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		section, key, ok2 := cutLast(name, ".")
		if !ok || !ok2 {
			continue
		}
		r, known := map[string]int{"global": 1, "install": 2, ":env:": 3}[section]
		if known {
			set(strings.ReplaceAll(key, "_", "-"), unquote(value), r)
		}
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if key, ok := strings.CutPrefix(name, "PIP_"); ok {
			set(strings.ToLower(strings.ReplaceAll(key, "_", "-")), value, 3)
		}
	}
	return conf
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// unquote reads a string as Python prints it.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '\'' && s[0] != '"' {
		return s
	}
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`, `\'`, `'`, `\"`, `"`).Replace(s[1 : len(s)-1])
}

// uvEnv says pip's settings in uv's words. What is set for uv itself stays.
func uvEnv(conf map[string]string, env []string) []string {
	var out []string
	set := func(value string, names ...string) {
		for _, kv := range env {
			name, have, _ := strings.Cut(kv, "=")
			if have != "" && slices.Contains(names, name) {
				return
			}
		}
		if value != "" {
			out = append(out, names[0]+"="+value)
		}
	}
	extra := strings.Fields(conf["extra-index-url"])
	set(conf["index-url"], "UV_DEFAULT_INDEX", "UV_INDEX_URL")
	set(strings.Join(extra, " "), "UV_INDEX", "UV_EXTRA_INDEX_URL")
	if len(extra) > 0 {
		set("unsafe-best-match", "UV_INDEX_STRATEGY") // as pip chooses: the best version of all indexes
	}
	links := slices.DeleteFunc(strings.Fields(conf["find-links"]), func(l string) bool { return !strings.Contains(l, "://") && !isThere(l) })
	set(strings.Join(links, ","), "UV_FIND_LINKS")
	set(conf["cert"], "SSL_CERT_FILE")
	if conf["cert"] == "" && os.Getenv("SSL_CERT_FILE") == "" {
		set("true", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
		set("true", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS")
	}
	set(conf["client-cert"], "SSL_CLIENT_CERT")
	set(strings.Join(strings.Fields(conf["trusted-host"]), " "), "UV_INSECURE_HOST")
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY"} {
		set(conf["proxy"], name, strings.ToLower(name), "ALL_PROXY", "all_proxy")
	}
	if v := strings.ToLower(conf["no-index"]); v == "1" || v == "true" || v == "yes" || v == "on" {
		set("1", "UV_NO_INDEX")
	}
	return out
}
