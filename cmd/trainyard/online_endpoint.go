package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/spec"
)

const endpointsPath = "onlineEndpoints"

func newOnlineEndpointCommand(a *app) *cobra.Command {
	return a.noun("online-endpoint", "Online endpoints: addresses at which models answer", "",
		a.endpointCreate(), a.endpointShow(), a.endpointList(), a.endpointUpdate(), a.endpointDelete(), a.endpointInvoke(),
		a.endpointCredentials(), a.endpointRegenerate())
}

// addEndpointFlags are the flags that create and update have.
func addEndpointFlags(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.StringArray("traffic", nil, "`deployment=percent` pairs: \"blue=90 green=10\"")
	f.StringArray("mirror-traffic", nil, "`deployment=percent`: this part of the live calls is copied to it")
	f.String("description", "", "what it is")
	f.StringArray("tags", nil, "`key=value` pairs")
	addLocalFlag(cmd)
	return addWaitFlags(cmd)
}

func addLocalFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("local", false, "on this computer, for testing and debugging")
	return cmd
}

// trafficSets are --traffic and --mirror-traffic as --set arguments that replace what is there.
func trafficSets(cmd *cobra.Command) ([]string, error) {
	var sets []string
	for name, field := range map[string]string{"traffic": "traffic", "mirror-traffic": "mirror_traffic"} {
		if f := cmd.Flags().Lookup(name); f == nil || !f.Changed {
			continue
		}
		parts, err := percents(flagList(cmd, name), name)
		if err != nil {
			return nil, err
		}
		sets = append(sets, field+"={"+strings.Join(parts, ", ")+"}")
	}
	return sets, nil
}

// percents reads "blue=90 green=10" into flow-style YAML pairs. An empty text is no traffic at all.
func percents(list []string, name string) ([]string, error) {
	var parts []string
	for _, text := range list {
		for _, pair := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
			deployment, percent, ok := strings.Cut(pair, "=")
			if !ok || deployment == "" || percent == "" {
				return nil, usagef("--%s %q: want DEPLOYMENT=PERCENT, such as blue=90", name, pair)
			}
			parts = append(parts, `"`+deployment+`": `+strings.TrimSuffix(percent, "%"))
		}
	}
	return parts, nil
}

func (a *app) endpointCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Create an online endpoint",
		long: `Creates an endpoint: an address, keys, and how requests are divided among deployments. It answers once it has a deployment.
With --local its deployments run on this computer. One that is there already is written over, and keeps its traffic unless that is given.`,
		example: `  trainyard online-endpoint create --name iris
  trainyard online-endpoint create --name iris --auth-mode aml_token --tags team=flowers
  trainyard online-endpoint create --file endpoint.yml --local`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			sets, err := trafficSets(cmd)
			if err != nil {
				return err
			}
			sets = append(sets, textSets(cmd, map[string]string{"auth-mode": "auth_mode", "description": "description"})...)
			if flagBool(cmd, "local") {
				sets = append(sets, "compute=azureml:"+trainyard.LocalCompute)
			}
			return a.writeEndpoint(ctx, c, cmd, args, sets, true)
		},
	}, trainyard.KindOnlineEndpoint)
	cmd.ValidArgsFunction = nil // a new endpoint's name cannot be completed
	cmd.Flags().String("auth-mode", "", "key, aml_token or aad_token (default: key)")
	return addEndpointFlags(addFileFlags(cmd, "endpoint"))
}

func (a *app) putEndpoint(ctx context.Context, c *client.Client, cmd *cobra.Command, e *spec.OnlineEndpoint, doing string) error {
	a.warn(e.Warnings)
	if e.Location == "" {
		var err error
		if e.Location, err = c.Location(ctx); err != nil {
			return err
		}
	}
	body := map[string]any{"location": e.Location, "tags": e.Tags, "properties": e.Spec}
	if e.Identity != nil {
		body["identity"] = e.Identity
	}
	ans, err := c.Put(ctx, body, endpointsPath, e.Name)
	if err != nil {
		return err
	}
	if err := a.wait(ctx, c, cmd, ans, doing+e.Name); err != nil {
		return err
	}
	return a.showEndpoint(ctx, c, e.Name)
}

