// Package ssh makes machines of computers that exist already and that one can log in to: the server copies its one program there, starts
// it as the agent under the user's account, and lets it dial home through the same connection. It installs nothing system-wide, needs no
// root, no Python and no open port but sshd's, and it makes no computers.
//
// The way home: on the machine, sshd listens on a port of 127.0.0.1 (ssh -R) and what arrives there is piped to the server's own port. The
// agent speaks TLS through it and trusts the server's CA alone, because every user of the machine can reach that port; the driver hangs up
// on whoever does not begin with TLS. When the connection breaks the agent and its tasks go on, the driver connects again for as long as
// the machine is wanted, on the same port, and everything is delivered then.
//
// On the machine, below the home folder of its user (NAME is the machine's ID and this fleet's mark, so that two servers can share it):
//
//	.trainyard/bin/SHA256/trainyard   the program, shared by all machines of that user
//	.trainyard/NAME/program           which program it uses: what nobody names is cleared away
//	.trainyard/NAME/tunnel            which sshd process holds our port, to end it when it outlives its connection
//	.trainyard/NAME/own/              what tasks may not see: join token, CA, agent.log, the agent's folder
//	.trainyard/NAME/cache/            code, data, environments and the tasks' working folders
//
// Here, below Env.Dir:
//
//	mark, key                         of this fleet, made once; key seals the files called access
//	NAME/machine.json                 what the machine is; written before anything is done there, removed after everything there is gone
//	NAME/access                       how to log in, sealed: a machine that is no longer wanted must still be cleared after a restart
package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/login"
)

// Kind is the entry for the list of fleets.
func Kind() fleet.Kind {
	return fleet.Kind{Name: "ssh", Doc: "existing computers, reached over SSH", New: func() fleet.Config { return &Config{} }, Far: true}
}

// Config is how the fleet works. The zero value is right for most: how to reach a machine comes with its MachineSpec.
type Config struct {
	// Key seals on disk what is needed to log in to machines: 32 bytes. Empty, a key is made and kept in Env.Dir, for its owner alone.
	Key []byte `json:"-"`

	look     time.Duration // between looks at a machine; 0 is usual
	alive    time.Duration // between questions whether the other end of a connection lives; 0 is usual
	patience time.Duration // how long Grow waits before it leaves the rest to the background; 0 is usual
}

// Validate says what is wrong with c.
func (c *Config) Validate() error {
	if len(c.Key) != 0 && len(c.Key) != keySize {
		return trainyard.Invalid("the key of the ssh fleet has %d bytes; %d are needed", len(c.Key), keySize)
	}
	return nil
}

const (
	usualLook     = 10 * time.Second
	usualPatience = 20 * time.Second
)

// Open opens the fleet in env.Dir, and begins to connect to the machines that are there.
func (c *Config) Open(_ context.Context, env fleet.Env) (fleet.Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	d, err := newDriver(c, env)
	if err != nil {
		return nil, err
	}
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := d.load(name); err != nil {
			d.damaged = append(d.damaged, err)
		}
	}
	return d, nil
}

