package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newEnvironmentCommand(a *app) *cobra.Command {
	n := assetNoun{kind: trainyard.KindEnvironment, word: "environment", sample: "my-env", view: a.environmentView}
	return a.noun("environment", "Environments: the packages that jobs run with", "env",
		a.environmentCreate(), a.assetShow(n), a.assetList(n), a.assetUpdate(n), a.assetDelete(n), a.assetArchive(n, true), a.assetArchive(n, false))
}

func (a *app) environmentCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Create a version of an environment",
		example: `  trainyard environment create --file env.yml
  trainyard environment create --name my-env --image python:3.11 --conda-file conda.yml`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createAsset(ctx, c, cmd, args, trainyard.KindEnvironment, a.environmentView())
		},
	}, trainyard.KindEnvironment)
	f := cmd.Flags()
	f.StringP("version", "v", "", "`VERSION` of it (default: the next)")
	f.StringP("image", "i", "", "container image")
	f.StringP("conda-file", "c", "", "conda environment `FILE`")
	f.StringP("build-context", "b", "", "`FOLDER` with a Dockerfile")
	f.String("dockerfile-path", "", "of the Dockerfile in the build context")
	f.String("os-type", "", "linux or windows")
	f.String("description", "", "what it is")
	f.StringArray("tags", nil, "`key=value` pairs")
	return addFileFlags(cmd, "environment")
}

func (a *app) environmentView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Version", "Latest", "Image", "Description", "Created"}, spare: []int{4, 3}}
			for _, it := range items {
				e := asMap(it)
				t.add(text(e, "name"), text(e, "version"), text(e, "latest_version"), cmp.Or(text(e, "image"), text(e, "build", "path")),
					text(e, "description"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "environment %s\n", a.paint(bold, clean(assetTitle(e))))
			conda := ""
			if e["conda_file"] != nil {
				if data, err := yaml.Marshal(e["conda_file"]); err == nil {
					conda = strings.TrimSpace(string(data))
				}
			}
			a.pairs(a.out, [][2]string{
				{"description", text(e, "description")}, {"image", text(e, "image")}, {"build", text(e, "build", "path")},
				{"conda file", conda}, {"os", text(e, "os_type")}, {"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)},
			})
		},
	}
}

// assetTitle is name:version.
func assetTitle(e map[string]any) string {
	if v := text(e, "version"); v != "" {
		return text(e, "name") + ":" + v
	}
	return text(e, "name")
}
