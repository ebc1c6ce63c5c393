package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newWorkspaceCommand(a *app) *cobra.Command {
	return a.noun("workspace", "Workspaces: each owns its computes, jobs and assets", "",
		a.workspaceCreate(), a.workspaceShow(), a.workspaceList(), a.workspaceUpdate(), a.workspaceDelete(), a.workspaceMLflow())
}

// named is a client of the workspace that the command names, or of the one that all commands use.
func named(c *client.Client, cmd *cobra.Command, args []string) (*client.Client, error) {
	n := flag(cmd, "name")
	if len(args) > 0 {
		if n != "" && n != args[0] {
			return nil, usagef("two names are given: %q and %q", args[0], n)
		}
		n = args[0]
	}
	return c.In(trainyard.Scope{Workspace: n}), nil
}

func (a *app) workspaceCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Create a workspace",
		example: "  trainyard workspace create --name team-a --resource-group research\n  trainyard workspace create --file workspace.yml",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createWorkspace(ctx, c, cmd, args)
		},
	}, trainyard.KindWorkspace)
	f := cmd.Flags()
	f.String("display-name", "", "name for people")
	f.String("description", "", "what it is for")
	f.StringP("location", "l", "", "where its machines come from")
	completes(cmd, "location", a.completeLocations)
	f.StringArray("tags", nil, "`key=value` pairs")
	return addWaitFlags(addFileFlags(cmd, "workspace"))
}

func (a *app) workspaceShow() *cobra.Command {
	return a.verb(verb{
		use: "show [NAME]", short: "Show a workspace",
		example: "  trainyard workspace show\n  trainyard workspace show -n default --query mlflow_tracking_uri -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			at, err := named(c, cmd, args)
			if err != nil {
				return err
			}
			return a.showWorkspace(ctx, at)
		},
	}, trainyard.KindWorkspace)
}

func (a *app) showWorkspace(ctx context.Context, c *client.Client) error {
	raw, err := c.Get(ctx)
	if err != nil {
		return err
	}
	e, err := shown(trainyard.KindWorkspace, raw)
	if err != nil {
		return err
	}
	return a.print(e, a.workspaceView())
}

func (a *app) workspaceView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Resource group", "Display name", "Location", "Created"}}
			for _, it := range items {
				e := asMap(it)
				t.add(text(e, "name"), text(e, "resource_group"), text(e, "display_name"), text(e, "location"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "workspace %s\n", a.paint(bold, clean(text(e, "name"))))
			a.pairs(a.out, [][2]string{
				{"display name", text(e, "display_name")}, {"description", text(e, "description")}, {"resource group", text(e, "resource_group")},
				{"location", text(e, "location")}, {"tags", tagsText(e["tags"])}, {"mlflow", text(e, "mlflow_tracking_uri")},
				{"id", text(e, "id")}, {"created", madeBy(a.now(), e)},
			})
		},
	}
}

func (a *app) workspaceList() *cobra.Command {
	return a.verb(verb{
		use: "list", short: "List workspaces of the resource group, or of the subscription", noName: true,
		example: "  trainyard workspace list\n  trainyard workspace list --resource-group research",
		do: func(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) error {
			path := c.ProviderPath("workspaces")
			if a.resourceGroup != "" {
				path = c.GroupPath("workspaces")
			}
			items := []any{}
			for raw, err := range c.ListAt(ctx, path, url.Values{}) {
				if err != nil {
					return err
				}
				e, err := shown(trainyard.KindWorkspace, raw)
				if err != nil {
					return err
				}
				items = append(items, e)
			}
			return a.print(items, a.workspaceView())
		},
	}, trainyard.KindWorkspace)
}

var workspaceFields = fields{"display_name": "properties.friendlyName", "description": "properties.description", "tags.*": "tags"}

func (a *app) workspaceUpdate() *cobra.Command {
	cmd := a.verb(verb{
		use: "update [NAME]", short: "Change a workspace's display name, description or tags",
		example: "  trainyard workspace update --display-name \"Team A\"\n  trainyard workspace update -n team-a --set tags.owner=ada",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			at, err := named(c, cmd, args)
			if err != nil {
				return err
			}
			sets := flagList(cmd, "set")
			for flagName, field := range map[string]string{"display-name": "display_name", "description": "description"} {
				if cmd.Flags().Changed(flagName) {
					sets = append(sets, field+"="+flag(cmd, flagName))
				}
			}
			patch, err := workspaceFields.patch(append(sets, unquoted(tagSets(cmd))...), flagList(cmd, "remove"))
			if err != nil {
				return err
			}
			if len(patch) == 0 {
				return usagef("nothing to change: give --display-name, --description, --tags or --set")
			}
			ans, err := at.Do(ctx, client.Request{Method: http.MethodPatch, Path: at.Path(), Body: patch})
			if err != nil {
				return err
			}
			if err := a.wait(ctx, at, cmd, ans, "changing "+at.Scope().Workspace); err != nil {
				return err
			}
			return a.showWorkspace(ctx, at)
		},
	}, trainyard.KindWorkspace)
	f := cmd.Flags()
	f.String("display-name", "", "name for people")
	f.String("description", "", "what it is for")
	f.StringArray("tags", nil, "`key=value` pairs")
	return addUpdateFlags(cmd)
}

func (a *app) workspaceDelete() *cobra.Command {
	cmd := a.verb(verb{
		use: "delete [NAME]", short: "Delete a workspace with all that it owns",
		example: "  trainyard workspace delete --name team-a --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			at := c.In(trainyard.Scope{Workspace: n})
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete workspace %s with all that it owns", n); err != nil {
				return err
			}
			if _, err := at.Get(ctx); err != nil {
				return err
			}
			ans, err := at.Delete(ctx, nil)
			if err != nil {
				return err
			}
			if err := a.wait(ctx, at, cmd, ans, "deleting "+n); err != nil {
				return err
			}
			a.say("%s is deleted", n)
			return nil
		},
	}, trainyard.KindWorkspace)
	cmd.Flags().Bool("all-resources", false, "for az's sake; nothing else belongs to a workspace here")
	return addWaitFlags(addYes(cmd))
}

// madeBy is "2h ago by ada".
func madeBy(now time.Time, e map[string]any) string {
	when := ago(now, created(e))
	if who := text(e, "creation_context", "created_by"); who != "" && when != "" {
		return when + " by " + who
	}
	return cmp.Or(when, text(e, "creation_context", "created_by"))
}

func created(e map[string]any) time.Time {
	return parseTime(asMap(e["creation_context"])["created_at"])
}
