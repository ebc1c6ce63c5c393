package slurm

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// Node is a node of a partition.
type Node struct {
	Name     string
	CPUs     int
	MemoryMB int64
	GPUs     int
	State    string // "idle", "mixed", "down*", …
}

// Nodes is sinfo.
func (c *commands) Nodes(ctx context.Context, partition string) ([]Node, error) {
	args := []string{"--Node", "--noheader", "--format=%N|%c|%m|%T|%G"}
	if partition != "" {
		args = append(args, "--partition="+partition)
	}
	out, err := c.run(ctx, "sinfo", args...)
	if err != nil {
		return nil, err
	}
	return some(parseNodes(out), partition)
}

// some is an error if there are no nodes.
func some(nodes []Node, partition string) ([]Node, error) {
	switch {
	case len(nodes) > 0:
		return nodes, nil
	case partition == "":
		return nil, trainyard.NotFound("Slurm shows no nodes; look at sinfo")
	}
	return nil, trainyard.NotFound("Slurm has no partition %q with nodes; sinfo lists what there is", partition)
}

func parseNodes(out string) []Node {
	var nodes []Node
	seen := map[string]bool{} // a node in two partitions has two lines
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 5)
		if len(f) != 5 || seen[f[0]] {
			continue
		}
		seen[f[0]] = true
		cpus, _ := strconv.Atoi(f[1])
		memory, _ := strconv.ParseInt(strings.TrimSuffix(f[2], "+"), 10, 64)
		nodes = append(nodes, Node{Name: f[0], CPUs: cpus, MemoryMB: memory, State: f[3], GPUs: gpus(f[4])})
	}
	return nodes
}

// HoldsMemory reads it out of what scontrol shows.
func (c *commands) HoldsMemory(ctx context.Context) (bool, error) {
	out, err := c.run(ctx, "scontrol", "show", "config")
	if err != nil {
		return false, err
	}
	set := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, "="); ok {
			set[strings.TrimSpace(key)] = strings.ToLower(strings.TrimSpace(value))
		}
	}
	cgroup := strings.Contains(set["TaskPlugin"], "cgroup") && set["ConstrainRAMSpace"] == "yes"
	return cgroup || strings.Contains(set["JobAcctGatherParams"], "overmemorykill"), nil
}

// gres is one kind of generic resource: "gpu:2", "gpu:a100:4(S:0-1)".
var gres = regexp.MustCompile(`(?:^|,)gpu(?::[^:,(]*[^:,(0-9][^:,(]*)?:(\d+)`)

func gpus(text string) (n int) {
	for _, m := range gres.FindAllStringSubmatch(text, -1) {
		k, _ := strconv.Atoi(m[1])
		n += k
	}
	return n
}

