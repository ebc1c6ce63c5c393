package agent

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// collectorUser stands before the key in the collector's address. azureml-ai-monitoring makes a URL of its AZUREML_MDC_HOST as it is, and
// the HTTP client below it sends what a URL has before an @ as basic authentication: so a script sends the key and knows nothing of it.
const collectorUser = "replica"

// known lets only the replica through. Who reaches the port and does not have the key is told nothing else, and is heard once in the log. The
// key stands in the replica's environment: a process of the same user that sees the replica's in /proc, as another task of a process target
// does, can read it there, and is let through. A replica of an agent that knew no keys has none to send: its rows are taken from anybody, for
// else they would be lost.
func (c *collector) known(next http.Handler) http.Handler {
	if c.key == "" {
		c.k.warn("it was started before collectors had keys: anybody who reaches its collector's port can add rows; a new replica has one")
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, key, _ := r.BasicAuth(); subtle.ConstantTimeCompare([]byte(key), []byte(c.key)) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		if c.strangers.Add(1) == 1 {
			c.k.warn(fmt.Sprintf("somebody at %s sent rows to this replica's data collector without its key, and is refused; a script that does not use "+
				"azureml-ai-monitoring sends what %s has before the @ as basic authentication", r.RemoteAddr, collectorHost))
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="data collector"`)
		w.Header().Set("Connection", "close") // its place is for the replica's
		http.Error(w, "this data collector takes rows of its own replica alone: the key that "+collectorHost+" has before the @ is missing or another", http.StatusUnauthorized)
	})
}

// saidStrangers says at the end how often it happened.
func (c *collector) saidStrangers() {
	if n := c.strangers.Load(); n > 0 {
		c.k.a.log.Warn("requests without the key of a replica's data collector were refused", "task", c.k.id, "requests", n)
	}
}

// pastProxies keeps what a script sends to the collector from the proxies of its environment, which do not reach it and are not to have the
// key.
func pastProxies(env map[string]string, host string) {
	get := func(name string) string {
		small := strings.ToLower(name)
		return cmp.Or(env[small], env[name], os.Getenv(small), os.Getenv(name))
	}
	past := get("NO_PROXY")
	if get("HTTP_PROXY")+get("ALL_PROXY") == "" || past == "*" {
		return
	}
	if past != "" {
		past += ","
	}
	env["no_proxy"], env["NO_PROXY"] = past+host, past+host
}
