package store

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

func (tx *Tx) compute(key trainyard.ComputeKey) *trainyard.Compute {
	for _, l := range []*layer{tx.own, tx.below} {
		if r := l.computes[key]; r != nil {
			return r.compute
		}
	}
	return tx.s.image.compute(key)
}

// Compute reads a compute.
func (tx *Tx) Compute(key trainyard.ComputeKey) (*trainyard.Compute, error) {
	c := tx.compute(key)
	if c == nil {
		return nil, noCompute(key)
	}
	return cloneCompute(c), nil
}

func noCompute(key trainyard.ComputeKey) error {
	scope, name, _ := cutLast(string(key))
	return trainyard.NotFound("compute %q does not exist in workspace %q", name, workspaceOf(scope))
}

// PutCompute creates or replaces a compute. Putting what is there already writes nothing.
func (tx *Tx) PutCompute(c *trainyard.Compute) error {
	if err := checkNames("compute", c.Name, c.Scope.Key(), c.Name); err != nil {
		return err
	}
	n := cloneCompute(c)
	if reflect.DeepEqual(tx.compute(c.Key()), n) {
		return nil
	}
	doc, err := encodeCompute(n, tx.s.image.seal)
	if err != nil {
		return trainyard.Invalid("compute %q cannot be stored: %v", c.Name, err)
	}
	put(&tx.own.computes, c.Key(), &computeRecord{n, doc})
	return nil
}

// DeleteCompute deletes a compute. Its nodes and jobs are not looked at.
func (tx *Tx) DeleteCompute(key trainyard.ComputeKey) error {
	if tx.compute(key) == nil {
		return noCompute(key)
	}
	put(&tx.own.computes, key, &computeRecord{})
	return nil
}

// node is the node's record as the transaction sees it; never nil.
func (tx *Tx) node(id trainyard.NodeID) *nodeRecord {
	for _, l := range []*layer{tx.own, tx.below} {
		if r := l.nodes[id]; r != nil {
			return r
		}
	}
	return &nodeRecord{node: tx.s.image.node(id), quiet: true}
}

// Node reads a node.
func (tx *Tx) Node(id trainyard.NodeID) (*trainyard.Node, error) {
	if n := tx.node(id).node; n != nil {
		return n.Clone(), nil
	}
	return nil, noNode(id)
}

func noNode(id trainyard.NodeID) error { return trainyard.NotFound("node %q does not exist", id) }

// PutNode creates or replaces a node. If nothing but Seen changed it is kept in memory only, and nobody is told.
func (tx *Tx) PutNode(n *trainyard.Node) error {
	if err := checkNames("node", string(n.ID), string(n.ID), string(n.Compute)); err != nil {
		return err
	}
	old := tx.node(n.ID)
	if reflect.DeepEqual(old.node, n) {
		return nil
	}
	doc, err := encode(n)
	if err != nil {
		return trainyard.Invalid("node %q cannot be stored: %v", n.ID, err)
	}
	put(&tx.own.nodes, n.ID, &nodeRecord{node: n.Clone(), quiet: old.quiet && onlySeen(old.node, n), doc: doc})
	return nil
}

func onlySeen(old, n *trainyard.Node) bool {
	if old == nil {
		return false
	}
	c := *old
	c.Seen = n.Seen
	return reflect.DeepEqual(&c, n)
}

// DeleteNode deletes a node. Tasks that jobs still have there are not looked at.
func (tx *Tx) DeleteNode(id trainyard.NodeID) error {
	if tx.node(id).node == nil {
		return noNode(id)
	}
	put(&tx.own.nodes, id, &nodeRecord{})
	return nil
}

