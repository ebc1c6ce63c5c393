// Package slurm makes machines that are allocations of a Slurm cluster: each is one batch job that holds a node, or a part of one, and runs
// an agent there until the machine is not wanted any more. Many short tasks then cost one sbatch. It decides nothing about when or where: a
// machine that Slurm has not begun yet is one that starts, with Slurm's own reason; one that Slurm took away is dead.
//
// On disk, in a folder that the nodes see under the same path:
//
//	machines/NODE/machine.json   what the machine is, and the name of its job
//	machines/NODE/join-token     for the agent, its owner alone may read it
//	machines/NODE/agent.sh       starts the agent
//	machines/NODE/go             asks the batch script of a job to start an agent, "JOB NUMBER SERVER"; another text asks for it again
//	machines/NODE/notice         "SECONDS CLASS WORDS", when Slurm takes it away: until when, and why
//	machines/NODE/agent.log      what the agent says; agent.log.1 is what it said before that
//	machines/NODE/slurm.out      what Slurm says
//	machines/NODE/node/          the agent's own
//	states/NODE                  "up PID GO" or "down STATUS GO", by the batch script: GO is the text of the file go that it started the agent by
package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/slurm"
)

// Kind is the entry for the list of fleets.
func Kind() fleet.Kind {
	return fleet.Kind{Name: "slurm", Doc: "allocations of a Slurm cluster", New: func() fleet.Config { return &Config{} }, Far: true}
}

// Config is where allocations come from and how Slurm is reached. MachineSpec.Settings may say otherwise for one compute, but for how
// Slurm and the server are reached and where files are.
type Config struct {
	slurm.Settings
	Cache     string `json:"cache,omitempty"`     // folder on the nodes for code, data and environments; default in Folder, for all nodes
	ServerURL string `json:"serverURL,omitempty"` // at which nodes reach the server; default the server's own
}

var cachePath = regexp.MustCompile(`^/[A-Za-z0-9_./@:+,=-]*$`)

// Validate says what is wrong with c.
func (c *Config) Validate() error {
	if c.Cache != "" && !cachePath.MatchString(c.Cache) {
		return trainyard.Invalid("cache %q cannot be used; it must be the absolute path of a folder on the nodes", c.Cache)
	}
	if c.ServerURL != "" {
		if err := trainyard.CheckServerURL(c.ServerURL); err != nil {
			return trainyard.Invalid("serverURL: %v", err)
		}
	}
	return c.Settings.Validate()
}

// lockPatience is how long Open waits for another server, and for submissions that one left under way.
const lockPatience = 30 * time.Second

// Open takes env.Dir for this process alone. It does not ask Slurm, and does not need its login node yet.
func (c *Config) Open(ctx context.Context, env fleet.Env) (fleet.Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of machines: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of machines: %w", err)
	}
	server := env.Server
	if c.ServerURL != "" {
		server = c.ServerURL
	}
	if err := c.CheckServer(server); err != nil {
		return nil, err
	}
	lock, err := slurm.Lock(ctx, dir, lockPatience)
	if err != nil {
		return nil, err
	}
	d := &Driver{config: *c, env: env, log: env.Log, client: c.Client(dir), lock: lock, submits: make(chan struct{}, maxSubmits),
		changed: make(chan struct{}, 1)}
	d.life, d.end = context.WithCancel(context.Background())
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.env.Server = server
	if err := d.place(dir); err != nil {
		d.Close()
		return nil, err
	}
	if err := d.settle(ctx); err != nil && !slurm.Away(err) {
		d.Close()
		return nil, err
	}
	d.work.Go(d.watch)
	return d, nil
}

// place says where the folder is that nodes see.
func (d *Driver) place(dir string) error {
	id, err := slurm.Identity(dir)
	if err != nil {
		return fmt.Errorf("open the folder of machines: %w", err)
	}
	d.suffix, d.base = "@"+id, dir
	if d.config.Folder != "" {
		d.base = slurm.Beside(d.config.Folder, id)
	}
	return slurm.CheckFolder(d.base)
}

