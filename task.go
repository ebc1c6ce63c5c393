package trainyard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// TaskID names a task in a server; see MakeTaskID.
type TaskID string

// Job is the key of the job the task belongs to.
func (id TaskID) Job() JobKey {
	s := string(id)
	for range 2 {
		if i := strings.LastIndexByte(s, '.'); i >= 0 {
			s = s[:i]
		}
	}
	return JobKey(s)
}

// Words names the task for people, as in `the task of job "train" (attempt 2)`, with its first rank where that is not 0. Of the workspace it
// says nothing: whoever reads it is in one.
func (id TaskID) Words() string {
	job := id.Job()
	attempt, rank, ok := strings.Cut(strings.TrimPrefix(string(id), string(job)+"."), ".")
	if !ok {
		return fmt.Sprintf("task %q", string(id)) // not one of ours
	}
	if rank != "0" {
		attempt += ", rank " + rank
	}
	return fmt.Sprintf("the task of job %q (attempt %s)", job.Name(), attempt)
}

// Dir is a folder name for the task: the job's name for people, a hash so that no two tasks and no two workspaces share one.
func (id TaskID) Dir() string {
	sum := sha256.Sum256([]byte(id))
	name := string(id)
	name = name[strings.LastIndexByte(name, '/')+1:]
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, name)
	if len(clean) > 80 {
		clean = clean[:80]
	}
	return strings.TrimLeft(clean, ".") + "-" + hex.EncodeToString(sum[:4])
}

// Task is the part of an attempt that one node runs, complete: a node needs nothing else but the bytes it names.
type Task struct {
	ID      TaskID `json:"id"`
	Scope   Scope  `json:"scope"`
	JobName string `json:"job"`
	Attempt int    `json:"attempt"`
	Node    NodeID `json:"node"`
	Epoch   int64  `json:"epoch"` // of the node when the task was placed

	Lo        int      `json:"lo"` // node ranks [Lo, Hi) of the gang
	Hi        int      `json:"hi"`
	Nodes     int      `json:"nodes"`     // size of the gang
	Processes int      `json:"processes"` // processes per node rank
	Hosts     []string `json:"hosts"`     // address of each node rank; Hosts[0] is the master
	Port      int      `json:"port"`      // a port number on the master that this attempt may use to meet

	Command      string                `json:"command"` // with ${{…}} in it
	Env          map[string]string     `json:"env"`     // the job's own and the server's (MLFLOW_*, AZUREML_*)
	Distribution *Distribution         `json:"distribution,omitempty"`
	CodeKey      string                `json:"codeKey,omitempty"`
	CodeHash     string                `json:"codeHash,omitempty"`
	Environment  *EnvironmentPlan      `json:"environment,omitempty"`
	Inputs       map[string]TaskInput  `json:"inputs,omitempty"`
	Outputs      map[string]TaskOutput `json:"outputs,omitempty"`
	Artifacts    string                `json:"artifacts"`         // blob prefix for ./outputs, ./logs and user_logs: "workspaceartifactstore/ExperimentRun/dcid.{job}"
	Timeout      time.Duration         `json:"timeout,omitempty"` // of the user's process; 0: none
	Grace        time.Duration         `json:"grace"`             // between SIGTERM and SIGKILL
	Resources    Resources             `json:"resources"`         // what it may use; zero fields are not limited
	Requests     Resources             `json:"requests,omitzero"` // what it is placed by on Kubernetes; zero fields: as Resources
	ShmSize      string                `json:"shmSize,omitempty"` // of /dev/shm in a container, as in JobResources: "2g"
	DockerArgs   string                `json:"dockerArgs,omitempty"`
	InstanceType string                `json:"instanceType,omitempty"` // as in JobResources, for engines that have such; "": the compute's default

	Serve *Serve `json:"serve,omitempty"` // of a replica

	Stop Class `json:"stop,omitempty"` // not empty: end it, for this reason

	Restore bool `json:"restore,omitempty"` // bring back what an earlier attempt that was preempted left in ./outputs and the named outputs

	Contained bool `json:"contained,omitempty"` // the driver brings the environment (an image); set on the node before staging

	Server string `json:"server,omitempty"` // URL in Env at which the task reaches the server; a node that knows a better one puts it in
	CA     string `json:"ca,omitempty"`     // PEM of the authority to trust there, for what stages itself
	Token  string `json:"token,omitempty"`  // of the job, for what stages itself
	Run    Run    `json:"run,omitzero"`     // filled in on the node by staging; drivers read this
}

