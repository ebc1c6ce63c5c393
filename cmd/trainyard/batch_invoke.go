package main

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/spec"
)

func (a *app) batchInvoke() *cobra.Command {
	cmd := a.verb(verb{
		use: "invoke [NAME]", short: "Score files: makes a job of the endpoint's default deployment, or of the one that is named",
		long: `Makes a job that scores the files of --input: a folder or file on this computer, a data asset, a path in a datastore, or a URL. Several
named inputs, and values, are given with --set inputs.NAME.path=…, --set inputs.NAME=VALUE, or in a file with "inputs:" and "outputs:".`,
		example: "  trainyard batch-endpoint invoke --name scoring --input ./unlabeled --stream\n" +
			"  trainyard batch-endpoint invoke -n scoring --deployment-name blue --input azureml:heart-unlabeled@latest --input-type uri_folder\n" +
			"  job=$(trainyard batch-endpoint invoke -n scoring --input https://example.org/rows.csv --input-type uri_file --query name -o tsv)",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.invokeBatch(ctx, c, cmd, args)
		},
	}, trainyard.KindBatchEndpoint)
	f := cmd.Flags()
	f.StringP("deployment-name", "d", "", "`DEPLOYMENT` to use (default: the endpoint's)")
	f.String("input", "", "`WHERE` the files are: a path on this computer, azureml:NAME:VERSION, azureml://…, https://…")
	f.String("input-type", "", "uri_folder or uri_file (default: what the path shows)")
	f.StringP("file", "f", "", "YAML `FILE` with inputs and outputs")
	f.String("job-name", "", "name of the job (default: the server makes one)")
	f.String("output-path", "", "azureml://datastores/NAME/paths/PATH where the scores go")
	f.String("experiment-name", "", "experiment of the job (default: the endpoint's name)")
	f.IntP("instance-count", "c", 0, "nodes (default: the deployment's)")
	f.IntP("mini-batch-size", "m", 0, "files that are scored at once (default: the deployment's)")
	f.StringArray("tags", nil, "`key=value` pairs")
	f.BoolP("stream", "s", false, "follow the job until it ends")
	addSetFlags(cmd)
	_ = cmd.MarkFlagFilename("file", "yml", "yaml", "json") // fails only for a flag that is not there
	return cmd
}

func (a *app) invokeBatch(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	endpoint, err := name(cmd, args)
	if err != nil {
		return err
	}
	if err := here(cmd, "input"); err != nil {
		return err
	}
	props, err := a.batchInputs(ctx, c, cmd)
	if err != nil {
		return err
	}
	for flagName, field := range map[string]string{"job-name": "jobName", "experiment-name": "experimentName"} {
		if v := flag(cmd, flagName); v != "" {
			props[field] = v
		}
	}
	if n, _ := strconv.Atoi(flag(cmd, "mini-batch-size")); n > 0 {
		props["miniBatchSize"] = n
	}
	if n, _ := strconv.Atoi(flag(cmd, "instance-count")); n > 0 {
		props["compute"] = map[string]any{"instanceCount": n}
	}
	if tags := flagList(cmd, "tags"); len(tags) > 0 {
		all := map[string]string{}
		for _, t := range tags {
			k, v, _ := strings.Cut(t, "=")
			all[k] = v
		}
		props["tags"] = all
	}
	query := url.Values{}
	if d := flag(cmd, "deployment-name"); d != "" {
		query.Set("deployment", d)
	}
	// Not repeated by itself: each would be another job.
	ans, err := c.Do(ctx, client.Request{Method: http.MethodPost, Path: c.Path("batchEndpoints", endpoint, "jobs"), Query: query, Body: map[string]any{"properties": props}})
	if err != nil {
		return err
	}
	made, err := decode(ans.Body)
	if err != nil {
		return err
	}
	job := text(made, "name")
	if flagBool(cmd, "stream") {
		return a.streamCreated(ctx, c, job)
	}
	raw, err := c.Get(ctx, "jobs", job)
	if err != nil {
		return err
	}
	e, err := shown(trainyard.KindJob, raw)
	if err != nil {
		return err
	}
	return a.print(e, view{table: a.jobTable, detail: func(e map[string]any) {
		a.jobDetail(e)
		a.note("%s", a.paintErr(grey, "follow it: trainyard job stream --name "+job))
	}})
}

// batchInputs reads and uploads what an invocation names.
func (a *app) batchInputs(ctx context.Context, c *client.Client, cmd *cobra.Command) (map[string]any, error) {
	props := map[string]any{}
	var sets []string
	for _, s := range flagList(cmd, "set") { // az has these at the top of what can be set
		field, value, _ := strings.Cut(s, "=")
		switch field = strings.TrimSpace(field); field {
		case "output_file_name":
			props["outputFileName"] = value
		case "error_threshold", "mini_batch_size", "max_concurrency_per_instance":
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, usagef("--set %s: want a whole number", s)
			}
			props[map[string]string{"error_threshold": "errorThreshold", "mini_batch_size": "miniBatchSize", "max_concurrency_per_instance": "maxConcurrencyPerInstance"}[field]] = n
		case "logging_level":
			props["loggingLevel"] = value
		default:
			sets = append(sets, s)
		}
	}
	if in := flag(cmd, "input"); in != "" {
		sets = append(sets, "inputs.data.path="+strconv.Quote(in))
		kind := flag(cmd, "input-type")
		if kind == "" && strings.HasPrefix(in, "http") && path.Ext(in) != "" {
			kind = "uri_file"
		}
		if kind != "" {
			sets = append(sets, "inputs.data.type="+kind)
		}
	}
	if to := flag(cmd, "output-path"); to != "" {
		sets = append(sets, "outputs.score.path="+strconv.Quote(to))
	}
	file := flag(cmd, "file")
	if file == "" && len(sets) == 0 {
		return props, nil
	}
	doc, err := spec.Load(file, spec.Options{Noun: "batch-inputs", Set: sets})
	if err != nil {
		return nil, err
	}
	in, err := doc.Invocation(c.Scope())
	if err != nil {
		return nil, err
	}
	a.warn(in.Warnings)
	if err := a.upload(ctx, c, in.Uploads); err != nil {
		return nil, err
	}
	props["inputData"], props["outputData"] = in.Inputs, in.Outputs
	return props, nil
}
