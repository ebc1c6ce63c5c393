package main

import (
	"cmp"
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/spec"
)

// anonymousModel is where models are registered that a deployment brings along without a name. They are archived, so that lists do not
// show them.
const anonymousModel = "CliV2AnonymousModel"

func (a *app) deploymentCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Deploy a model under an online endpoint",
		long: `Deploys the model of a YAML file: uploads its code and its model, each once a content, and waits until it serves, saying what it does.
With --local it is a process on this computer. A deployment gets no traffic before --all-traffic, or online-endpoint update, gives it some.`,
		example: `  trainyard online-deployment create --file blue.yml --all-traffic
  trainyard online-deployment create -f blue.yml --endpoint-name iris --local
  trainyard online-deployment create -n green -e iris -f blue.yml --set model=azureml:iris:2 instance_count=3`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			doc, err := document(cmd, args, "online-deployment", deploymentSets(cmd))
			if err != nil {
				return err
			}
			return a.deploy(ctx, c, cmd, doc)
		},
	}, trainyard.KindOnlineDeployment)
	cmd.ValidArgsFunction = nil // a new deployment's name cannot be completed
	f := cmd.Flags()
	f.Bool("skip-script-validation", false, "for az's sake")
	f.Bool("package-model", false, "for az's sake")
	f.Bool("with-package", false, "for az's sake")
	return a.addDeploymentFlags(addFileFlags(cmd, "deployment"))
}

func (a *app) addDeploymentFlags(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.Bool("all-traffic", false, "give it all of the endpoint's traffic once it serves")
	f.Int("instance-count", 1, "replicas")
	f.StringArray("tags", nil, "`key=value` pairs")
	return addWaitFlags(a.addEndpointName(cmd))
}

func deploymentSets(cmd *cobra.Command) []string {
	sets := textSets(cmd, map[string]string{"endpoint-name": "endpoint_name"})
	if cmd.Flags().Changed("instance-count") {
		sets = append(sets, "instance_count="+flag(cmd, "instance-count"))
	}
	if flagBool(cmd, "local") {
		sets = append(sets, "type=local")
	}
	return append(sets, tagSets(cmd)...)
}

// deploy sends a deployment with all that it needs, waits until it serves, and gives it traffic if that is wanted.
func (a *app) deploy(ctx context.Context, c *client.Client, cmd *cobra.Command, doc *spec.Document) error {
	dep, err := doc.OnlineDeployment(c.Scope())
	if err != nil {
		return err
	}
	switch {
	case dep.Name == "":
		return usagef("the deployment has no name: give --name NAME, or name: in its file")
	case dep.Endpoint == "":
		return usagef("the deployment has no endpoint: give --endpoint-name ENDPOINT, or endpoint_name: in its file")
	}
	a.warn(dep.Warnings)
	e, err := onlineEndpointOf(ctx, c, dep.Endpoint)
	if err != nil {
		return err
	}
	if err := placed(ctx, c, dep, e); err != nil {
		return err
	}
	if err := a.bring(ctx, c, dep); err != nil {
		return err
	}
	body := map[string]any{"location": cmp.Or(dep.Location, text(e, "location")), "tags": dep.Tags, "properties": dep.Spec,
		"sku": map[string]any{"name": "Default", "capacity": dep.Instances}}
	ans, err := c.Put(ctx, body, endpointsPath, dep.Endpoint, "deployments", dep.Name)
	if err != nil {
		return err
	}
	return a.deployed(ctx, c, cmd, ans, dep.Endpoint, dep.Name)
}

// placed makes a deployment whose file does not say where it runs one of the endpoint's compute.
func placed(ctx context.Context, c *client.Client, dep *spec.OnlineDeployment, e map[string]any) error {
	compute := strings.TrimPrefix(text(e, "compute"), "azureml:")
	if dep.Typed || compute == "" {
		return nil
	}
	if dep.Spec.EndpointComputeType = trainyard.ServeLocal; compute == trainyard.LocalCompute {
		return nil
	}
	raw, err := c.Get(ctx, "computes", compute)
	if err != nil {
		return err
	}
	m, err := decode(raw)
	if err != nil {
		return err
	}
	dep.Spec.EndpointComputeType = trainyard.ServeCompute
	if text(m, "properties", "computeType") == "Kubernetes" {
		dep.Spec.EndpointComputeType = trainyard.ServeKubernetes
	}
	return nil
}

// bring uploads and registers what a deployment brings along.
func (a *app) bring(ctx context.Context, c *client.Client, dep *spec.OnlineDeployment) error {
	if err := a.upload(ctx, c, dep.Uploads); err != nil {
		return err
	}
	assets := dep.Data
	if dep.Environment != nil {
		assets = append(assets, dep.Environment)
	}
	for _, asset := range assets {
		if _, err := c.Put(ctx, map[string]any{"properties": asset.Properties}, string(asset.Kind), asset.Name, "versions", asset.Version); err != nil {
			return err
		}
	}
	if dep.Model == nil {
		return nil
	}
	id, err := a.bringModel(ctx, c, dep.Model)
	if err == nil {
		dep.SetModel(id)
	}
	return err
}

var contentHash = regexp.MustCompile(`/LocalUpload/([0-9a-f]{8,})/`)

