// Package target is the contract for running tasks: one folder below it per kind. A driver starts, observes and stops tasks that have
// been staged; it knows nothing of jobs, queues, the store or the network door, and never waits for a task to end.
//
// For those who write a driver:
//   - Every method is idempotent and keyed by task ID. The agent calls again after a crash, so "it has begun" must be known from what is
//     on disk or in the engine, never from memory alone.
//   - Start must be exactly-once across a crash at any instruction: either the user's process never ran, and a later Start runs it, or it
//     ran, and a later Start does nothing.
//   - Observe returns everything of ours or an error. Half a view makes the agent lose tasks.
//   - A task outlives the agent. Its exit status is kept until Remove.
//   - What an engine accepts and does not run yet (a queue of its own) is observed as TaskStaging, with the engine's own words for why in
//     Progress. It counts as begun: Start does nothing more.
//   - Stop and Remove of an unknown task are no errors.
//   - targettest holds all this as one suite; a driver's test is one call of it.
package target

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
)

// Driver runs tasks on one place.
type Driver interface {
	// Capacity is what tasks may use here; it is the health check as well.
	Capacity(ctx context.Context) (trainyard.Resources, error)
	// Start begins the task, or does nothing if it has begun.
	Start(ctx context.Context, t trainyard.Task) error
	// Observe lists all tasks that the driver holds: whole or not at all.
	Observe(ctx context.Context) ([]trainyard.Observation, error)
	// Stop asks every process of the task to end (SIGTERM, once), and ends it and everything it started after grace, which counts from when it
	// could be asked: while its engine is away that is tried again. A second Stop may shorten the grace, never lengthen it. It does not wait for
	// the end.
	Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error
	// Remove ends the task if it runs, and takes away every trace of it, its logs too.
	Remove(ctx context.Context, id trainyard.TaskID) error
	// Logs reads standard output and error of the task from a byte offset to the present end; it does not follow. An offset past the
	// end reads nothing.
	Logs(ctx context.Context, id trainyard.TaskID, from int64) (io.ReadCloser, error)
}

// Finishing is how long what an engine began and stages itself may take, after the grace of the user's process, to store what there is to be
// stored. Then the engine ends it.
const Finishing = 2 * time.Minute

// Watcher is a Driver that can say when to look. Changed's channel gets a value when a task begins or ends, and may get one when it
// writes; values may be merged. The agent looks now and then in any case.
type Watcher interface {
	Changed() <-chan struct{}
}

// Plural is a Driver that is several. Each is looked at by itself: one that takes its time, or does not answer, keeps nothing back of what
// the others see.
type Plural interface {
	// Parts are the drivers that it is, always the same.
	Parts() []Driver
	// ObservePart is Observe for one of Parts, which holds what it lists.
	ObservePart(ctx context.Context, part Driver) ([]trainyard.Observation, error)
	// Holder is the part that holds the task. Where that is not known holds is false, and it is the one that would be given it.
	Holder(t *trainyard.Task) (part Driver, holds bool)
}

// Named is a Driver whose engine has a name for people, as the beginning of a sentence that goes on in small letters: "the Docker engine".
type Named interface {
	Engine() string
}

// Hearer is a Driver that goes on for a while from what its engine said last, so that a look succeeds though the engine is away.
type Hearer interface {
	// Unheard is why the engine is not heard, and since when. A nil error: it is, or nothing is known yet.
	Unheard() (since time.Time, err error)
}

// Preparer is a Driver that brings a task's environment itself, such as an image, since it must be there before Start, which may not wait
// for it. Staging brings only code and data for a task that Contains says yes to.
type Preparer interface {
	// Contains says whether the driver brings the environment of t. It looks at t alone.
	Contains(t trainyard.Task) bool
	// Prepare brings the environment of a staged task, once for all tasks that share its hash, and returns when it is there. What
	// goes on is said with p.Say, and the whole of a build's output goes to p.Log. It may be called again after a crash. An error with
	// a trainyard.ClassError in its chain is the end of the task, any other is tried again.
	Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) error
}

// Reached is a Driver whose containers reach this computer.
type Reached interface {
	// Reached is the address of this computer at which the container of a replica finds it. CodeUnsupported: it does not.
	Reached(ctx context.Context) (host string, err error)
}