// reasons puts Slurm's words for why a job waits into sentences. See JOB REASON CODES in squeue(1).
var reasons = map[string]string{
	"Resources":                   "waiting for %s to become free",
	"Priority":                    "jobs with a higher priority wait for %s before it",
	"None":                        "not looked at by Slurm's scheduler yet",
	"Dependency":                  "waiting for another Slurm job that it depends on",
	"DependencyNeverSatisfied":    "it depends on another Slurm job that failed, and will never begin",
	"JobHeldUser":                 "held by its user; scontrol release lets it go on",
	"JobHeldAdmin":                "held by an administrator of Slurm",
	"BeginTime":                   "its begin time has not come",
	"Licenses":                    "waiting for a license",
	"ReqNodeNotAvail":             "nodes that it needs are down, drained or reserved",
	"Reservation":                 "waiting for its reservation to begin",
	"ReservationDeleted":          "its reservation was deleted, so it will never begin",
	"PartitionDown":               "partition %p is down",
	"PartitionInactive":           "partition %p takes no jobs at present",
	"PartitionNodeLimit":          "it asks for more nodes than partition %p allows, or for nodes that are down",
	"PartitionTimeLimit":          "its time limit is longer than partition %p allows",
	"PartitionConfig":             "it asks for more than partition %p has or allows",
	"NodeDown":                    "a node that it needs is down",
	"BadConstraints":              "no node can meet its constraints, so it will never begin",
	"InvalidAccount":              "its account is not valid",
	"InvalidQOS":                  "its QOS is not valid",
	"AccountNotAllowed":           "its account may not use partition %p",
	"QOSNotAllowed":               "its QOS may not be used in partition %p",
	"JobLaunchFailure":            "it could not be launched on its node",
	"SystemFailure":               "a failure of Slurm, its file system or its network",
	"Prolog":                      "the prolog of its nodes runs",
	"Cleaning":                    "what an earlier run left is being cleaned up",
	"BurstBufferResources":        "waiting for burst buffer space",
	"BurstBufferStageIn":          "its burst buffer is being filled",
	"NodesUnavailable":            "nodes that it needs are down, drained or reserved",
	"Nodes_required_for_job_are_": "nodes that it needs are down, drained, or reserved for jobs of a higher priority",
	"MaxMemPerLimit":              "it asks for more memory than is allowed",
	"DeadLine":                    "it would not end before its deadline",
	"FedJobLock":                  "waiting for the clusters of its federation",
	"AssocGrpCpuLimit":            "its account uses all CPUs that it may",
	"AssocGrpGRES":                "its account uses all GPUs that it may",
	"AssocGrpMemLimit":            "its account uses all memory that it may",
	"AssocGrpNodeLimit":           "its account uses all nodes that it may",
	"AssocGrpJobsLimit":           "its account runs as many jobs as it may",
	"AssocMaxJobsLimit":           "its account runs as many jobs as it may",
	"AssocGrpCPUMinutesLimit":     "its account has spent its CPU minutes",
	"AssocGrpBillingMinutes":      "its account has spent its budget of minutes",
	"AssocMaxWallDurationPerJob":  "its time limit is longer than its account allows",
	"QOSGrpCpuLimit":              "all CPUs of its QOS are in use",
	"QOSGrpGRES":                  "all GPUs of its QOS are in use",
	"QOSGrpNodeLimit":             "all nodes of its QOS are in use",
	"QOSGrpJobsLimit":             "its QOS runs as many jobs as it may",
	"QOSMaxCpuPerUserLimit":       "this user has all the CPUs that its QOS gives one",
	"QOSMaxGRESPerUser":           "this user has all the GPUs that its QOS gives one",
	"QOSMaxNodePerUserLimit":      "this user has all the nodes that its QOS gives one",
	"QOSMaxJobsPerUserLimit":      "this user runs as many jobs as its QOS gives one",
	"QOSMaxWallDurationPerJob":    "its time limit is longer than its QOS allows",
	"QOSUsageThreshold":           "the usage threshold of its QOS is reached",
}

// Why says why a job waits: Slurm's word, a sentence where there is one, and when Slurm expects it to begin.
func (j Job) Why() string {
	key, _, _ := strings.Cut(j.Reason, ",")
	key, _, _ = strings.Cut(key, "(")
	sentence := reasons[strings.TrimSpace(key)]
	if sentence == "" && strings.HasPrefix(j.Reason, "Nodes required for job are") {
		sentence = reasons["Nodes_required_for_job_are_"]
	}
	text := fmt.Sprintf("Slurm: (%s)", j.Reason)
	if sentence != "" {
		nodes := "a node"
		if j.Nodes > 1 {
			nodes = fmt.Sprintf("%d nodes", j.Nodes)
		}
		if j.Partition != "" {
			nodes += " of partition " + j.Partition
		}
		text += " " + strings.NewReplacer("%s", nodes, "%p", j.Partition).Replace(sentence)
	}
	if !j.Start.IsZero() && j.State == Pending {
		text += j.Start.UTC().Format("; expected to begin at about 2006-01-02 15:04 UTC")
	}
	return text
}
