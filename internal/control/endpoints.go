package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// PutEndpoint creates an endpoint or changes one: its traffic, who may call it, tags. Traffic that is nil stays as it is. Names are unique in a server, as Azure's are in a
// region, because callers reach an endpoint by its name alone.
func (c *Control) PutEndpoint(ctx context.Context, who trainyard.User, in *trainyard.OnlineEndpoint) (*trainyard.OnlineEndpoint, bool, error) {
	e := *in
	if err := trainyard.CheckEndpointName("endpoint", e.Name); err != nil {
		return nil, false, err
	}
	if err := c.admitEndpoint(ctx, &e); err != nil {
		return nil, false, err
	}
	c.served.verbs.Lock()
	defer c.served.verbs.Unlock()
	old := c.served.endpoint(e.Name)
	now := c.Now()
	e.Created, e.CreatedBy, e.Modified, e.Deleting = now, who.Name, now, false
	created := old == nil
	if !created {
		switch {
		case old.Scope.Fold() != e.Scope.Fold():
			return nil, false, trainyard.Conflict("an endpoint %q is there already, in another workspace; its name is part of its address, so choose another", old.Name)
		case old.Deleting:
			return nil, false, trainyard.Conflict("endpoint %q is being deleted; try again when it is gone", old.Name)
		case overtaken(in.Modified, old.Modified):
			return nil, false, trainyard.Conflict("endpoint %q was changed by another at the same time; read it again and repeat the change", old.Name)
		case !strings.EqualFold(old.Spec.Compute, e.Spec.Compute) && len(c.served.deploymentsOf(old.Name)) > 0:
			return nil, false, trainyard.Conflict("endpoint %q runs on %s, and has deployments: it cannot be moved to %s; delete its deployments first, or choose another name",
				old.Name, sayCompute(old.Spec.Compute), sayCompute(e.Spec.Compute))
		}
		e.Scope, e.Name, e.Created, e.CreatedBy, e.Location = old.Scope, old.Name, old.Created, old.CreatedBy, cmp.Or(e.Location, old.Location)
		if e.Epoch = old.Epoch; old.Spec.AuthMode != e.Spec.AuthMode {
			e.Epoch = max(old.Epoch+1, now.UnixMicro())
		}
		if e.Spec.Traffic == nil {
			e.Spec.Traffic = old.Spec.Traffic
		}
		if e.Spec.MirrorTraffic == nil { // but for what has live traffic now
			e.Spec.MirrorTraffic = maps.Clone(old.Spec.MirrorTraffic)
			for name, share := range e.Spec.Traffic {
				maps.DeleteFunc(e.Spec.MirrorTraffic, func(mirrored string, _ int) bool { return share > 0 && strings.EqualFold(mirrored, name) })
			}
		}
		e.Keys = old.Keys // only RegenerateKey changes them: who merges what was read must not bring a key back that is good no more
	} else {
		e.Epoch = now.UnixMicro() // tokens of one by this name that was deleted are not for this one
		e.Keys = trainyard.EndpointKeys{Primary: cmp.Or(e.Keys.Primary, newKey()), Secondary: cmp.Or(e.Keys.Secondary, newKey())}
	}
	if err := c.served.checkTraffic(&e); err != nil {
		return nil, false, err
	}
	what := "updated"
	if created {
		what = "created"
	}
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		if _, err := tx.Resource(e.Scope, trainyard.KindWorkspace, e.Scope.Workspace, ""); err != nil {
			return err
		}
		tx.Event(c.event(e.Scope, "endpoint", e.Name, what, who.Name, sayTraffic(e.Spec.Traffic)))
		return putEndpoint(tx, &e)
	})
	if err != nil {
		return nil, false, err
	}
	c.served.keepEndpoint(&e)
	c.routesChanged()
	return c.presentEndpoint(&e, c.served.deploymentsOf(e.Name)), created, nil
}

