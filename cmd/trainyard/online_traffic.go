package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

var endpointFields = fields{"description": "properties.description", "auth_mode": "properties.authMode", "public_network_access": "properties.publicNetworkAccess",
	"compute": "properties.compute", "tags.*": "tags", "properties.*": "properties.properties", "traffic.*": "properties.traffic",
	"mirror_traffic.*": "properties.mirrorTraffic", "traffic": "properties.traffic", "mirror_traffic": "properties.mirrorTraffic"}

func (a *app) endpointUpdate() *cobra.Command {
	cmd := a.verb(verb{
		use: "update [NAME]", short: "Change an online endpoint's traffic, description or tags",
		long: `Changes an endpoint. --traffic says the whole of the traffic: a deployment that it leaves out gets none.`,
		example: `  trainyard online-endpoint update --name iris --traffic "blue=90 green=10"
  trainyard online-endpoint update --name iris --mirror-traffic "green=20"
  trainyard online-endpoint update --name iris --set tags.stage=live`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.updateEndpoint(ctx, c, cmd, args)
		},
	}, trainyard.KindOnlineEndpoint)
	cmd.Flags().StringArray("remove", nil, "remove a field: `a.b`; may be repeated")
	return addEndpointFlags(addFileFlags(cmd, "endpoint"))
}

func (a *app) updateEndpoint(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	sets, err := trafficSets(cmd)
	if err != nil {
		return err
	}
	sets = append(sets, textSets(cmd, map[string]string{"description": "description"})...)
	if flag(cmd, "file") != "" { // what the file says, whole
		return a.writeEndpoint(ctx, c, cmd, args, sets, false)
	}
	n, err := name(cmd, args)
	if err != nil {
		return err
	}
	if flagBool(cmd, "local") {
		if err := isLocal(ctx, c, n); err != nil {
			return err
		}
	}
	patch, err := endpointFields.patch(append(flagList(cmd, "set"), unquoted(append(textSets(cmd, map[string]string{"description": "description"}), tagSets(cmd)...))...), flagList(cmd, "remove"))
	if err != nil {
		return err
	}
	whole := map[string]any{}
	for name, member := range map[string]string{"traffic": "traffic", "mirror-traffic": "mirrorTraffic"} {
		if cmd.Flags().Changed(name) {
			parts, err := percents(flagList(cmd, name), name)
			if err != nil {
				return err
			}
			m := map[string]any{}
			if err := json.Unmarshal([]byte("{"+strings.Join(parts, ",")+"}"), &m); err != nil {
				return usagef("--%s: want DEPLOYMENT=PERCENT with whole numbers, such as blue=90", name)
			}
			whole[member] = m
		}
	}
	if len(patch) == 0 && len(whole) == 0 {
		return usagef("nothing to change: give --traffic, --mirror-traffic, --description, --tags, --set or --file")
	}
	if err := a.changeEndpoint(ctx, c, cmd, n, patch, whole); err != nil {
		return err
	}
	return a.showEndpoint(ctx, c, n)
}

// writeEndpoint writes an endpoint as a file and flags have it. One that is there keeps its traffic if they say nothing of that.
func (a *app) writeEndpoint(ctx context.Context, c *client.Client, cmd *cobra.Command, args, sets []string, create bool) error {
	doc, err := document(cmd, args, "online-endpoint", append(sets, tagSets(cmd)...))
	if err != nil {
		return err
	}
	e, err := doc.OnlineEndpoint(c.Scope())
	if err != nil {
		return err
	}
	old, err := onlineEndpointOf(ctx, c, e.Name)
	switch {
	case err != nil && !(create && trainyard.IsNotFound(err)):
		return err
	case err == nil && flagBool(cmd, "local") && !local(old):
		return trainyard.Conflict("there is an online endpoint %q that is not local: leave --local out, or choose another name", e.Name)
	case err == nil:
		if percents := trafficText(old["traffic"]); e.Spec.Traffic == nil && percents != "" {
			a.say("%s keeps its traffic: %s", e.Name, percents)
		}
		if percents := trafficText(old["mirror_traffic"]); e.Spec.Traffic == nil && e.Spec.MirrorTraffic == nil && percents != "" {
			a.say("%s keeps its mirrored traffic: %s", e.Name, percents)
		}
	}
	doing := "changing "
	if create {
		doing = "creating "
	}
	return a.putEndpoint(ctx, c, cmd, e, doing)
}

// changeEndpoint reads an endpoint, applies a merge patch and, on top, members of its properties as a whole, writes it, and waits.
func (a *app) changeEndpoint(ctx context.Context, c *client.Client, cmd *cobra.Command, name string, patch, whole map[string]any) error {
	raw, err := c.Get(ctx, endpointsPath, name)
	if err != nil {
		return err
	}
	m, err := decode(raw)
	if err != nil {
		return err
	}
	props := asMap(m["properties"])
	for _, member := range []string{"traffic", "mirrorTraffic"} {
		change, changed := asMap(patch["properties"])[member]
		switch {
		case !changed: // it is left to the server, which may have heard of another's change
			delete(props, member)
		case change == nil:
			whole[member] = map[string]any{}
		}
	}
	merge(m, patch)
	for k, v := range whole {
		props[k] = v
	}
	ans, err := c.Put(ctx, m, endpointsPath, name)
	if err != nil {
		return err
	}
	return a.wait(ctx, c, cmd, ans, "changing "+name)
}
