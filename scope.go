package trainyard

import (
	"strings"
)

// Provider is the ARM resource provider whose paths we serve.
const Provider = "Microsoft.MachineLearningServices"

// Scope is the tenancy a resource lives in: an ARM subscription, resource group and workspace. Compare scopes after Fold.
type Scope struct {
	Subscription  string `json:"subscription"`
	ResourceGroup string `json:"resourceGroup"`
	Workspace     string `json:"workspace"`
}

// DefaultScope is the workspace every server starts with.
func DefaultScope() Scope {
	return Scope{DefaultSubscription, DefaultResourceGroup, DefaultWorkspace}
}

// Fold returns the scope in lower case: ARM names compare without regard to case. The store keys by folded scopes.
func (s Scope) Fold() Scope {
	return Scope{strings.ToLower(s.Subscription), strings.ToLower(s.ResourceGroup), strings.ToLower(s.Workspace)}
}

// Key is a short unique string of the folded scope: "sub/rg/ws".
func (s Scope) Key() string {
	f := s.Fold()
	return f.Subscription + "/" + f.ResourceGroup + "/" + f.Workspace
}

// ID is the workspace's ARM id in canonical case.
func (s Scope) ID() string {
	return "/subscriptions/" + s.Subscription + "/resourceGroups/" + s.ResourceGroup + "/providers/" + Provider + "/workspaces/" + s.Workspace
}

// Child is the ARM id of something the workspace owns: Child("computes", "cpu-cluster"), Child("data", "iris", "versions", "1").
func (s Scope) Child(parts ...string) string {
	return s.ID() + "/" + strings.Join(parts, "/")
}

// ID is a parsed ARM id of a resource in a workspace.
type ID struct {
	Scope   Scope
	Kind    Kind   // as in the path, lower case: "computes"
	Name    string // "cpu-cluster"
	Version string // of versioned assets
	Label   string // of …/labels/{label}
}

var idPattern = pattern(`(?i)^/?subscriptions/([^/]+)/resourcegroups/([^/]+)/providers/microsoft\.machinelearningservices/workspaces/([^/]+)(?:/([^/]+)/([^/]+)(?:/(versions|labels)/([^/]+))?)?/?$`)

// ParseID reads an ARM id; segment names match without regard to case. A leading "azureml:" is allowed.
func ParseID(s string) (ID, error) {
	m := idPattern().FindStringSubmatch(strings.TrimPrefix(s, "azureml:"))
	if m == nil {
		return ID{}, Invalid("%q is not an Azure Resource Manager id of a workspace or of something in one", s)
	}
	id := ID{Scope: Scope{m[1], m[2], m[3]}, Kind: Kind(strings.ToLower(m[4])), Name: m[5]}
	if strings.EqualFold(m[6], "labels") {
		id.Label = m[7]
	} else {
		id.Version = m[7]
	}
	if id.Kind == "" {
		id.Kind, id.Name = KindWorkspace, m[3]
	}
	return id, nil
}

// String is the id in canonical case.
func (id ID) String() string {
	switch {
	case id.Kind == KindWorkspace:
		return id.Scope.ID()
	case id.Version != "":
		return id.Scope.Child(string(id.Kind), id.Name, "versions", id.Version)
	case id.Label != "":
		return id.Scope.Child(string(id.Kind), id.Name, "labels", id.Label)
	}
	return id.Scope.Child(string(id.Kind), id.Name)
}

// DataPath is a place in a datastore: azureml://datastores/{Datastore}/paths/{Path}, of the named scope.
type DataPath struct {
	Scope     Scope
	Datastore string
	Path      string // no leading slash; a trailing one is kept
}

var dataPathPattern = pattern(`(?i)^azureml://(?:subscriptions/([^/]+)/resourcegroups/([^/]+)/(?:providers/[^/]+/)?workspaces/([^/]+)/)?datastores/([^/]+)(?:/paths(?:/(.*))?|/?)$`)

// ParseDataPath reads both spellings of a datastore URI; the short one is of the scope given. A path that climbs out ("..") is refused.
func ParseDataPath(in Scope, uri string) (DataPath, error) {
	m := dataPathPattern().FindStringSubmatch(uri)
	if m == nil {
		return DataPath{}, Invalid("%q is not a datastore path: want azureml://datastores/NAME/paths/PATH", uri)
	}
	p := DataPath{Scope: in, Datastore: strings.ToLower(m[4]), Path: strings.TrimLeft(m[5], "/")}
	if m[1] != "" {
		p.Scope = Scope{m[1], m[2], m[3]}
	}
	for _, part := range strings.Split(p.Path, "/") {
		if part == ".." {
			return DataPath{}, Invalid("%q climbs out of its datastore with %q", uri, "..")
		}
	}
	return p, nil
}

// String is the short spelling.
func (p DataPath) String() string {
	return "azureml://datastores/" + p.Datastore + "/paths/" + p.Path
}

// Key is where the path's bytes are in the server's blob store: "{container}/{path}". Every datastore is a container named for its scope.
func (p DataPath) Key() string {
	return p.Container() + "/" + p.Path
}

// Container is the blob container of the datastore: its folded scope and name joined so that two workspaces never share one.
func (p DataPath) Container() string {
	f := p.Scope.Fold()
	if f == DefaultScope() {
		return p.Datastore
	}
	return f.Dotted() + "." + p.Datastore
}

// Dotted is the folded scope as one part of a blob key, "sub.rg.ws"; a dot in a name becomes "~", which no name may hold.
func (s Scope) Dotted() string {
	f, tilde := s.Fold(), strings.NewReplacer(".", "~")
	return tilde.Replace(f.Subscription) + "." + tilde.Replace(f.ResourceGroup) + "." + tilde.Replace(f.Workspace)
}

// ParseDotted reads what Dotted wrote, from the beginning of s; rest is what follows it.
func ParseDotted(s string) (scope Scope, rest string, ok bool) {
	p, dot := strings.SplitN(s, ".", 4), strings.NewReplacer("~", ".")
	if len(p) < 3 {
		return Scope{}, s, false
	}
	if len(p) == 4 {
		rest = p[3]
	}
	return Scope{dot.Replace(p[0]), dot.Replace(p[1]), dot.Replace(p[2])}, rest, true
}
