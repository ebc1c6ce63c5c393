package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

const (
	pullSilence = 3 * time.Minute        // how long a registry may say nothing
	sayEvery    = 500 * time.Millisecond // how often progress is told
)

var errNoAnswer = errors.New("its registry did not answer")

var errSilence = fmt.Errorf("nothing was heard for %v", pullSilence)

// pulled finds an image on the node, or pulls it.
func (d *Driver) pulled(ctx context.Context, name string, f *flight) (resolved, error) {
	id, err := d.imageID(ctx, name)
	if err != nil {
		return resolved{}, err
	}
	if id == "" {
		if err := d.pull(ctx, name, f); err != nil {
			return resolved{}, err
		}
		if id, err = d.imageID(ctx, name); err != nil {
			return resolved{}, err
		}
		if id == "" {
			return resolved{}, fault(trainyard.ClassEnvironment, "image %q was pulled, and is not there; is something on the node removing images?", name)
		}
	}
	return resolved{Name: name, Ref: id}, nil
}

// pull has the engine pull an image, once.
func (d *Driver) pull(ctx context.Context, name string, f *flight) error {
	f.say("pulling image %s", name)
	f.print("Pulling image %s", name)
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	alarm := time.AfterFunc(pullSilence, func() { stop(errSilence) })
	defer alarm.Stop()
	stream, err := d.engine.ImagePull(watched, name, client.ImagePullOptions{RegistryAuth: credentials(name)})
	if err == nil {
		layers := progress{}
		last := time.Now()
		for m, broken := range stream.JSONMessages(watched) {
			alarm.Reset(pullSilence)
			if broken != nil {
				err = errors.Join(errEngineGone, broken)
				break
			}
			if m.Error != nil {
				err = m.Error
				break
			}
			layers.add(m)
			if m.Progress == nil || m.Progress.Total == 0 {
				f.print("%s", strings.TrimPrefix(m.ID+": "+m.Status, ": "))
			} else if time.Since(last) > sayEvery {
				last = time.Now()
				f.say("pulling image %s: %s", name, layers)
			}
		}
	}
	if context.Cause(watched) == errSilence {
		err = errSilence
	}
	if err == nil || passing(ctx, err) {
		return err
	}
	f.print("Failed: %v", err)
	return pullFault(name, err)
}

// pullFault says why an image cannot be had, and what to do.
func pullFault(name string, err error) error {
	low := strings.ToLower(err.Error())
	advice := "check that the node's Docker engine reaches the registry (its proxy settings are its own), " +
		"put the image on the node with \"docker load\", or start the node's agent (of local: the server) with TRAINYARD_CONTAINERS=off: it then runs jobs without their image"
	switch {
	case strings.Contains(low, "toomanyrequests"), strings.Contains(low, "rate limit"):
		advice = "its registry allows more to those whom it knows: run \"docker login\" on the node as the user of the agent; or try again later"
	case refusesUs(low):
		advice = "check its name; if the registry wants to know who asks, run \"docker login\" on the node as the user of the agent"
	case strings.Contains(low, "not found"), strings.Contains(low, "manifest unknown"), strings.Contains(low, "no such image"):
		advice = "check its name and tag"
	case strings.Contains(low, "invalid reference"), strings.Contains(low, "repository name"):
		advice = "write it as registry/name:tag"
	case strings.Contains(low, "x509:"), strings.Contains(low, "http response to https client"):
		advice = fmt.Sprintf("the node's Docker engine does not trust the registry: put the certificate of its authority into /etc/docker/certs.d/%s/ca.crt "+
			"on the node, or name it under insecure-registries in /etc/docker/daemon.json", registryOf(name))
	case strings.Contains(low, "no space left"):
		advice = "make room where the Docker engine keeps its images, for instance with \"docker image prune\""
	case strings.Contains(low, "no matching manifest"):
		advice = "use an image that is made for this kind of processor"
	}
	return fault(trainyard.ClassEnvironment, "image %q is not on this node and could not be pulled: %v; %s", name, err, advice)
}

// refusesUs says whether a registry, in its words in lower case, wants to know who asks, or does not let us have an image.
func refusesUs(low string) bool {
	for _, words := range []string{"unauthorized", "denied", "authentication required", "no basic auth credentials"} {
		if strings.Contains(low, words) {
			return true
		}
	}
	return false
}

// progress is how far the layers of an image are.
type progress map[string]*jsonstream.Progress

func (p progress) add(m jsonstream.Message) {
	switch {
	case m.Progress != nil && m.Progress.Total > 0 && m.Status == "Downloading":
		p[m.ID] = m.Progress
	case m.Status == "Download complete" && p[m.ID] != nil:
		p[m.ID] = &jsonstream.Progress{Current: p[m.ID].Total, Total: p[m.ID].Total}
	}
}

func (p progress) String() string {
	var have, all int64
	for _, l := range p {
		have, all = have+l.Current, all+l.Total
	}
	if all == 0 || have >= all {
		return "unpacking"
	}
	return fmt.Sprintf("%s of %s", humanize.Bytes(uint64(have)), humanize.Bytes(uint64(all)))
}

// credentials are what "docker login" has kept for the registry of an image, as the engine wants them. What credential helpers keep is
// not read.
func credentials(name string) string {
	auth, ok := logins()[registryOf(name)]
	if !ok {
		return ""
	}
	data, err := json.Marshal(auth)
	if err != nil {
		return ""
	}
	return base64.URLEncoding.EncodeToString(data)
}

// logins are all that "docker login" has kept, by registry.
func logins() map[string]registry.AuthConfig {
	dir := os.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(home, ".docker")
	}
	var file struct {
		Auths map[string]registry.AuthConfig `json:"auths"`
	}
	if ok, err := target.ReadJSON(filepath.Join(dir, "config.json"), &file); err != nil || !ok {
		return nil
	}
	out := map[string]registry.AuthConfig{}
	for server, a := range file.Auths {
		if plain, err := base64.StdEncoding.DecodeString(a.Auth); err == nil && a.Auth != "" {
			a.Username, a.Password, _ = strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
			a.Auth = ""
		}
		a.ServerAddress = server
		host := strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
		host, _, _ = strings.Cut(host, "/")
		if host == "index.docker.io" {
			host = "docker.io"
		}
		out[host] = a
	}
	return out
}

// registryOf is the registry that an image comes from: the part of its name before the first slash, if that can be a host.
func registryOf(name string) string {
	host, _, ok := strings.Cut(name, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "docker.io"
	}
	return host
}