// admitEndpoint checks what does not depend on what is there.
func (c *Control) admitEndpoint(ctx context.Context, e *trainyard.OnlineEndpoint) error {
	s := &e.Spec
	modes := []string{trainyard.AuthKey, trainyard.AuthAMLToken, trainyard.AuthAADToken}
	if s.AuthMode == "" {
		s.AuthMode = trainyard.AuthKey
	}
	i := slices.IndexFunc(modes, func(m string) bool { return strings.EqualFold(m, s.AuthMode) })
	if i < 0 {
		return trainyard.Invalid("endpoint %q: auth_mode is %q, want key, aml_token or aad_token", e.Name, s.AuthMode)
	}
	s.AuthMode = modes[i]
	if s.Compute != "" {
		comp, err := c.namedCompute(ctx, e.Scope, s.Compute)
		if err != nil {
			return err
		}
		s.Compute = comp.ID()
	}
	for name := range s.Extra {
		if strings.EqualFold(name, "keys") { // what is not known is kept and shown to every reader
			return trainyard.Invalid("endpoint %q: properties.%s is not a field; keys are given once, in properties.keys, and changed with regenerateKeys", e.Name, name)
		}
	}
	for _, key := range []string{e.Keys.Primary, e.Keys.Secondary} {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	s.ScoringURI, s.SwaggerURI, s.ProvisioningState = "", "", ""
	return nil
}

// sayCompute is an endpoint's compute in words.
func sayCompute(id string) string {
	if id == "" {
		return "managed nodes"
	}
	return fmt.Sprintf("compute %q", id[strings.LastIndexByte(id, '/')+1:])
}

// namedCompute follows any spelling of a reference to a compute.
func (c *Control) namedCompute(ctx context.Context, scope trainyard.Scope, ref string) (*trainyard.Compute, error) {
	r := &resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: scope, Spec: trainyard.JobSpec{ComputeID: ref}}}
	comp := r.compute()
	if comp == nil && len(r.errs) > 0 {
		return nil, &r.errs[0]
	}
	return comp, nil
}

// overtaken says that what was read at one moment, to be merged with a change, has been changed since. Who read nothing has no moment.
func overtaken(read, now time.Time) bool { return !read.IsZero() && !read.Equal(now) }

// checkKey refuses a key that no caller could send in a header.
func checkKey(key string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) || len(key) > mostKey {
		return trainyard.Invalid("a key is made of at most %d letters, digits and other visible ASCII characters, without a space", mostKey)
	}
	return nil
}

const mostKey = 1024

// newKey is 256 bits of chance.
func newKey() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Endpoint finds an endpoint.
func (c *Control) Endpoint(_ context.Context, scope trainyard.Scope, name string) (*trainyard.OnlineEndpoint, error) {
	e := c.served.endpoint(name)
	if e == nil || e.Scope.Fold() != scope.Fold() {
		return nil, noEndpoint(scope, name)
	}
	return c.presentEndpoint(e, c.served.deploymentsOf(e.Name)), nil
}

func noEndpoint(scope trainyard.Scope, name string) error {
	return trainyard.NotFound("online endpoint %q does not exist in workspace %q", name, scope.Workspace)
}

// Endpoints lists a workspace's endpoints by name.
func (c *Control) Endpoints(_ context.Context, scope trainyard.Scope) ([]*trainyard.OnlineEndpoint, error) {
	var out []*trainyard.OnlineEndpoint
	of := c.served.deploymentsByEndpoint()
	for _, e := range c.served.allEndpoints() {
		if e.Scope.Fold() == scope.Fold() {
			out = append(out, c.presentEndpoint(e, of[strings.ToLower(e.Name)]))
		}
	}
	return out, nil
}

// DeleteEndpoint begins to delete an endpoint and its deployments: it answers no more, and is gone when its replicas are.
func (c *Control) DeleteEndpoint(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error {
	c.served.verbs.Lock()
	defer c.served.verbs.Unlock()
	old := c.served.endpoint(name)
	if old == nil || old.Scope.Fold() != scope.Fold() {
		return noEndpoint(scope, name)
	}
	e := *old
	e.Deleting = true
	e.Spec.Traffic, e.Spec.MirrorTraffic = map[string]int{}, map[string]int{}
	var gone []*trainyard.OnlineDeployment
	for _, d := range c.served.deploymentsOf(name) {
		n := *d
		if err := n.MoveTo(trainyard.DeploymentDeleting, trainyard.Reason{Code: "Deleting", Message: "its endpoint is being deleted; its replicas are being stopped"}, c.Now()); err != nil {
			return err
		}
		gone = append(gone, &n)
	}
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		tx.Event(c.event(scope, "endpoint", e.Name, "deleted", who.Name, ""))
		if len(gone) == 0 {
			return tx.DeleteResource(e.Scope, trainyard.KindOnlineEndpoint, e.Name, "")
		}
		for _, d := range gone {
			if err := putDeployment(tx, d); err != nil {
				return err
			}
		}
		return putEndpoint(tx, &e)
	})
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		c.served.dropEndpoint(e.Name)
	} else {
		c.served.keepEndpoint(&e)
	}
	for _, d := range gone {
		c.served.keepDeployment(d)
		c.reconcile.Add(deploymentKey(d.Endpoint, d.Name))
	}
	c.routesChanged()
	return nil
}

