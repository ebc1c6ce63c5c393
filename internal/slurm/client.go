package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Client asks one Slurm, and has the files that its nodes see. How it asks is the settings' to say: with Slurm's commands here, with those on
// a login node, or through slurmrestd.
type Client struct {
	door
	Files
	close func()
}

// door is a way to ask a Slurm.
type door interface {
	// Submit hands a job to Slurm and returns its number. A job that Slurm takes off its node is not begun again by Slurm.
	Submit(ctx context.Context, b Batch) (string, error)
	// Queue lists this user's jobs that Slurm still knows: those that wait and run, and for some minutes those that have ended. With names
	// it lists only those.
	Queue(ctx context.Context, names ...string) ([]Job, error)
	// Job asks for one job by number and name, which must both be its: numbers are given out again. It asks the controller, then
	// accounting, where there is one.
	Job(ctx context.Context, id, name string) (Job, error)
	// Accounted asks accounting alone. It is no error that there is none.
	Accounted(ctx context.Context, id, name string) (Job, bool)
	// Nodes lists the nodes of a partition, or of all partitions. A partition without nodes, or one that does not exist, is an error.
	Nodes(ctx context.Context, partition string) ([]Node, error)
	// HoldsMemory says whether Slurm ends jobs that use more memory than they asked for, by its configuration.
	HoldsMemory(ctx context.Context) (bool, error)
	// end ends a job, or a part of it. It is no error that there is nothing to end.
	end(ctx context.Context, j Ref, how ending) error
}

// Close lets go of the connection, if there is one.
func (c *Client) Close() { c.close() }

// Ref names a job: the number finds it, and the name tells it from another that was given the number since. A controller that loses its
// state gives numbers out again.
type Ref struct{ ID, Name string }

// Part is a part of a job that a signal can be for.
type Part int

// The parts of a job.
const (
	Script Part = iota // its batch script alone
	Steps              // the tasks of its steps alone
)

// ending is how a job is ended: by a signal for a part of it, and if there is none as a whole, whatever it does or only if it waits.
type ending struct {
	signal  string
	part    Part
	waiting bool
}

// Signal sends a signal to what runs of a job. One that does not run is left as it is. A way to Slurm that cannot tell a job's parts apart
// sends it to both.
func (c *Client) Signal(ctx context.Context, j Ref, signal string, part Part) error {
	return c.end(ctx, j, ending{signal: signal, part: part})
}

// CancelPending takes a job out of the queue if it has not begun.
func (c *Client) CancelPending(ctx context.Context, j Ref) error {
	return c.end(ctx, j, ending{waiting: true})
}

// Cancel ends a job. Slurm sends SIGTERM to all its processes, and SIGKILL when its own grace (KillWait) is over.
func (c *Client) Cancel(ctx context.Context, j Ref) error { return c.end(ctx, j, ending{}) }

// slowest is how long an answer may take: without a controller commands give up by themselves after some 10 s, or 20.
const slowest = time.Minute

// errAway is in the chain of an Error for a login node or a service that could not be reached.
var errAway = errors.New("out of reach")

// Error is a command that said no.
type Error struct {
	Command string // squeue, or the way to Slurm
	Words   string // what it said
	Err     error
}

func (e *Error) Error() string {
	if e.Words == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	}
	return e.Command + ": " + e.Words
}

func (e *Error) Unwrap() error { return e.Err }

// away are words of commands that reached nobody: the same again later may work. From slurm_errno.c and slurm_protocol_api.c.
var away = []string{"unable to contact slurm controller", "socket timed out", "connection refused", "connect failure", "connection reset",
	"temporarily unable to accept job", "zero bytes were transmitted", "standby mode", "resource temporarily unavailable",
	"unexpected message received", "munge encode failed", "munge decode failed", "authentication credential", "no route to host",
	"insane message length", "communication connection failure", "message connection failure", "slurmctld disabled", "could not establish a configuration source",
	"protocol authentication error", "failed to load previous job state", "transport endpoint is not connected"}

// Away says whether err means that Slurm, or the way to it, could not be asked, rather than that it said no.
func Away(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return true
	}
	if errors.Is(e.Err, errAway) {
		return true
	}
	words := strings.ToLower(e.Words)
	for _, w := range away {
		if strings.Contains(words, w) {
			return true
		}
	}
	return false
}

// Batch is one job to submit.
type Batch struct {
	Script string // its text
	Name   string // by which it is found again
	Dir    string // working directory
	Output string // file for what the script and Slurm itself say

	Nodes    int // each gets one task of:
	CPUs     int
	MemoryMB int64
	GPUs     int
	Time     time.Duration // 0: as the settings or the partition say
	Args     []string      // of Settings

	Hold *os.File // kept open by sbatch while it runs, whatever becomes of us
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// lastWords is what a command complained of, in one line, without the names before each.
func lastWords(errs string) string {
	var said []string
	for line := range strings.Lines(errs) {
		line = strings.TrimSpace(line)
		if _, rest, ok := strings.Cut(line, ": error: "); ok {
			line = rest
		}
		for _, before := range []string{"Batch job submission failed: ", "allocation failure: ", "sbatch: "} {
			line = strings.TrimPrefix(line, before)
		}
		if strings.HasPrefix(line, "Try \"") { // "sbatch --help" for more
			continue
		}
		if line != "" && !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	text := strings.Join(said, "; ")
	return text[:min(len(text), 500)]
}
