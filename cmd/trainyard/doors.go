package main

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/blobrest"
	"github.com/trainyard/trainyard/internal/control"
	"github.com/trainyard/trainyard/internal/identity"
	"github.com/trainyard/trainyard/internal/output"
)

// authenticate says who sends a request.
type authenticate func(r *http.Request) (trainyard.User, error)

// whileItLives is identity's answer, but for jobs that are over: their tokens are good for nothing any more.
func whileItLives(id *identity.Service, will *control.Control) authenticate {
	return func(r *http.Request) (trainyard.User, error) {
		who, err := id.Authenticate(r)
		if err == nil && who.Role == trainyard.RoleJob {
			err = will.JobLives(r.Context(), who)
		}
		return who, err
	}
}

// blobAllow lets bearer tokens at the blob door: who may write a workspace's data may write its containers.
func blobAllow(id *identity.Service, auth authenticate) func(r *http.Request, perm byte, key string) error {
	return func(r *http.Request, perm byte, key string) error {
		who, err := auth(r)
		if err != nil {
			return err
		}
		verb := identity.Write
		if perm == blobrest.Read || perm == blobrest.List {
			verb = identity.Read
		}
		return id.Allow(who, verb, keyScope(key), trainyard.KindDatastore, key)
	}
}

// jobLink is what a job may do with the bytes at the agents' door: read its workspace's data, write what is its own.
type jobLink struct {
	*control.Control
	id *identity.Service
}

var _ agentlink.Jobs = jobLink{}

// MayRead lets a live job read its workspace, by a key of it or a prefix that only its keys can have, and the code of model servers.
func (l jobLink) MayRead(ctx context.Context, who trainyard.User, key string) error {
	if err := l.JobLives(ctx, who); err != nil {
		return err
	}
	if strings.HasPrefix(key, control.ServerCode()+"/") {
		return nil
	}
	if !ofOneWorkspace(key) {
		return trainyard.Errorf(trainyard.CodeForbidden, "job %q may not read %q: name a whole container, and for the files of an asset KIND/WORKSPACE, with a slash at the end",
			who.Job, key)
	}
	return l.id.Allow(who, identity.Read, keyScope(key), trainyard.KindDatastore, key)
}

// ofOneWorkspace says whether all keys that begin with a prefix are of one workspace: what names it is there to its end.
func ofOneWorkspace(prefix string) bool {
	container, rest, whole := strings.Cut(prefix, "/")
	if whole && trainyard.Kind(container).Versioned() {
		container, _, whole = strings.Cut(rest, "/")
	}
	return whole && container != ""
}

// MayWrite lets a live job write its artifacts and outputs.
func (l jobLink) MayWrite(ctx context.Context, who trainyard.User, key string) error {
	if mayWrite(output.Artifacts(who.Scope, who.Job), l.JobKeys(who), key) {
		return nil
	}
	return trainyard.Errorf(trainyard.CodeForbidden, "job %q may not write %q: it may write its artifacts and its outputs, while it runs", who.Job, key)
}

// mayWrite says whether a key is below one of a job's own. Of its artifacts, only what its processes leave there is: what they said, and
// what was said of them, goes through the door for logs, which changes nothing that is there.
func mayWrite(artifacts string, own []string, key string) bool {
	if rest, ok := strings.CutPrefix(key, artifacts+"/"); ok && rest != "system_logs/checkpoint.json" {
		folder, name, _ := strings.Cut(rest, "/")
		if folder != output.Logs && folder != "outputs" || name == "" {
			return false
		}
	}
	return key != artifacts && slices.ContainsFunc(own, func(o string) bool {
		return key == o || strings.HasPrefix(key, strings.TrimSuffix(o, "/")+"/")
	})
}

// keyScope is the workspace whose bytes a key names: of a datastore's container (trainyard.DataPath.Container), or of the files of a
// versioned asset, KIND/SCOPE/…. A key that belongs to none, such as a whole kind, is of no workspace, so that only an admin has it.
func keyScope(key string) trainyard.Scope {
	container, rest, _ := strings.Cut(key, "/")
	if trainyard.Kind(container).Versioned() {
		part, _, _ := strings.Cut(rest, "/")
		scope, _, _ := trainyard.ParseDotted(part)
		return scope
	}
	if scope, datastore, ok := trainyard.ParseDotted(container); ok && datastore != "" {
		return scope
	}
	return trainyard.DefaultScope()
}

// historyAllow is who may see and write runs.
func historyAllow(id *identity.Service, auth authenticate) func(r *http.Request, scope trainyard.Scope, write bool) (trainyard.User, error) {
	return func(r *http.Request, scope trainyard.Scope, write bool) (trainyard.User, error) {
		who, err := auth(r)
		if err != nil {
			return who, err
		}
		verb := identity.Read
		if write {
			verb = identity.Write
		}
		return who, id.Allow(who, verb, scope, trainyard.KindJob, who.Job)
	}
}

// byHost sends what is addressed to a storage account, {account}.blob.{suffix}, to the blob door, and all else on.
func byHost(blobs, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, tail, ok := strings.Cut(r.Host, "."); ok && strings.HasPrefix(tail, "blob.") {
			blobs.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}