// EndpointKeys are an endpoint's keys. An endpoint that takes tokens has none to show.
func (c *Control) EndpointKeys(_ context.Context, _ trainyard.User, scope trainyard.Scope, name string) (trainyard.EndpointKeys, error) {
	e := c.served.endpoint(name)
	switch {
	case e == nil || e.Scope.Fold() != scope.Fold():
		return trainyard.EndpointKeys{}, noEndpoint(scope, name)
	case e.Spec.AuthMode != trainyard.AuthKey:
		return trainyard.EndpointKeys{}, trainyard.Conflict("endpoint %q is called with tokens (auth_mode %s), not with keys; ask for a token", e.Name, e.Spec.AuthMode)
	}
	return e.Keys, nil
}

// RegenerateKey replaces the primary or the secondary key by value, or by a new one when value is empty. Tokens that were made for the
// endpoint before are good no more.
func (c *Control) RegenerateKey(ctx context.Context, who trainyard.User, scope trainyard.Scope, name, key, value string) error {
	c.served.verbs.Lock()
	defer c.served.verbs.Unlock()
	old := c.served.endpoint(name)
	if old == nil || old.Scope.Fold() != scope.Fold() {
		return noEndpoint(scope, name)
	}
	if err := checkKey(value); err != nil {
		return err
	}
	e := *old
	e.Epoch = max(old.Epoch+1, c.Now().UnixMicro())
	switch value = cmp.Or(value, newKey()); {
	case strings.EqualFold(key, "Primary"):
		e.Keys.Primary = value
	case strings.EqualFold(key, "Secondary"):
		e.Keys.Secondary = value
	default:
		return trainyard.Invalid("an endpoint has a Primary and a Secondary key, no %q", key)
	}
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		tx.Event(c.event(scope, "endpoint", e.Name, "key regenerated", who.Name, strings.ToLower(key)))
		return putEndpoint(tx, &e)
	})
	if err == nil {
		c.served.keepEndpoint(&e)
		c.routesChanged()
	}
	return err
}

// checkTraffic checks percentages against the deployments that there are. Callers hold verbs.
func (s *served) checkTraffic(e *trainyard.OnlineEndpoint) error {
	there := map[string]string{}
	for _, d := range s.deploymentsOf(e.Name) {
		if d.Status.State != trainyard.DeploymentDeleting {
			there[strings.ToLower(d.Name)] = d.Name
		}
	}
	clean := func(what string, in map[string]int, most int) (map[string]int, int, error) {
		out, sum := map[string]int{}, 0
		for _, name := range slices.Sorted(maps.Keys(in)) {
			share := in[name]
			if share == 0 {
				continue // no traffic is no entry
			}
			full, ok := there[strings.ToLower(name)]
			switch {
			case !ok:
				return nil, 0, trainyard.Invalid("%s names deployment %q, which endpoint %q does not have; it has: %s", what, name, e.Name, names(there))
			case share < 0 || share > most:
				return nil, 0, trainyard.Invalid("%s gives deployment %s %d percent, want 0 to %d", what, full, share, most)
			case out[full] > 0:
				return nil, 0, trainyard.Invalid("%s names deployment %s twice: names differ in more than capital letters", what, full)
			}
			out[full] = share
			sum += share
		}
		return out, sum, nil
	}
	traffic, sum, err := clean("traffic", e.Spec.Traffic, 100)
	if err != nil {
		return err
	}
	if sum != 0 && sum != 100 {
		return trainyard.Invalid("traffic of endpoint %q comes to %d percent (%s); it must come to 100, or to 0 for none", e.Name, sum, sayTraffic(traffic))
	}
	mirror, _, err := clean("mirror_traffic", e.Spec.MirrorTraffic, 50)
	if err != nil {
		return err
	}
	if len(mirror) > 1 {
		return trainyard.Invalid("mirror_traffic names %d deployments (%s); one can be mirrored to", len(mirror), names(mirror))
	}
	for name := range mirror {
		if traffic[name] > 0 {
			return trainyard.Invalid("deployment %s has live traffic and mirrored traffic; it can have one of them", name)
		}
	}
	e.Spec.Traffic, e.Spec.MirrorTraffic = traffic, mirror
	return nil
}

func sayTraffic(t map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, t[name]))
	}
	if len(parts) == 0 {
		return "no traffic"
	}
	return strings.Join(parts, " ")
}

// Gateways is control as gateways see it.
type Gateways struct{ *Control }

// Report takes what a gateway counted.
func (g Gateways) Report(ctx context.Context, r trainyard.GatewayReport) error {
	return g.GatewayReport(ctx, r)
}

// Collect appends rows, JSON lines, to what is kept of an endpoint's requests or responses.
func (g Gateways) Collect(ctx context.Context, endpoint, deployment, collection string, rows []byte) error {
	return g.collect(ctx, endpoint, deployment, collection, rows)
}
