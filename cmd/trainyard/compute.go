package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newComputeCommand(a *app) *cobra.Command {
	cmd := a.noun("compute", "Targets that jobs run on: this computer, clusters, and what is attached", "",
		a.computeCreate(), a.computeShow(), a.computeList(), a.computeUpdate(), a.computeDelete(),
		a.computeAct("start", "started", "Let a stopped compute have nodes again"),
		a.computeAct("stop", "stopped", "Take a compute's idle nodes away and start nothing more on it"),
		a.computeAct("restart", "restarted", "Give a compute fresh nodes"),
		a.computeNodes(), a.computeSizes(), a.computeUsage(),
		a.computeAttach(), a.computeDetach(), a.computeManifest())
	cmd.GroupID = "run"
	return cmd
}

func (a *app) computeCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Create a compute, or change one that is there",
		example: `  trainyard compute create --name cpu-cluster --type amlcompute --size STANDARD_DS3_V2 --min-instances 0 --max-instances 4
  trainyard compute create --file cluster.yml --set max_instances=8`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createCompute(ctx, c, cmd, args)
		},
	}, trainyard.KindCompute)
	addComputeFlags(cmd)
	f := cmd.Flags()
	f.StringP("type", "t", "", "amlcompute")
	f.StringP("size", "s", "", "VM `size` of a node: \"trainyard compute list-sizes\" lists them")
	f.String("tier", "", "dedicated or low_priority")
	f.String("location", "", "where its machines come from")
	choices(cmd, "type", "amlcompute")
	choices(cmd, "tier", "dedicated", "low_priority")
	completes(cmd, "size", a.completeSizes)
	completes(cmd, "location", a.completeLocations)
	for name, help := range computeExtras {
		f.String(name, "", help.help)
	}
	return addWaitFlags(addFileFlags(cmd, "compute"))
}

// addComputeFlags are the flags of create and update.
func addComputeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Int("min-instances", 0, "nodes that are always there")
	f.Int("max-instances", 4, "nodes that there may be at most")
	f.Int("idle-time-before-scale-down", 120, "`seconds` after which an idle node goes")
	f.String("description", "", "what it is for")
	f.StringArray("tags", nil, "`key=value` pairs")
}

// computeExtras are flags that az has and few need, with the fields they stand for.
var computeExtras = map[string]struct{ field, help string }{
	"identity-type":             {"identity.type", "system_assigned or user_assigned"},
	"user-assigned-identities":  {"identity.user_assigned_identities[0].resource_id", "ARM id of an identity"},
	"admin-username":            {"ssh_settings.admin_username", "user for SSH"},
	"admin-password":            {"ssh_settings.admin_password", "password for SSH"},
	"ssh-key-value":             {"ssh_settings.ssh_key_value", "public key for SSH"},
	"ssh-public-access-enabled": {"ssh_public_access_enabled", "true or false"},
	"vnet-name":                 {"network_settings.vnet_name", "virtual network"},
	"subnet":                    {"network_settings.subnet", "subnet"},
}

// computeSets are the flags as --set arguments: they stand above the file.
func computeSets(cmd *cobra.Command) []string {
	var sets []string
	for _, name := range []string{"type", "size", "tier", "location", "description"} {
		if cmd.Flags().Changed(name) {
			sets = append(sets, name+"="+strconv.Quote(flag(cmd, name)))
		}
	}
	for _, name := range []string{"min-instances", "max-instances", "idle-time-before-scale-down"} {
		if cmd.Flags().Changed(name) {
			sets = append(sets, strings.ReplaceAll(name, "-", "_")+"="+flag(cmd, name))
		}
	}
	for _, name := range sortedNames(attachFlags) {
		// --admin-username and --admin-password stand for the same fields in both lists.
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && computeExtras[name].field != attachFlags[name].field {
			sets = append(sets, attachFlags[name].field+"="+strconv.Quote(f.Value.String()))
		}
	}
	for _, name := range sortedNames(computeExtras) {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			value := strconv.Quote(f.Value.String())
			if name == "ssh-public-access-enabled" {
				value = f.Value.String()
			}
			sets = append(sets, computeExtras[name].field+"="+value)
		}
	}
	return append(sets, tagSets(cmd)...)
}

