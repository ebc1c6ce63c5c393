package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Sending the program into a pod is the work of API server, kubelet and runtime for megabytes, again for each. So of many tasks at once those
// that come last find it in a volume, and so do all where sending takes long: the cluster keeps it in immutable ConfigMaps, which are as large
// as Kubernetes has them and which a kubelet reads once for all pods of its node. They are made when they are first of use, and go with
// the compute.

const (
	piece      = 1 << 20 // bytes of the program in a ConfigMap: the most that one may hold
	mostPieces = 16      // a program of more had better be sent than be kept in etcd

	keptLook  = 5 * time.Minute  // how long the ConfigMaps are taken to be there
	keptAgain = 20 * time.Second // between tries to make them, and looks for pods that wait for them

	keptFile    = "kept.json" // UIDs of the ConfigMaps that we made, by their names
	keptPattern = "program.*" // names of the pieces in a pod, in order
)

// keep is the program in the cluster.
type keep struct {
	mu     sync.Mutex
	stock  *stock    // what pods may find; nil: nothing yet
	looked time.Time // when it was last seen to
	failed bool      // and that it could not be
	busy   bool
}

// stock is the program for one kind of processor as the cluster keeps it. Its ConfigMaps have its name and a number.
type stock struct {
	name   string
	arch   string
	pieces int
}

func (s *stock) piece(i int) string { return fmt.Sprintf("%s-%02d", s.name, i) }

// keptFor is what the pods of a task find the program in; nil: it is sent. Those of a gang and those in a queue are told when all are there.
func (d *Driver) keptFor(p *plan) *stock {
	if p.serves() || p.gang() || d.cfg.Queue != "" || !d.api.far.Load() && !d.crowdWith(p.name) {
		return nil
	}
	d.lookAfterKept(keptLook)
	d.kept.mu.Lock()
	defer d.kept.mu.Unlock()
	s := d.kept.stock
	if s == nil || !slices.Contains([]string{"", s.arch}, p.shape.NodeSelector[archLabel]) {
		return nil
	}
	return s
}

// lookAfterKept has somebody make what is missing of the program in the cluster, unless that was done within the time given.
func (d *Driver) lookAfterKept(within time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := &d.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed {
		within = keptAgain
	}
	if d.closed || k.busy || time.Since(k.looked) < within {
		return
	}
	k.busy = true
	d.members.Go(func() {
		s, err := d.keepProgram(d.ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.busy, k.stock, k.looked, k.failed = false, s, time.Now(), err != nil && !isForbidden(err)
		switch {
		case isForbidden(err):
			d.env.Log.Info("every pod is sent the program: the cluster does not keep it", "err", err)
		case err != nil && d.ctx.Err() == nil:
			d.env.Log.Warn("keep the program in the cluster", "err", err)
		}
	})
}

// keepProgram makes the ConfigMaps that are missing, and deletes those of other versions that nobody waits for. It returns nil where there is
// none for all nodes.
func (d *Driver) keepProgram(ctx context.Context) (*stock, error) {
	there, err := d.listKept(ctx)
	if err != nil {
		return nil, err
	}
	arch, err := d.api.onlyArch(ctx)
	if err != nil {
		return nil, err
	}
	s, data, err := d.program.stock(arch, d.group)
	if err != nil || s == nil {
		return nil, err
	}
	ours := map[string]string{}
	if err := readJSON(filepath.Join(d.env.Dir, keptFile), &ours); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.env.Log.Warn("keep the program in the cluster", "err", err) // they are made anew
	}
	for name, uid := range there {
		if s.has(name) && uid == ours[name] || !s.has(name) && d.waitedFor(name) {
			continue
		}
		if err := d.api.remove(ctx, d.api.path(configMaps, name), nil); err != nil {
			return nil, fmt.Errorf("delete ConfigMap %s: %w", name, err)
		}
		delete(there, name)
	}
	for i := range s.pieces {
		name := s.piece(i)
		if there[name] != "" {
			continue
		}
		var made bare
		if err := d.api.create(ctx, d.api.path(configMaps), d.configMap(name, i, data[i*piece:min((i+1)*piece, len(data))]), &made); err != nil {
			return nil, fmt.Errorf("make ConfigMap %s: %w", name, err)
		}
		there[name] = made.Meta.UID
	}
	return s, writeJSON(filepath.Join(d.env.Dir, keptFile), there)
}

// has says whether a ConfigMap is one of its pieces.
func (s *stock) has(name string) bool { return strings.HasPrefix(name, s.name+"-") }

// waitedFor says whether a task that has not ended has a volume with that ConfigMap.
func (d *Driver) waitedFor(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.end == nil && t.rec.Kept != "" && strings.HasPrefix(name, t.rec.Kept+"-") {
			return true
		}
	}
	return false
}

// configMap holds one piece. Nobody can change it, and the kubelet need not ask whether somebody did.
func (d *Driver) configMap(name string, number int, data []byte) object {
	return object{
		"apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
		"metadata":   object{"name": name, "labels": object{"app.kubernetes.io/managed-by": "trainyard", groupLabel: d.group, keptLabel: "true"}},
		"binaryData": object{fmt.Sprintf("program.%02d", number): base64.StdEncoding.EncodeToString(data)},
	}
}

// listKept are the UIDs of our ConfigMaps by their names.
func (d *Driver) listKept(ctx context.Context) (map[string]string, error) {
	all, err := d.api.metadata(ctx, configMaps, groupLabel+"="+d.group+","+keptLabel)
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps: %w", err)
	}
	there := map[string]string{}
	for _, m := range all {
		there[m.Name] = m.UID
	}
	return there, nil
}

// Leave takes away what is kept in the cluster for all tasks. It is called when the compute is let go of, and has none.
func (d *Driver) Leave(ctx context.Context) error {
	there, err := d.listKept(ctx)
	if isForbidden(err) {
		return nil // without the right to list them none were made
	}
	if err != nil {
		return err
	}
	for name := range there {
		if err := d.api.remove(ctx, d.api.path(configMaps, name), nil); err != nil {
			return fmt.Errorf("delete ConfigMap %s: %w", name, err)
		}
	}
	return nil
}

// onlyArch is the processor of all Linux nodes, "" if there are several kinds, or none.
func (c *client) onlyArch(ctx context.Context) (string, error) {
	all, err := c.metadata(ctx, nodes, "kubernetes.io/os=linux")
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	arch := ""
	for _, m := range all {
		switch a := m.Labels[archLabel]; arch {
		case "", a:
			arch = a
		default:
			return "", nil
		}
	}
	return arch, nil
}

// metadata lists what objects of a kind are called and labelled, without what they hold.
func (c *client) metadata(ctx context.Context, kind, labels string) ([]meta, error) {
	var out []meta
	query := url.Values{"labelSelector": {labels}, "limit": {"500"}}
	for {
		p, err := c.metadataPage(ctx, kind, query)
		if err != nil {
			return nil, err
		}
		for _, one := range p.Items {
			out = append(out, one.Meta)
		}
		if p.Meta.Continue == "" {
			return out, nil
		}
		query.Set("continue", p.Meta.Continue)
	}
}

// bare is an object of which nothing but its metadata is read.
type bare struct {
	Meta meta `json:"metadata"`
}

func (c *client) metadataPage(ctx context.Context, kind string, query url.Values) (*page[bare], error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := c.request(ctx, http.MethodGet, c.path(kind), query, "", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	r, err := c.do(req)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p := &page[bare]{}
	if err := json.NewDecoder(r).Decode(p); err != nil {
		return nil, fmt.Errorf("read the list of %s: %w", kind, err)
	}
	return p, nil
}