// Meter is a Driver that can say what a task uses.
type Meter interface {
	// Usage is what all processes of a task that runs use. trainyard.CodeUnsupported: it cannot be measured here.
	Usage(ctx context.Context, id trainyard.TaskID) (Usage, error)
}

// Usage is what a task uses.
type Usage struct {
	CPU      time.Duration // of processors since it began
	MemoryMB int64         // now
	PeakMB   int64         // the most since it began; 0: not known
	OOMKills int           // processes of it that were ended because its memory had run out

	GPU    *float64 // percent of the GPUs that it was given, now: their mean. nil: not known
	GPUWhy string   // why GPU is not known
}

// Dialer is a Driver whose engine can reach the port of a replica (trainyard.Task.Serve) where the node itself cannot.
type Dialer interface {
	// Dial connects with the port. The caller closes the connection. It may offer CloseWrite() error, as a *net.TCPConn does.
	Dial(ctx context.Context, id trainyard.TaskID) (net.Conn, error)
}

// ImageChecker is a Driver that can say whether an image can be had, without bringing it: of a job that waits, it is said at once.
type ImageChecker interface {
	// CheckImage answers within ctx. An error says that nothing is known.
	CheckImage(ctx context.Context, image string) (trainyard.ImageWord, error)
}

// Teller is a Driver whose engine begins places for a task, such as pods, that ask what they are to run.
type Teller interface {
	// Tell answers a place that shows its ticket: with the task as JSON, once it is written down that it begins there. trainyard.CodeBusy:
	// ask again; CodeForbidden: nothing begins there by asking.
	Tell(ctx context.Context, id trainyard.TaskID, ticket string) (json.RawMessage, error)
}

// Leaver is a Driver that keeps something in its engine for all tasks.
type Leaver interface {
	// Leave takes it away, when the node has been let go of and has no tasks. Close follows.
	Leave(ctx context.Context) error
}

// Closer is a Driver with something to let go of. Tasks go on.
type Closer interface {
	Close() error
}

// Kind is an entry in cmd/trainyard's list of targets.
type Kind struct {
	Name string
	Doc  string
	New  func() Config

	// SelfStaged kinds hand tasks to an engine that runs them on places without an agent. Their tasks come to Start as the server made
	// them, not staged; what the engine starts is Env.Program (internal/taskrun), as "task --file TASK.json --result FILE [--rank N --hosts A,B]", which
	// stages the task where it runs, runs it, writes its log to standard output and its end to FILE (trainyard.TaskEnd).
	SelfStaged bool
}

// Variable names the environment variable in which a machine's agent finds the kind's settings for that machine, as JSON.
func (k Kind) Variable() string { return "TRAINYARD_" + strings.ToUpper(k.Name) }

// Config is a kind's settings and constructor in one: the JSON of a compute's own settings is decoded into it.
type Config interface {
	Validate() error
	Open(ctx context.Context, env Env) (Driver, error)
}

// Env is what every driver is given.
type Env struct {
	Dir   string              // a folder of its own that outlives the process
	Limit trainyard.Resources // what all tasks together may use; zero fields: whatever there is
	Group string              // a name unique to this node on its machine, for what is visible outside Dir (cgroups, labels)
	GPUs  *gpu.Reader         // of this computer, shared by its drivers; nil: the driver's own
	Log   *slog.Logger
	Alone bool // it is for one task, and nobody comes back to Dir: no more need be written down than the task itself reads

	// Place names what all that runs here lives in, where that is less than the computer, such as one allocation of a cluster: a task that was
	// begun in another is gone for good. "": tasks live as long as the computer is on.
	Place string
	Lost  trainyard.Result // how such a task ended that left no word: Class and Message

	Program string   // path of the program that SelfStaged kinds start; those for other processors are beside it, as trainyard-linux-ARCH
	Tells   bool     // places may ask the server what they are to run: Teller
	Server  string   // URL at which what Program runs reaches the server
	CA      string   // file with the certificate authority of that URL; empty for plain HTTP
	Hide    []string // paths of this computer that no task may reach, where an engine runs tasks that see its files
}
