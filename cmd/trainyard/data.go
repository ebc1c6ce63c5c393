package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newDataCommand(a *app) *cobra.Command {
	n := assetNoun{kind: trainyard.KindData, word: "data", sample: "iris", view: a.dataView}
	return a.noun("data", "Data: files and folders with a name and a version", "",
		a.dataCreate(), a.assetShow(n), a.assetList(n), a.assetUpdate(n), a.assetDelete(n), a.assetArchive(n, true), a.assetArchive(n, false))
}

func (a *app) dataCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Create a version of a data asset; a local path is uploaded",
		example: `  trainyard data create --name iris --version 1 --type uri_file --path ./iris.csv
  trainyard data create --file data.yml`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createAsset(ctx, c, cmd, args, trainyard.KindData, a.dataView())
		},
	}, trainyard.KindData)
	f := cmd.Flags()
	f.StringP("version", "v", "", "`VERSION` of it (default: the next)")
	f.StringP("type", "t", "", "uri_file, uri_folder or mltable")
	choices(cmd, "type", "uri_file", "uri_folder", "mltable")
	f.StringP("path", "p", "", "local `PATH`, https:// or azureml:// address")
	f.StringP("datastore", "d", "", "datastore that a local path is uploaded to")
	f.String("description", "", "what it is")
	f.StringArray("tags", nil, "`key=value` pairs")
	f.Bool("skip-validation", false, "for az's sake")
	return addFileFlags(cmd, "data asset")
}

func (a *app) dataView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Version", "Latest", "Type", "Path", "Description", "Created"}, spare: []int{5, 4}}
			for _, it := range items {
				e := asMap(it)
				t.add(text(e, "name"), text(e, "version"), text(e, "latest_version"), text(e, "type"), text(e, "path"), text(e, "description"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "data %s\n", a.paint(bold, clean(assetTitle(e))))
			a.pairs(a.out, [][2]string{
				{"type", text(e, "type")}, {"path", text(e, "path")}, {"description", text(e, "description")},
				{"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)},
			})
		},
	}
}