// NodesOf lists a compute's nodes by ID.
func (tx *Tx) NodesOf(key trainyard.ComputeKey) ([]*trainyard.Node, error) {
	seen := map[trainyard.NodeID]*trainyard.Node{}
	for _, n := range tx.s.image.nodesOf(key) {
		seen[n.ID] = n
	}
	for _, l := range []*layer{tx.below, tx.own} {
		for id, r := range l.nodes {
			delete(seen, id)
			if r.node != nil && r.node.Compute == key {
				seen[id] = r.node
			}
		}
	}
	out := make([]*trainyard.Node, 0, len(seen))
	for _, n := range seen {
		out = append(out, n.Clone())
	}
	slices.SortFunc(out, func(a, b *trainyard.Node) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func makeResourceKey(scope trainyard.Scope, kind trainyard.Kind, name, version string) resourceKey {
	return resourceKey{scope.Key(), trainyard.Kind(strings.ToLower(string(kind))), strings.ToLower(name), version}
}

func (tx *Tx) resource(key resourceKey) (*resourceRecord, error) {
	for _, l := range []*layer{tx.own, tx.below} {
		if r := l.resources[key]; r != nil {
			return r, nil
		}
	}
	r, err := readResource(tx.ctx, tx.s.conn, key)
	if err != nil {
		return nil, tx.s.db.explain(err)
	}
	if err := r.unseal(tx.s.image.seal); err != nil {
		return nil, err
	}
	put(&tx.below.resources, key, r)
	return r, nil
}

// Resource reads a resource. Names compare without regard to case. An empty version of a versioned kind is the latest, see NextVersion.
func (tx *Tx) Resource(scope trainyard.Scope, kind trainyard.Kind, name, version string) (*trainyard.Resource, error) {
	if version == "" && kind.Versioned() {
		latest, _, err := tx.NextVersion(scope, kind, name)
		if err != nil {
			return nil, err
		}
		if latest == "" {
			return nil, noResource(scope, kind, name, "")
		}
		version = latest
	}
	r, err := tx.resource(makeResourceKey(scope, kind, name, version))
	if err != nil {
		return nil, err
	}
	if r.resource == nil {
		return nil, noResource(scope, kind, name, version)
	}
	return cloneResource(r.resource), nil
}

func noResource(scope trainyard.Scope, kind trainyard.Kind, name, version string) error {
	what := strings.TrimSuffix(string(kind), "s")
	switch {
	case kind == trainyard.KindWorkspace:
		return trainyard.NotFound("workspace %q does not exist in resource group %q", name, scope.ResourceGroup)
	case version != "":
		return trainyard.NotFound("%s %q version %q does not exist in workspace %q", what, name, version, scope.Workspace)
	}
	return trainyard.NotFound("%s %q does not exist in workspace %q", what, name, scope.Workspace)
}

// PutResource creates or replaces a resource, and says which. What it replaces keeps its place in lists.
func (tx *Tx) PutResource(r *trainyard.Resource) (created bool, err error) {
	if err := checkNames(string(r.Kind), r.Name, r.Scope.Key(), string(r.Kind), r.Name, r.Version, r.Hash); err != nil {
		return false, err
	}
	if r.Version == "" && r.Kind.Versioned() {
		return false, trainyard.Invalid("%s %q needs a version", r.Kind, r.Name)
	}
	key := makeResourceKey(r.Scope, r.Kind, r.Name, r.Version)
	old, err := tx.resource(key)
	if err != nil {
		return false, err
	}
	n := &resourceRecord{resource: cloneResource(r), seq: old.seq, stored: old.stored, write: true}
	if n.doc, err = encodeResource(r, tx.s.image.seal); err != nil {
		return false, trainyard.Invalid("%s %q cannot be stored: %v", r.Kind, r.Name, err)
	}
	if created = old.resource == nil; created {
		n.seq = tx.s.next()
	}
	put(&tx.own.resources, key, n)
	return created, nil
}

// DeleteResource deletes an unversioned resource, or one version.
func (tx *Tx) DeleteResource(scope trainyard.Scope, kind trainyard.Kind, name, version string) error {
	if version == "" && kind.Versioned() {
		return trainyard.Invalid("say which version of %s %q to delete", kind, name)
	}
	key := makeResourceKey(scope, kind, name, version)
	r, err := tx.resource(key)
	if err != nil {
		return err
	}
	if r.resource == nil {
		return noResource(scope, kind, name, version)
	}
	put(&tx.own.resources, key, &resourceRecord{stored: r.stored, write: true})
	return nil
}

// NextVersion is the newest version of a name that is not archived, else the newest ("" if there is none), and the number after its highest
// ("1" if none is a number).
func (tx *Tx) NextVersion(scope trainyard.Scope, kind trainyard.Kind, name string) (latest, next string, err error) {
	key := makeResourceKey(scope, kind, name, "")
	known := map[string]*resourceRecord{} // by version: what the database does not know yet
	for _, l := range []*layer{tx.below, tx.own} {
		for k, r := range l.resources {
			if r.write && k.scope == key.scope && k.kind == key.kind && k.folded == key.folded {
				known[k.version] = r
			}
		}
	}
	v, err := readVersions(tx.ctx, tx.s.conn, key, known)
	if err != nil {
		return "", "", tx.s.db.explain(err)
	}
	for version, r := range known {
		if r.resource != nil {
			v.add(version, r.seq, int64(bit(r.resource.Archived)))
		}
	}
	return v.latest, fmt.Sprint(v.highest + 1), nil
}

// Setting reads a setting; one that was never put is NotFound.
func (tx *Tx) Setting(key string) ([]byte, error) {
	for _, l := range []*layer{tx.own, tx.below} {
		if r := l.settings[key]; r != nil {
			return settingOr(key, r.value)
		}
	}
	value, err := readSetting(tx.ctx, tx.s.conn, key)
	if err != nil {
		return nil, tx.s.db.explain(err)
	}
	put(&tx.below.settings, key, &settingRecord{value: value})
	return settingOr(key, value)
}

func settingOr(key string, value []byte) ([]byte, error) {
	if value == nil {
		return nil, trainyard.NotFound("setting %q is not set", key)
	}
	return bytes.Clone(value), nil
}

// PutSetting stores a setting; nil is stored as empty.
func (tx *Tx) PutSetting(key string, value []byte) error {
	if err := checkNames("setting", key, key); err != nil {
		return err
	}
	put(&tx.own.settings, key, &settingRecord{value: append([]byte{}, value...), write: true})
	return nil
}

// nanos is a time as the database holds it: nanoseconds since 1970, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
