package gateway

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// table is what Routes come to. It does not change; a new one replaces it.
type table struct {
	endpoints map[string]*endpoint // by name in lower case
}

// endpoint is one endpoint in a table. Its deployments and its turns outlive the table.
type endpoint struct {
	scope       trainyard.Scope
	name        string
	auth        string
	keys        [][sha256.Size]byte
	deployments map[string]*deployment // by name in lower case
	split       []*deployment          // whose turn it is; nil for a name that is no deployment
	mirror      []*deployment          // whom to copy the call to; nil for nobody
	turns       *turns
}

type turns struct{ split, mirror atomic.Uint64 }

// next is the deployment whose turn it is; nil when none has traffic.
func (e *endpoint) next() *deployment {
	if len(e.split) == 0 {
		return nil
	}
	return e.split[(e.turns.split.Add(1)-1)%uint64(len(e.split))]
}

// copyTo is the deployment that a copy of this call goes to, or nil.
func (e *endpoint) copyTo() *deployment {
	if len(e.mirror) == 0 {
		return nil
	}
	return e.mirror[(e.turns.mirror.Add(1)-1)%uint64(len(e.mirror))]
}

func (g *Gateway) deployments() []*deployment {
	var all []*deployment
	for _, e := range g.table.Load().endpoints {
		for _, d := range e.deployments {
			all = append(all, d)
		}
	}
	return all
}

// apply puts new Routes in force. What they still name goes on as it is; what they do not gets nothing new and ends what it has.
func (g *Gateway) apply(routes trainyard.Routes) {
	g.applying.Lock()
	defer g.applying.Unlock()
	old, now := g.table.Load(), g.now()
	next := &table{endpoints: make(map[string]*endpoint, len(routes.Endpoints))}
	kept := map[*deployment]bool{}
	for i := range routes.Endpoints {
		r := &routes.Endpoints[i]
		name := strings.ToLower(r.Name)
		was := old.endpoints[name]
		if was != nil && was.scope != r.Scope {
			was = nil
		}
		e := g.endpoint(r, was)
		for _, d := range e.deployments {
			kept[d] = true
		}
		next.endpoints[name] = e
	}
	g.table.Store(next)
	for _, e := range next.endpoints {
		for _, d := range e.deployments {
			closeAll(d.settle(now))
		}
	}
	for _, e := range old.endpoints {
		for _, d := range e.deployments {
			if !kept[d] {
				closeAll(d.retire())
			}
		}
	}
}

func (g *Gateway) endpoint(r *trainyard.EndpointRoute, was *endpoint) *endpoint {
	e := &endpoint{scope: r.Scope, name: r.Name, auth: r.AuthMode, turns: &turns{}, deployments: make(map[string]*deployment, len(r.Deployments))}
	if was != nil {
		e.turns = was.turns
	}
	for _, k := range r.Keys {
		if len(k) == sha256.Size {
			e.keys = append(e.keys, [sha256.Size]byte(k))
		}
	}
	for i := range r.Deployments {
		route := r.Deployments[i]
		name := strings.ToLower(route.Name)
		var d *deployment
		if was != nil {
			d = was.deployments[name]
		}
		if d == nil {
			d = &deployment{scope: r.Scope, endpoint: r.Name, name: route.Name, wake: g.reportNow}
			d.counts.moment, d.counts.reported.moment = g.now(), g.now()
			d.counts.reported.quiet = true
		}
		d.route.Store(&route)
		e.deployments[name] = d
	}
	for _, name := range rotation(r.Traffic, 0) {
		e.split = append(e.split, e.deployments[strings.ToLower(name)])
	}
	for _, name := range mirrorRotation(r.Mirror) {
		e.mirror = append(e.mirror, e.deployments[strings.ToLower(name)])
	}
	return e
}

// settle takes over the replicas of the newest route and serves those who wait for one. It returns connections that are to be closed.
func (d *deployment) settle(now time.Duration) []*upstream {
	d.mu.Lock()
	defer d.mu.Unlock()
	route := d.route.Load()
	d.counts.advance(now, d.running, len(d.waiting))
	var replicas []*replica
	var unused []*upstream
	for _, rr := range route.Replicas {
		i := slices.IndexFunc(d.replicas, func(r *replica) bool { return r.route == rr })
		if i >= 0 {
			replicas = append(replicas, d.replicas[i])
			continue
		}
		replicas = append(replicas, &replica{route: rr})
	}
	for _, r := range d.replicas {
		if !slices.Contains(replicas, r) {
			r.gone = true
			unused = append(unused, r.idle...)
			r.idle = nil
		}
	}
	d.replicas = replicas
	d.markHeld()
	d.serve(now)
	for _, c := range d.waiting {
		c.look()
	}
	return unused
}

// retire ends a deployment that Routes no longer name.
func (d *deployment) retire() []*upstream {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = true
	var unused []*upstream
	for _, r := range d.replicas {
		r.gone = true
		unused = append(unused, r.idle...)
		r.idle = nil
	}
	d.replicas = nil
	for _, c := range d.waiting {
		c.look()
	}
	return unused
}

func closeAll(ups []*upstream) {
	for _, up := range ups {
		up.close()
	}
}

// remember keeps the routes in a file, so that a gateway that starts while its server is away has something to serve.
func (g *Gateway) remember(routes trainyard.Routes) error {
	if g.config.Cache == "" {
		return nil
	}
	data, err := json.Marshal(routes)
	if err != nil {
		return fmt.Errorf("encode routes: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(g.config.Cache), filepath.Base(g.config.Cache)+".*") // readable by its owner alone
	if err != nil {
		return fmt.Errorf("keep routes: %w", err)
	}
	defer os.Remove(f.Name()) // nothing is there when it was renamed
	_, err = f.Write(data)
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = os.Rename(f.Name(), g.config.Cache)
	}
	if err != nil {
		return fmt.Errorf("keep routes: %w", err)
	}
	return nil
}

// recall serves what was remembered. A file that is not there or cannot be read is no error: the server will say.
func (g *Gateway) recall() {
	if g.config.Cache == "" {
		return
	}
	data, err := os.ReadFile(g.config.Cache)
	if err != nil {
		return
	}
	var routes trainyard.Routes
	if err := json.Unmarshal(data, &routes); err != nil {
		g.log.Warn("the file of routes cannot be read; waiting for the server", "file", g.config.Cache, "error", err)
		return
	}
	g.apply(routes)
}