// settle makes the folders that nodes see, and puts there what they need, once. The way there may be closed at first.
func (d *Driver) settle(ctx context.Context) (err error) {
	d.settling.Lock()
	defer d.settling.Unlock()
	if d.settled {
		return nil
	}
	for _, name := range []string{machinesFolder, statesFolder, sharedFolder} {
		if err := d.client.Mkdir(filepath.Join(d.base, name)); err != nil {
			return fmt.Errorf("make the folder of machines: %w", err)
		}
	}
	shared := d.config.Folder != ""
	d.program, d.ca, d.cache, d.hide = d.env.Binary, d.env.CA, d.config.Cache, d.env.Hide
	if d.cache == "" && !shared {
		d.cache = d.env.Cache
	}
	if !shared {
		d.settled = true
		return nil
	}
	if d.cache == "" {
		d.cache = filepath.Join(d.base, "cache")
	}
	d.hide = append([]string{filepath.Join(d.base, machinesFolder)}, d.hide...)
	if d.program, err = d.client.Program(ctx, d.env.Binary); err != nil {
		return err
	}
	if d.program, err = slurm.Share(d.client, d.program, filepath.Join(d.base, sharedFolder), 0o700); err != nil {
		return fmt.Errorf("copy this program to where nodes see it: %w", err)
	}
	if d.env.CA != "" {
		if d.ca, err = slurm.Share(d.client, d.env.CA, filepath.Join(d.base, sharedFolder), 0o600); err != nil {
			return fmt.Errorf("copy the certificate authority to where nodes see it: %w", err)
		}
	}
	d.settled = true
	return nil
}

// settings are those of one machine: the fleet's, and what its compute says otherwise.
func (d *Driver) settings(spec trainyard.MachineSpec) (slurm.Settings, error) {
	s := d.config.Settings
	if len(spec.Settings) == 0 {
		return s, nil
	}
	was := s
	s.Login, s.REST = nil, nil // what they point at is the location's
	if err := json.Unmarshal(spec.Settings, &s); err != nil {
		return s, trainyard.Invalid("settings of compute %q cannot be read: %v", spec.Compute.Name(), err)
	}
	if s.Commands != was.Commands || s.ConfPath != was.ConfPath || s.Folder != was.Folder || s.Login != nil || s.REST != nil {
		return s, trainyard.Invalid("compute %q cannot have commands, confPath, folder, login or rest of its own: they are the location's", spec.Compute.Name())
	}
	s.Login, s.REST = was.Login, was.REST
	return s, s.Validate()
}

// Driver is the fleet.
type Driver struct {
	config  Config
	env     fleet.Env
	log     *slog.Logger
	client  *slurm.Client
	lock    *os.File
	submits chan struct{} // holds a value for each sbatch that runs
	changed chan struct{}

	settling sync.Mutex // held by the one who settles
	settled  bool

	base    string // folder that the nodes see
	suffix  string // of the names of all our jobs, and of no others
	program string // this and what follows as the nodes see it
	ca      string
	cache   string
	hide    []string

	life context.Context // until Close
	end  context.CancelFunc
	once sync.Once
	work sync.WaitGroup

	turns fleet.Turns // by folder

	looking sync.Mutex // held by the one who asks Slurm
	queue   map[string]slurm.Job
	asked   time.Time
	took    time.Duration
}

var _ fleet.Driver = (*Driver)(nil)

// Close lets go of the folder. Machines go on.
func (d *Driver) Close() error {
	var err error
	d.once.Do(func() {
		d.end()
		d.work.Wait()
		d.client.Close()
		err = d.lock.Close()
	})
	return err
}

// Changed gets a value when an agent begins or ends.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// watch looks whether batch scripts have said something: one small call however many machines there are.
func (d *Driver) watch() {
	var last, seen time.Time // by the folder's clock, and when that was seen
	for pace := 200 * time.Millisecond; ; {
		select {
		case <-d.life.Done():
			return
		case <-time.After(pace):
		}
		began := time.Now()
		info, err := d.client.Stat(filepath.Join(d.base, statesFolder))
		pace = max(200*time.Millisecond, 20*time.Since(began))
		if err != nil {
			continue
		}
		fresh := !info.ModTime().Equal(last)
		if fresh {
			last, seen = info.ModTime(), time.Now()
		}
		if fresh || last.Nanosecond() == 0 && time.Since(seen) < 1200*time.Millisecond { // a clock of seconds hides what comes second
			select {
			case d.changed <- struct{}{}:
			default:
			}
		}
	}
}

// alone waits until nobody else works on a machine, and keeps others out until done is called.
func (d *Driver) alone(name string) (done func()) {
	done, _ = d.turns.Alone(context.Background(), name)
	return done
}
