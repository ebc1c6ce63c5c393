package main

import (
	"context"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// completeWithin bounds what a press of the Tab key may take: an answer later than that is worth less than none.
const completeWithin = 500 * time.Millisecond

// completeNames are the names of a kind that the server has now; none if it does not say in time.
func (a *app) completeNames(cmd *cobra.Command, kind trainyard.Kind) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return nil, directive
	}
	path := []string{string(kind)}
	if kind == trainyard.KindOnlineDeployment {
		return a.completeDeployments(cmd, flag(cmd, "endpoint-name"))
	}
	if kind == trainyard.KindWorkspace {
		return workspaceNames(ctx, c), directive
	}
	var names []string
	for raw, err := range c.List(ctx, url.Values{"$top": {"100"}}, path...) {
		if err != nil || len(names) == 500 {
			break
		}
		m, err := decode(raw)
		if err != nil {
			break
		}
		e := entity(kind, m)
		entry := text(e, "name")
		if hint := cobraHint(kind, e); hint != "" {
			entry += "\t" + hint
		}
		names = append(names, entry)
	}
	return names, directive
}

// cobraHint is what shells show beside a name.
func cobraHint(kind trainyard.Kind, e map[string]any) string {
	switch kind {
	case trainyard.KindJob:
		return text(e, "status") + " " + text(e, "display_name")
	case trainyard.KindCompute:
		return text(e, "type")
	}
	return ""
}

// choices completes a flag whose words are always the same.
func choices(cmd *cobra.Command, flag string, words ...string) {
	completes(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeSizes are the VM sizes that there are at a command's location.
func (a *app) completeSizes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.listed(cmd, func(ctx context.Context, c *client.Client) (string, error) {
		location, err := a.location(ctx, c, cmd)
		return c.ProviderPath("locations", location, "vmSizes"), err
	}, func(size map[string]any) string {
		hint := plain(size["vCPUs"]) + " vCPUs, " + plain(size["memoryGB"]) + " GiB"
		if gpus := plain(size["gpus"]); gpus != "" && gpus != "0" {
			hint += ", " + gpus + " GPUs"
		}
		return hint
	})
}

// completeLocations are the server's locations.
func (a *app) completeLocations(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.listed(cmd, func(_ context.Context, c *client.Client) (string, error) { return c.ProviderPath("locations"), nil },
		func(location map[string]any) string { return text(location, "properties", "driver") })
}

// listed are the names, with hints, of what the server lists at a path; none if it does not say in time.
func (a *app) listed(cmd *cobra.Command, path func(context.Context, *client.Client) (string, error), hint func(map[string]any) string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return nil, directive
	}
	at, err := path(ctx, c)
	if err != nil {
		return nil, directive
	}
	var names []string
	for raw, err := range c.ListAt(ctx, at, nil) {
		if err != nil {
			break
		}
		if m, err := decode(raw); err == nil {
			names = append(names, text(m, "name")+"\t"+hint(m))
		}
	}
	return names, directive
}

// completes says what completes a flag that the command has.
func completes(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, f) // fails only for a flag that is not there
}

func workspaceNames(ctx context.Context, c *client.Client) []string {
	var names []string
	for raw, err := range c.ListAt(ctx, c.GroupPath("workspaces"), nil) {
		if err != nil {
			break
		}
		if m, err := decode(raw); err == nil {
			names = append(names, text(m, "name"))
		}
	}
	return names
}

// completeGlobal completes the flags that all commands have.
func completeGlobal(a *app, flag string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch flag {
		case "output":
			return formats, cobra.ShellCompDirectiveNoFileComp
		case "workspace-name":
			return a.completeNames(cmd, trainyard.KindWorkspace)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}