func (a *app) endpointShow() *cobra.Command {
	return addLocalFlag(a.verb(verb{
		use: "show [NAME]", short: "Show an online endpoint: its address, its traffic and its deployments",
		example: "  trainyard online-endpoint show --name iris\n  trainyard online-endpoint show -n iris --query scoring_uri -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			if flagBool(cmd, "local") {
				if err := isLocal(ctx, c, n); err != nil {
					return err
				}
			}
			return a.showEndpoint(ctx, c, n)
		},
	}, trainyard.KindOnlineEndpoint))
}

// isLocal refuses an endpoint that is not on this computer.
func isLocal(ctx context.Context, c *client.Client, name string) error {
	e, err := onlineEndpointOf(ctx, c, name)
	if err == nil && !local(e) {
		return trainyard.NotFound("there is no local online endpoint %q; there is one that is not local: leave --local out", name)
	}
	return err
}

func local(e map[string]any) bool { return text(e, "compute") == "azureml:"+trainyard.LocalCompute }

func onlineEndpointOf(ctx context.Context, c *client.Client, name string) (map[string]any, error) {
	raw, err := c.Get(ctx, endpointsPath, name)
	if err != nil {
		return nil, err
	}
	return shown(trainyard.KindOnlineEndpoint, raw)
}

// deploymentsOf lists an endpoint's deployments.
func deploymentsOf(ctx context.Context, c *client.Client, endpoint string) ([]any, error) {
	items := []any{}
	for raw, err := range c.List(ctx, nil, endpointsPath, endpoint, "deployments") {
		if err != nil {
			return nil, err
		}
		e, err := shown(trainyard.KindOnlineDeployment, raw)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return items, nil
}

func (a *app) showEndpoint(ctx context.Context, c *client.Client, name string) error {
	e, err := onlineEndpointOf(ctx, c, name)
	if err != nil {
		return err
	}
	v := a.endpointView()
	v.detail = func(e map[string]any) {
		a.endpointDetail(e)
		if list, err := deploymentsOf(ctx, c, name); err == nil && len(list) > 0 { // the endpoint itself is shown in any case
			a.deploymentTable(list).print(a.console, a.out)
		}
	}
	return a.print(e, v)
}

func (a *app) endpointList() *cobra.Command {
	cmd := addLocalFlag(a.verb(verb{
		use: "list", short: "List online endpoints", noName: true,
		example: "  trainyard online-endpoint list\n  trainyard online-endpoint list --local --query \"[].name\" -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			var keep func(map[string]any) bool
			if flagBool(cmd, "local") {
				keep = local
			}
			items, more, err := collect(ctx, c, cmd, trainyard.KindOnlineEndpoint, url.Values{}, keep, endpointsPath)
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, a.endpointView())
		},
	}, trainyard.KindOnlineEndpoint))
	return addListFlags(cmd, false)
}

func (a *app) endpointDelete() *cobra.Command {
	cmd := a.verb(verb{
		use: "delete [NAME]", short: "Delete an online endpoint and its deployments", example: "  trainyard online-endpoint delete --name iris --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete online endpoint %s and its deployments", n); err != nil {
				return err
			}
			if _, err := c.Get(ctx, endpointsPath, n); err != nil {
				return err
			}
			if flagBool(cmd, "local") {
				if err := isLocal(ctx, c, n); err != nil {
					return err
				}
			}
			ans, err := c.Delete(ctx, url.Values{}, endpointsPath, n)
			if err != nil {
				return err
			}
			if err := a.wait(ctx, c, cmd, ans, "deleting "+n+": its replicas finish what they are at"); err != nil {
				return err
			}
			a.say("%s is deleted", n)
			return nil
		},
	}, trainyard.KindOnlineEndpoint)
	return addLocalFlag(addWaitFlags(addYes(cmd)))
}
