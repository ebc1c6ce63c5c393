package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Sending the program into a pod is the work of API server, kubelet and runtime for megabytes, again for each. So of many tasks at once those
// that come last have it in a volume, and so have all where sending takes long: the cluster keeps it in immutable ConfigMaps, which are as large
// as Kubernetes has them and which a kubelet reads once for all pods of its node. Such pods ask for the task (asks.go), or wait as others do and are sent that alone. One
// that does not find all pieces of what it is to run is sent the program, so that nothing depends on what becomes of the ConfigMaps.

const (
	piece      = 1 << 20 // bytes of the program in a ConfigMap: the most that one may hold
	mostPieces = 16      // a program of more had better be sent than be kept in etcd

	keptLook  = 5 * time.Minute  // how long the ConfigMaps are taken to be there
	keptAgain = 20 * time.Second // after which it is tried again when the API server did not answer
	keptNever = time.Hour        // and when it refused: what was made until then is others' quota for a moment

	keptFile = "kept.json" // UIDs of the ConfigMaps that we made, by their names
)

// keep is the program in the cluster.
type keep struct {
	mu    sync.Mutex
	stock *stock             // what new pods may have; nil: nothing yet
	next  time.Time          // when to see to it again
	busy  chan struct{}      // closed when whoever is about it has come to an end; nil: nobody is
	end   context.CancelFunc // of whoever was about it last
	left  bool               // nobody wants it any more

	ours map[string]string // UIDs of the ConfigMaps that we made, by their names; of whoever is about it
}

// stock is the program for one kind of processor as the cluster keeps it.
type stock struct {
	name   string // of its ConfigMaps, which have a number besides
	sum    string // the beginning of its SHA-256: the name of the files in pods, which have a number besides
	arch   string
	size   int // in bytes
	pieces int
	alone  bool // all nodes have that processor
}

func (s *stock) piece(i int) string { return fmt.Sprintf("%s-%02d", s.name, i) }
func (s *stock) file(i int) string  { return fmt.Sprintf("%s.%02d", s.sum, i) }

// has says whether a ConfigMap is one of its pieces.
func (s *stock) has(name string) bool { return strings.HasPrefix(name, s.name+"-") }

// sources of a volume with all pieces that are there.
func (s *stock) sources() []object {
	var parts []object
	for i := range s.pieces {
		parts = append(parts, object{"configMap": object{"name": s.piece(i), "optional": true}})
	}
	return parts
}

// keptVolume is what a pod finds in keptDir.
func (p *plan) keptVolume() object {
	parts := p.kept.sources()
	if p.asks() {
		parts = append(parts, p.ticket())
	}
	return object{"projected": object{"sources": parts, "defaultMode": 0o444}}
}

// words say to scripts what they may find; of none they are "".
func (s *stock) words() string {
	if s == nil {
		return ""
	}
	names := []string{s.sum, fmt.Sprint(s.size), fmt.Sprint(s.pieces)}
	for _, machine := range slices.Sorted(maps.Keys(machines)) {
		if machines[machine] == s.arch {
			names = append(names, machine)
		}
	}
	return strings.Join(names, " ")
}

// keptHere is what pods may have, nil if there is nothing.
func (d *Driver) keptHere() *stock {
	d.kept.mu.Lock()
	defer d.kept.mu.Unlock()
	return d.kept.stock
}

// keptFor is what the pods of a new task are to have, nil if they are to be sent the program.
func (d *Driver) keptFor(p *plan) *stock {
	far := d.api.far.Load() && !d.api.near.Load()
	if p.serves() || !far && !d.crowdWith(p.name) {
		return nil
	}
	d.lookAfterKept()
	s := d.keptHere()
	if s == nil || !slices.Contains([]string{"", s.arch}, p.shape.NodeSelector[archLabel]) {
		return nil
	}
	return s
}

