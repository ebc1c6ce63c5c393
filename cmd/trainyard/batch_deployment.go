package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/spec"
)

func newBatchDeploymentCommand(a *app) *cobra.Command {
	return a.noun("batch-deployment", "Batch deployments: models, and how files are scored with them", "",
		a.batchDeploymentCreate(), a.batchDeploymentShow(), a.batchDeploymentList(), a.batchDeploymentUpdate(), a.batchDeploymentDelete(), a.batchDeploymentJobs())
}

// addBatchParent is the flag of everything that is below an endpoint.
func addBatchParent(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringP("endpoint-name", "e", "", "`ENDPOINT` it is of")
	return cmd
}

// batchParent reads it.
func batchParent(cmd *cobra.Command) (string, error) {
	if e := flag(cmd, "endpoint-name"); e != "" {
		return e, nil
	}
	return "", usagef("an endpoint is missing: %s --endpoint-name ENDPOINT", cmd.CommandPath())
}

func (a *app) batchDeploymentCreate() *cobra.Command {
	cmd := addWaitFlags(addBatchParent(addFileFlags(a.verb(verb{
		use: "create [NAME]", short: "Create a batch deployment, or replace it",
		long: `Creates the deployment of a YAML file: uploads its code and its model, each once a content, and registers what is written in the file.`,
		example: "  trainyard batch-deployment create --file deployment.yml --set-default\n" +
			"  trainyard batch-deployment create -f deployment.yml --endpoint-name scoring --set settings.mini_batch_size=20",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createBatchDeployment(ctx, c, cmd, args)
		},
	}, trainyard.KindBatchDeployment), "batch deployment")))
	cmd.ValidArgsFunction = nil // a new name cannot be completed
	cmd.Flags().Bool("set-default", false, "make it the endpoint's default")
	cmd.Flags().Bool("skip-script-validation", false, "for az's sake")
	return cmd
}

func (a *app) createBatchDeployment(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	doc, err := document(cmd, args, "batch-deployment", textSets(cmd, map[string]string{"endpoint-name": "endpoint_name"}))
	if err != nil {
		return err
	}
	d, err := doc.BatchDeployment(c.Scope())
	switch {
	case err != nil:
		return err
	case d.Name == "":
		return usagef("a name is missing: write name: in the file, or give --name NAME")
	case d.Endpoint == "":
		return usagef("an endpoint is missing: write endpoint_name: in the file, or give --endpoint-name ENDPOINT")
	}
	a.warn(d.Warnings)
	if _, err := c.Get(ctx, "batchEndpoints", d.Endpoint); err != nil { // before anything is uploaded
		return err
	}
	if err := a.furnishBatch(ctx, c, d); err != nil {
		return err
	}
	if d.Location == "" {
		if d.Location, err = c.Location(ctx); err != nil {
			return err
		}
	}
	ans, err := c.Put(ctx, map[string]any{"location": d.Location, "tags": d.Tags, "properties": d.Spec}, "batchEndpoints", d.Endpoint, "deployments", d.Name)
	if err != nil {
		return err
	}
	if flagBool(cmd, "set-default") {
		patch := map[string]any{"properties": map[string]any{"defaults": map[string]any{"deploymentName": d.Name}}}
		if _, err := c.Patch(ctx, patch, "batchEndpoints", d.Endpoint); err != nil {
			return err
		}
	}
	return a.printOne(trainyard.KindBatchDeployment, ans.Body, a.batchDeploymentView())
}

// furnishBatch uploads and registers what a deployment brings along.
func (a *app) furnishBatch(ctx context.Context, c *client.Client, d *spec.BatchDeployment) error {
	if err := a.upload(ctx, c, d.Uploads); err != nil {
		return err
	}
	for _, env := range d.Environments {
		if _, err := c.Put(ctx, map[string]any{"properties": env.Properties}, string(env.Kind), env.Name, "versions", env.Version); err != nil {
			return err
		}
	}
	if m := d.Model; m != nil {
		if err := a.upload(ctx, c, m.Uploads); err != nil {
			return err
		}
		m.Named(d.Endpoint + "-" + d.Name)
		if err := registerBatch(ctx, c, m, d.SetModel); err != nil {
			return err
		}
	}
	if comp := d.Component; comp != nil {
		comp.Named(spec.AnonymousComponent)
		return registerBatch(ctx, c, comp, d.SetComponent)
	}
	return nil
}

// registerBatch registers a version and hands its id on.
func registerBatch(ctx context.Context, c *client.Client, as *spec.Asset, set func(id string)) error {
	if _, err := c.Put(ctx, map[string]any{"properties": as.Properties}, string(as.Kind), as.Name, "versions", as.Version); err != nil {
		return err
	}
	set(c.Scope().Child(string(as.Kind), as.Name, "versions", as.Version))
	return nil
}

func (a *app) batchDeploymentShow() *cobra.Command {
	return addBatchParent(a.verb(verb{
		use: "show [NAME]", short: "Show a batch deployment", example: "  trainyard batch-deployment show --name blue --endpoint-name scoring",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := batchPath(cmd, args)
			if err != nil {
				return err
			}
			raw, err := c.Get(ctx, path...)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindBatchDeployment, raw, a.batchDeploymentView())
		},
	}, trainyard.KindBatchDeployment))
}

// batchPath is the path of the deployment that the flags name.
func batchPath(cmd *cobra.Command, args []string) ([]string, error) {
	n, err := name(cmd, args)
	if err != nil {
		return nil, err
	}
	e, err := batchParent(cmd)
	return []string{"batchEndpoints", e, "deployments", n}, err
}

