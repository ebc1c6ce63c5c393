package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/agent"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/arm"
	"github.com/trainyard/trainyard/internal/blob"
	"github.com/trainyard/trainyard/internal/blobrest"
	"github.com/trainyard/trainyard/internal/control"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/gateway"
	"github.com/trainyard/trainyard/internal/history"
	"github.com/trainyard/trainyard/internal/identity"
	"github.com/trainyard/trainyard/internal/loop"
	"github.com/trainyard/trainyard/internal/mlflow"
	"github.com/trainyard/trainyard/internal/output"
	"github.com/trainyard/trainyard/internal/spec"
	"github.com/trainyard/trainyard/internal/store"
	"github.com/trainyard/trainyard/internal/studio"
)

// control satisfies what the doors and the agents open on to.
var (
	_ arm.Assets   = (*control.Control)(nil)
	_ arm.Jobs     = (*control.Control)(nil)
	_ arm.Computes = (*control.Control)(nil)
	_ arm.Places   = (*control.Control)(nil)
	_ history.Runs = control.Runs{}

	_ arm.Endpoints        = (*control.Control)(nil)
	_ arm.Deployments      = (*control.Control)(nil)
	_ arm.Batch            = (*control.Control)(nil)
	_ arm.BatchDeployments = (*control.Control)(nil)

	_ mlflow.Jobs      = (*control.Control)(nil)
	_ mlflow.Models    = (*control.Control)(nil)
	_ studio.Jobs      = (*control.Control)(nil)
	_ studio.Computes  = (*control.Control)(nil)
	_ studio.Files     = (*control.Control)(nil)
	_ studio.Endpoints = (*control.Control)(nil)
	_ studio.Resources = (*control.Control)(nil)
	_ studio.Logs      = control.Runs{}
	_ studio.Changes   = (*store.Store)(nil)

	_ agent.Link       = (*control.Control)(nil)
	_ agent.FleetLink  = (*control.Control)(nil)
	_ agentlink.Server = (*control.Control)(nil)
)

// serverConfig is what the server is started with; the zero value of each field means the default.
type serverConfig struct {
	Dir    string // of everything the server keeps
	Listen string // host:port
	File   string // configuration; "": config.yml in Dir, if it is there
	DSN    string // of the database
	Log    *slog.Logger
	Ready  func(url string) // called once when it answers

	Gateway gatewayConfig // of the gateway inside

	addr    string  // where it listens, once it does
	tellers tellers // of the nodes that it hosts
}

func newServerCommand() *cobra.Command {
	var cfg serverConfig
	var verbose bool
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server",
		Long: "Runs the server: the API, the scheduler, and the agent of the compute \"local\". The first start makes a workspace, a certificate\n" +
			"authority, an admin token and a client profile, so that the commands on this computer just work.",
		Example: "  trainyard server\n  trainyard server --data /srv/trainyard --listen 0.0.0.0:7878",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			cfg.Ready = func(url string) {
				fmt.Fprintf(cmd.OutOrStdout(), "Trainyard %s serves %s\n  data     %s\n  profile  %s\n", version(), url, cfg.Dir, client.ProfilePath())
			}
			return serve(ctx, &cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.Dir, "data", "", "folder for everything the server keeps (default: trainyard in your state directory)")
	cmd.Flags().StringVar(&cfg.Listen, "listen", "127.0.0.1:7878", "address to serve on: TLS, and plain HTTP for this computer")
	cmd.Flags().StringVar(&cfg.File, "config", "", "configuration file: locations (default: config.yml in the data folder, if there is one)")
	cmd.Flags().StringVar(&cfg.DSN, "database", "", "postgres://… (default: SQLite in the data folder)")
	cmd.Flags().StringVar(&cfg.Gateway.Listen, "gateway", "", "address on which models answer (default: the server's host, and the port after its own)")
	cmd.Flags().StringVar(&cfg.Gateway.URL, "gateway-url", "", "URL by which callers reach that address, such as https://models.example.com, where it is not the address itself")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "log more")
	return cmd
}

