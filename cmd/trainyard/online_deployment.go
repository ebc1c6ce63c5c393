package main

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newOnlineDeploymentCommand(a *app) *cobra.Command {
	return a.noun("online-deployment", "Online deployments: models that serve under an endpoint", "",
		a.deploymentCreate(), a.deploymentUpdate(), a.deploymentShow(), a.deploymentList(), a.deploymentLogs(), a.deploymentDelete())
}

// addEndpointName is the flag by which a deployment's endpoint is named.
func (a *app) addEndpointName(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringP("endpoint-name", "e", "", "`ENDPOINT` of the deployment")
	_ = cmd.RegisterFlagCompletionFunc("endpoint-name", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeNames(cmd, trainyard.KindOnlineEndpoint)
	}) // fails only for a flag that is not there
	return addLocalFlag(cmd)
}

// completeDeployments are the names of an endpoint's deployments; none if the server does not say in time.
func (a *app) completeDeployments(cmd *cobra.Command, endpoint string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if endpoint == "" {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return nil, directive
	}
	list, err := deploymentsOf(ctx, c, endpoint)
	if err != nil {
		return nil, directive
	}
	var names []string
	for _, it := range list {
		e := asMap(it)
		names = append(names, text(e, "name")+"\t"+text(e, "provisioning_state"))
	}
	return names, directive
}

// deploymentNames are the names of the deployment and its endpoint, as flags or arguments give them.
func deploymentNames(cmd *cobra.Command, args []string) (endpoint, deployment string, err error) {
	if deployment, err = name(cmd, args); err != nil {
		return "", "", err
	}
	if endpoint = flag(cmd, "endpoint-name"); endpoint == "" {
		return "", "", usagef("the endpoint is missing: %s --name %s --endpoint-name ENDPOINT", cmd.CommandPath(), deployment)
	}
	return endpoint, deployment, nil
}

// deploymentOf reads a deployment; --local takes none but one on this computer.
func deploymentOf(ctx context.Context, c *client.Client, cmd *cobra.Command, endpoint, deployment string) (map[string]any, error) {
	raw, err := c.Get(ctx, endpointsPath, endpoint, "deployments", deployment)
	if err != nil {
		return nil, err
	}
	e, err := shown(trainyard.KindOnlineDeployment, raw)
	if err == nil && flagBool(cmd, "local") && text(e, "type") != "local" {
		return nil, trainyard.NotFound("online endpoint %s has no local deployment %q; there is one that is not local: leave --local out", endpoint, deployment)
	}
	return e, err
}

func (a *app) deploymentShow() *cobra.Command {
	return a.addEndpointName(a.verb(verb{
		use: "show [NAME]", short: "Show an online deployment: its state, why, and its replicas",
		example: "  trainyard online-deployment show --name blue --endpoint-name iris\n  trainyard online-deployment show -n blue -e iris --query provisioning_state -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			endpoint, n, err := deploymentNames(cmd, args)
			if err != nil {
				return err
			}
			e, err := deploymentOf(ctx, c, cmd, endpoint, n)
			if err != nil {
				return err
			}
			return a.print(e, a.deploymentView())
		},
	}, trainyard.KindOnlineDeployment))
}

func (a *app) deploymentList() *cobra.Command {
	cmd := a.verb(verb{
		use: "list", short: "List the deployments of an online endpoint", noName: true,
		example: "  trainyard online-deployment list --endpoint-name iris",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			endpoint := flag(cmd, "endpoint-name")
			if endpoint == "" {
				return usagef("the endpoint is missing: %s --endpoint-name ENDPOINT", cmd.CommandPath())
			}
			var keep func(map[string]any) bool
			if flagBool(cmd, "local") {
				keep = func(e map[string]any) bool { return text(e, "type") == "local" }
			}
			items, more, err := collect(ctx, c, cmd, trainyard.KindOnlineDeployment, url.Values{}, keep, endpointsPath, endpoint, "deployments")
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, a.deploymentView())
		},
	}, trainyard.KindOnlineDeployment)
	return addListFlags(a.addEndpointName(cmd), false)
}

// defaultLogLines is how many lines of a replica's log are shown where nothing is said, as in az.
const defaultLogLines = 50

func (a *app) deploymentLogs() *cobra.Command {
	cmd := a.verb(verb{
		use: "get-logs [NAME]", short: "Print the end of a deployment's logs",
		example: "  trainyard online-deployment get-logs --name blue --endpoint-name iris --lines 100",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			endpoint, n, err := deploymentNames(cmd, args)
			if err != nil {
				return err
			}
			if flagBool(cmd, "local") {
				if _, err := deploymentOf(ctx, c, cmd, endpoint, n); err != nil {
					return err
				}
			}
			lines, err := strconv.Atoi(flag(cmd, "lines"))
			if err != nil || lines < 1 {
				return usagef("--lines is %q, want a number of at least 1", flag(cmd, "lines"))
			}
			container := strings.ReplaceAll(strings.ReplaceAll(flag(cmd, "container"), "-", ""), "_", "")
			log, err := deploymentLog(ctx, c, endpoint, n, lines, container)
			if err != nil {
				return err
			}
			if log == "" {
				a.say("%s has printed nothing yet", n)
			} else if !strings.HasSuffix(log, "\n") {
				log += "\n"
			}
			_, err = io.WriteString(a.out, log)
			return err
		},
	}, trainyard.KindOnlineDeployment)
	cmd.Flags().IntP("lines", "l", defaultLogLines, "this many of the last lines")
	cmd.Flags().StringP("container", "c", "", "inference-server or storage-initializer (default: the one that serves)")
	return a.addEndpointName(cmd)
}

// deploymentLog is the end of what a deployment's replicas said.
func deploymentLog(ctx context.Context, c *client.Client, endpoint, deployment string, lines int, container string) (string, error) {
	body := map[string]any{"tail": lines}
	if container != "" {
		body["containerType"] = container
	}
	ans, err := c.Post(ctx, body, endpointsPath, endpoint, "deployments", deployment, "getLogs")
	if err != nil {
		return "", err
	}
	var logs struct {
		Content string `json:"content"`
	}
	err = json.Unmarshal(ans.Body, &logs)
	return logs.Content, err
}

func (a *app) deploymentDelete() *cobra.Command {
	cmd := a.verb(verb{
		use: "delete [NAME]", short: "Delete an online deployment; one that has traffic is refused",
		example: "  trainyard online-deployment delete --name blue --endpoint-name iris --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			endpoint, n, err := deploymentNames(cmd, args)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete deployment %s of online endpoint %s", n, endpoint); err != nil {
				return err
			}
			if _, err := deploymentOf(ctx, c, cmd, endpoint, n); err != nil {
				return err
			}
			ans, err := c.Delete(ctx, url.Values{}, endpointsPath, endpoint, "deployments", n)
			if err != nil {
				return err
			}
			if err := a.wait(ctx, c, cmd, ans, "deleting "+n+": its replicas finish what they are at"); err != nil {
				return err
			}
			a.say("%s is deleted", n)
			return nil
		},
	}, trainyard.KindOnlineDeployment)
	return addWaitFlags(addYes(a.addEndpointName(cmd)))
}
