// Package slurm runs tasks as Slurm jobs: one sbatch a task, of as many nodes as the task has ranks. Nodes need no agent: the
// program for tasks (internal/taskrun) stages and runs the task there. Slurm decides when and where; this package decides nothing, and never lets Slurm begin a
// job a second time: what Slurm takes away is a lost node, and another attempt is the server's to make.
//
// A task's life, on disk, in a folder that the nodes see under the same path:
//
//	tasks/<TaskID.Dir()>/task.json  made first: the task, for the program (it holds tokens), and the name of its job
//	                     job        the job's number, once sbatch has said it
//	                     task.json.N.begun  the program has begun with rank N; no other start of it ever does
//	                     log        what the task writes; of a gang, log.0, log.1, …
//	                     slurm.out  what Slurm and the script say
//	                     stop.json  Stop was called, and until when the task may take
//	                     grace      how long the user's process may take to end, in milliseconds, for the program
//	                     end.json   how it ended, if what the program left does not say it
//	signs/<TaskID.Dir()>.b          made by the batch script before all else: the number of the job that runs the task
//	                     .0, .1, …  the ends of the ranks, as the program tells them
//
// Exactly once: a folder without a number may be that of an agent that died around sbatch. Whoever comes after reads the
// sign, then looks for the name in the queue, and submits only if neither tells of a job. Should two jobs be made all the same, only the first of them can make the sign: the second leaves at once.
// A Slurm that dies before it has written down what it did may start one job twice: then the program's second start waits for the first's end.
package slurm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
	"github.com/trainyard/trainyard/internal/target"
)

// Kind is the entry for the list of targets.
func Kind() target.Kind {
	return target.Kind{
		Name:       "slurm",
		Doc:        "jobs of a Slurm cluster",
		New:        func() target.Config { return &Config{} },
		SelfStaged: true,
	}
}

// Config is where jobs go and how Slurm is reached.
type Config struct {
	slurm.Settings
	ServerURL string `json:"serverURL,omitempty"` // at which nodes reach the server; default the server's own, which Env.Server is in either case
}

// Validate says what is wrong with c.
func (c *Config) Validate() error {
	if c.ServerURL != "" {
		if err := trainyard.CheckServerURL(c.ServerURL); err != nil {
			return trainyard.Invalid("server_url: %v", err)
		}
	}
	return c.Settings.Validate()
}

var (
	_ target.Config  = (*Config)(nil)
	_ target.Driver  = (*Driver)(nil)
	_ target.Watcher = (*Driver)(nil)
	_ target.Leaver  = (*Driver)(nil)
	_ target.Closer  = (*Driver)(nil)
)

// lockPatience is how long Open waits for another agent, and for submissions that one left under way.
const lockPatience = 30 * time.Second

// Open takes env.Dir for this process alone, and finds the tasks that are there. It does not ask Slurm, but goes to where the files are.
func (c *Config) Open(ctx context.Context, env target.Env) (target.Driver, error) {
	return c.open(ctx, env, nil)
}

// open is Open. step, if not nil, is called by name between any two steps of a start, so that tests can die there.
func (c *Config) open(ctx context.Context, env target.Env, step func(string)) (*Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(env.Program) {
		return nil, trainyard.Invalid("target slurm: program %q is not an absolute path, and nodes are to run it", env.Program)
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("open slurm target: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open slurm target: %w", err)
	}
	if err := c.CheckServer(env.Server); err != nil {
		return nil, err
	}
	lock, err := slurm.Lock(ctx, dir, lockPatience)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	d := &Driver{
		settings: c.Settings, env: env, client: c.Client(dir), lock: lock, step: step,
		life: life, end: end, finishing: target.Finishing,
		tasks:   map[string]*task{},
		submits: make(chan struct{}, maxSubmits), searches: make(chan struct{}, maxSearches),
		changed: make(chan struct{}, 1),
		kick:    make(chan struct{}, 1),
	}
	if err := d.settle(ctx, dir); err != nil {
		d.Close()
		return nil, err
	}
	d.work.Go(d.watch)
	for _, t := range d.tasks {
		if t.stop != nil && t.job != "" {
			d.tend(t)
		}
	}
	return d, nil
}

