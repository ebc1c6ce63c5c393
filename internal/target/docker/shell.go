package docker

import (
	"context"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// Shells that run.sh may be started by.
const (
	anyShell = "/bin/sh"
	bashPath = "/bin/bash"
)

// shell is what run.sh is started by in the plan's container. That is sh, which every image has, and which then starts bash where there is
// one; where that is known, bash, which spares a process.
func (d *Driver) shell(p *plan) string {
	if !p.pure() {
		return anyShell
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bash[p.image] {
		return bashPath
	}
	return anyShell
}

// learn asks the engine whether the plan's image has bash, once for each image. Containers say it, images do not.
func (d *Driver) learn(ctx context.Context, container string, p *plan) {
	d.mu.Lock()
	_, known := d.bash[p.image]
	d.mu.Unlock()
	if known || !p.pure() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	r, err := d.engine.ContainerStatPath(ctx, container, client.ContainerStatPathOptions{Path: bashPath})
	if err != nil && !errdefs.IsNotFound(err) {
		return // the next container says it
	}
	mode := r.Stat.Mode
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bash[p.image] = err == nil && mode.IsRegular() && mode.Perm()&0o001 != 0 // a link may lead nowhere
}

// pure says whether the plan's container has the files of an image that is named by its ID, and nothing that a job's docker_args could have
// put in their place.
func (p *plan) pure() bool {
	return strings.HasPrefix(p.image, "sha256:") && len(p.host.Binds)+len(p.host.Tmpfs) == 0
}
