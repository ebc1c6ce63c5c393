package main

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/spec"
)

func (a *app) deploymentUpdate() *cobra.Command {
	cmd := a.verb(verb{
		use: "update [NAME]", short: "Change an online deployment; the old replicas serve until the new ones do",
		example: `  trainyard online-deployment update --name blue --endpoint-name iris --instance-count 3
  trainyard online-deployment update -n blue -e iris --set model=azureml:iris:2
  trainyard online-deployment update --file blue.yml`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			if flag(cmd, "file") == "" {
				return a.updateDeployment(ctx, c, cmd, args)
			}
			doc, err := document(cmd, args, "online-deployment", deploymentSets(cmd))
			if err != nil {
				return err
			}
			return a.deploy(ctx, c, cmd, doc)
		},
	}, trainyard.KindOnlineDeployment)
	cmd.Flags().StringArray("remove", nil, "remove a field: `a.b`; may be repeated")
	cmd.Flags().Bool("skip-script-validation", false, "for az's sake")
	return a.addDeploymentFlags(addFileFlags(cmd, "deployment"))
}

// removable are the fields of a deployment that --remove takes away.
var removable = fields{"description": "properties.description", "tags.*": "tags", "properties.*": "properties.properties",
	"environment_variables.*": "properties.environmentVariables", "scale_settings": "properties.scaleSettings", "data_collector": "properties.dataCollector",
	"request_settings": "properties.requestSettings", "liveness_probe": "properties.livenessProbe", "readiness_probe": "properties.readinessProbe",
	"startup_probe": "properties.startupProbe", "environment": "properties.environmentId", "model_mount_path": "properties.modelMountPath"}

// updateDeployment changes the fields that --set and the flags name: they are read as a deployment's file, so that paths are uploaded.
func (a *app) updateDeployment(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	endpoint, n, err := deploymentNames(cmd, args)
	if err != nil {
		return err
	}
	old, err := deploymentOf(ctx, c, cmd, endpoint, n)
	if err != nil {
		return err
	}
	sets := append(flagList(cmd, "set"), deploymentSets(cmd)...)
	patch, err := removable.patch(nil, flagList(cmd, "remove"))
	if err != nil {
		return err
	}
	touched := func(field string) bool {
		for _, s := range sets {
			if rest, ok := strings.CutPrefix(s, field); ok && rest != "" && strings.ContainsRune(".=[", rune(rest[0])) {
				return true
			}
		}
		return false
	}
	if len(sets) == len(textSets(cmd, map[string]string{"endpoint-name": "endpoint_name"})) && len(patch) == 0 {
		return usagef("nothing to change: give --instance-count, --set, --remove, --tags or --file")
	}
	if touched("code_configuration") { // the other half of it stays
		code := asMap(old["code_configuration"])
		for field, value := range map[string]string{"code_configuration.code": text(code, "code"), "code_configuration.scoring_script": text(code, "scoring_script")} {
			if value != "" && !touched(field) {
				sets = append([]string{field + "=" + strconv.Quote(value)}, sets...)
			}
		}
	}
	doc, err := spec.Load("", spec.Options{Noun: "online-deployment", Set: append(sets, "name="+strconv.Quote(n))})
	if err != nil {
		return err
	}
	dep, err := doc.OnlineDeployment(c.Scope())
	if err != nil {
		return err
	}
	a.warn(dep.Warnings)
	if err := a.bring(ctx, c, dep); err != nil {
		return err
	}
	if err := patchOf(dep, patch, touched); err != nil {
		return err
	}
	if patch["tags"] != nil { // the API replaces tags as a whole
		tags := asMap(old["tags"])
		if tags == nil {
			tags = map[string]any{}
		}
		merge(tags, asMap(patch["tags"]))
		patch["tags"] = tags
	}
	ans, err := c.Patch(ctx, patch, endpointsPath, endpoint, "deployments", n)
	if err != nil {
		return err
	}
	return a.deployed(ctx, c, cmd, ans, endpoint, n)
}

// patchOf adds to patch what a document made of --set alone says.
func patchOf(dep *spec.OnlineDeployment, patch map[string]any, touched func(string) bool) error {
	data, err := json.Marshal(dep.Spec)
	if err != nil {
		return err
	}
	props, err := decode(data)
	if err != nil {
		return err
	}
	for member, field := range map[string]string{"endpointComputeType": "type", "appInsightsEnabled": "app_insights_enabled"} { // there in any case
		if !touched(field) {
			delete(props, member)
		}
	}
	for k, v := range props {
		if v == nil {
			delete(props, k)
		}
	}
	if s := asMap(props["scaleSettings"]); s != nil && !touched("scale_settings.type") && s["scaleType"] == "Default" {
		delete(s, "scaleType")
	}
	whole := map[string]any{}
	if len(props) > 0 {
		whole["properties"] = props
	}
	if touched("instance_count") {
		whole["sku"] = map[string]any{"capacity": dep.Instances}
	}
	if len(dep.Tags) > 0 {
		tags := map[string]any{}
		for k, v := range dep.Tags {
			tags[k] = v
		}
		whole["tags"] = tags
	}
	for k, v := range whole {
		below := asMap(patch[k])
		if below == nil {
			patch[k] = v
			continue
		}
		merge(below, asMap(v))
	}
	return nil
}
