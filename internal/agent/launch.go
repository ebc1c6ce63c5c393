package agent

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// Distribution types, as Azure ML names them.
const (
	distPyTorch    = "PyTorch"
	distTensorFlow = "TensorFlow"
	distMPI        = "Mpi"
)

// maxScript is how long a command a system takes as one argument (Linux: 128 KiB), with room to spare.
const maxScript = 120 << 10

//go:embed launch.sh
var launchScript string

// process is one process of a gang.
type process struct {
	rank  int    // in the gang
	local int    // in its node rank
	node  int    // node rank
	kind  string // worker or ps
	index int    // among its kind
}

// launch makes Run start all processes of the task's ranks, each with the variables by which it finds the others. A task of one process
// keeps its command as it is.
func launch(t *trainyard.Task, goos string) error {
	all, err := gang(t)
	if err != nil {
		return err
	}
	mine := ours(t, all)
	env := maps.Clone(t.Run.Env)
	if env == nil {
		env = map[string]string{}
	}
	t.Run.Env = env
	switch len(mine) {
	case 0: // more nodes than processes
		maps.Copy(env, variables(t, all, process{node: t.Lo}))
		t.Run.Command = "exit 0"
		return nil
	case 1:
		maps.Copy(env, variables(t, all, mine[0]))
		return nil
	}
	if goos == "windows" {
		return trainyard.Errorf(trainyard.CodeUnsupported, "%d processes on one node cannot be started on Windows; ask for one process per node", len(mine))
	}
	maps.Copy(env, variables(t, all, mine[0])) // what is the same for all, and something sensible for those who look from outside
	t.Run.Command = script(t, all, mine)
	if len(t.Run.Command) > maxScript {
		return trainyard.Invalid("the command for %d processes on one node is %d bytes long; at most %d can be started", len(mine), len(t.Run.Command), maxScript)
	}
	return nil
}

// gang lists the processes of all nodes of the task's attempt, by rank.
func gang(t *trainyard.Task) ([]process, error) {
	nodes, per := max(t.Nodes, 1), max(t.Processes, 1)
	kind := ""
	if t.Distribution != nil {
		kind = t.Distribution.DistributionType
	}
	var all []process
	switch {
	case kind == "", strings.EqualFold(kind, distPyTorch), strings.EqualFold(kind, distMPI):
		for rank := range nodes * per {
			all = append(all, process{rank: rank, local: rank % per, node: rank / per, kind: "worker", index: rank})
		}
	case strings.EqualFold(kind, distTensorFlow):
		workers := t.Distribution.WorkerCount
		if workers == 0 {
			workers = nodes
		}
		on := make([]int, nodes) // processes on each node so far
		for i := range workers + t.Distribution.ParameterServerCount {
			p := process{rank: i, node: i % nodes, kind: "worker", index: i}
			if i >= workers { // with the first worker, which outlasts the others: servers end with the last worker of their node
				p.kind, p.index, p.node = "ps", i-workers, 0
			}
			p.local = on[p.node]
			on[p.node]++
			all = append(all, p)
		}
	default:
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "distribution type %q cannot be started; use %s, %s or %s", kind, distPyTorch, distTensorFlow, distMPI)
	}
	return all, nil
}

// ours are the processes of the task's own node ranks.
func ours(t *trainyard.Task, all []process) []process {
	return slices.DeleteFunc(slices.Clone(all), func(p process) bool { return p.node < t.Lo || p.node >= max(t.Hi, t.Lo+1) })
}