// Run is what a driver starts: the task after staging.
type Run struct {
	Command string            `json:"command"`        // for bash -c (cmd /c on Windows)
	Dir     string            `json:"dir"`            // working directory: a private copy of the code
	Env     map[string]string `json:"env"`            // added to a minimal environment (PATH, HOME, LANG, TMPDIR)
	LogDir  string            `json:"logDir"`         // where further processes of a rank write their own logs: user_logs/std_log_process_N.txt
	Hide    []string          `json:"hide,omitempty"` // paths that the task must not reach, where the system can enforce it

	Root    string   `json:"root,omitempty"`    // the task's own folder: Dir, LogDir, private inputs and outputs are below it
	Shared  []string `json:"shared,omitempty"`  // further folders and files that the task reads, such as cached inputs; never written
	Context string   `json:"context,omitempty"` // of a contained task: the folder of its build context

	// View is where a contained task sees Root; "" for Root's own path. Command and Env name paths as the task sees them, the other fields
	// as the node does.
	View string `json:"view,omitempty"`
}

// ContainedView is Run.View of contained tasks: the same on every node and in every attempt, so that a path below its own folder which a job
// has written down is still good when it goes on elsewhere; and short, as a container is made with each folder of the way to it.
const ContainedView = "/.trainyard/job"

// Seen is where the task itself sees a path of the node's.
func (r Run) Seen(path string) string { return swap(path, r.Root, r.View) }

// Unseen is where the node has a path that the task sees.
func (r Run) Unseen(path string) string { return swap(path, r.View, r.Root) }

