package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newDatastoreCommand(a *app) *cobra.Command {
	return a.noun("datastore", "Datastores: where bytes are kept", "",
		a.datastoreCreate(), a.datastoreShow(), a.datastoreList(), a.datastoreUpdate(), a.datastoreDelete())
}

func (a *app) datastoreCreate() *cobra.Command {
	return addFileFlags(a.verb(verb{
		use: "create [NAME]", short: "Create a datastore", example: "  trainyard datastore create --file datastore.yml",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createDatastore(ctx, c, cmd, args)
		},
	}, trainyard.KindDatastore), "datastore")
}

func (a *app) datastoreShow() *cobra.Command {
	return a.verb(verb{
		use: "show [NAME]", short: "Show a datastore",
		example: "  trainyard datastore show --name workspaceblobstore\n  trainyard datastore show -n workspaceblobstore --query container_name -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			raw, err := c.Get(ctx, "datastores", n)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindDatastore, raw, a.datastoreView())
		},
	}, trainyard.KindDatastore)
}

// printOne prints a resource as the server answered it.
func (a *app) printOne(kind trainyard.Kind, raw []byte, v view) error {
	e, err := shown(kind, raw)
	if err != nil {
		return err
	}
	return a.print(e, v)
}

func (a *app) datastoreList() *cobra.Command {
	cmd := a.verb(verb{
		use: "list", short: "List datastores", noName: true, example: "  trainyard datastore list",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			items, more, err := collect(ctx, c, cmd, trainyard.KindDatastore, url.Values{}, nil, "datastores")
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, a.datastoreView())
		},
	}, trainyard.KindDatastore)
	return addListFlags(cmd, false)
}

var datastoreFields = fields{"description": "properties.description", "tags.*": "properties.tags", "is_default": "properties.isDefault"}

func (a *app) datastoreUpdate() *cobra.Command {
	return addUpdateFlags(a.verb(verb{
		use: "update [NAME]", short: "Change a datastore's description or tags",
		example: "  trainyard datastore update --name mystore --set description=\"raw scans\"",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			patch, err := datastoreFields.patch(flagList(cmd, "set"), flagList(cmd, "remove"))
			if err != nil {
				return err
			}
			if len(patch) == 0 {
				return usagef("nothing to change: give --set or --remove")
			}
			raw, err := changed(ctx, c, patch, "datastores", n)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindDatastore, raw, a.datastoreView())
		},
	}, trainyard.KindDatastore))
}

func (a *app) datastoreDelete() *cobra.Command {
	return addYes(a.verb(verb{
		use: "delete [NAME]", short: "Delete a datastore", example: "  trainyard datastore delete --name mystore --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete datastore %s", n); err != nil {
				return err
			}
			if _, err := c.Get(ctx, "datastores", n); err != nil {
				return err
			}
			if _, err := c.Delete(ctx, nil, "datastores", n); err != nil {
				return err
			}
			a.say("%s is deleted", n)
			return nil
		},
	}, trainyard.KindDatastore))
}

func (a *app) datastoreView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Type", "Container", "Default", "Description", "Created"}}
			for _, it := range items {
				e := asMap(it)
				isDefault := ""
				if yes, _ := e["is_default"].(bool); yes {
					isDefault = "yes"
				}
				t.add(text(e, "name"), text(e, "type"), text(e, "container_name"), isDefault, text(e, "description"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "datastore %s\n", a.paint(bold, clean(text(e, "name"))))
			a.pairs(a.out, [][2]string{
				{"type", text(e, "type")}, {"account", text(e, "account_name")}, {"container", text(e, "container_name")},
				{"endpoint", text(e, "endpoint")}, {"description", text(e, "description")}, {"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)},
			})
		},
	}
}
