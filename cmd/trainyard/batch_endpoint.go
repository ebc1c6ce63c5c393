package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newBatchEndpointCommand(a *app) *cobra.Command {
	return a.noun("batch-endpoint", "Batch endpoints: names under which files are scored", "",
		a.batchEndpointCreate(), a.batchEndpointShow(), a.batchEndpointList(), a.batchEndpointUpdate(), a.batchEndpointDelete(),
		a.batchInvoke(), a.batchEndpointJobs())
}

func (a *app) batchEndpointCreate() *cobra.Command {
	cmd := addWaitFlags(addFileFlags(a.verb(verb{
		use: "create [NAME]", short: "Create a batch endpoint", example: "  trainyard batch-endpoint create --file endpoint.yml\n  trainyard batch-endpoint create --name scoring",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			doc, err := document(cmd, args, "batch-endpoint", append(textSets(cmd, map[string]string{"description": "description"}), tagSets(cmd)...))
			if err != nil {
				return err
			}
			e, err := doc.BatchEndpoint(c.Scope())
			if err != nil {
				return err
			}
			a.warn(e.Warnings)
			if e.Location == "" {
				if e.Location, err = c.Location(ctx); err != nil {
					return err
				}
			}
			ans, err := c.Put(ctx, map[string]any{"location": e.Location, "tags": e.Tags, "properties": e.Properties}, "batchEndpoints", e.Name)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindBatchEndpoint, ans.Body, a.batchEndpointView())
		},
	}, trainyard.KindBatchEndpoint), "batch endpoint"))
	cmd.ValidArgsFunction = nil // a new name cannot be completed
	cmd.Flags().StringP("description", "d", "", "what it is")
	cmd.Flags().StringArray("tags", nil, "`key=value` pairs")
	return cmd
}

func (a *app) batchEndpointShow() *cobra.Command {
	return a.verb(verb{
		use: "show [NAME]", short: "Show a batch endpoint", example: "  trainyard batch-endpoint show --name scoring\n  trainyard batch-endpoint show -n scoring --query scoring_uri -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			raw, err := c.Get(ctx, "batchEndpoints", n)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindBatchEndpoint, raw, a.batchEndpointView())
		},
	}, trainyard.KindBatchEndpoint)
}

func (a *app) batchEndpointList() *cobra.Command {
	return addListFlags(a.verb(verb{
		use: "list", short: "List batch endpoints", noName: true, example: "  trainyard batch-endpoint list",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			items, more, err := collect(ctx, c, cmd, trainyard.KindBatchEndpoint, url.Values{}, nil, "batchEndpoints")
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, a.batchEndpointView())
		},
	}, trainyard.KindBatchEndpoint), false)
}

var batchEndpointFields = fields{"description": "properties.description", "defaults.deployment_name": "properties.defaults.deploymentName",
	"tags.*": "tags", "properties.*": "properties.properties"}

func (a *app) batchEndpointUpdate() *cobra.Command {
	cmd := addWaitFlags(addUpdateFlags(a.verb(verb{
		use: "update [NAME]", short: "Change a batch endpoint: its default deployment, description or tags",
		example: "  trainyard batch-endpoint update --name scoring --set defaults.deployment_name=blue",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			sets := append(flagList(cmd, "set"), unquoted(tagSets(cmd))...)
			if d := flag(cmd, "defaults"); d != "" {
				sets = append(sets, "defaults.deployment_name="+strings.TrimPrefix(d, "deployment_name="))
			}
			patch, err := batchEndpointFields.patch(sets, flagList(cmd, "remove"))
			if err != nil {
				return err
			}
			if len(patch) == 0 {
				return usagef("nothing to change: give --set, --defaults, --tags or --remove")
			}
			ans, err := c.Patch(ctx, patch, "batchEndpoints", n)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindBatchEndpoint, ans.Body, a.batchEndpointView())
		},
	}, trainyard.KindBatchEndpoint)))
	cmd.Flags().String("defaults", "", "`deployment_name=NAME` of the deployment that is meant where none is named")
	cmd.Flags().StringArray("tags", nil, "`key=value` pairs")
	return cmd
}

func (a *app) batchEndpointDelete() *cobra.Command {
	return addWaitFlags(addYes(a.verb(verb{
		use: "delete [NAME]", short: "Delete a batch endpoint with its deployments; its jobs stay", example: "  trainyard batch-endpoint delete --name scoring --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete batch endpoint %s and its deployments", n); err != nil {
				return err
			}
			return a.batchGone(ctx, c, n, "batchEndpoints", n)
		},
	}, trainyard.KindBatchEndpoint)))
}

