package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/control"
	"github.com/trainyard/trainyard/internal/gateway"
	"github.com/trainyard/trainyard/internal/identity"
	"github.com/trainyard/trainyard/internal/loop"
)

// The gateway takes requests for models. Every server has one inside; further ones are processes of their own, which go on serving while
// the server is away.
var (
	_ gateway.Source     = control.Gateways{}
	_ gateway.Source     = (*agentlink.GatewayClient)(nil)
	_ agentlink.Gateways = control.Gateways{}
)

// gatewayConfig is where a gateway listens.
type gatewayConfig struct {
	Listen string // host:port; "": the server's host, and the port after its own
	URL    string // by which callers reach it; "": follows from Listen
}

// listenGateway opens the gateway's port and says by which URL it is reached.
func listenGateway(cfg gatewayConfig, server string) (net.Listener, string, error) {
	addr := cfg.Listen
	if addr == "" {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, "", fmt.Errorf("find an address for the gateway: %w", err)
		}
		n, err := strconv.Atoi(port)
		if err != nil || n == 65535 {
			n = -1 // any
		}
		addr = net.JoinHostPort(host, strconv.Itoa(n+1))
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil && cfg.Listen == "" { // the port after the server's is somebody else's
		host, _, _ := net.SplitHostPort(addr)
		ln, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, "", fmt.Errorf("the gateway cannot listen on %s: %w; choose another address with --gateway", addr, err)
	}
	if cfg.URL != "" {
		return ln, strings.TrimRight(cfg.URL, "/"), nil
	}
	at := ln.Addr().String()
	host, port, _ := net.SplitHostPort(at)
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return ln, "http://" + at, nil
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return ln, "https://" + net.JoinHostPort(host, port), nil
}

// runGateway serves requests for models until the group stops.
func runGateway(group *loop.Group, ln net.Listener, cert tls.Certificate, cfg gateway.Config) *gateway.Gateway {
	if at, ok := ln.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() { // others than who started it are served
		cfg.MetricsGuarded = true
	}
	g := gateway.New(cfg)
	group.Go("gateway routes", g.Run)
	group.Go("gateway", func(ctx context.Context) error {
		awaitRoutes(ctx, g)
		stop := context.AfterFunc(ctx, func() {
			drain, done := context.WithTimeout(context.Background(), 30*time.Second)
			defer done()
			_ = g.Shutdown(drain)
		})
		defer stop()
		err := g.Serve(identity.Listen(ln, cert, "http/1.1")) // the gateway speaks no HTTP/2
		if ctx.Err() != nil {
			drain, done := context.WithTimeout(context.Background(), 30*time.Second)
			defer done()
			return g.Shutdown(drain)
		}
		return err
	})
	return g
}

// awaitRoutes waits until the gateway knows its endpoints: until then it would say of each that there is none. Callers wait at the open
// port meanwhile, but not for long, so that a gateway whose server is away says something.
func awaitRoutes(ctx context.Context, g *gateway.Gateway) {
	late := time.After(routesPatience)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !g.Ready() {
		select {
		case <-ctx.Done():
			return
		case <-late:
			return
		case <-look.C:
		}
	}
}

const routesPatience = 3 * time.Second

func newGatewayCommand() *cobra.Command {
	var listen, dir, profile string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Run a gateway of its own beside the server",
		Long: "Runs a gateway for requests to online endpoints as a process of its own: for scale, or so that models answer while the server is\n" +
			"restarted. It serves by what the server last told it, which it keeps in a file. It uses the profile of an administrator.",
		Example: "  trainyard gateway --listen 0.0.0.0:8443 --data /srv/trainyard-gateway",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			p, err := client.ReadProfile(profile)
			if err != nil {
				return err
			}
			return serveGateway(ctx, p, dir, listen, log, func(url string) { fmt.Fprintf(cmd.OutOrStdout(), "Trainyard gateway serves %s\n", url) })
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7880", "address to serve on: TLS, and plain HTTP for this computer")
	cmd.Flags().StringVar(&dir, "data", "", "folder for its certificate and for what the server told it last (default: trainyard-gateway in your state directory)")
	cmd.Flags().StringVar(&profile, "profile", "", "profile file of the server (default: the one that commands use)")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "log more")
	return cmd
}

// serveGateway is a gateway's process, until ctx is done.
func serveGateway(ctx context.Context, p client.Profile, dir, listen string, log *slog.Logger, ready func(url string)) error {
	if dir == "" {
		state, err := stateDir()
		if err != nil {
			return err
		}
		dir = state + "-gateway"
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the folder %s cannot be made: %w; choose another with --data", dir, err)
	}
	ln, url, err := listenGateway(gatewayConfig{Listen: listen}, "")
	if err != nil {
		return err
	}
	cert, _, err := identity.Certificates(filepath.Join(dir, "tls"), []string{hostOf(listen)})
	if err != nil {
		return err
	}
	link, err := agentlink.DialGateway(agentlink.DialConfig{URL: p.URL, CA: p.CA, Token: p.Token})
	if err != nil {
		return err
	}
	defer link.Close()
	group := loop.New(log)
	runGateway(group, ln, cert, gateway.Config{Source: link, Log: log, Cache: filepath.Join(dir, "routes.json")})
	ready(url)
	<-ctx.Done()
	group.Stop()
	return nil
}
