package kube

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard"
)

// kubeconfig is what is acted on of a kubeconfig file. client-go reads it too, and with it would run commands and read files that a user
// of the server names, as the server.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`

			Namespace string `yaml:"namespace"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string  `yaml:"name"`
		User account `yaml:"user"`
	} `yaml:"users"`
}

type cluster struct {
	Server   string `yaml:"server"`
	Name     string `yaml:"tls-server-name"`
	Insecure bool   `yaml:"insecure-skip-tls-verify"`
	CA       string `yaml:"certificate-authority-data"`
	CAFile   string `yaml:"certificate-authority"`
	Proxy    string `yaml:"proxy-url"`
}

type account struct {
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`
	Cert      string `yaml:"client-certificate-data"`
	CertFile  string `yaml:"client-certificate"`
	Key       string `yaml:"client-key-data"`
	KeyFile   string `yaml:"client-key"`
	Username  string `yaml:"username"`
	Password  string `yaml:"password"`
	Exec      any    `yaml:"exec"`
	Provider  any    `yaml:"auth-provider"`
}

// OfContext names the namespace of the kubeconfig's context, as kubectl would use it, where c names none. It is for when a compute is attached:
// tasks that run must not be looked for elsewhere when the kubeconfig's words are read anew. A kubeconfig that cannot be read changes nothing.
func (c *Config) OfContext() {
	var k kubeconfig
	if c.Namespace != "" || c.InCluster || yaml.Unmarshal([]byte(c.Kubeconfig), &k) != nil {
		return
	}
	for _, one := range k.Contexts {
		if one.Name == cmp.Or(c.Context, k.CurrentContext) {
			c.Namespace = one.Context.Namespace
			return
		}
	}
}

// readKubeconfig is where and as whom a context of a kubeconfig's text says to connect.
func readKubeconfig(text, context string) (*rest.Config, error) {
	var k kubeconfig
	if err := yaml.Unmarshal([]byte(text), &k); err != nil {
		return nil, trainyard.Invalid("the kubeconfig is not YAML that can be read: %v", err)
	}
	if context == "" {
		context = k.CurrentContext
	}
	var names []string
	for _, c := range k.Contexts {
		names = append(names, c.Name)
	}
	at := slices.Index(names, context)
	if at < 0 {
		return nil, trainyard.Invalid("the kubeconfig has no context %q; it has: %s", context, strings.Join(names, ", "))
	}
	chosen := k.Contexts[at].Context
	cfg := &rest.Config{QPS: -1}
	found := false
	for _, c := range k.Clusters {
		if c.Name == chosen.Cluster {
			found = true
			if err := c.Cluster.fill(cfg); err != nil {
				return nil, err
			}
		}
	}
	if !found {
		return nil, trainyard.Invalid("the kubeconfig has no cluster %q, which its context %q names", chosen.Cluster, context)
	}
	for _, u := range k.Users {
		if u.Name == chosen.User {
			return cfg, u.User.fill(cfg, u.Name)
		}
	}
	return nil, trainyard.Invalid("the kubeconfig has no user %q, which its context %q names", chosen.User, context)
}

const flatten = "kubectl config view --raw --flatten --minify prints one with everything in it"

func (c *cluster) fill(cfg *rest.Config) (err error) {
	switch u, bad := url.Parse(c.Server); {
	case bad != nil || u.Host == "":
		return trainyard.Invalid("the kubeconfig's server %q is no URL", c.Server)
	case c.CAFile != "":
		return trainyard.Invalid("the kubeconfig names the file %s, which the server does not read; %s", c.CAFile, flatten)
	case c.Proxy != "":
		return trainyard.Invalid("the kubeconfig names a proxy (proxy-url), which is not supported; set HTTPS_PROXY for the server instead")
	}
	cfg.Host, cfg.Insecure, cfg.ServerName = c.Server, c.Insecure, c.Name
	cfg.CAData, err = decoded("certificate-authority-data", c.CA)
	return err
}

func (a *account) fill(cfg *rest.Config, name string) (err error) {
	for _, file := range []string{a.TokenFile, a.CertFile, a.KeyFile} {
		if file != "" {
			return trainyard.Invalid("user %q of the kubeconfig names the file %s, which the server does not read; %s", name, file, flatten)
		}
	}
	if a.Exec != nil || a.Provider != nil {
		return trainyard.Invalid("user %q of the kubeconfig logs in with a command (exec or auth-provider), which the server does not run; "+
			"make a service account with the rights of the manifest, and a token for it with kubectl create token", name)
	}
	cfg.BearerToken, cfg.Username, cfg.Password = a.Token, a.Username, a.Password
	if cfg.CertData, err = decoded("client-certificate-data", a.Cert); err != nil {
		return err
	}
	cfg.KeyData, err = decoded("client-key-data", a.Key)
	return err
}

func decoded(field, text string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, trainyard.Invalid("%s of the kubeconfig is not base64", field)
	}
	return data, nil
}