// batchGone deletes what is at a path, if it is there.
func (a *app) batchGone(ctx context.Context, c *client.Client, what string, path ...string) error {
	if _, err := c.Get(ctx, path...); err != nil {
		return err
	}
	if _, err := c.Delete(ctx, url.Values{}, path...); err != nil {
		return err
	}
	a.say("%s is deleted", what)
	return nil
}

func (a *app) batchEndpointJobs() *cobra.Command {
	return addListFlags(a.verb(verb{
		use: "list-jobs [NAME]", short: "List the jobs of a batch endpoint, newest first", example: "  trainyard batch-endpoint list-jobs --name scoring",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			return a.batchJobs(ctx, c, cmd, "batchEndpoints", n, "jobs")
		},
	}, trainyard.KindBatchEndpoint), false)
}

// batchJobs prints a list of batch jobs.
func (a *app) batchJobs(ctx context.Context, c *client.Client, cmd *cobra.Command, path ...string) error {
	items, more, err := collect(ctx, c, cmd, trainyard.KindJob, url.Values{}, nil, path...)
	if err != nil {
		return err
	}
	for _, it := range items {
		e := asMap(it)
		for _, k := range []string{"inputs", "outputs", "services", "compute", "environment", "type"} {
			delete(e, k) // the data plane of batch endpoints does not say them
		}
	}
	defer a.moreNote(items, more)
	return a.print(items, view{table: a.batchJobTable})
}

func (a *app) batchJobTable(items []any) *table {
	t := &table{heads: []string{"Name", "Deployment", "Status", "Created", "Took", "Why"}, right: []bool{4: true}, spare: []int{5},
		tint: func(col int, cell string) string {
			if col == 2 {
				return stateColor(cell)
			}
			return ""
		}}
	for _, it := range items {
		e := asMap(it)
		t.add(text(e, "name"), text(e, "deployment"), text(e, "status"), ago(a.now(), created(e)), took(a.now(), e), jobWhy(e))
	}
	return t
}

func (a *app) batchEndpointView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Default deployment", "Description", "Created"}}
			for _, it := range items {
				e := asMap(it)
				t.add(text(e, "name"), text(e, "defaults", "deployment_name"), text(e, "description"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "batch endpoint %s\n", a.paint(bold, clean(text(e, "name"))))
			a.pairs(a.out, [][2]string{{"default", cmp.Or(text(e, "defaults", "deployment_name"), "none")}, {"description", text(e, "description")},
				{"invoke", "trainyard batch-endpoint invoke --name " + text(e, "name") + " --input FOLDER"}, {"scoring URI", text(e, "scoring_uri")},
				{"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)}})
		},
	}
}

// batchEntity gives the fields of batch endpoints and deployments az's names and values.
func batchEntity(out map[string]any) {
	if mode := text(out, "auth_mode"); mode != "" {
		out["auth_mode"] = snake(mode)
	}
	rename(out, "swagger_uri", "openapi_uri")
	if out["openapi_uri"] == nil {
		delete(out, "openapi_uri")
	}
	rename(out, "environment_id", "environment")
	if env := text(out, "environment"); env != "" {
		out["environment"] = reference(env)
	}
	if compute := text(out, "compute"); compute != "" {
		out["compute"] = reference(compute)
	}
	if id := text(out, "model", "asset_id"); id != "" {
		out["model"] = reference(id)
	}
	if c := asMap(out["code_configuration"]); c != nil {
		rename(c, "code_id", "code")
		c["code"] = reference(text(c, "code"))
	}
	for _, k := range []string{"output_action", "logging_level"} {
		if s := text(out, k); s != "" {
			out[k] = snake(s)
		}
	}
	if r := asMap(out["retry_settings"]); r != nil {
		seconds(r, "timeout")
	}
	if parts := strings.Split(text(out, "id"), "/"); len(parts) > 4 && strings.EqualFold(parts[len(parts)-2], "deployments") {
		out["endpoint_name"] = parts[len(parts)-3]
		out["resourceGroup"] = parts[4]
	}
	if c := asMap(out["deployment_configuration"]); c != nil {
		out["type"], out["component"], out["settings"] = "pipeline", reference(text(c, "component_id", "asset_id")), c["settings"]
		delete(out, "deployment_configuration")
	} else if out["mini_batch_size"] != nil {
		out["type"] = "model"
	}
}
