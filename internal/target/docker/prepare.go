package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

const (
	preparedDir = "environments" // what each environment came to, by its hash
	layersDir   = "layers"       // Python packages on top of images
)

// Contains says whether the task's environment is an image.
func (d *Driver) Contains(t trainyard.Task) bool {
	return t.Environment.Contained()
}

// resolved is what an environment came to. It is written down, so that Start runs what Prepare found.
type resolved struct {
	Name  string `json:"name"`            // of the image, for people
	Ref   string `json:"ref"`             // its ID
	Layer string `json:"layer,omitempty"` // folder of the Python packages on top
}

// Prepare brings the task's image on to the node, or builds it, and then the layer on top.
func (d *Driver) Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) error {
	if err := d.cfg.applyArgs(t.DockerArgs, &container.HostConfig{}, map[string]string{}); err != nil {
		return err
	}
	if err := d.cfg.shm(&container.HostConfig{}, t.ShmSize); err != nil {
		return err
	}
	if !d.Contains(t) {
		return nil
	}
	if d.run.Err() != nil {
		return errClosed
	}
	plan := *t.Environment
	err := d.builds.do(ctx, d.run, plan.Hash, p, func(ctx context.Context, f *flight) error {
		return d.prepare(ctx, plan, t.Run.Context, f)
	})
	if c := trainyard.ClassOf(err); c != "" && err != nil {
		return fault(c, "%s: %v", plan.Words(), err)
	}
	return err
}

// prepare is Prepare for one of all that want the environment.
func (d *Driver) prepare(ctx context.Context, e trainyard.EnvironmentPlan, folder string, f *flight) error {
	var r resolved
	var err error
	if e.Context != "" {
		r, err = d.built(ctx, e, folder, f)
	} else {
		r, err = d.pulled(ctx, e.Image, f)
	}
	if err != nil {
		return err
	}
	if strings.TrimSpace(e.CondaFile) != "" {
		if r.Layer, err = d.layer(ctx, e, r, f); err != nil {
			return err
		}
	}
	return d.note(e.Hash, r)
}

// imageID finds an image that the engine has; "" if it has none of that name.
func (d *Driver) imageID(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	r, err := d.engine.ImageInspect(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return "", nil
	case errdefs.IsInvalidArgument(err):
		return "", fault(trainyard.ClassEnvironment, "%q is not the name of an image (%v); write it as registry/name:tag", name, err)
	case err != nil:
		return "", engineError(err)
	}
	return r.ID, nil
}

// resolve is what the task's container runs in.
func (d *Driver) resolve(t trainyard.Task) (resolved, error) {
	if !d.Contains(t) {
		if d.cfg.Image == "" {
			return resolved{}, fault(trainyard.ClassEnvironment, "the job names no image, and this node has none for such jobs; give its environment an image, "+
				"or the node's docker target one")
		}
		return resolved{Name: d.cfg.Image, Ref: d.cfg.Image}, nil
	}
	var r resolved
	ok, err := target.ReadJSON(d.preparedPath(t.Environment.Hash), &r)
	if err != nil {
		return resolved{}, err
	}
	if ok && r.Layer != "" {
		_, err = os.Stat(r.Layer)
	}
	if !ok || err != nil {
		return resolved{}, trainyard.Conflict("%s has not been prepared on this node, or was taken away again; run the job again", t.Environment.Words())
	}
	return r, nil
}

func (d *Driver) preparedPath(hash string) string {
	return filepath.Join(d.env.Dir, preparedDir, key(hash)+".json")
}

// note writes down what an environment came to.
func (d *Driver) note(hash string, r resolved) error {
	path := d.preparedPath(hash)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := target.WriteJSON(path+".new", r); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// key makes a file name, and a tag of an image, of anything.
func key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// passing leaves errors as they are that have nothing to do with the environment: the engine is away, or nobody waits any more.
func passing(ctx context.Context, err error) bool {
	return ctx.Err() != nil || client.IsErrConnectionFailed(err) || errors.Is(err, context.Canceled) || errors.Is(err, errEngineGone)
}

// errEngineGone is the end of a stream from the engine in the middle.
var errEngineGone = errors.New("the Docker engine went away")
