package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/control"
	fleetssh "github.com/trainyard/trainyard/internal/fleet/ssh"
	"github.com/trainyard/trainyard/internal/slurm"
	targetkube "github.com/trainyard/trainyard/internal/target/kube"
	targetslurm "github.com/trainyard/trainyard/internal/target/slurm"
)

// machineSettings is how to log in to a machine, out of what ARM calls the properties of a VirtualMachine.
func machineSettings(properties, secret json.RawMessage) (json.RawMessage, error) {
	all, err := whole(properties, secret)
	if err != nil {
		return nil, err
	}
	var p struct {
		Address string `json:"address"`
		Port    int    `json:"sshPort"`
		HostKey string `json:"hostKey"`
		Account struct {
			Username   string `json:"username"`
			Password   string `json:"password"`
			PrivateKey string `json:"privateKeyData"`
			PublicKey  string `json:"publicKeyData"`
		} `json:"administratorAccount"`
	}
	if err := json.Unmarshal(all, &p); err != nil {
		return nil, trainyard.Invalid("its properties cannot be read: %v", err)
	}
	s := fleetssh.Settings{Address: p.Address, Port: p.Port, User: p.Account.Username, Password: p.Account.Password,
		PrivateKey: p.Account.PrivateKey, PublicKey: p.Account.PublicKey, HostKey: p.HostKey}
	if s.Address == "" {
		return nil, trainyard.Invalid("it has no address: this server reaches a machine by its host name or address (address)")
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// keepHostKey has a machine that is attached already believed by the key that was pinned then, unless another is named.
func keepHostKey(old, settings json.RawMessage) (json.RawMessage, error) {
	var before, now fleetssh.Settings
	if err := json.Unmarshal(old, &before); err != nil || before.HostKey == "" {
		return settings, nil
	}
	if err := json.Unmarshal(settings, &now); err != nil {
		return nil, trainyard.Invalid("its properties cannot be read: %v", err)
	}
	if now.HostKey == "" && now.Endpoint() == before.Endpoint() {
		now.HostKey = before.HostKey
	}
	return json.Marshal(now)
}

// probeMachine logs in once, and pins the machine's host key. The program for it must be here.
func probeMachine(ctx context.Context, settings json.RawMessage) (control.Found, error) {
	s, err := fleetssh.ParseSettings(settings)
	if err != nil {
		return control.Found{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return control.Found{}, err
	}
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	found, err := fleetssh.Probe(ctx, *s, self)
	if err != nil {
		return control.Found{}, err
	}
	s.HostKey = found.HostKey // the whole of it, where only a fingerprint was given
	out, err := json.Marshal(s)
	notes := append([]string{fmt.Sprintf("its host key is %s; it is believed from now on", found.Fingerprint)}, found.Notes...)
	return control.Found{Settings: out, Engines: found.Engines, Notes: notes}, err
}

// slurmSettings is how Slurm is reached and where jobs go. An address is a login node's, in the words of a VirtualMachine; an account with a
// restURL is the one of slurmrestd, and its password the token. What is here on the server's disk no compute can name.
func slurmSettings(properties, secret json.RawMessage) (json.RawMessage, error) {
	all, err := whole(properties, secret)
	if err != nil {
		return nil, err
	}
	var p struct {
		Address string `json:"address"`
		REST    string `json:"restURL"`
		Account struct {
			Username string `json:"username"`
			Password string `json:"password"`
		} `json:"administratorAccount"`
	}
	set := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(all, &p), json.Unmarshal(all, &set)); err != nil {
		return nil, trainyard.Invalid("its properties cannot be read: %v", err)
	}
	for name := range set { // these have files of the server's in them
		if strings.EqualFold(name, "login") || strings.EqualFold(name, "rest") || strings.EqualFold(name, "administratorAccount") {
			delete(set, name)
		}
	}
	switch {
	case p.Address != "" && p.REST != "":
		return nil, trainyard.Invalid("a login node (address) and slurmrestd (restURL) are two ways to the same Slurm; name one of them")
	case p.Address != "":
		if set["login"], err = machineSettings(properties, secret); err != nil {
			return nil, err
		}
	case p.REST != "":
		if set["rest"], err = json.Marshal(slurm.REST{URL: p.REST, User: p.Account.Username, Token: p.Account.Password}); err != nil {
			return nil, err
		}
	}
	return json.Marshal(set)
}

// keepLoginKey is keepHostKey for the login node of a Slurm.
func keepLoginKey(old, settings json.RawMessage) (json.RawMessage, error) {
	before, err := loginOf(old)
	if err != nil {
		return settings, nil
	}
	now, err := loginOf(settings)
	if err != nil || len(now) == 0 || len(before) == 0 {
		return settings, err
	}
	if now, err = keepHostKey(before, now); err != nil {
		return nil, err
	}
	return with(settings, "login", now)
}

func loginOf(settings json.RawMessage) (json.RawMessage, error) {
	var s struct {
		Login json.RawMessage `json:"login"`
	}
	if err := json.Unmarshal(settings, &s); err != nil {
		return nil, trainyard.Invalid("its properties cannot be read: %v", err)
	}
	return s.Login, nil
}

// with is settings in which name is value.
func with(settings json.RawMessage, name string, value json.RawMessage) (json.RawMessage, error) {
	set := map[string]json.RawMessage{}
	if err := json.Unmarshal(settings, &set); err != nil {
		return nil, trainyard.Invalid("its properties cannot be read: %v", err)
	}
	set[name] = value
	return json.Marshal(set)
}

// probeSlurm asks Slurm what the partition has, and pins the host key of its login node if there is one.
func probeSlurm(ctx context.Context, settings json.RawMessage) (control.Found, error) {
	var c targetslurm.Config
	if err := json.Unmarshal(settings, &c); err != nil {
		return control.Found{}, trainyard.Invalid("its properties cannot be read: %v", err)
	}
	if err := c.Validate(); err != nil {
		return control.Found{}, err
	}
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	found, err := c.Probe(ctx)
	if err != nil || c.Login == nil {
		return control.Found{Settings: settings, Notes: found.Notes}, err
	}
	c.Login.HostKey = found.HostKey
	login, err := json.Marshal(c.Login)
	if err == nil {
		settings, err = with(settings, "login", login)
	}
	return control.Found{Settings: settings, Notes: found.Notes}, err
}

// probeKubernetes asks the cluster for its version, its nodes, and for the rights that are needed. The namespace of the kubeconfig's context is
// written down where none is named.
func probeKubernetes(ctx context.Context, settings json.RawMessage) (control.Found, error) {
	var c targetkube.Config
	if err := json.Unmarshal(settings, &c); err != nil {
		return control.Found{}, trainyard.Invalid("its properties cannot be read: %v", err)
	}
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	named := c.Namespace != ""
	c.OfContext()
	found, err := targetkube.Probe(ctx, c)
	if err != nil {
		return control.Found{}, err
	}
	if !named && c.Namespace != "" {
		namespace, err := json.Marshal(c.Namespace)
		if err == nil {
			settings, err = with(settings, "namespace", namespace)
		}
		if err != nil {
			return control.Found{}, err
		}
		found.Warnings = append(found.Warnings, fmt.Sprintf("its jobs are in namespace %s, which is that of the kubeconfig's context", c.Namespace))
	}
	return control.Found{Settings: settings, Notes: found.Warnings}, nil
}

// whole is a compute's properties with its secrets among them, as one JSON object. Objects of both are merged, and what is not secret is
// the properties' to say.
func whole(properties, secret json.RawMessage) (json.RawMessage, error) {
	all := map[string]any{}
	for _, part := range []json.RawMessage{secret, properties} {
		if len(part) == 0 {
			continue
		}
		var m map[string]any
		if err := json.Unmarshal(part, &m); err != nil {
			return nil, trainyard.Invalid("its properties cannot be read: %v", err)
		}
		merge(all, m)
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
