package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newLocationCommand(a *app) *cobra.Command {
	return a.noun("location", "Where machines come from: what each place has, and what it may have", "",
		a.locationList(), a.locationShow())
}

func (a *app) locationList() *cobra.Command {
	return a.verb(verb{
		use: "list", short: "List the server's locations", noName: true,
		example: "  trainyard location list\n  trainyard location list --query \"[].name\" -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			items, err := rawList(c.ListAt(ctx, c.ProviderPath("locations"), nil))
			if err != nil {
				return err
			}
			return a.print(items, a.locationView())
		},
	}, trainyard.KindCompute)
}

func (a *app) locationShow() *cobra.Command {
	cmd := a.verb(verb{
		use: "show [NAME]", short: "Show a location, or the one that an Azure region means here",
		example: "  trainyard location show --name local\n  trainyard location show westeurope",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			ans, err := c.Do(ctx, client.Request{Path: c.ProviderPath("locations", n)})
			if err != nil {
				return err
			}
			m, err := decode(ans.Body)
			if err != nil {
				return err
			}
			l := asMap(snakeAll(m))
			if is := text(l, "name"); !strings.EqualFold(is, n) && !slices.ContainsFunc(texts(l["regions"]), func(r string) bool { return strings.EqualFold(r, n) }) {
				a.note("%s is not a location here, nor a region of one: it means %s", n, is)
			}
			return a.print(l, a.locationView())
		},
	}, trainyard.KindCompute)
	cmd.ValidArgsFunction = a.completeLocations // not with names of computes
	return cmd
}

func (a *app) locationView() view {
	return view{table: func(items []any) *table {
		t := &table{heads: []string{"Name", "Driver", "Nodes", "vCPUs", "GPUs", "Sizes", "Regions", "Default", "Away"}, right: []bool{2: true, 3: true, 4: true, 5: true}}
		for _, it := range items {
			e := asMap(it)
			first := ""
			if yes, _ := e["default"].(bool); yes {
				first = "yes"
			}
			t.add(text(e, "name"), text(e, "driver"), share(e, "nodes"), share(e, "vcpus"), share(e, "gpus"), plain(e["size_count"]), strings.Join(texts(e["regions"]), ", "), first, text(e, "away"))
		}
		return t
	}, detail: func(e map[string]any) {
		a.pairs(a.out, [][2]string{
			{"location", text(e, "name")}, {"driver", text(e, "driver")}, {"nodes", share(e, "nodes")}, {"vCPUs", share(e, "vcpus")}, {"GPUs", share(e, "gpus")},
			{"sizes", plain(e["size_count"]) + ": trainyard compute list-sizes --location " + text(e, "name")},
			{"regions", strings.Join(texts(e["regions"]), ", ")}, {"approved", strings.Join(texts(e["approved"]), ", ")}, {"away", text(e, "away")},
		})
	}}
}

// share is "2 of 4", or "2" where there is no limit.
func share(e map[string]any, what string) string {
	used, limit := plain(asMap(e["used"])[what]), plain(asMap(e["capacity"])[what])
	if used == "" {
		used = "0"
	}
	if limit == "" || limit == "0" {
		return used
	}
	return used + " of " + limit
}

// texts is a list of strings out of JSON.
func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, it := range list {
		out = append(out, plain(it))
	}
	return out
}
