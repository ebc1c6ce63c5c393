package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/catalog"
	targetkube "github.com/trainyard/trainyard/internal/target/kube"
)

// attachFlags are the flags of "compute attach" besides those of every compute, with the fields they stand for.
var attachFlags = map[string]struct{ field, help string }{
	"resource-id":          {"resource_id", "ARM id that the machine or cluster has in Azure; kept"},
	"address":              {"address", "virtualmachine, or slurm's login node: `HOST` or address of it"},
	"admin-username":       {"ssh_settings.admin_username", "virtualmachine, or slurm's login node: user to log in as"},
	"admin-password":       {"ssh_settings.admin_password", "virtualmachine, or slurm's login node: password of that user"},
	"ssh-private-key-file": {"ssh_settings.ssh_private_key_file", "virtualmachine, or slurm's login node: `FILE` with that user's private key"},
	"ssh-port":             {"ssh_settings.ssh_port", "virtualmachine, or slurm's login node: port of SSH (default 22)"},
	"host-key":             {"ssh_settings.host_key", "virtualmachine, or slurm's login node: the one host key to believe from now on: its `FINGERPRINT` (SHA256:...) or its public half; also to pin a new one (default: the pinned one, or at first the one it shows)"},
	"namespace":            {"namespace", "kubernetes: namespace that jobs run in"},
	"kubeconfig":           {"kubeconfig", "kubernetes: `FILE` by which kubectl reaches the cluster"},
	"context":              {"context", "kubernetes: context of the kubeconfig (default: its current one)"},
	inClusterFlag:          {"in_cluster", "kubernetes: instead of --kubeconfig, the account of the pod that the server runs in"},
	"partition":            {"partition", "slurm: partition that jobs are submitted to"},
	"account":              {"account", "slurm: account that jobs are counted for"},
	"qos":                  {"qos", "slurm: quality of service"},
	"conf":                 {"conf", "slurm: path of slurm.conf where Slurm's commands run: on the login node if there is one, else on the server"},
	"folder":               {"folder", "slurm: folder that the nodes see under the same path as the computer where Slurm's commands run: the login node if there is one, else the server"},
	"server-url":           {"server_url", "`URL` at which its nodes reach this server"},
}

// inClusterFlag is the one of attachFlags that takes no value.
const inClusterFlag = "in-cluster"

// attachTypes are the values of --type.
func attachTypes() []string {
	var out []string
	for _, k := range attachable() {
		out = append(out, strings.ToLower(k.Type))
	}
	return out
}

// didYouMean offers what is nearest to a word.
func didYouMean(word string, among []string) string {
	if near := catalog.Nearest(word, among); len(near) > 0 {
		return "; did you mean " + near[0] + "?"
	}
	return ""
}

func (a *app) computeAttach() *cobra.Command {
	cmd := a.verb(verb{
		use: "attach [NAME]", short: "Attach a machine, a Kubernetes cluster or a Slurm cluster that is there already",
		long: `Attaches what is there already, so that jobs run on it: a machine that SSH reaches (virtualmachine), a namespace of a
Kubernetes cluster (kubernetes), partitions of a Slurm cluster (slurm). It is looked at first; what is wrong is said at once.`,
		example: `  trainyard compute attach --name lab-pc --type virtualmachine --address 192.0.2.7 --admin-username ml --ssh-private-key-file ~/.ssh/id_ed25519
  trainyard compute attach --name k8s --type kubernetes --kubeconfig ~/.kube/config --namespace training
  trainyard compute attach --name hpc --type slurm --partition gpu --folder /shared/trainyard
  trainyard compute attach --file compute.yml`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			if flag(cmd, "file") == "" && !slices.Contains(attachTypes(), strings.ToLower(flag(cmd, "type"))) {
				return usagef("want --type %s, or --file FILE; got %q%s", strings.Join(attachTypes(), ", "), flag(cmd, "type"), didYouMean(flag(cmd, "type"), attachTypes()))
			}
			return a.createCompute(ctx, c, cmd, args)
		},
	}, trainyard.KindCompute)
	f := cmd.Flags()
	f.StringP("type", "t", "", strings.Join(attachTypes(), ", "))
	choices(cmd, "type", attachTypes()...)
	f.String("description", "", "what it is for")
	f.StringArray("tags", nil, "`key=value` pairs")
	for name, flag := range attachFlags {
		if name == inClusterFlag {
			f.Bool(name, false, flag.help)
			continue
		}
		f.String(name, "", flag.help)
	}
	return addWaitFlags(addFileFlags(cmd, "compute"))
}