// variables is what one process finds in its environment about itself and the others.
func variables(t *trainyard.Task, all []process, p process) map[string]string {
	hosts := t.Hosts
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1"}
	}
	master, port, here := hosts[0], strconv.Itoa(t.Port), 0
	for _, o := range all {
		if o.node == p.node {
			here++
		}
	}
	rank, local, size, localSize, node := strconv.Itoa(p.rank), strconv.Itoa(p.local), strconv.Itoa(len(all)), strconv.Itoa(here), strconv.Itoa(p.node)
	env := map[string]string{
		"AZUREML_CR_NODE_RANK": node, "NODE_RANK": node, "AZUREML_PROCESS_NAME": "main",
		"AZ_BATCH_HOST_LIST": strings.Join(hosts, ","), "AZ_BATCHAI_JOB_MASTER_NODE_IP": master,
	}
	if len(all) > 1 {
		env["AZUREML_PROCESS_NAME"] = "rank_" + rank
	}
	kind := ""
	if t.Distribution != nil {
		kind = t.Distribution.DistributionType
	}
	switch {
	case strings.EqualFold(kind, distTensorFlow):
		env["TF_CONFIG"] = tfConfig(all, hosts, t.Port, p)
	case strings.EqualFold(kind, distMPI):
		maps.Copy(env, map[string]string{
			"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size,
			"OMPI_COMM_WORLD_LOCAL_RANK": local, "OMPI_COMM_WORLD_LOCAL_SIZE": localSize,
			"AZ_BATCHAI_MPI_MASTER_NODE": master, "AZ_BATCH_MASTER_NODE": net.JoinHostPort(master, port),
		})
	case kind != "" || len(all) > 1:
		maps.Copy(env, map[string]string{
			"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": localSize,
			"MASTER_ADDR": master, "MASTER_PORT": port,
		})
	}
	return env
}

// tfConfig is TF_CONFIG as TensorFlow's TFConfigClusterResolver reads it. Process i of the gang listens at the i-th port from the
// attempt's own.
func tfConfig(all []process, hosts []string, port int, p process) string {
	cluster := map[string][]string{}
	for _, o := range all {
		cluster[o.kind] = append(cluster[o.kind], net.JoinHostPort(hosts[min(o.node, len(hosts)-1)], strconv.Itoa(port+o.rank)))
	}
	kind := p.kind
	if kind == "" {
		kind = "worker"
	}
	data, err := json.Marshal(map[string]any{
		"cluster": cluster, "task": map[string]any{"type": kind, "index": p.index}, "environment": "cloud"})
	if err != nil {
		return "" // maps of strings always marshal
	}
	return string(data)
}

// script is the command that starts the processes.
func script(t *trainyard.Task, all, mine []process) string {
	var b strings.Builder
	fmt.Fprintf(&b, "command=%s logs=%s head=%d grace=%d\n", quote(t.Run.Command), quote(t.Run.Seen(t.Run.LogDir)), mine[0].rank, max(1, int(math.Ceil(t.Grace.Seconds()))))
	b.WriteString(launchScript)
	for _, p := range mine {
		fmt.Fprintf(&b, "process %d %s", p.rank, p.kind)
		env := variables(t, all, p)
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if t.Run.Env[name] != env[name] {
				b.WriteString(" " + quote(name+"="+env[name]))
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("supervise\n")
	return b.String()
}

// quote makes one word of bash of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// stdLog is the name under which users see what the driver holds as the task's output.
func stdLog(t *trainyard.Task) string {
	all, err := gang(t)
	if err != nil || len(all) < 2 {
		return "user_logs/std_log.txt"
	}
	if mine := ours(t, all); len(mine) > 0 {
		return logOf(mine[0], "user_logs/")
	}
	return fmt.Sprintf("user_logs/std_log_node_%d.txt", t.Lo)
}

// processLogs are the files in Run.LogDir that further processes of the task write to.
func processLogs(t *trainyard.Task) []string {
	all, err := gang(t)
	if err != nil {
		return nil
	}
	var out []string
	for i, p := range ours(t, all) {
		if i > 0 {
			out = append(out, logOf(p, ""))
		}
	}
	return out
}

func logOf(p process, folder string) string {
	return fmt.Sprintf("%sstd_log_process_%d.txt", folder, p.rank)
}