func (a *app) computeShow() *cobra.Command {
	return a.verb(verb{
		use: "show [NAME]", short: "Show a compute",
		example: "  trainyard compute show --name cpu-cluster\n  trainyard compute show -n cpu-cluster --query provisioning_state -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			return a.showCompute(ctx, c, n)
		},
	}, trainyard.KindCompute)
}

func (a *app) showCompute(ctx context.Context, c *client.Client, name string) error {
	raw, err := c.Get(ctx, "computes", name)
	if err != nil {
		return err
	}
	e, err := shown(trainyard.KindCompute, raw)
	if err != nil {
		return err
	}
	return a.print(e, a.computeView())
}

func (a *app) computeList() *cobra.Command {
	cmd := a.verb(verb{
		use: "list", short: "List computes", noName: true,
		example: "  trainyard compute list\n  trainyard compute list --type amlcompute --query \"[].name\" -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			kind := strings.ToLower(flag(cmd, "type"))
			items, more, err := collect(ctx, c, cmd, trainyard.KindCompute, url.Values{}, func(e map[string]any) bool {
				return kind == "" || text(e, "type") == kind
			}, "computes")
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, a.computeView())
		},
	}, trainyard.KindCompute)
	cmd.Flags().String("type", "", "only computes of this type")
	choices(cmd, "type", append([]string{"amlcompute", "local"}, attachTypes()...)...)
	return addListFlags(cmd, false)
}

func (a *app) computeUpdate() *cobra.Command {
	cmd := a.verb(verb{
		use: "update [NAME]", short: "Change a compute's limits, description or tags",
		example: "  trainyard compute update --name cpu-cluster --max-instances 8\n  trainyard compute update -n cpu-cluster --set idle_time_before_scale_down=600",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.updateCompute(ctx, c, cmd, args)
		},
	}, trainyard.KindCompute)
	addComputeFlags(cmd)
	return addWaitFlags(addUpdateFlags(cmd))
}

var computeFields = fields{
	"min_instances": "properties.properties.scaleSettings.minNodeCount", "max_instances": "properties.properties.scaleSettings.maxNodeCount",
	"idle_time_before_scale_down": "properties.properties.scaleSettings.nodeIdleTimeBeforeScaleDown", "description": "properties.description", "tags.*": "tags",
}

func (a *app) updateCompute(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	n, err := name(cmd, args)
	if err != nil {
		return err
	}
	sets := append(flagList(cmd, "set"), unquoted(computeSets(cmd))...)
	patch, err := computeFields.patch(sets, flagList(cmd, "remove"))
	if err != nil {
		return err
	}
	if len(patch) == 0 {
		return usagef("nothing to change: give --max-instances, --min-instances, --idle-time-before-scale-down, --description, --tags or --set")
	}
	if scale := asMap(asMap(asMap(patch["properties"])["properties"])["scaleSettings"]); scale != nil {
		if s, ok := scale["nodeIdleTimeBeforeScaleDown"].(float64); ok {
			scale["nodeIdleTimeBeforeScaleDown"] = trainyard.ISODuration(time.Duration(s * float64(time.Second)))
		}
	}
	raw, err := c.Get(ctx, "computes", n)
	if err != nil {
		return err
	}
	old, err := decode(raw)
	if err != nil {
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
	ans, err := c.Patch(ctx, patch, "computes", n)
	if err != nil {
		return err
	}
	if err := a.wait(ctx, c, cmd, ans, "changing "+n); err != nil {
		return err
	}
	return a.showCompute(ctx, c, n)
}

func (a *app) computeDelete() *cobra.Command {
	cmd := a.verb(verb{
		use: "delete [NAME]", short: "Delete a compute and its nodes",
		example: "  trainyard compute delete --name cpu-cluster --yes\n  trainyard compute delete -n cpu-cluster --force --yes   cancel its jobs first",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete compute %s", n); err != nil {
				return err
			}
			if _, err := c.Get(ctx, "computes", n); err != nil {
				return err
			}
			query := url.Values{"underlyingResourceAction": {"Delete"}}
			if flagBool(cmd, "force") {
				query.Set("force", "true")
			}
			ans, err := c.Delete(ctx, query, "computes", n)
			if err != nil {
				return err
			}
			if err := a.waitDeleted(ctx, c, cmd, ans, n, "deleted", ""); err != nil {
				return err
			}
			if flagBool(cmd, "no-wait") {
				return nil
			}
			a.say("%s is deleted", n)
			return nil
		},
	}, trainyard.KindCompute)
	cmd.Flags().Bool("force", false, "cancel the jobs that run or wait on it first")
	return addWaitFlags(addYes(cmd))
}