// computeDetach is a deletion of what was attached: the thing itself stays.
func (a *app) computeDetach() *cobra.Command {
	cmd := a.verb(verb{
		use: "detach [NAME]", short: "Let go of a compute that was attached; nothing of ours stays on it",
		long: `Lets go of a compute that was attached. Its jobs must be over. The agent on a machine is ended and its files are taken away; where the
machine cannot be reached, that is waited for, and why is said.

With --force jobs are cancelled first, and a machine of which nothing was heard for some minutes is forgotten at once. The folder ~/.trainyard
with its files, the agent if it runs, and a join token that this server takes no more stay there; they are cleared away when
the server reaches the machine again, by its own settings or by those of a new compute for the same address, port and user.`,
		example: "  trainyard compute detach --name lab-pc --yes\n  trainyard compute detach -n lab-pc --force --yes   cancel its jobs first",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			raw, err := c.Get(ctx, "computes", n)
			if err != nil {
				return err
			}
			e, err := shown(trainyard.KindCompute, raw)
			if err != nil {
				return err
			}
			if text(e, "type") == "local" {
				return usagef("%s belongs to the workspace, and stays with it: it was not attached", n)
			}
			if attached, _ := e["is_attached_compute"].(bool); !attached {
				return usagef("%s is of type %s and was not attached; to delete it: trainyard compute delete --name %s", n, text(e, "type"), n)
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "detach compute %s", n); err != nil {
				return err
			}
			query := url.Values{"underlyingResourceAction": {"Detach"}}
			var nodes []any
			if flagBool(cmd, "force") {
				query.Set("force", "true")
				if nodes, err = rawList(c.Nodes(ctx, n)); err != nil {
					return err
				}
			}
			ans, err := c.Delete(ctx, query, "computes", n)
			if err != nil {
				return err
			}
			besides := ""
			if !flagBool(cmd, "force") {
				besides = "; with --force a machine that was not heard of for minutes is forgotten, and what is ours stays on it"
			}
			if err := a.waitDeleted(ctx, c, cmd, ans, n, "detached", besides); err != nil || flagBool(cmd, "no-wait") {
				return err
			}
			a.say("%s is detached", n)
			if text(e, "type") == "virtualmachine" && ans.Status != http.StatusAccepted { // it was not waited for
				a.leftBehind(e, nodes)
			}
			return nil
		},
	}, trainyard.KindCompute)
	cmd.Flags().Bool("force", false, "cancel the jobs that run or wait on it first, and do not wait for a machine that cannot be reached: files stay on it")
	return addWaitFlags(addYes(cmd))
}

// leftBehind says what stays on a machine that was let go of while nobody reached it.
func (a *app) leftBehind(e map[string]any, nodes []any) {
	for _, node := range nodes {
		id := text(asMap(node), "node_id")
		a.say("it could not be reached: the folder ~/.trainyard/%s-* stays on %s, with the agent's files and a join token that is not taken any more, and "+
			"the agent if it runs; this server clears them away when it reaches the machine again; to do so by hand, end the agent there and delete the folder",
			id, text(e, "address"))
	}
}

// computeManifest prints what a Kubernetes cluster must allow.
func (a *app) computeManifest() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kube-manifest", Short: "Print the rights that a Kubernetes cluster must give, as a manifest", Args: noName,
		Long:    "Prints a ServiceAccount, a Role and a RoleBinding with the least rights that jobs in a namespace take. No server is asked.",
		Example: "  trainyard compute kube-manifest --namespace training | kubectl apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(a.out, targetkube.Manifest(flag(cmd, "namespace")))
			return err
		},
	}
	cmd.Flags().String("namespace", "default", "namespace that jobs run in")
	return cmd
}
