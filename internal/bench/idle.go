package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// idleEndpoints is how many endpoints the memory of which is measured.
const idleEndpoints = 1000

// idleYAML is what a deployment says that may have no replica, and has none as soon as it can.
const idleYAML = `scale_settings:
  type: target_utilization
  min_instances: 0
  max_instances: 1
  scale_to_zero_after: 1
  stable_window: 1
  panic_window: 1
`

// idle measures a server's memory with a thousand endpoints, each with a deployment that has gone to zero. One is made as any is and goes
// to zero by itself. The others are copies of its rows in the database, because a deployment is made with a replica, which shows that it
// serves, and that takes a thousand times the start of a process. The server then starts anew and reads them.
func (y *yard) idle(ctx context.Context, out *serving) error {
	if err := y.writeQuick(); err != nil {
		return err
	}
	if err := y.cli(ctx, "online-endpoint", "create", "-n", "idle", "-o", "none"); err != nil {
		return err
	}
	if err := y.deploy(ctx, "idle", y.quick("idle", "blue")+idleYAML, "--all-traffic"); err != nil {
		return err
	}
	one, err := y.anew(ctx, func() error { return nil }, 1)
	if err != nil {
		return err
	}
	all, err := y.anew(ctx, func() error { return y.copies(ctx, "idle", "blue", idleEndpoints-1) }, idleEndpoints)
	if err != nil {
		return err
	}
	n := float64(idleEndpoints - 1)
	out.idle = append(out.idle,
		row{fmt.Sprintf("server with %d endpoints, each with a deployment at zero, resident memory", idleEndpoints), "",
			fmt.Sprintf("%.1f MiB; %.1f MiB with one of them: %.1f KiB an endpoint", all.memory/(1<<20), one.memory/(1<<20), (all.memory-one.memory)/n/(1<<10)), "the endpoints and deployments as Go values in the server and in its gateway"},
		row{fmt.Sprintf("routes of %d endpoints, as a gateway is told them", idleEndpoints), "",
			fmt.Sprintf("%.0f KiB of JSON, %.0f bytes an endpoint", all.routes/(1<<10), (all.routes-one.routes)/n), "all are sent when one changes"},
		row{fmt.Sprintf("the same server, start to ready to answer for all %d", idleEndpoints), "", ms(all.start), "reading and decoding a row for each endpoint and deployment"},
		row{fmt.Sprintf("one of the %d that were copied, first request (a process that answers at once)", idleEndpoints-1), "", ms(all.first), "its replica: two synced commits, staging, start of Python; the gateways are told all routes again"})
	for _, r := range out.idle {
		fmt.Fprintf(os.Stderr, "%-60s %s\n", r.what, r.measured)
	}
	return nil
}

// crowd is what was measured of a server with endpoints that nobody calls.
type crowd struct {
	memory, routes float64 // bytes
	start, first   time.Duration
}

// anew waits until nobody is served, ends the server, has something done to its folder, starts it again, and measures it when it is at rest. The last endpoint is then
// asked, to show that it is one.
func (y *yard) anew(ctx context.Context, change func() error, endpoints int) (*crowd, error) {
	c, err := y.client()
	if err != nil {
		return nil, err
	}
	if err := y.untilZero(ctx, c, "idle", "blue"); err != nil {
		return nil, err
	}
	y.halt()
	if err := change(); err != nil {
		return nil, err
	}
	at := time.Now()
	if err := y.start(ctx, setup{listen: y.host()}); err != nil {
		return nil, err
	}
	last := "idle"
	if endpoints > 1 {
		last = copyName(endpoints - 1)
	}
	address, key, err := y.address(ctx, last)
	if err != nil {
		return nil, err
	}
	if err := refuses(ctx, address); err != nil {
		return nil, err
	}
	out := &crowd{start: time.Since(at)}
	memory, err := y.settled(ctx)
	if err != nil {
		return nil, err
	}
	out.memory = float64(memory)
	routes, err := y.routes(ctx, endpoints)
	if err != nil {
		return nil, err
	}
	out.routes = float64(routes)
	at = time.Now()
	if _, _, err := score(ctx, address, key); err != nil {
		return nil, fmt.Errorf("a copy does not answer: %w", err)
	}
	out.first = time.Since(at)
	return out, nil
}

// refuses waits until the gateway knows an endpoint: it then refuses who has no key.
func refuses(ctx context.Context, address string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusUnauthorized {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s answers %s", address, resp.Status)
		}
	}
}

// settled is the server's resident memory when it has not changed for a while.
func (y *yard) settled(ctx context.Context) (int64, error) {
	before := int64(0)
	for range 20 {
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		now, err := residentMemory(y.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		if diff := now - before; diff > -(256<<10) && diff < 256<<10 {
			return now, nil
		}
		before = now
	}
	return before, nil
}

// routes is the size of the answer to a gateway that asks for all routes.
func (y *yard) routes(ctx context.Context, endpoints int) (int, error) {
	c, err := y.client()
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+y.host()+"/agent/v1/gateway/routes?after=0", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var r trainyard.Routes
	if err := json.Unmarshal(data, &r); err != nil {
		return 0, fmt.Errorf("read the routes: %w: %s", err, data[:min(len(data), 200)])
	}
	if len(r.Endpoints) < endpoints {
		return 0, fmt.Errorf("there are %d endpoints in the routes, want %d", len(r.Endpoints), endpoints)
	}
	return len(data), nil
}

// host is where the server listens; on this computer it speaks plain HTTP there, too.
func (y *yard) host() string { return y.url[strings.Index(y.url, "//")+2:] }

func copyName(i int) string { return fmt.Sprintf("idle-%04d", i) }

// copies writes n further endpoints, each with its deployment, into the database of a server that does not run.
func (y *yard) copies(ctx context.Context, endpoint, deployment string, n int) error {
	text, err := os.ReadFile(filepath.Join(y.dir, "data", "tls", "seal.key"))
	if err != nil {
		return err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, store.Config{DSN: "sqlite:" + filepath.Join(y.dir, "data", "db", "trainyard.db"), Key: key, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	scope := trainyard.DefaultScope()
	e, err := db.Resource(ctx, scope, trainyard.KindOnlineEndpoint, endpoint, "")
	if err == nil {
		var d *trainyard.Resource
		if d, err = db.Resource(ctx, scope, trainyard.KindOnlineDeployment, endpoint+"/"+deployment, ""); err == nil {
			err = db.Update(ctx, func(tx *store.Tx) error {
				for i := 1; i <= n; i++ {
					if err := putCopy(tx, e, d, endpoint, copyName(i)); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return errors.Join(err, db.Close())
}

// putCopy writes an endpoint and its deployment again under another name, which stands in both.
func putCopy(tx *store.Tx, endpoint, deployment *trainyard.Resource, from, to string) error {
	for _, r := range []*trainyard.Resource{endpoint, deployment} {
		n := *r
		n.Name = strings.Replace(r.Name, from, to, 1)
		n.Properties = r.Properties
		for _, field := range []string{"name", "endpoint"} {
			n.Properties = bytes.ReplaceAll(n.Properties, fmt.Appendf(nil, `"%s":"%s"`, field, from), fmt.Appendf(nil, `"%s":"%s"`, field, to))
		}
		if _, err := tx.PutResource(&n); err != nil {
			return err
		}
	}
	return nil
}