// serve is the map of the server, top to bottom: memory, will, hands, doors.
//
// A job's path: arm decodes it → control.SubmitJob resolves and stores it → control.round places it (sched.Decide, store.Commit) → its
// node's agent, which waits in control.Wanted, stages and starts it → control.Report moves it on (control.advance is the policy) →
// control.Append has taken its log meanwhile → history and arm show it.
func serve(ctx context.Context, cfg *serverConfig) error {
	if err := errors.Join(checkSettings(), prepareDir(cfg)); err != nil {
		return err
	}
	locations, err := readLocations(cfg)
	if err != nil {
		return err
	}
	// The port first: a second server must fail before it touches anything.
	tcp, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return listenError(cfg.Listen, err)
	}
	defer tcp.Close()
	cfg.addr = tcp.Addr().String()
	local := "http://" + loopback(tcp.Addr().String())
	models, modelsURL, err := listenGateway(cfg.Gateway, cfg.addr)
	if err != nil {
		return err
	}
	defer models.Close()

	// Memory: what is true, bytes by key, what attempts said.
	key, err := sealKey(filepath.Join(cfg.Dir, "tls", "seal.key"))
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, store.Config{DSN: cfg.DSN, Key: key, Log: cfg.Log})
	if err != nil {
		return err
	}
	defer db.Close()
	bytes, err := blob.Open(ctx, filepath.Join(cfg.Dir, "blobs"))
	if err != nil {
		return err
	}
	defer bytes.Close()
	said := output.New(bytes)

	// Who is who.
	id, err := identity.New(identity.Config{Settings: settings{db}, Now: time.Now, ExternalURL: identity.External, Log: cfg.Log})
	if err != nil {
		return err
	}
	cert, ca, err := identity.Certificates(filepath.Join(cfg.Dir, "tls"), []string{hostOf(cfg.Listen)})
	if err != nil {
		return err
	}
	signer := blobrest.Signer{Key: id.Derive("blob signatures")}

	// Will: verbs and loops.
	will := control.New(control.Config{
		Store: db, Output: said, Blobs: bytes, Tokens: id, Sign: signer.Sign, URL: func() string { return local },
		Gateway: func() string { return modelsURL }, Host: hostResources(), Kinds: attachable(), Locations: locations,
		Now: time.Now, Log: cfg.Log,
	})
	if err := will.Boot(ctx); err != nil {
		return err
	}
	group := loop.New(cfg.Log)
	defer group.Stop()
	will.Run(group)

	// Hands: the agents of this computer's own nodes, and the fleets of our locations.
	if err := hostFleets(ctx, cfg, will, group, local); err != nil {
		return err
	}
	group.Go("hosted nodes", func(ctx context.Context) error { return hostNodes(ctx, cfg, will, ca, id) })

	// Doors.
	answering := runGateway(group, models, cert, gateway.Config{Source: control.Gateways{Control: will}, Log: cfg.Log})
	auth := whileItLives(id, will)
	mux := http.NewServeMux()
	mux.Handle("/agent/v1/gateway/", agentlink.GatewayHandler(agentlink.Config{Auth: id.Check, Log: cfg.Log}, control.Gateways{Control: will}))
	mux.Handle("/agent/", agentlink.Handler(agentlink.Config{Server: will, Tunnels: will, Tellers: &cfg.tellers, Jobs: jobLink{will, id}, Auth: id.Check, Log: cfg.Log}))
	blobs := blobrest.New(blobrest.Config{Blobs: bytes, Signer: signer, Allow: blobAllow(id, auth), Log: cfg.Log})
	mux.Handle("/blob/", http.StripPrefix("/blob", blobs))
	runs := history.New(history.Config{Runs: control.Runs{Control: will}, Signer: signer, Allow: historyAllow(id, auth), Log: cfg.Log,
		Data: func(ctx context.Context, scope trainyard.Scope, name, version string) (*trainyard.Resource, error) {
			return will.Resource(ctx, scope, trainyard.KindData, name, version)
		}})
	mux.Handle("/history/", runs)
	mux.Handle("/data/", runs)
	mux.Handle("/mlflow/", mlflow.New(mlflow.Config{Jobs: will, Models: will, Blobs: bytes, Allow: historyAllow(id, auth), JobsRegister: true, Log: cfg.Log}))
	pages := studio.New(studio.Config{Jobs: will, Logs: control.Runs{Control: will}, Computes: will, Endpoints: will, Files: will, Changes: db,
		Resources: will, Gateway: answering.Snapshot, Sessions: identity.NewSessions(id), External: identity.External, Now: time.Now, Log: cfg.Log})
	for _, path := range studio.Paths() {
		mux.Handle(path, pages)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/", arm.New(arm.Config{Assets: will, Jobs: will, Computes: will, Places: will, Endpoints: will, Deployments: will,
		Batch: will, BatchDeployments: will, Auth: auth, Allow: id.Allow,
		External: identity.External, Now: time.Now, Version: version(), Log: cfg.Log}))

	if err := writeProfile(ctx, id, ca, tcp.Addr().String()); err != nil {
		return err
	}
	return serveHTTP(ctx, cfg, tcp, cert, byHost(blobs, id.Handler(mux)), "https://"+loopback(tcp.Addr().String()))
}