func (a *app) batchDeploymentList() *cobra.Command {
	return addListFlags(addBatchParent(a.verb(verb{
		use: "list", short: "List the deployments of a batch endpoint", noName: true, example: "  trainyard batch-deployment list --endpoint-name scoring",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			e, err := batchParent(cmd)
			if err != nil {
				return err
			}
			items, more, err := collect(ctx, c, cmd, trainyard.KindBatchDeployment, url.Values{}, nil, "batchEndpoints", e, "deployments")
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, a.batchDeploymentView())
		},
	}, trainyard.KindBatchDeployment)), false)
}

// batchDeploymentFields has every setting under both of its names.
var batchDeploymentFields = func() fields {
	f := fields{"description": "properties.description", "tags.*": "tags", "properties.*": "properties.properties",
		"resources.instance_count": "properties.resources.instanceCount", "environment_variables.*": "properties.environmentVariables"}
	for name, to := range map[string]string{"mini_batch_size": "miniBatchSize", "max_concurrency_per_instance": "maxConcurrencyPerInstance",
		"output_action": "outputAction", "output_file_name": "outputFileName", "error_threshold": "errorThreshold", "logging_level": "loggingLevel",
		"retry_settings.max_retries": "retrySettings.maxRetries", "retry_settings.timeout": "retrySettings.timeout"} {
		f[name], f["settings."+name] = "properties."+to, "properties."+to
	}
	return f
}()

func (a *app) batchDeploymentUpdate() *cobra.Command {
	return addWaitFlags(addUpdateFlags(addBatchParent(a.verb(verb{
		use: "update [NAME]", short: "Change how a batch deployment scores",
		example: "  trainyard batch-deployment update --name blue --endpoint-name scoring --set settings.mini_batch_size=5 settings.retry_settings.timeout=60",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := batchPath(cmd, args)
			if err != nil {
				return err
			}
			patch, err := batchDeploymentFields.patch(flagList(cmd, "set"), flagList(cmd, "remove"))
			if err != nil {
				return err
			}
			if len(patch) == 0 {
				return usagef("nothing to change: give --set or --remove")
			}
			if retry := asMap(asMap(patch["properties"])["retrySettings"]); retry != nil {
				if s, ok := retry["timeout"].(float64); ok {
					retry["timeout"] = trainyard.ISODuration(time.Duration(s * float64(time.Second)))
				}
			}
			ans, err := c.Patch(ctx, patch, path...)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindBatchDeployment, ans.Body, a.batchDeploymentView())
		},
	}, trainyard.KindBatchDeployment))))
}

func (a *app) batchDeploymentDelete() *cobra.Command {
	return addWaitFlags(addYes(addBatchParent(a.verb(verb{
		use: "delete [NAME]", short: "Delete a batch deployment; its jobs stay", example: "  trainyard batch-deployment delete --name blue --endpoint-name scoring --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := batchPath(cmd, args)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete batch deployment %s of %s", path[3], path[1]); err != nil {
				return err
			}
			return a.batchGone(ctx, c, path[3], path...)
		},
	}, trainyard.KindBatchDeployment))))
}

func (a *app) batchDeploymentJobs() *cobra.Command {
	return addListFlags(addBatchParent(a.verb(verb{
		use: "list-jobs [NAME]", short: "List the jobs of a batch deployment, newest first", example: "  trainyard batch-deployment list-jobs --name blue --endpoint-name scoring",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := batchPath(cmd, args)
			if err != nil {
				return err
			}
			return a.batchJobs(ctx, c, cmd, append(path, "jobs")...)
		},
	}, trainyard.KindBatchDeployment)), false)
}

func (a *app) batchDeploymentView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Type", "Model", "Compute", "Nodes", "Files at once", "Output", "Created"}, right: []bool{4: true, 5: true}}
			for _, it := range items {
				e := asMap(it)
				t.add(text(e, "name"), text(e, "type"), cmp.Or(text(e, "model"), text(e, "component")), text(e, "compute"), plain(asMap(e["resources"])["instance_count"]),
					plain(e["mini_batch_size"]), text(e, "output_action"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "batch deployment %s of %s\n", a.paint(bold, clean(text(e, "name"))), clean(text(e, "endpoint_name")))
			retry := asMap(e["retry_settings"])
			tries := ""
			if retry != nil {
				tries = fmt.Sprintf("%s retries of a mini-batch, %s s each", plain(retry["max_retries"]), plain(retry["timeout"]))
			}
			settings := ""
			if s := asMap(e["settings"]); len(s) > 0 {
				data, _ := json.Marshal(s) // it came as JSON
				settings = string(data)
			}
			a.pairs(a.out, [][2]string{{"model", text(e, "model")}, {"component", text(e, "component")}, {"script", text(e, "code_configuration", "scoring_script")},
				{"environment", text(e, "environment")}, {"compute", text(e, "compute")}, {"nodes", plain(asMap(e["resources"])["instance_count"])},
				{"workers a node", plain(e["max_concurrency_per_instance"])}, {"mini-batch", plain(e["mini_batch_size"])}, {"output", text(e, "output_action")},
				{"file", text(e, "output_file_name")}, {"retries", tries}, {"may fail", plain(e["error_threshold"])}, {"settings", settings},
				{"description", text(e, "description")}, {"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)}})
		},
	}
}
