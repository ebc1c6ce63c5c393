package main

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// assetNoun is a noun whose names have versions: environments, data and models.
type assetNoun struct {
	kind   trainyard.Kind
	word   string // in sentences
	sample string // a name for examples
	view   func() view
}

// versionFlags say which version of an asset is meant.
func versionFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringP("version", "v", "", "`VERSION` of it")
	cmd.Flags().StringP("label", "l", "", "label of the version: latest")
	return cmd
}

// path is the path of the version that the flags mean; of the asset itself if they mean none. azureml:NAME:VERSION and NAME@LABEL
// may be given as the name.
func (n assetNoun) path(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) (path []string, err error) {
	id, err := name(cmd, args)
	if err != nil {
		return nil, err
	}
	version, label := flag(cmd, "version"), flag(cmd, "label")
	id = strings.TrimPrefix(id, "azureml:")
	if at, l, ok := strings.Cut(id, "@"); ok {
		id, label = at, l
	} else if at, v, ok := strings.Cut(id, ":"); ok {
		id, version = at, v
	}
	switch {
	case version != "" && label != "":
		return nil, usagef("a version and a label are given: give one")
	case version != "":
		return []string{string(n.kind), id, "versions", version}, nil
	case label != "":
		raw, err := c.Get(ctx, string(n.kind), id, "labels", label)
		if err != nil {
			return nil, err
		}
		var r struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, err
		}
		return []string{string(n.kind), id, "versions", r.Name}, nil
	}
	return []string{string(n.kind), id}, nil
}

// assetShow shows a version: without one, the latest.
func (a *app) assetShow(n assetNoun) *cobra.Command {
	return versionFlags(a.verb(verb{
		use: "show [NAME]", short: "Show a version; without one, the latest",
		example: "  trainyard " + n.word + " show --name " + n.sample + " --version 1\n  trainyard " + n.word + " show -n " + n.sample + " --label latest --query version -o tsv",
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
			return a.print(e, n.view())
		},
	}, n.kind))
}

func (a *app) assetList(n assetNoun) *cobra.Command {
	cmd := a.verb(verb{
		use: "list [NAME]", short: "List names, or the versions of one",
		example: "  trainyard " + n.word + " list\n  trainyard " + n.word + " list --name " + n.sample,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path := []string{string(n.kind)}
			if flag(cmd, "name") != "" || len(args) > 0 {
				id, err := name(cmd, args)
				if err != nil {
					return err
				}
				path = append(path, id, "versions")
			}
			items, more, err := collect(ctx, c, cmd, n.kind, viewQuery(cmd), nil, path...)
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, n.view())
		},
	}, n.kind)
	return addListFlags(cmd, true)
}

// assetArchive hides or shows a version, or all versions.
func (a *app) assetArchive(n assetNoun, archive bool) *cobra.Command {
	use, short := "archive", "Hide a version, or all of a name, from lists"
	if !archive {
		use, short = "restore", "Show what was archived in lists again"
	}
	return versionFlags(a.verb(verb{
		use: use + " [NAME]", short: short,
		example: "  trainyard " + n.word + " " + use + " --name " + n.sample + " --version 1",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := n.path(ctx, c, cmd, args)
			if err != nil {
				return err
			}
			_, err = changed(ctx, c, map[string]any{"properties": map[string]any{"isArchived": archive}}, path...)
			if err != nil {
				return err
			}
			a.say("%s is %sd", strings.Join(versionWords(path), ":"), use)
			return nil
		},
	}, n.kind))
}

func versionWords(path []string) []string {
	if len(path) == 4 {
		return []string{path[1], path[3]}
	}
	return path[1:2]
}

// changed reads a resource, applies a merge patch and writes it: for those that the API has no PATCH for.
func changed(ctx context.Context, c *client.Client, patch map[string]any, path ...string) (json.RawMessage, error) {
	raw, err := c.Get(ctx, path...)
	if err != nil {
		return nil, err
	}
	m, err := decode(raw)
	if err != nil {
		return nil, err
	}
	merge(m, patch)
	ans, err := c.Put(ctx, m, path...)
	if err != nil {
		return nil, err
	}
	return ans.Body, nil
}

var assetFields = fields{"description": "properties.description", "tags.*": "properties.tags", "properties.*": "properties.properties",
	"stage": "properties.stage"}

func (a *app) assetUpdate(n assetNoun) *cobra.Command {
	cmd := versionFlags(a.verb(verb{
		use: "update [NAME]", short: "Change a version's description or tags",
		long:    "Changes the description, tags and properties of a version. What it is made of never changes: make a new version for that.",
		example: "  trainyard " + n.word + " update --name " + n.sample + " --version 1 --set tags.stage=gold",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := n.path(ctx, c, cmd, args)
			if err != nil {
				return err
			}
			sets := flagList(cmd, "set")
			if cmd.Flags().Changed("description") {
				sets = append(sets, "description="+flag(cmd, "description"))
			}
			patch, err := assetFields.patch(append(sets, unquoted(tagSets(cmd))...), flagList(cmd, "remove"))
			if err != nil {
				return err
			}
			if len(patch) == 0 {
				return usagef("nothing to change: give --description, --tags or --set")
			}
			if len(path) == 2 {
				return usagef("say which version of %s: --version VERSION, or --label latest", path[1])
			}
			raw, err := changed(ctx, c, patch, path...)
			if err != nil {
				return err
			}
			e, err := shown(n.kind, raw)
			if err != nil {
				return err
			}
			return a.print(e, n.view())
		},
	}, n.kind))
	cmd.Flags().StringP("description", "d", "", "what it is")
	cmd.Flags().StringArray("tags", nil, "`key=value` pairs")
	return addUpdateFlags(cmd)
}

func (a *app) assetDelete(n assetNoun) *cobra.Command {
	return addYes(versionFlags(a.verb(verb{
		use: "delete [NAME]", short: "Delete a version, or all of a name",
		example: "  trainyard " + n.word + " delete --name " + n.sample + " --version 1 --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			path, err := n.path(ctx, c, cmd, args)
			if err != nil {
				return err
			}
			what := n.word + " " + strings.Join(versionWords(path), ":")
			if len(path) == 2 {
				what = "all versions of " + what
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete %s", what); err != nil {
				return err
			}
			if _, err := c.Get(ctx, path...); err != nil {
				return err
			}
			if _, err := c.Delete(ctx, url.Values{}, path...); err != nil {
				return err
			}
			a.say("%s deleted", what)
			return nil
		},
	}, n.kind)))
}