// swap is a path at or below one folder as it is at or below another. If one of these is "", or the path lies elsewhere, it is the path.
func swap(path, from, to string) string {
	if from == "" || to == "" {
		return path
	}
	rel, err := filepath.Rel(from, path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return filepath.Join(to, rel)
}

// TaskInput is an input resolved by the server.
type TaskInput struct {
	Type    string `json:"type"` // literal, uri_file, uri_folder, mltable, …
	Value   string `json:"value,omitempty"`
	URI     string `json:"uri,omitempty"`     // what the user wrote, for Direct and for messages
	Key     string `json:"key,omitempty"`     // blob key or prefix in the server's store; "" when URI is remote (https)
	Mode    string `json:"mode,omitempty"`    // never empty for non-literals
	Missing bool   `json:"missing,omitempty"` // optional and not given
	Vacant  bool   `json:"vacant,omitempty"`  // an empty folder if nothing is there: what another step made, which may be nothing
}

// TaskOutput is an output resolved by the server.
type TaskOutput struct {
	Type         string `json:"type"`
	URI          string `json:"uri"`
	Key          string `json:"key"` // blob prefix (folder) or key (file)
	Mode         string `json:"mode"`
	AssetName    string `json:"assetName,omitempty"`
	AssetVersion string `json:"assetVersion,omitempty"`
}

// EnvironmentPlan is an environment resolved by the server. Hash is of everything that changes what is built.
type EnvironmentPlan struct {
	Name       string `json:"name"` // for people, after the word environment: "sklearn-1.5", "of this job"
	Hash       string `json:"hash"`
	Image      string `json:"image,omitempty"`
	CondaFile  string `json:"condaFile,omitempty"` // YAML text
	Context    string `json:"context,omitempty"`   // blob prefix of a build context
	Dockerfile string `json:"dockerfile,omitempty"`
}

// Contained says whether the environment is one of a container: it has an image or a build context.
func (e *EnvironmentPlan) Contained() bool { return e != nil && (e.Image != "" || e.Context != "") }

// Words are how a sentence names the environment: `environment "sklearn:1"`, or "the environment of this job" for one that is written in it.
func (e *EnvironmentPlan) Words() string {
	if strings.HasPrefix(e.Name, "of this ") {
		return "the environment " + e.Name
	}
	return fmt.Sprintf("environment %q", e.Name)
}

// Resources is an amount of a node. A zero field means "none" in a capacity and "not limited" in a limit.
type Resources struct {
	CPUs     float64 `json:"cpus,omitempty"`
	MemoryMB int64   `json:"memoryMB,omitempty"`
	GPUs     int     `json:"gpus,omitempty"`
	Slots    int     `json:"slots,omitempty"` // tasks at once
}

// TaskState is where a task is on its node, in order: a report can only move it forward.
type TaskState string

// Task states in order.
const (
	TaskAssigned  TaskState = "assigned"  // the server has decided; the node may not know yet
	TaskStaging   TaskState = "staging"   // code, data, environment on their way
	TaskRunning   TaskState = "running"   // the user's process has begun
	TaskUploading TaskState = "uploading" // it has ended; logs and outputs on their way
	TaskEnded     TaskState = "ended"     // Result is final
)

// Rank orders task states.
func (s TaskState) Rank() int {
	switch s {
	case TaskStaging:
		return 1
	case TaskRunning:
		return 2
	case TaskUploading:
		return 3
	case TaskEnded:
		return 4
	}
	return 0
}

// Observation is what a target driver sees of one task.
type Observation struct {
	ID      TaskID
	State   TaskState // TaskStaging (accepted by an engine that has a queue or starts slowly), TaskRunning or TaskEnded
	Started time.Time // of the user's process
	Ended   time.Time
	Result  *Result  // when ended
	PeakMB  int64    // highest memory use seen, 0 if unknown
	Notes   []string // what is not held: "memory limit not enforced: no cgroup"

	// Killed is how long after SIGTERM reached it the driver ended with SIGKILL what had not ended by itself: its grace was over. 0: it did not.
	Killed time.Duration

	Progress string // why it does not run yet, in the engine's words; of TaskRunning: why nothing newer is known of it
	Address  string // of a replica in an engine: host:port at which the node reaches its port; "": through the driver's Dial
	Spans    []Span // what a self-staged task did before and after the user's process, once known
}

// TaskEnd is what "trainyard task" leaves behind, as JSON of at most 4,000 bytes.
type TaskEnd struct {
	Result   Result    `json:"result"`
	Started  time.Time `json:"started,omitzero"` // of the user's process
	Ended    time.Time `json:"ended,omitzero"`
	Spans    []Span    `json:"spans,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	LogBytes int64     `json:"logBytes,omitempty"` // that it wrote to its log, so that an engine that lost some is found out
}

// Result is how a task ended.
type Result struct {
	Class    Class  `json:"class"`
	ExitCode int    `json:"exitCode"` // 128+n for signal n, as shells count
	Message  string `json:"message,omitempty"`
	PeakMB   int64  `json:"peakMB,omitempty"`
	LimitMB  int64  `json:"limitMB,omitempty"`
}

// TaskReport is what an agent tells the server of one of its tasks. Reports are idempotent; the last one holds the whole truth.
type TaskReport struct {
	ID       TaskID    `json:"id"`
	State    TaskState `json:"state"`
	Progress string    `json:"progress,omitempty"`
	Away     string    `json:"away,omitempty"`  // why its engine cannot be asked for it; "": it can
	Spans    []Span    `json:"spans,omitempty"` // all so far
	Result   *Result   `json:"result,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	Serving  *Serving  `json:"serving,omitempty"` // of a replica
}

// Question is what a task that an engine began without telling it what it is to run needs to ask for that, besides what shows whose task it is.
type Question struct {
	Server string `json:"server"`
	CA     string `json:"ca,omitempty"` // as PEM
	Node   NodeID `json:"node"`
	Task   TaskID `json:"task"`
}