// bringModel registers a model written in a deployment and returns its ARM id. The same content under the same name stays the same version.
func (a *app) bringModel(ctx context.Context, c *client.Client, m *spec.Asset) (string, error) {
	if err := a.upload(ctx, c, m.Uploads); err != nil {
		return "", err
	}
	uri, _ := m.Properties["modelUri"].(string)
	if m.Name == "" {
		m.Name, m.Properties["isArchived"] = anonymousModel, true
		if hash := contentHash.FindStringSubmatch(uri); hash != nil {
			m.Version = hash[1][:min(32, len(hash[1]))] + typeMark(m)
		}
	}
	if m.Version == "" {
		if raw, err := c.Latest(ctx, trainyard.KindModel, m.Name); err == nil {
			if e, err := shown(trainyard.KindModel, raw); err == nil && text(e, "path") == uri && text(e, "type") == m.Properties["modelType"] {
				return c.Scope().Child(string(m.Kind), m.Name, "versions", text(e, "version")), nil
			}
		}
		next, err := c.NextVersion(ctx, m.Kind, m.Name)
		if err != nil {
			return "", err
		}
		m.Version = next
	}
	if _, err := c.Put(ctx, map[string]any{"properties": m.Properties}, string(m.Kind), m.Name, "versions", m.Version); err != nil {
		return "", err
	}
	return c.Scope().Child(string(m.Kind), m.Name, "versions", m.Version), nil
}

// typeMark keeps apart the same files registered as models of several types.
func typeMark(m *spec.Asset) string {
	if t, _ := m.Properties["modelType"].(string); t != "custom_model" {
		return "-" + strings.TrimSuffix(t, "_model")
	}
	return ""
}

// deployed waits for a deployment, gives it traffic if --all-traffic says so, and shows it.
func (a *app) deployed(ctx context.Context, c *client.Client, cmd *cobra.Command, ans *client.Answer, endpoint, deployment string) error {
	if !flagBool(cmd, "no-wait") {
		if err := a.waitServing(ctx, c, ans, endpoint, deployment); err != nil {
			return err
		}
	}
	if flagBool(cmd, "all-traffic") {
		if flagBool(cmd, "no-wait") {
			a.warn([]string{"--all-traffic is not carried out with --no-wait: the deployment does not serve yet. Once it does: trainyard online-endpoint update --name " +
				endpoint + " --traffic " + deployment + "=100"})
		} else if err := a.changeEndpoint(ctx, c, cmd, endpoint, nil, map[string]any{"traffic": map[string]int{deployment: 100}}); err != nil {
			return err
		}
	}
	raw, err := c.Get(ctx, endpointsPath, endpoint, "deployments", deployment)
	if err != nil {
		return err
	}
	return a.printOne(trainyard.KindOnlineDeployment, raw, a.deploymentView())
}

// waitServing waits for a deployment and tells what it does. When it fails, the end of its replicas' log comes before the reason.
func (a *app) waitServing(ctx context.Context, c *client.Client, ans *client.Answer, endpoint, deployment string) error {
	start, told := a.now(), ""
	defer a.done()
	err := c.Wait(ctx, ans, func(op client.Operation) {
		if op.Status != "InProgress" {
			return
		}
		raw, err := c.Get(ctx, endpointsPath, endpoint, "deployments", deployment)
		if err != nil {
			return // the operation says what went wrong
		}
		e, err := shown(trainyard.KindOnlineDeployment, raw)
		if err != nil {
			return
		}
		line := text(e, "provisioning_state") + "  " + text(e, "reason", "message")
		if line != told {
			told = line
			state := text(e, "provisioning_state")
			a.note("%s %s", a.paintErr(stateColor(state), state+strings.Repeat(" ", max(0, 10-len(state)))), clean(text(e, "reason", "message")))
		}
		a.status("%s: %s … %s", deployment, readyText(e), long(a.now().Sub(start)))
	})
	a.done()
	switch {
	case err == nil:
		a.say("%s serves under %s, ready after %s", deployment, endpoint, long(a.now().Sub(start)))
		return nil
	case ctx.Err() != nil:
		a.note("\nNo longer watching; the deployment goes on.\n  look again  trainyard online-deployment show --name %s --endpoint-name %s", deployment, endpoint)
		return err
	}
	what := deployment
	if strings.Contains(err.Error(), trainyard.StillServes) {
		what = "the new " + deployment
	}
	a.note("%s", a.paintErr(red, "✗ "+what+" does not serve"))
	if raw, err := c.Get(ctx, endpointsPath, endpoint, "deployments", deployment); err == nil { // what was not taken as written may be why
		if e, err := shown(trainyard.KindOnlineDeployment, raw); err == nil && e["warnings"] != nil {
			a.warn(strings.Split(linesOf(e["warnings"]), "\n"))
		}
	}
	why, log, brought := strings.Cut(err.Error(), "\n") // the reason may bring the log along
	if !brought {
		log, _ = deploymentLog(ctx, c, endpoint, deployment, defaultLogLines, "") // there may be none
	}
	for line := range strings.Lines(log) {
		a.note("  %s", a.paintErr(grey, "| "+clean(strings.TrimRight(line, "\r\n"))))
	}
	return &trainyard.Error{Code: trainyard.CodeOf(err), Message: strings.TrimSuffix(why, "; the end of its log:")}
}

// readyText is "1 of 2 replicas ready".
func readyText(e map[string]any) string {
	ready, wanted := readyCount(e)
	return strconv.Itoa(ready) + " of " + plural(wanted, "replica") + " ready"
}

func readyCount(e map[string]any) (ready, wanted int) {
	list, _ := e["replicas"].([]any)
	for _, it := range list {
		if text(asMap(it), "state") == "Ready" {
			ready++
		}
	}
	n, _ := e["wanted"].(float64)
	return ready, int(n)
}
