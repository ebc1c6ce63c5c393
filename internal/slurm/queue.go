package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// States of jobs that this package acts on, as Slurm writes them. See JOB STATE CODES in squeue(1).
const (
	Pending     = "PENDING"
	Running     = "RUNNING"
	Completed   = "COMPLETED"
	Completing  = "COMPLETING"
	Cancelled   = "CANCELLED"
	Failed      = "FAILED"
	Timeout     = "TIMEOUT"
	Deadline    = "DEADLINE"
	OutOfMemory = "OUT_OF_MEMORY"
	NodeFail    = "NODE_FAIL"
	BootFail    = "BOOT_FAIL"
	Preempted   = "PREEMPTED"
	Revoked     = "REVOKED"

	Requeued    = "REQUEUED" // these three are of jobs that were put back in the queue
	RequeueHold = "REQUEUE_HOLD"
	SpecialExit = "SPECIAL_EXIT"
)

// Job is a job as Slurm shows it.
type Job struct {
	ID        string
	Name      string
	State     string
	Reason    string // Slurm's word for why it waits, or how it ended
	Partition string
	Nodes     int
	NodeList  string // "n[0-3]"
	TimeLimit string
	Restarts  int       // how often Slurm has taken it off its nodes and put it back in its queue; only of Client.Job
	Start     time.Time // or when Slurm expects it to begin; zero if it cannot say
	End       time.Time // of one that has ended

	ExitCode int    // of one that has ended; only of Client.Job
	Signal   int    // likewise
	By       string // who cancelled it, where accounting knows
}

// Ended says whether nothing of the job runs any more.
func (j Job) Ended() bool {
	switch j.State {
	case Completed, Cancelled, Failed, Timeout, Deadline, OutOfMemory, NodeFail, BootFail, Preempted, Revoked:
		return true
	}
	return false
}

// Waits says whether the job is in the queue: it has not begun, or Slurm has put it back there.
func (j Job) Waits() bool {
	switch j.State {
	case Pending, Requeued, RequeueHold, SpecialExit:
		return true
	}
	return false
}

// Queue is squeue.
func (c *commands) Queue(ctx context.Context, names ...string) ([]Job, error) {
	args := []string{"--me", "--states=all", "--noheader", "--format=%i|%T|%P|%D|%N|%l|%S|%e|%r|%j"}
	if len(names) > 0 {
		args = append(args, "--name="+strings.Join(names, ","))
	}
	out, err := c.run(ctx, "squeue", args...)
	if err != nil {
		return nil, err
	}
	return parseQueue(out)
}

func parseQueue(out string) ([]Job, error) {
	var jobs []Job
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", 10)
		if len(f) != 10 || !isNumber(f[0]) {
			if len(f) > 1 && strings.ContainsAny(f[0], "_+") {
				continue // an array or heterogeneous job: not one of ours
			}
			if len(f) > 1 {
				return nil, fmt.Errorf("squeue printed %q, which is not a job", line)
			}
			continue // a job's name may hold a line's end
		}
		nodes, _ := strconv.Atoi(f[3])
		j := Job{ID: f[0], State: f[1], Partition: f[2], Nodes: nodes, NodeList: f[4], TimeLimit: f[5], Start: seconds(f[6]), Reason: f[8], Name: f[9]}
		if j.Ended() {
			j.End = seconds(f[7])
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// seconds reads a time as SLURM_TIME_FORMAT=%s has it; "N/A", "NONE" and "Unknown" are no time.
func seconds(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// ErrUnknown means that Slurm and its accounting know nothing of a job.
var ErrUnknown = errors.New("slurm does not know the job")

// Job is scontrol, and sacct for what the controller has forgotten.
func (c *commands) Job(ctx context.Context, id, name string) (Job, error) {
	out, err := c.run(ctx, "scontrol", "show", "job", "--oneliner", id)
	if err == nil {
		if j := parseShow(out); j.ID == id && j.Name == name {
			return j, nil
		}
	} else if Away(err) {
		return Job{}, err
	}
	if j, ok := c.Accounted(ctx, id, name); ok {
		return j, nil
	}
	return Job{}, fmt.Errorf("job %s: %w", id, ErrUnknown)
}

// Accounted is sacct, be it with a database or a file of completed jobs.
func (c *commands) Accounted(ctx context.Context, id, name string) (Job, bool) {
	for _, from := range [][]string{{"--allocations"}, {"--completion"}} {
		out, err := c.run(ctx, "sacct", append(from, "--noheader", "--parsable2", "--jobs="+id,
			"--format=JobID,JobName,State,ExitCode,Start,End,Partition,NodeList")...)
		if err != nil {
			continue
		}
		for line := range strings.Lines(out) {
			if j, ok := parseAccount(line); ok && j.ID == id && j.Name == name {
				return j, true
			}
		}
	}
	return Job{}, false
}

// parseShow reads the line of "scontrol show job --oneliner". What users may write freely comes after what is read here.
func parseShow(line string) Job {
	get := func(key string) string {
		_, rest, ok := strings.Cut(" "+line, " "+key+"=")
		if !ok {
			return ""
		}
		value, _, _ := strings.Cut(rest, " ")
		return strings.TrimSpace(value)
	}
	j := Job{ID: get("JobId"), Name: get("JobName"), State: get("JobState"), Reason: get("Reason"), Partition: get("Partition"),
		NodeList: get("NodeList"), TimeLimit: get("TimeLimit"), Start: seconds(get("StartTime")), End: seconds(get("EndTime"))}
	j.Nodes, _ = strconv.Atoi(get("NumNodes"))
	j.Restarts, _ = strconv.Atoi(get("Restarts"))
	j.ExitCode, j.Signal = exit(get("ExitCode"))
	return j
}

// exit reads "code:signal".
func exit(s string) (code, signal int) {
	a, b, _ := strings.Cut(s, ":")
	code, _ = strconv.Atoi(a)
	signal, _ = strconv.Atoi(b)
	return code, signal
}

// parseAccount reads a line of sacct.
func parseAccount(line string) (Job, bool) {
	f := strings.Split(strings.TrimSpace(line), "|")
	if len(f) != 8 {
		return Job{}, false
	}
	j := Job{ID: f[0], Name: f[1], Start: seconds(f[4]), End: seconds(f[5]), Partition: f[6], NodeList: f[7]}
	state, by, _ := strings.Cut(f[2], " by ")
	j.State, j.By = strings.TrimSuffix(state, "+"), userName(by)
	j.ExitCode, j.Signal = exit(f[3])
	return j, true
}

// userName is the name of a user number, as far as this computer knows it.
func userName(id string) string {
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
