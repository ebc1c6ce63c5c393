package studio

import (
	"net/http"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

type workspacesPage struct {
	frame
	Rows []workspaceRow
	More bool
}

type workspaceRow struct {
	Name, Group, Subscription, Description, URL string
	Here                                        bool
}

// showWorkspaces lists those that the visitor may see, to go from one to another.
func (d *door) showWorkspaces(v *visit) error {
	page, err := d.Resources.Resources(v.Context(), trainyard.ResourceQuery{Scope: trainyard.Scope{Subscription: v.scope.Subscription},
		Kind: trainyard.KindWorkspace, Top: 500})
	if err != nil {
		return err
	}
	p := workspacesPage{frame: d.frame(v, "Workspaces", ""), More: page.Next != ""}
	for _, r := range page.Items {
		scope := trainyard.Scope{Subscription: r.Scope.Subscription, ResourceGroup: r.Scope.ResourceGroup, Workspace: r.Name}
		if identity.Allow(v.who, identity.Read, scope, trainyard.KindWorkspace, r.Name) != nil {
			continue
		}
		there := *v
		there.scope = scope
		p.Rows = append(p.Rows, workspaceRow{Name: r.Name, Group: scope.ResourceGroup, Subscription: scope.Subscription, URL: there.link("/jobs"),
			Here: strings.EqualFold(scope.Key(), v.scope.Key())})
	}
	return d.show(v.w, http.StatusOK, "workspaces", p)
}