// serveHTTP answers until ctx is done, then lets what is under way finish.
func serveHTTP(ctx context.Context, cfg *serverConfig, tcp net.Listener, cert tls.Certificate, h http.Handler, url string) error {
	ln := identity.Listen(tcp, cert)
	base, cancel := context.WithCancel(context.Background()) // ends the long polls when draining begins
	defer cancel()
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	if cfg.Ready != nil {
		cfg.Ready(url)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	cfg.Log.Info("stopping; tasks go on and are taken up again at the next start")
	cancel()
	drain, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	if err := srv.Shutdown(drain); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// hostFleets opens each location's fleet and lets it make machines.
func hostFleets(ctx context.Context, cfg *serverConfig, will *control.Control, group *loop.Group, serverURL string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, loc := range append(slices.Clone(will.Locations), will.OtherPlaces()...) {
		kind := fleetKind(loc.Driver)
		c, err := fleetConfig(kind, loc.Settings)
		if err != nil {
			return fmt.Errorf("location %s: %w", loc.Name, err)
		}
		env := fleet.Env{Dir: filepath.Join(cfg.Dir, "machines", filepath.FromSlash(loc.Name)), Name: loc.Name, Server: serverURL, Binary: self,
			Cache: filepath.Join(cfg.Dir, "cache"), Hide: secretPaths(cfg.Dir), Vars: machineVars(), Log: cfg.Log}
		if kind.Far {
			env.Server, env.CA = reachable(cfg.addr, loc.Settings), filepath.Join(cfg.Dir, "tls", "ca.pem")
		}
		d, err := c.Open(ctx, env)
		if err != nil {
			return fmt.Errorf("open fleet %s: %w", kind.Name, err)
		}
		if d, ok := d.(io.Closer); ok {
			group.Go("close fleet of "+loc.Name, func(ctx context.Context) error {
				<-ctx.Done()
				return d.Close()
			})
		}
		host := agent.NewFleetHost(agent.FleetConfig{Location: loc.Name, Link: will, Driver: d, Log: cfg.Log})
		group.Go("fleet of "+loc.Name, host.Run)
	}
	return nil
}

// fleetConfig is a fleet's configuration with a location's settings, every one of which it must know.
func fleetConfig(kind fleet.Kind, settings json.RawMessage) (fleet.Config, error) {
	c := kind.New()
	if len(settings) > 0 {
		in := json.NewDecoder(bytes.NewReader(settings))
		in.DisallowUnknownFields()
		if err := in.Decode(c); err != nil {
			if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
				return nil, trainyard.Invalid("driver %s has no setting %s", kind.Name, name)
			}
			return nil, trainyard.Invalid("settings for driver %s cannot be read: %s", kind.Name, strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	return c, c.Validate()
}

// readLocations reads the configuration file. Without one there is one location: this machine, which grants every size.
func readLocations(cfg *serverConfig) ([]trainyard.Location, error) {
	here := []trainyard.Location{{Name: trainyard.DefaultLocation, Driver: fleets()[0].Name, Approved: []string{"all"}}}
	path := cfg.File
	if path == "" {
		path = filepath.Join(cfg.Dir, "config.yml")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return here, nil
		}
	}
	var drivers []spec.Driver
	for _, k := range fleets() {
		one := func(a control.Kind) bool { return a.Fleet == k.Name } // its machines are attached one by one
		if !slices.ContainsFunc(attachable(), one) {
			drivers = append(drivers, spec.Driver{Name: k.Name, Check: func(settings []byte) error {
				_, err := fleetConfig(k, settings)
				return err
			}})
		}
	}
	s, err := spec.LoadServer(path, drivers)
	if err != nil || len(s.Locations) == 0 {
		return here, err
	}
	return s.Locations, nil
}

// settings lets identity keep its keys in the store.
type settings struct{ *store.Store }

// secretPaths are the folders of the server's own, which no task may reach. They exist before the first task starts: only then can they be
// hidden without a trace.
func secretPaths(dir string) []string {
	paths := []string{filepath.Dir(client.ProfilePath())}
	for _, name := range []string{"db", "tls", "blobs", "machines", "nodes"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// prepareDir fills the defaults in and makes the data folder, for its owner alone.
func prepareDir(cfg *serverConfig) error {
	if cfg.Dir == "" {
		dir, err := stateDir()
		if err != nil {
			return err
		}
		cfg.Dir = dir
	}
	abs, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return err
	}
	cfg.Dir = abs
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("the data folder %s cannot be made: %w; choose another with --data", cfg.Dir, err)
	}
	probe := filepath.Join(cfg.Dir, ".writable")
	if err := os.WriteFile(probe, []byte("ok"), 0o600); err != nil {
		return fmt.Errorf("the data folder %s cannot be written: %w; free some space, mend its permissions, or choose another with --data", cfg.Dir, err)
	}
	_ = os.Remove(probe)
	for _, path := range secretPaths(cfg.Dir) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return fmt.Errorf("make the folder %s: %w", path, err)
		}
	}
	if cfg.DSN == "" {
		cfg.DSN = "sqlite:" + filepath.Join(cfg.Dir, "db", "trainyard.db")
	}
	return nil
}

// stateDir is where this system keeps a user's program state.
func stateDir() (string, error) {
	if d := os.Getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "trainyard"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory to keep state in: %w; give a folder with --data", err)
	}
	switch runtime.GOOS {
	case "windows":
		return filepath.Join(home, "AppData", "Local", "trainyard"), nil
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "trainyard"), nil
	}
	return filepath.Join(home, ".local", "state", "trainyard"), nil
}

func listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the address %s is in use, perhaps by another trainyard server; stop that one, or choose another with --listen", addr)
	}
	return fmt.Errorf("cannot listen on %s: %w; choose another with --listen", addr, err)
}

// writeProfile lets the commands of this user reach the server without further ado.
func writeProfile(ctx context.Context, id *identity.Service, ca []byte, addr string) error {
	token, err := id.AdminToken(ctx)
	if err != nil {
		return err
	}
	if old, err := client.ReadProfile(""); err == nil && old.URL != "https://"+loopback(addr) && answers(ctx, old.URL) {
		fmt.Fprintf(os.Stderr, "the profile %s is of the server at %s, which runs, and stays its own; to reach this one, start both it and the commands with another TRAINYARD_CONFIG_DIR\n", client.ProfilePath(), old.URL)
		return nil
	}
	return client.WriteProfile(client.Profile{URL: "https://" + loopback(addr), Token: token, CA: string(ca),
		Subscription: trainyard.DefaultSubscription, ResourceGroup: trainyard.DefaultResourceGroup, Workspace: trainyard.DefaultWorkspace})
}

// answers says whether a server of ours is at a URL of this computer; it speaks plain HTTP there, so that no certificate is needed.
func answers(ctx context.Context, url string) bool {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(url, "https://", "http://", 1)+"/healthz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// loopback is addr as this computer reaches it.
func loopback(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}
