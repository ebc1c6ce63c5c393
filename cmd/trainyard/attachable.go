package main

import (
	"encoding/json"
	"maps"
	"net"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/control"
)

// attachable are the types of compute that are attached: which driver each has, how its settings are made of what a user gives, and how it
// is looked at first.
func attachable() []control.Kind { return nil }

// whole is a compute's properties with its secrets among them, as one JSON object.
func whole(properties, secret json.RawMessage) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, part := range []json.RawMessage{properties, secret} {
		var m map[string]json.RawMessage
		if len(part) == 0 {
			continue
		}
		if err := json.Unmarshal(part, &m); err != nil {
			return nil, trainyard.Invalid("its properties cannot be read: %v", err)
		}
		maps.Copy(all, m)
	}
	return json.Marshal(all)
}

// reachable is the URL at which what an engine runs reaches this server: what the compute says, or what follows from where the server
// listens. A server that listens on loopback alone is reached by engines of this machine.
func reachable(listen string, settings json.RawMessage) string {
	var s struct {
		ServerURL string `json:"serverURL"`
	}
	if json.Unmarshal(settings, &s) == nil && s.ServerURL != "" {
		return strings.TrimRight(s.ServerURL, "/")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	ip := net.ParseIP(host)
	switch {
	case host == "localhost" || ip != nil && ip.IsLoopback():
		return "http://" + net.JoinHostPort(host, port)
	case host == "" || ip != nil && ip.IsUnspecified():
		host = outward()
	}
	return "https://" + net.JoinHostPort(host, port)
}

// outward is this machine's address in its network; loopback if it has none.
func outward() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
