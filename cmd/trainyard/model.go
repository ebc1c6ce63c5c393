package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newModelCommand(a *app) *cobra.Command {
	n := assetNoun{kind: trainyard.KindModel, word: "model", sample: "iris", view: a.modelView}
	return a.noun("model", "Models: what training leaves, with a name, a version and the job that made it", "",
		a.modelCreate(), a.assetShow(n), a.assetList(n), a.modelDownload(n), a.modelProfile(), a.assetUpdate(n), a.assetDelete(n), a.assetArchive(n, true), a.assetArchive(n, false))
}

func (a *app) modelCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Register a version of a model: local files are uploaded, a job's output is taken where it is",
		example: `  trainyard model create --name iris --path ./model --type mlflow_model
  trainyard model create --name iris --path azureml://jobs/calm_river_7x2kq9d1aa/outputs/model/paths/ --type mlflow_model
  trainyard model create --name iris --path runs:/calm_river_7x2kq9d1aa/model --type mlflow_model
  trainyard model create --file model.yml`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createAsset(ctx, c, cmd, args, trainyard.KindModel, a.modelView())
		},
	}, trainyard.KindModel)
	f := cmd.Flags()
	f.StringP("version", "v", "", "`VERSION` of it (default: the next)")
	f.StringP("type", "t", "", "custom_model, mlflow_model or triton_model")
	choices(cmd, "type", "custom_model", "mlflow_model", "triton_model")
	f.StringP("path", "p", "", "local `PATH`, azureml://jobs/JOB/outputs/NAME/paths/PATH, azureml://datastores/… or runs:/RUN/PATH")
	f.StringP("datastore", "d", "", "datastore that a local path is uploaded to")
	f.StringP("stage", "s", "", "Development, Staging, Production, …")
	f.String("description", "", "what it is")
	f.StringArray("tags", nil, "`key=value` pairs")
	f.Bool("skip-validation", false, "for az's sake")
	return addFileFlags(cmd, "model")
}

func (a *app) modelDownload(n assetNoun) *cobra.Command {
	cmd := versionFlags(a.verb(verb{
		use: "download [NAME]", short: "Download the files of a model",
		long:    "Downloads the files of a version (without one, of the latest) to PATH/NAME.",
		example: "  trainyard model download --name iris --version 1 --download-path ./models",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := n.path(ctx, c, cmd, args)
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if len(path) == 2 {
				raw, err = c.Latest(ctx, n.kind, path[1])
			} else {
				raw, err = c.Get(ctx, path...)
			}
			if err != nil {
				return err
			}
			e, err := shown(n.kind, raw)
			if err != nil {
				return err
			}
			return a.download(ctx, c, []part{{what: "model " + assetTitle(e), uri: text(e, "path"), to: text(e, "name")}}, flag(cmd, "download-path"))
		},
	}, n.kind))
	cmd.Flags().StringP("download-path", "p", ".", "`FOLDER` to download to")
	return cmd
}

func (a *app) modelView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Version", "Latest", "Type", "Stage", "Job", "Description", "Created"}, spare: []int{6, 4, 5}}
			for _, it := range items {
				e := asMap(it)
				t.add(text(e, "name"), text(e, "version"), text(e, "latest_version"), text(e, "type"), text(e, "stage"), text(e, "job_name"),
					text(e, "description"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "model %s\n", a.paint(bold, clean(assetTitle(e))))
			job := text(e, "job_name")
			if job != "" {
				job += "  (trainyard job show --name " + job + ")"
			}
			flavors := ""
			for i, name := range sortedKeys(asMap(e["flavors"])) {
				if i > 0 {
					flavors += ", "
				}
				flavors += name
			}
			a.pairs(a.out, [][2]string{
				{"type", text(e, "type")}, {"path", text(e, "path")}, {"made by job", job}, {"flavors", flavors}, {"stage", text(e, "stage")},
				{"description", text(e, "description")}, {"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)},
				{"serve it", serveHint(e)},
			})
		},
	}
}

// serveHint is how a version is named in a deployment's file.
func serveHint(e map[string]any) string {
	if text(e, "version") == "" {
		return ""
	}
	return "model: azureml:" + assetTitle(e)
}
