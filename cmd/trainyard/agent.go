package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/stage"
	"github.com/trainyard/trainyard/internal/target"
)

var (
	_ agent.Link    = (*agentlink.Client)(nil)
	_ agent.Tunnels = (*agentlink.Client)(nil)
)

// agentFlags is what a machine's agent is started with; the join token is in a file so that no list of processes shows it.
type agentFlags struct {
	node, dir, server, ca, tokenFile, size, cache, group, address string
	cpus                                                          float64
	memoryMB                                                      int64
	orphan                                                        time.Duration
	hide                                                          []string

	place, lost, lostClass, notice string
}

func newAgentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:    "agent",
		Short:  "Run tasks on this machine for a server (started by fleets)",
		Long:   "Runs the agent of one node: it dials the server, takes tasks, and reports on them. Fleets start it; people seldom do.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAgent(context.WithoutCancel(cmd.Context()), f) // it sees to its signals itself
		},
	}
	cmd.Flags().StringVar(&f.node, "node", "", "ID of the node")
	cmd.Flags().StringVar(&f.dir, "dir", "", "folder of the node")
	cmd.Flags().StringVar(&f.server, "server", "", "URL of the server")
	cmd.Flags().StringVar(&f.ca, "ca", "", "file with the CA certificate to trust")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the join token")
	cmd.Flags().StringVar(&f.size, "size", "", "VM size, for people")
	cmd.Flags().StringVar(&f.cache, "cache", "", "folder for code, data and environments, shared by the agents of this machine")
	cmd.Flags().StringVar(&f.group, "group", "", "name for what is visible outside the folder, such as cgroups")
	cmd.Flags().StringVar(&f.address, "address", "127.0.0.1", "address at which the nodes of a gang reach this one")
	cmd.Flags().Float64Var(&f.cpus, "cpus", 0, "CPUs that tasks may use together (0: all)")
	cmd.Flags().Int64Var(&f.memoryMB, "memory-mb", 0, "memory in MiB that tasks may use together (0: all)")
	cmd.Flags().StringArrayVar(&f.hide, "hide", nil, "path that tasks must not reach (repeatable)")
	cmd.Flags().DurationVar(&f.orphan, "orphan-after", 2*time.Minute, "stop when there is no server and no work for this long")
	cmd.Flags().StringVar(&f.place, "place", "", "what this agent lives in, such as an allocation: tasks of another are gone (\"\": the computer)")
	cmd.Flags().StringVar(&f.lost, "lost", "", "why tasks of the place before are gone")
	cmd.Flags().StringVar(&f.lostClass, "lost-class", "", "how they count: NodeLost or Preempted")
	cmd.Flags().StringVar(&f.notice, "notice", "", "file that says, at SIGTERM, why what this agent lives in is taken away, and when")
	for _, name := range []string{"node", "dir", "server", "token-file"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

// runAgent is the agent of a machine of its own. SIGINT and SIGTERM end it.
func runAgent(ctx context.Context, f agentFlags) error {
	if err := checkSettings(); err != nil {
		return err
	}
	ctx, yield, stop := signals(ctx, f.notice)
	defer stop()
	token, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return fmt.Errorf("read join token: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", f.node)
	join := strings.TrimSpace(string(token))
	link, err := agentlink.Dial(agentlink.DialConfig{URL: f.server, CAFile: f.ca, Node: trainyard.NodeID(f.node), JoinToken: join})
	if err != nil {
		return fmt.Errorf("dial %s: %w", f.server, err)
	}
	defer link.Close()
	server := ""
	if f.ca != "" { // tasks get the server on loopback, and need to trust nobody
		proxy, err := agentlink.NewProxy(agentlink.DialConfig{URL: f.server, CAFile: f.ca}, log)
		if err != nil {
			return fmt.Errorf("let tasks reach %s: %w", f.server, err)
		}
		defer proxy.Close()
		server = proxy.URL
	}
	err = hostNode(ctx, nodeConfig{
		ID: trainyard.NodeID(f.node), JoinToken: join, Link: link, Dir: f.dir, Cache: f.cache, Group: f.group, Address: f.address,
		Limit: trainyard.Resources{CPUs: f.cpus, MemoryMB: f.memoryMB, Slots: 1},
		Yield: yield, Place: f.place, Lost: trainyard.Result{Class: trainyard.Class(f.lostClass), Message: f.lost},
		Hide: f.hide, Orphan: f.orphan, Server: server, Log: log,
		Direct: strings.HasPrefix(f.server, "http:"), // the server speaks plain HTTP to its own computer only
	})
	if errors.Is(err, agent.ErrOrphan) {
		log.Info("no server and no work: stopping")
		return nil
	}
	return err
}

// noticeWait is how long after SIGTERM its notice may come: who ends everything here at once may have signaled us before the one who writes it.
const noticeWait = 3 * time.Second

// signals ends ctx at SIGINT, and at SIGTERM unless a notice is there by then, or soon: yield gets it instead.
func signals(ctx context.Context, notice string) (_ context.Context, yield <-chan agent.Notice, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	came, notices := make(chan os.Signal, 2), make(chan agent.Notice, 1)
	signal.Notify(came, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer cancel()
		yielding := false
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-came:
				if s == syscall.SIGTERM && yielding {
					continue // from the other one
				}
				if s != syscall.SIGTERM {
					return
				}
				n, ok := awaitNotice(ctx, notice)
				if !ok {
					return
				}
				yielding = true
				notices <- n
			}
		}
	}()
	return ctx, notices, func() { signal.Stop(came); cancel() }
}

