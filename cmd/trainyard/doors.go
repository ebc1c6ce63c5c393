package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/blobrest"
	"github.com/trainyard/trainyard/internal/control"
	"github.com/trainyard/trainyard/internal/identity"
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

// MayRead lets a live job read its workspace.
func (l jobLink) MayRead(ctx context.Context, who trainyard.User, key string) error {
	if err := l.JobLives(ctx, who); err != nil {
		return err
	}
	return l.id.Allow(who, identity.Read, keyScope(key), trainyard.KindDatastore, key)
}

// MayWrite lets a live job write its artifacts and outputs.
func (l jobLink) MayWrite(ctx context.Context, who trainyard.User, key string) error {
	for _, own := range l.JobKeys(who) {
		if key == own || strings.HasPrefix(key, strings.TrimSuffix(own, "/")+"/") {
			return nil
		}
	}
	return trainyard.Errorf(trainyard.CodeForbidden, "job %q may not write %q: it may write its artifacts and its outputs, while it runs", who.Job, key)
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
