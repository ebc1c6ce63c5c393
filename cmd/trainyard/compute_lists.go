package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func (a *app) computeNodes() *cobra.Command {
	return a.verb(verb{
		use: "list-nodes [NAME]", short: "List the nodes of a compute and what runs on them",
		example: "  trainyard compute list-nodes --name cpu-cluster",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			items, err := rawList(c.Nodes(ctx, n))
			if err != nil {
				return err
			}
			return a.print(items, view{table: a.nodeTable})
		},
	}, trainyard.KindCompute)
}

func (a *app) nodeTable(items []any) *table {
	t := &table{heads: []string{"Node", "State", "Since", "Jobs", "Size", "Address", "Engines", "Why", "Notes"}, spare: []int{8, 5, 4, 6, 7}, tint: func(col int, cell string) string {
		if col == 1 {
			return stateColor(cell)
		}
		return ""
	}}
	for _, it := range items {
		e := asMap(it)
		jobs, _ := e["jobs"].([]any)
		names := make([]string, len(jobs))
		for i, j := range jobs {
			names[i] = plain(j)
		}
		t.add(text(e, "node_id"), cmp.Or(text(e, "state"), text(e, "node_state")), ago(a.now(), parseTime(asMap(e["reason"])["since"])),
			strings.Join(names, ", "), text(e, "vm_size"), text(e, "private_ip_address"), strings.Join(texts(e["engines"]), ", "), text(e, "reason", "message"),
			strings.ReplaceAll(linesOf(e["notes"]), "\n", "; "))
	}
	return t
}

func (a *app) computeSizes() *cobra.Command {
	cmd := a.verb(verb{
		use: "list-sizes", short: "List the VM sizes that computes can have", noName: true,
		example: "  trainyard compute list-sizes\n  trainyard compute list-sizes --type amlcompute --query \"[?gpus > `0`].name\" -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			location, err := a.location(ctx, c, cmd)
			if err != nil {
				return err
			}
			items, err := rawList(c.ListAt(ctx, c.ProviderPath("locations", location, "vmSizes"), nil))
			if err != nil {
				return err
			}
			if kind := flag(cmd, "type"); kind != "" {
				items = slices.DeleteFunc(items, func(it any) bool { return !supports(asMap(it), kind) })
			}
			return a.print(items, view{table: sizeTable})
		},
	}, trainyard.KindCompute)
	cmd.Flags().StringP("type", "t", "", "only sizes for computes of this type: amlcompute, computeinstance")
	choices(cmd, "type", "amlcompute", "computeinstance")
	a.addLocation(cmd)
	return cmd
}

func supports(size map[string]any, kind string) bool {
	types, _ := size["supported_compute_types"].([]any)
	return slices.ContainsFunc(types, func(t any) bool { return strings.EqualFold(plain(t), kind) })
}

func sizeTable(items []any) *table {
	t := &table{heads: []string{"Size", "vCPUs", "Memory GiB", "GPUs", "GPU", "Series", "$/h", "Low priority $/h", "Needs approval"}, spare: []int{7, 8, 5},
		right: []bool{1: true, 2: true, 3: true, 6: true, 7: true}}
	for _, it := range items {
		e := asMap(it)
		gpus := plain(e["gpus"])
		if gpus == "0" {
			gpus = ""
		}
		approval := ""
		if yes, _ := e["needs_approval"].(bool); yes {
			approval = "yes"
			if has, _ := e["approved"].(bool); has {
				approval = "approved"
			}
		}
		t.add(text(e, "name"), plain(e["v_cp_us"]), plain(e["memory_gb"]), gpus, text(e, "gpu"), text(e, "series"), price(e, "Standard"), price(e, "LowPriority"), approval)
	}
	return t
}

func price(size map[string]any, tier string) string {
	values, _ := asMap(size["estimated_vm_prices"])["values"].([]any)
	for _, v := range values {
		if p, ok := asMap(v)["retail_price"].(float64); ok && text(asMap(v), "vm_tier") == tier {
			return strconv.FormatFloat(p, 'f', 3, 64)
		}
	}
	return ""
}

func (a *app) computeUsage() *cobra.Command {
	cmd := a.verb(verb{
		use: "list-usage", short: "List how much of what may be used is in use", noName: true,
		example: "  trainyard compute list-usage",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			location, err := a.location(ctx, c, cmd)
			if err != nil {
				return err
			}
			items, err := rawList(c.ListAt(ctx, c.ProviderPath("locations", location, "usages"), nil))
			if err != nil {
				return err
			}
			return a.print(items, view{table: usageTable})
		},
	}, trainyard.KindCompute)
	a.addLocation(cmd)
	return cmd
}

func usageTable(items []any) *table {
	t := &table{heads: []string{"What", "In use", "Limit", "Unit"}, right: []bool{1: true, 2: true}}
	for _, it := range items {
		e := asMap(it)
		limit := plain(e["limit"])
		if limit == "-1" {
			limit = "none"
		}
		t.add(cmp.Or(text(e, "name", "localized_value"), text(e, "name", "value")), plain(e["current_value"]), limit, text(e, "unit"))
	}
	return t
}

func (a *app) addLocation(cmd *cobra.Command) {
	cmd.Flags().StringP("location", "l", "", "location (default: the workspace's)")
	completes(cmd, "location", a.completeLocations)
}

func (a *app) location(ctx context.Context, c *client.Client, cmd *cobra.Command) (string, error) {
	if l := flag(cmd, "location"); l != "" {
		return l, nil
	}
	return c.Location(ctx)
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
