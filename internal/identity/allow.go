package identity

import (
	"github.com/trainyard/trainyard"
)

// The verbs that Allow knows. Doors name what they do with one of them.
const (
	Read    = "read"    // see it
	Write   = "write"   // make or change it
	Delete  = "delete"  // take it away
	Act     = "act"     // cancel, start, stop, restart
	Secrets = "secrets" // keys, passwords, signatures that open a datastore
)

// KindLocations is the kind by which doors ask about VM sizes, usages and quotas, which belong to no workspace.
const KindLocations trainyard.Kind = "locations"

// grant is one row of the table: the role may do the verb on the kind.
type grant struct {
	role trainyard.Role
	verb string         // "" is every verb
	kind trainyard.Kind // "" is every kind
	own  bool           // only on the job that the token belongs to
}

// grants is all that anyone may do. What is not here is refused; agents are not here, because they do not come through the doors that ask.
var grants = []grant{
	{role: trainyard.RoleAdmin},
	{role: trainyard.RoleReader, verb: Read},
	{role: trainyard.RoleJob, verb: Read},
	{role: trainyard.RoleJob, verb: Write, kind: trainyard.KindJob, own: true}, // its run: metrics, artifacts, tags
	{role: trainyard.RoleJob, verb: Secrets, kind: trainyard.KindDatastore},    // its workspace's data
}

// Allow says whether who may do verb to the thing named. A nil error means yes. The error has CodeUnknown if who is nobody and
// CodeForbidden otherwise. An empty workspace in scope means things that belong to no workspace, or the list of workspaces.
func (s *Service) Allow(who trainyard.User, verb string, scope trainyard.Scope, kind trainyard.Kind, name string) error {
	return Allow(who, verb, scope, kind, name)
}

// Allow is the table that Service.Allow asks.
func Allow(who trainyard.User, verb string, scope trainyard.Scope, kind trainyard.Kind, name string) error {
	if who.Name == "" {
		return unknown("nobody may %s %s; send a token", verb, thing(kind, name))
	}
	if !reaches(who, verb, scope, kind) {
		return trainyard.Errorf(trainyard.CodeForbidden, "%s is of workspace %q and may not %s %s in %s; use a token for that workspace",
			person(who), who.Scope.Workspace, verb, thing(kind, name), place(scope))
	}
	for _, g := range grants {
		if g.role == who.Role && (g.verb == "" || g.verb == verb) && (g.kind == "" || g.kind == kind) && (!g.own || who.Job != "" && who.Job == name) {
			return nil
		}
	}
	return trainyard.Errorf(trainyard.CodeForbidden, "%s may not %s %s in %s; that needs a token with the role %q",
		person(who), verbWords(verb), thing(kind, name), place(scope), trainyard.RoleAdmin)
}

// reaches says whether the scope is within the one that the user is held to. Sizes and prices may be read from every workspace.
func reaches(who trainyard.User, verb string, scope trainyard.Scope, kind trainyard.Kind) bool {
	if who.Scope == (trainyard.Scope{}) {
		return true
	}
	if scope.Workspace == "" {
		return verb == Read && kind == KindLocations
	}
	return who.Scope.Fold() == scope.Fold()
}

func person(who trainyard.User) string {
	switch {
	case who.Job != "":
		return "the token of job \"" + who.Job + "\""
	case who.Node != "":
		return "the token of node \"" + string(who.Node) + "\""
	}
	return "user \"" + who.Name + "\" with the role \"" + string(who.Role) + "\""
}

func verbWords(verb string) string {
	if verb == Secrets {
		return "see the secrets of"
	}
	return verb
}

func thing(kind trainyard.Kind, name string) string {
	if name == "" {
		return string(kind)
	}
	return string(kind) + " \"" + name + "\""
}

func place(scope trainyard.Scope) string {
	if scope.Workspace == "" {
		return "subscription \"" + scope.Subscription + "\""
	}
	return "workspace \"" + scope.Workspace + "\""
}
