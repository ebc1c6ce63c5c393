package process

import (
	"os"
	"os/user"
	"slices"
	"strings"
)

// markName is the environment variable that every process of a task inherits, set to the task's folder here, which no other task on this
// computer has; it is how they are found where there are no cgroups.
const markName = "TRAINYARD_TASK_DIR"

// passed are the variables of the agent that tasks get: what a program needs to find its way, and nothing that could be a secret. Those
// that end in _ or * are beginnings of names. Proxies may hold a password; without them a job on such a network reaches nothing.
var passed = []string{"PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"PIP_*", "UV_*"}

// environ picks from the agent's environment what every task gets, with defaults for what must not be missing.
func environ(agent []string) map[string]string {
	env := platformEnv()
	for _, kv := range agent {
		name, value, _ := strings.Cut(kv, "=")
		if value != "" && slices.ContainsFunc(append(platformPassed, passed...), func(p string) bool { return nameMatches(p, name) }) {
			env[name] = value
		}
	}
	setDefault(env, "LANG", "C.UTF-8")
	if me, err := user.Current(); err == nil {
		setDefault(env, "USER", me.Username)
	}
	if home, err := os.UserHomeDir(); err == nil {
		setDefault(env, "HOME", home)
	}
	return env
}

// nameMatches compares without regard to case, because programs read both http_proxy and HTTP_PROXY, and Windows says Path.
func nameMatches(pattern, name string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return len(name) > len(start) && strings.EqualFold(name[:len(start)], start)
	}
	return strings.EqualFold(pattern, name)
}

func setDefault(env map[string]string, name, value string) {
	if env[name] == "" {
		env[name] = value
	}
}