// awaitNotice reads a notice when it is there. It says false if path is "" or there is none in time.
func awaitNotice(ctx context.Context, path string) (n agent.Notice, ok bool) {
	if path == "" {
		return n, false
	}
	ctx, cancel := context.WithTimeout(ctx, noticeWait)
	defer cancel()
	for {
		if n, ok = readNotice(path); ok {
			return n, true
		}
		select {
		case <-ctx.Done():
			return n, false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readNotice reads "SECONDS CLASS WORDS". It says false if there is no such notice.
func readNotice(path string) (n agent.Notice, ok bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return n, false
	}
	words := strings.Fields(string(data))
	if len(words) < 3 {
		return n, false
	}
	seconds, err := strconv.Atoi(words[0])
	class := trainyard.Class(words[1])
	if err != nil || seconds <= 0 || class != trainyard.ClassNodeLost && class != trainyard.ClassPreempted {
		return n, false
	}
	return agent.Notice{Class: class, Why: strings.Join(words[2:], " "), Within: time.Duration(seconds) * time.Second}, true
}

// nodeConfig is what an agent needs, in the server's process or in one of its own.
type nodeConfig struct {
	ID         trainyard.NodeID
	JoinToken  string
	Link       agent.Link
	Dir        string // the node's own
	Cache      string // shared by the agents of this machine
	Group      string
	Address    string
	Limit      trainyard.Resources
	Yield      <-chan agent.Notice
	Place      string           // target.Env.Place
	Lost       trainyard.Result // target.Env.Lost
	Hide       []string         // paths that tasks must not reach
	Server     string           // URL at which tasks reach the server; "": the one that they come with
	CA         string           // PEM of the authority to trust there
	SelfStaged bool
	Engines    []string // container engines that the driver has
	Orphan     time.Duration
	Direct     bool                                 // the node is on the server's own computer
	Trouble    func(ctx context.Context, err error) // told why the driver is not fit to work, and nil when it is
	Log        *slog.Logger
}

// hostNode runs a node's agent until ctx is done; its tasks go on. When a container engine comes that was not there at first, the agent
// begins anew with it, as it does after a crash: it takes up its tasks again and tells the server what it has.
func hostNode(ctx context.Context, n nodeConfig) error {
	notice := lasting{from: n.Yield}
	env := target.Env{Dir: filepath.Join(n.Dir, "tasks"), Limit: n.Limit, Group: n.Group, GPUs: &gpu.Reader{}, Log: n.Log, Place: n.Place, Lost: n.Lost}
	for {
		driver, engines, missing, err := openDrivers(ctx, env)
		if err != nil {
			return err
		}
		n.Engines = engines
		life, end := context.WithCancelCause(ctx)
		var looking sync.WaitGroup
		looking.Go(func() {
			if name := awaitEngine(life, missing, env); name != "" {
				end(errEngineCame)
			}
		})
		one, yield := n, make(chan agent.Notice, 1)
		one.Yield = yield
		looking.Go(func() { notice.to(life, yield) })
		err = runNode(life, one, driver)
		came := context.Cause(life) == errEngineCame // before what follows ends the life of a node that was let go
		end(nil)
		looking.Wait()
		if !came || ctx.Err() != nil {
			return err
		}
		n.Log.Info("a container engine is there now; the agent begins anew with it")
	}
}

// lasting is a notice that is given to every agent of a node that begins after it has come, not only to the one that it came to.
type lasting struct {
	from   <-chan agent.Notice
	notice *agent.Notice // nil: none has come
	came   time.Time
}

// to waits for the notice until ctx is done and puts it into yield, which has room for it. It is for one at a time.
func (l *lasting) to(ctx context.Context, yield chan<- agent.Notice) {
	if l.notice == nil {
		select {
		case <-ctx.Done():
			return
		case n := <-l.from:
			l.notice, l.came = &n, time.Now()
		}
	}
	n := *l.notice
	n.Within = max(0, n.Within-time.Since(l.came))
	yield <- n
}

var errEngineCame = errors.New("an engine came")

// engineLook is how often a machine is asked for an engine that it did not have.
const engineLook = 10 * time.Second

// awaitEngine waits until one of the kinds is there, and returns its name; "" when ctx is done.
func awaitEngine(ctx context.Context, missing []target.Kind, env target.Env) string {
	if len(missing) == 0 {
		return ""
	}
	tick := time.NewTicker(engineLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
		for _, kind := range missing {
			e := env
			e.Dir += "-" + kind.Name
			d, err := openDriver(ctx, kind, settingsOf(kind), e)
			if err != nil {
				continue
			}
			if c, ok := d.(io.Closer); ok {
				_ = c.Close() // the agent opens it again
			}
			return kind.Name
		}
	}
}

// runNode runs a node's agent with its driver, which it closes.
func runNode(ctx context.Context, n nodeConfig, driver target.Driver) error {
	if c, ok := driver.(io.Closer); ok {
		defer c.Close()
	}
	cache := n.Cache
	if cache == "" {
		cache = filepath.Join(n.Dir, "cache")
	}
	work := filepath.Join(cache, "work", string(n.ID)) // not in Dir, which tasks may be kept from
	st, err := stage.New(stage.Config{Dir: work, Cache: cache, Blobs: n.Link, Log: n.Log})
	if err != nil {
		return fmt.Errorf("open stage: %w", err)
	}
	var notes []string
	if d, ok := driver.(interface{ Notes() []string }); ok {
		notes = d.Notes()
	}
	err = agent.New(agent.Config{
		Node: n.ID, JoinToken: n.JoinToken, Link: n.Link, Driver: driver, Stage: st, Dir: filepath.Join(n.Dir, "agent"),
		Address: n.Address, Version: version(), Notes: notes, Hide: n.Hide, Log: n.Log, OrphanAfter: n.Orphan,
		Engines: n.Engines, Server: n.Server, CA: n.CA, SelfStaged: n.SelfStaged, Direct: n.Direct, Trouble: n.Trouble, Yield: n.Yield,
	}).Run(ctx)
	if l, ok := driver.(target.Leaver); ok && err == nil && ctx.Err() == nil { // the server has let the node go
		bounded, cancel := context.WithTimeout(ctx, leavePatience)
		defer cancel()
		if err := l.Leave(bounded); err != nil {
			n.Log.Warn("something stays in the engine", "err", err)
		}
	}
	return err
}

// leavePatience bounds how long a node that is let go of waits for its engine to take away what was kept there.
const leavePatience = 20 * time.Second

// openDrivers opens what runs tasks on a machine: processes, and the container engines that the machine has. containersVar
// leaves those alone; their settings are in variables, too. missing are kinds of engines that the machine does not have, or not yet.
func openDrivers(ctx context.Context, env target.Env) (d target.Driver, engines []string, missing []target.Kind, err error) {
	all := &target.Several{}
	off := strings.EqualFold(os.Getenv(containersVar), "off")
	for i, kind := range targets() {
		if kind.SelfStaged {
			continue
		}
		e := env
		if i > 0 {
			e.Dir += "-" + kind.Name
		}
		if i > 0 && off && !isThere(e.Dir) { // what it holds from before is looked after all the same
			continue
		}
		slow := time.AfterFunc(2*time.Second, func() {
			if i > 0 { // processes need no engine
				env.Log.Warn("the node does not join before an engine of its computer has answered, or has had its time", "engine", kind.Name)
			}
		})
		d, err := openDriver(ctx, kind, settingsOf(kind), e)
		slow.Stop()
		switch {
		case i == 0 && err == nil:
			all.First = d
		case err == nil && off:
			all.Others = append(all.Others, oldTasks{d})
		case err == nil:
			all.Others, engines = append(all.Others, d), append(engines, kind.Name)
		case i > 0 && trainyard.CodeOf(err) == trainyard.CodeUnsupported: // the machine has no such engine
			if !off {
				missing = append(missing, kind)
			}
		default:
			_ = all.Close() // what was opened holds its folder, which the next try needs
			return nil, nil, nil, err
		}
	}
	if len(all.Others) == 0 {
		return all.First, nil, missing, nil
	}
	return all, engines, missing, nil
}

// oldTasks is a driver that gets no new tasks: it does not show that it could bring their environments.
type oldTasks struct{ target.Driver }

func (o oldTasks) Close() error {
	if c, ok := o.Driver.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openDriver opens one kind with its settings, JSON or nothing.
func openDriver(ctx context.Context, kind target.Kind, settings json.RawMessage, env target.Env) (target.Driver, error) {
	cfg := kind.New()
	if len(settings) > 0 {
		if err := json.Unmarshal(settings, cfg); err != nil {
			return nil, trainyard.Invalid("the settings of target %s cannot be read: %v", kind.Name, err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d, err := cfg.Open(ctx, env)
	if err != nil {
		return nil, fmt.Errorf("open target %s: %w", kind.Name, err)
	}
	return d, nil
}

// version is the program's version as the Go toolchain recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
