package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newComponentCommand(a *app) *cobra.Command {
	n := assetNoun{kind: trainyard.KindComponent, word: "component", sample: "prepare", view: a.componentView}
	return a.noun("component", "Components: commands with named inputs and outputs, which batch deployments run", "",
		a.componentCreate(), a.assetShow(n), a.assetList(n), a.assetUpdate(n), a.assetDelete(n), a.assetArchive(n, true), a.assetArchive(n, false))
}

func (a *app) componentCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Register a version of a component: its code is uploaded, once a content",
		example: "  trainyard component create --file prepare.yml\n  trainyard component create -f prepare.yml --version 2",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createComponent(ctx, c, cmd, args)
		},
	}, trainyard.KindComponent)
	cmd.Flags().StringP("version", "v", "", "`VERSION` of it (default: the file's, or the next)")
	cmd.Flags().Bool("skip-validation", false, "for az's sake")
	return addFileFlags(cmd, "component")
}

func (a *app) createComponent(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	doc, err := document(cmd, args, "component", textSets(cmd, map[string]string{"version": "version"}))
	if err != nil {
		return err
	}
	comp, err := doc.Component(c.Scope())
	if err != nil {
		return err
	}
	a.warn(comp.Warnings)
	if comp.Version == "" {
		if comp.Version, err = c.NextVersion(ctx, comp.Kind, comp.Name); err != nil {
			return err
		}
	}
	if err := a.upload(ctx, c, comp.Uploads); err != nil {
		return err
	}
	for _, env := range comp.Environments {
		if _, err := c.Put(ctx, map[string]any{"properties": env.Properties}, string(env.Kind), env.Name, "versions", env.Version); err != nil {
			return err
		}
	}
	ans, err := c.Put(ctx, map[string]any{"properties": comp.Properties}, string(comp.Kind), comp.Name, "versions", comp.Version)
	if err != nil {
		return err
	}
	return a.printOne(comp.Kind, ans.Body, a.componentView())
}

func (a *app) componentView() view {
	return view{
		table: func(items []any) *table {
			t := &table{heads: []string{"Name", "Version", "Latest", "Type", "Title", "Created"}, spare: []int{4}}
			for _, it := range items {
				e := asMap(it)
				t.add(text(e, "name"), text(e, "version"), text(e, "latest_version"), text(e, "type"), text(e, "display_name"), ago(a.now(), created(e)))
			}
			return t
		},
		detail: func(e map[string]any) {
			fmt.Fprintf(a.out, "component %s\n", a.paint(bold, clean(assetTitle(e))))
			a.pairs(a.out, [][2]string{
				{"title", text(e, "display_name")}, {"type", text(e, "type")}, {"inputs", strings.Join(sortedKeys(asMap(e["inputs"])), ", ")}, {"outputs", strings.Join(sortedKeys(asMap(e["outputs"])), ", ")},
				{"steps", strings.Join(sortedKeys(asMap(e["jobs"])), ", ")}, {"command", text(e, "command")}, {"environment", reference(text(e, "environment"))},
				{"description", text(e, "description")}, {"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)},
			})
		},
	}
}
