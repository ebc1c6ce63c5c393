package control

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// keeps says whether an attempt has left what the next may go on from: its node went, and was perhaps known to go before.
func keeps(a trainyard.Attempt) bool {
	return a.Class == trainyard.ClassPreempted || a.Class == trainyard.ClassNodeLost
}

// task is what a node is told to run, made once per task so that the tokens in it stay the same, with the present stop order.
func (c *Control) task(ctx context.Context, ref store.TaskRef, n *trainyard.Node) (trainyard.Task, error) {
	rt := &ref.Job.Status.Attempts[ref.Attempt].Tasks[ref.Index]
	t := c.knownTask(rt.ID)
	if t == nil {
		made, err := c.makeTask(ctx, ref, rt, n)
		if err != nil {
			return trainyard.Task{}, err
		}
		t = made
		c.mu.Lock()
		c.tasks[rt.ID] = t
		c.mu.Unlock()
	}
	out := *t
	out.Stop = rt.StopWhy
	return out, nil
}

// knownTask is a task as it was handed to its node; after a restart of the server, until the node asks, there is none.
func (c *Control) knownTask(id trainyard.TaskID) *trainyard.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tasks[id]
}

func (c *Control) forgetTask(id trainyard.TaskID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, id)
}

func (c *Control) makeTask(ctx context.Context, ref store.TaskRef, rt *trainyard.RunTask, n *trainyard.Node) (*trainyard.Task, error) {
	j, a := ref.Job, &ref.Job.Status.Attempts[ref.Attempt]
	env, token, err := c.taskEnv(j)
	if err != nil {
		return nil, err
	}
	res := trainyard.JobResources{}
	if j.Spec.Resources != nil {
		res = *j.Spec.Resources
	}
	env["TRAINYARD_NODE"] = string(n.ID) // by which a fleet finds what still runs of a machine
	if j.Plan.Nodes > 1 {                // the same for all tasks of the attempt, and known to nobody else
		env["TRAINYARD_GANG_TOKEN"] = c.Sign(fmt.Sprintf("gangs/%s/%d", j.Key(), a.Number), "r", j.Created.Add(30*24*time.Hour)).Get("sig")
	}
	t := &trainyard.Task{
		ID: rt.ID, Scope: j.Scope, JobName: j.Name, Attempt: a.Number, Node: n.ID, Epoch: n.Epoch,
		Lo: rt.Lo, Hi: rt.Hi, Nodes: j.Plan.Nodes, Processes: j.Plan.Processes, Port: meetingPort(j.Key(), a.Number),
		Command: j.Spec.Command, Env: env, Distribution: j.Spec.Distribution,
		CodeKey: j.Plan.CodeKey, CodeHash: j.Plan.CodeHash, Environment: j.Plan.Environment,
		Inputs: j.Plan.Inputs, Outputs: j.Plan.Outputs, Artifacts: artifacts(j.Scope, j.Name).Key(),
		Timeout: j.Plan.Timeout, Grace: grace, Stop: rt.StopWhy, Serve: j.Plan.Serve, Resources: j.Plan.Limits, Requests: j.Plan.Requests,
		InstanceType: res.InstanceType, ShmSize: res.ShmSize, DockerArgs: res.DockerArgs, Server: c.URL(), Token: token, Restore: slices.ContainsFunc(j.Status.Attempts, keeps),
	}
	for i := range a.Tasks {
		host := "127.0.0.1"
		if node, err := c.Store.Node(ctx, a.Tasks[i].Node); err == nil && node.Address != "" {
			host = node.Address
		}
		for range a.Tasks[i].Hi - a.Tasks[i].Lo {
			t.Hosts = append(t.Hosts, host)
		}
	}
	return t, nil
}

// meetingPort is a port that the ranks of an attempt may meet at, spread so that attempts on one machine seldom share one.
func meetingPort(key trainyard.JobKey, attempt int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	h.Write([]byte(strconv.Itoa(attempt)))
	return 20000 + int(h.Sum32()%12000)
}

// artifacts is where a job's logs, ./outputs and ./logs are kept; official clients look there by this name.
func artifacts(s trainyard.Scope, job string) trainyard.DataPath {
	return trainyard.DataPath{Scope: s, Datastore: trainyard.ArtifactDatastore, Path: "ExperimentRun/dcid." + job}
}

// taskEnv is the environment that Azure ML gives a job, plus the job's own variables, which win, and the job's token.
func (c *Control) taskEnv(j *trainyard.Job) (env map[string]string, token string, err error) {
	who := trainyard.User{Name: "job " + j.Name, Role: trainyard.RoleJob, Scope: j.Scope, Job: j.Name}
	life := 22 * 24 * time.Hour // a job lives 21 days at most
	if j.Plan.Serve != nil {
		life = 10 * 365 * 24 * time.Hour // and is good only while the replica is there
	}
	if token, err = c.Tokens.Mint(who, "job", life); err != nil {
		return nil, "", err
	}
	base, ws := c.URL(), j.Scope.ID()
	experiment := j.Spec.ExperimentName
	env = map[string]string{
		"AZUREML_RUN_ID": j.Name, "AZUREML_ROOT_RUN_ID": j.Name, "AZUREML_RUN_TOKEN": token,
		"AZUREML_RUN_TOKEN_EXPIRY": strconv.FormatInt(c.Now().Add(life).Unix(), 10),
		"AZUREML_ARM_SUBSCRIPTION": j.Scope.Subscription, "AZUREML_ARM_RESOURCEGROUP": j.Scope.ResourceGroup,
		"AZUREML_ARM_WORKSPACE_NAME": j.Scope.Workspace, "AZUREML_ARM_PROJECT_NAME": experiment,
		"AZUREML_EXPERIMENT_ID": trainyard.ExperimentID(j.Scope, experiment), "AZUREML_WORKSPACE_ID": j.Scope.Key(),
		"AZUREML_WORKSPACE_SCOPE": ws, "AZUREML_EXPERIMENT_SCOPE": ws + "/experiments/" + experiment,
		"AZUREML_SERVICE_ENDPOINT": base, "AZUREML_DISCOVERY_SERVICE_ENDPOINT": base + "/discovery" + ws,
		"MLFLOW_TRACKING_URI": base + "/mlflow/v1.0" + ws, "MLFLOW_TRACKING_TOKEN": token, "MLFLOW_RUN_ID": j.Name,
		"MLFLOW_EXPERIMENT_NAME": experiment, "MLFLOW_EXPERIMENT_ID": trainyard.ExperimentID(j.Scope, experiment),
		"MSI_ENDPOINT": base + "/msi/token", "MSI_SECRET": token, "OBO_ENDPOINT": base + "/msi/token",
		"DEFAULT_IDENTITY_CLIENT_ID": "trainyard",
		"PYTHONUNBUFFERED":           "1", // what a script prints is seen when it prints it
	}
	if j.Plan.Parent != "" {
		env["AZUREML_ROOT_RUN_ID"] = j.Plan.Parent
	}
	if j.Plan.Serve != nil { // a model that answers is no run
		delete(env, "MLFLOW_RUN_ID")
	}
	maps.Copy(env, j.Spec.EnvironmentVariables)
	return env, token, nil
}

// findTask is the task of that ID in the job's current attempt.
func findTask(j *trainyard.Job, id trainyard.TaskID) *trainyard.RunTask {
	a := j.Status.Current()
	if a == nil {
		return nil
	}
	for i := range a.Tasks {
		if a.Tasks[i].ID == id {
			return &a.Tasks[i]
		}
	}
	return nil
}