func newDriver(c *Config, env fleet.Env) (*Driver, error) {
	d := &Driver{env: env, log: env.Log, look: cmp.Or(c.look, usualLook), alive: cmp.Or(c.alive, login.Alive), patience: cmp.Or(c.patience, usualPatience),
		changed: make(chan struct{}, 1), machines: map[string]*machine{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if d.home, err = homeAddress(env.Server); err != nil {
		return nil, err
	}
	if env.CA == "" {
		return nil, trainyard.Invalid(
			"the ssh fleet of location %q needs the server's CA certificate: agents speak TLS through their machines' loopback, which others can reach",
			env.Name)
	}
	ca, err := os.ReadFile(env.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA certificate for agents: %w", err)
	}
	d.ca = strings.TrimSpace(string(ca))
	if d.env.Dir, err = filepath.Abs(env.Dir); err != nil {
		return nil, fmt.Errorf("find the folder of machines: %w", err)
	}
	if err := os.MkdirAll(d.env.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of machines: %w", err)
	}
	if d.mark, err = d.ownMark(); err != nil {
		return nil, err
	}
	if d.seal, err = d.sealer(c.Key); err != nil {
		return nil, err
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d, nil
}

// homeAddress is host:port of the server that agents are connected to.
func homeAddress(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "", trainyard.Invalid("%q is not the URL of a server: want https://HOST:PORT", server)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// Driver is the fleet.
type Driver struct {
	env      fleet.Env
	log      *slog.Logger
	home     string // host:port of the server
	ca       string // PEM
	mark     string // of this fleet, in the names of its folders on machines
	seal     sealer
	look     time.Duration
	alive    time.Duration
	patience time.Duration
	changed  chan struct{}
	ctx      context.Context // of what goes on between calls; done when the driver is closed
	stop     context.CancelFunc
	work     sync.WaitGroup
	turns    fleet.Turns // by machine, and by home folder there
	damaged  []error     // records that cannot be read

	mu       sync.Mutex
	machines map[string]*machine // by name
}

var _ fleet.Driver = (*Driver)(nil)

// Close lets go of all connections. Machines go on; their agents wait for the next driver to open their way home.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.stop()
	d.mu.Unlock()
	d.work.Wait()
	return nil
}

// spawn starts what Close waits for; it says false if the driver is closed.
func (d *Driver) spawn(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return false
	}
	d.work.Go(f)
	return true
}

var errClosed = errors.New("the ssh fleet is closed")

// Changed says that an agent ended, or that a machine came back or was cut off.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

func (d *Driver) news() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Machines lists every machine of this fleet. The list is whole although machines may be out of reach: a record here is made before
// anything is done on a machine, and goes after all of it is gone, so there can be no machine of ours that is not listed, and orphans are
// found without asking anyone. Only a record that cannot be read is no view at all.
// What is said of a machine that cannot be reached is what was last known, with a note.
func (d *Driver) Machines(context.Context) ([]trainyard.Machine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil, errClosed
	}
	if len(d.damaged) > 0 {
		return nil, errors.Join(d.damaged...)
	}
	out := make([]trainyard.Machine, 0, len(d.machines))
	for _, m := range d.machines {
		out = append(out, m.describe())
	}
	slices.SortFunc(out, func(a, b trainyard.Machine) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// names lists the folders of machines.
func (d *Driver) names() ([]string, error) {
	entries, err := os.ReadDir(d.env.Dir)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// load takes up a machine that an earlier driver has written down.
func (d *Driver) load(name string) error {
	r, err := d.readRecord(name)
	if errors.Is(err, fs.ErrNotExist) { // it was being made, or being removed: nothing of it is on the machine
		return os.RemoveAll(filepath.Join(d.env.Dir, name))
	}
	if err != nil {
		return err
	}
	m := d.newMachine(name, r)
	if m.access, err = d.readAccess(name); err != nil {
		m.cut = login.Trouble{Kind: login.Access, Short: "how to log in there cannot be read here: " + err.Error(), Err: err}
		m.since = time.Now()
		d.log.Warn("read how to log in to a machine", "node", r.ID, "err", err)
	}
	d.mu.Lock()
	d.machines[name] = m
	d.mu.Unlock()
	d.spawn(m.keep)
	return nil
}

// machine returns the machine that a spec asks for, and writes it down if it is new.
func (d *Driver) machine(spec trainyard.MachineSpec) (*machine, error) {
	name := d.folder(spec.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil, errClosed
	}
	if m := d.machines[name]; m != nil {
		return m, nil
	}
	r := record{ID: spec.ID, Compute: spec.Compute, State: trainyard.MachineDead}
	if err := d.writeRecord(name, r); err != nil {
		return nil, err
	}
	m := d.newMachine(name, r)
	d.machines[name] = m
	d.work.Go(m.keep)
	return m, nil
}

// forget takes a machine out of the list, once nothing of it is left.
func (d *Driver) forget(m *machine) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := filepath.Join(d.env.Dir, m.name)
	if err := os.Remove(filepath.Join(dir, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of the machine: %w", err)
	}
	delete(d.machines, m.name)
	if err := os.RemoveAll(dir); err != nil {
		d.log.Warn("clear away a machine's folder", "dir", dir, "err", err)
	}
	return nil
}