// settle makes the folders that nodes see, puts there what they need, and reads what is there.
func (d *Driver) settle(ctx context.Context, dir string) error {
	id, err := slurm.Identity(dir)
	if err != nil {
		return fmt.Errorf("open slurm target: %w", err)
	}
	d.suffix, d.base = "@"+id, dir
	if d.settings.Folder != "" {
		d.base = slurm.Beside(d.settings.Folder, id)
	}
	if err := slurm.CheckFolder(d.base); err != nil {
		return err
	}
	for _, name := range []string{tasksFolder, signsFolder, sharedFolder} {
		if err := d.client.Mkdir(filepath.Join(d.base, name)); err != nil {
			return fmt.Errorf("open slurm target: %w", err)
		}
	}
	d.program = d.env.Program
	if d.settings.Folder != "" {
		if d.program, err = d.client.Program(ctx, d.env.Program); err != nil {
			return err
		}
		if d.program, err = slurm.Share(d.client, d.program, filepath.Join(d.base, sharedFolder), 0o700); err != nil {
			return fmt.Errorf("copy this program to where nodes see it: %w", err)
		}
	}
	return d.adopt()
}

// Found is what Probe saw.
type Found struct {
	HostKey string   // of the login node, where there is one: for Login.HostKey
	Notes   []string // in words
}

// Probe looks at the partition and has Slurm look at the settings, without changing anything, and says in words what is there. What Slurm does
// not take has CodeInvalid.
func (c *Config) Probe(ctx context.Context) (Found, error) {
	if err := c.Validate(); err != nil {
		return Found{}, err
	}
	client := c.Client("")
	defer client.Close()
	r, nodes, err := capacity(ctx, client, c.Partition)
	if err != nil {
		return Found{}, err
	}
	if c.Folder != "" {
		if _, err := client.Stat(c.Folder); err != nil {
			return Found{}, trainyard.Invalid("folder %s cannot be used: %v; make it, and see that this server and the cluster's nodes may use it", c.Folder, err)
		}
	}
	if err := client.Try(ctx, &c.Settings); err != nil {
		return Found{}, err
	}
	where := "Slurm"
	if c.Partition != "" {
		where = "partition " + c.Partition
	}
	f := Found{Notes: []string{fmt.Sprintf("%s has %d nodes with %.0f CPUs, %d GB of memory and %d GPUs together", where, nodes, r.CPUs, r.MemoryMB/1024, r.GPUs)}}
	if key, fingerprint := client.HostKey(); key != "" {
		f.HostKey = key
		f.Notes = append(f.Notes, fmt.Sprintf("the host key of its login node is %s; it is believed from now on", fingerprint))
	}
	return f, nil
}

// capacity is what the nodes of a partition have together.
func capacity(ctx context.Context, c *slurm.Client, partition string) (r trainyard.Resources, nodes int, err error) {
	list, err := c.Nodes(ctx, partition)
	for _, n := range list {
		r.CPUs += float64(n.CPUs)
		r.MemoryMB += n.MemoryMB
		r.GPUs += n.GPUs
	}
	return r, len(list), err
}

// Capacity is what the nodes of the partition have together, whatever runs there. How many tasks may be handed over is bounded only so
// that no agent drowns in them: the queue is Slurm's.
func (d *Driver) Capacity(ctx context.Context) (trainyard.Resources, error) {
	r, _, err := capacity(ctx, d.client, d.settings.Partition)
	if err != nil {
		return trainyard.Resources{}, err
	}
	r.Slots = slots
	l := d.env.Limit
	if l.CPUs > 0 {
		r.CPUs = min(r.CPUs, l.CPUs)
	}
	if l.MemoryMB > 0 {
		r.MemoryMB = min(r.MemoryMB, l.MemoryMB)
	}
	if l.GPUs > 0 {
		r.GPUs = min(r.GPUs, l.GPUs)
	}
	if l.Slots > 0 {
		r.Slots = min(r.Slots, l.Slots)
	}
	return r, nil
}

// slots is how many tasks may wait and run in Slurm at once.
const slots = 1000