// waitDeleted waits until a compute's nodes are gone and says what keeps them, if the compute knows it. done is "deleted" or "detached", and
// besides what else can be done.
func (a *app) waitDeleted(ctx context.Context, c *client.Client, cmd *cobra.Command, ans *client.Answer, n, done, besides string) error {
	if flagBool(cmd, "no-wait") {
		return nil
	}
	return a.waitTelling(ctx, c, ans, "waiting for "+n+" to be "+done, func() string {
		why := clean(a.kept(ctx, c, n))
		if why == "" {
			return ""
		}
		return fmt.Sprintf("%s waits: %s; it is %s when that is over, whether this command waits for it or not%s", n, why, done, besides)
	})
}

// kept finds out why machines of a compute cannot be had, or given back; "" if it says nothing of that.
func (a *app) kept(ctx context.Context, c *client.Client, n string) string {
	data, err := c.Get(ctx, "computes", n)
	if err != nil {
		return ""
	}
	var got struct {
		Properties struct {
			State      string           `json:"provisioningState"`
			Reason     trainyard.Reason `json:"reason"`
			Properties struct {
				Errors []struct {
					Error trainyard.Error `json:"error"`
				} `json:"errors"`
			} `json:"properties"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return ""
	}
	p := &got.Properties
	switch {
	case p.State == "Deleting" && p.Reason.Message != "":
		return p.Reason.Message
	case len(p.Properties.Errors) > 0:
		return p.Properties.Errors[0].Error.Message
	}
	return ""
}

func (a *app) computeAct(action, done, short string) *cobra.Command {
	cmd := a.verb(verb{
		use: action + " [NAME]", short: short, example: "  trainyard compute " + action + " --name cpu-cluster",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			ans, err := c.Post(ctx, nil, "computes", n, action)
			if err != nil {
				return err
			}
			if err := a.wait(ctx, c, cmd, ans, action+" "+n); err != nil {
				return err
			}
			a.say("%s is %s", n, done)
			return nil
		},
	}, trainyard.KindCompute)
	return addWaitFlags(cmd)
}

// say tells a person what was done. Scripts look at the exit status.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		a.note("%s", fmt.Sprintf(format, args...))
	}
}

// unquoted undoes the quotes that computeSets puts round text for the file reader.
func unquoted(sets []string) []string {
	for i, s := range sets {
		k, v, _ := strings.Cut(s, "=")
		if plain, err := strconv.Unquote(v); err == nil {
			sets[i] = k + "=" + plain
		}
	}
	return sets
}

// tagSets are --tags as --set arguments.
func tagSets(cmd *cobra.Command) []string {
	var sets []string
	for _, t := range flagList(cmd, "tags") {
		k, v, _ := strings.Cut(t, "=")
		sets = append(sets, `tags."`+k+`"=`+strconv.Quote(v))
	}
	return sets
}

// rawList reads a list that is no resource's.
func rawList(items func(yield func(json.RawMessage, error) bool)) ([]any, error) {
	out := []any{}
	for raw, err := range items {
		if err != nil {
			return nil, err
		}
		m, err := decode(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, snakeAll(m))
	}
	return out, nil
}
