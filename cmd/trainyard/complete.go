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