// lookAfterKept has somebody make what is missing of the program in the cluster, unless that was done a moment ago.
func (d *Driver) lookAfterKept() {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := &d.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.closed || k.left || k.busy != nil || time.Now().Before(k.next) {
		return
	}
	busy := make(chan struct{})
	ctx, end := context.WithCancel(d.ctx)
	k.busy, k.end = busy, end
	d.members.Go(func() {
		defer close(busy)
		defer end()
		s, err := d.keepProgram(ctx)
		if err == nil {
			d.readKeys(ctx)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		pause := keptLook
		switch {
		case refused(err):
			k.stock, pause = nil, keptNever
		case err != nil: // what was there may be there still
			pause = keptAgain
		default:
			k.stock = s
		}
		k.busy, k.next = nil, time.Now().Add(pause)
		if err != nil && ctx.Err() == nil {
			d.env.Log.Info("keep the program in the cluster: pods that do not find it are sent it", "err", err)
		}
	})
}

// refused says whether the cluster will not do what it was asked: a right is missing, a quota is used up, a policy is against it.
func refused(err error) bool {
	code := statusCode(err)
	return isForbidden(err) || code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// keepProgram makes the ConfigMaps that are missing, and deletes those of other versions: a pod that still waits for one is sent the program.
// It returns nil where there is none to keep.
func (d *Driver) keepProgram(ctx context.Context) (*stock, error) {
	there, err := d.listKept(ctx)
	if err != nil {
		return nil, err
	}
	arch, alone, err := d.api.mostArch(ctx)
	if err != nil && !isForbidden(err) {
		return nil, err
	}
	s, data, err := d.program.stock(arch, d.group)
	if err != nil || s == nil {
		return nil, err
	}
	s.alone = alone
	if d.kept.ours == nil {
		if err := readJSON(filepath.Join(d.env.Dir, keptFile), &d.kept.ours); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.env.Log.Warn("the ConfigMaps with the program are made anew", "err", err)
		}
	}
	for name, uid := range there {
		if s.has(name) && uid == d.kept.ours[name] {
			continue
		}
		if err := d.api.remove(ctx, d.api.path(configMaps, name), nil); err != nil {
			return nil, fmt.Errorf("delete ConfigMap %s: %w", name, err)
		}
		delete(there, name)
	}
	err = d.makeKept(ctx, s, data, there)
	if refused(err) { // part of it is of no use
		for name := range there {
			err = errors.Join(err, d.api.remove(ctx, d.api.path(configMaps, name), nil))
		}
	}
	d.kept.ours = there
	if err := writeJSON(filepath.Join(d.env.Dir, keptFile), there); err != nil { // after a restart they are made anew
		d.env.Log.Warn("keep the program in the cluster", "err", err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// makeKept makes the ConfigMaps that are not there, and notes their UIDs.
func (d *Driver) makeKept(ctx context.Context, s *stock, data []byte, there map[string]string) error {
	for i := range s.pieces {
		name := s.piece(i)
		if there[name] != "" {
			continue
		}
		var made bare
		o := object{ // nobody can change it, and the kubelet need not ask whether somebody did
			"apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
			"metadata":   object{"name": name, "labels": object{"app.kubernetes.io/managed-by": "trainyard", groupLabel: d.group, keptLabel: "true"}},
			"binaryData": object{s.file(i): base64.StdEncoding.EncodeToString(data[i*piece : min((i+1)*piece, len(data))])},
		}
		if err := d.api.create(ctx, d.api.path(configMaps), o, &made); err != nil {
			return fmt.Errorf("make ConfigMap %s: %w", name, err)
		}
		there[name] = made.Meta.UID
	}
	return nil
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

// Leave takes away what is kept in the cluster for all tasks.
func (d *Driver) Leave(ctx context.Context) error {
	d.kept.mu.Lock()
	d.kept.left, d.kept.stock = true, nil
	busy, end := d.kept.busy, d.kept.end
	d.kept.mu.Unlock()
	if busy != nil {
		end()
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	there, err := d.listKept(ctx)
	var ours map[string]string
	if isForbidden(err) && errors.Is(readJSON(filepath.Join(d.env.Dir, keptFile), &ours), fs.ErrNotExist) {
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

// mostArch is the processor that most Linux nodes have, and whether all do; where there are none, or nobody may look at them, this computer's.
func (c *client) mostArch(ctx context.Context) (most string, alone bool, err error) {
	all, err := c.metadata(ctx, nodes, "kubernetes.io/os=linux")
	if err != nil {
		return thisArch, false, fmt.Errorf("list nodes: %w", err)
	}
	have := map[string]int{}
	most = thisArch
	for _, m := range all {
		arch := m.Labels[archLabel]
		if have[arch]++; have[arch] > have[most] {
			most = arch
		}
	}
	return most, len(have) == 1, nil
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
