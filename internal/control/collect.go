package control

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/trainyard/trainyard"
)

// collect keeps what a gateway collected of a deployment: JSON lines, a file each time, in a folder for each time slice that the deployment
// asks for.
func (c *Control) collect(ctx context.Context, endpoint, deployment, collection string, rows []byte) error {
	d := c.served.deployment(endpoint, deployment)
	if d == nil || d.Spec.DataCollector == nil {
		return nil // deleted, or asked for no more: what is on its way is dropped
	}
	set := d.Spec.DataCollector
	folder := trainyard.DataPath{Scope: d.Scope, Datastore: trainyard.BlobDatastore,
		Path: path.Join("modelDataCollector", d.Endpoint, d.Name, collection)}.Key()
	if id := set.Collections[collection].DataID; id != "" {
		key, err := c.collectionKey(ctx, d.Scope, id)
		if err != nil {
			return err
		}
		folder = key
	}
	layout := map[string]string{"year": "2006", "month": "2006/01", "day": "2006/01/02", "hour": "2006/01/02/15", "minute": "2006/01/02/15/04"}
	now := c.Now().UTC()
	slice := now.Format(cmp.Or(layout[strings.ToLower(set.RollingRate)], layout["hour"]))
	key := fmt.Sprintf("%s/%s/%s-%s.jsonl", strings.TrimRight(folder, "/"), slice, now.Format("150405.000000"), newKey()[:6])
	return c.Blobs.Put(ctx, key, bytes.NewReader(rows))
}

// collectionKey is where a collection's data_id is in the store: a path in a datastore, or that of a data asset.
func (c *Control) collectionKey(ctx context.Context, scope trainyard.Scope, id string) (string, error) {
	r := &resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: scope}}
	in := trainyard.TaskInput{URI: id}
	if err := r.locate(&in); err != nil {
		return "", err
	}
	if in.Key == "" {
		return "", trainyard.Invalid("data_collector: %s is not in this server's store: want a path in a datastore, or a data asset that has one", id)
	}
	return in.Key, nil
}
