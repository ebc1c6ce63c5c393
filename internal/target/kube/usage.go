package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

var _ target.Meter = (*Driver)(nil)

// A replica's use is read from its container's own control group, with the right that the program is sent by: a metrics server may not be
// there, and the kubelet's figures want rights over nodes. An image without cat tells nothing.

const (
	measureAgain    = 10 * time.Second // between two readings of one replica: each is a connection through the API server
	measurePatience = 5 * time.Second
)

// groupFiles are a container's accounts, of the second version of control groups and of the first. cat goes on after one that is not there.
var groupFiles = []string{"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory.stat",
	"/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/memory/memory.stat"}

// Usage reads what a replica's container uses.
func (d *Driver) Usage(ctx context.Context, id trainyard.TaskID) (target.Usage, error) {
	d.mu.Lock()
	t := d.tasks[d.nameOf(id)]
	var p *pod
	wait := false
	if t != nil && t.end == nil {
		if p = t.front(); p != nil {
			now := time.Now()
			if wait = now.Sub(t.measured) < measureAgain; !wait {
				t.measured = now
			}
		}
	}
	d.mu.Unlock()
	switch {
	case p == nil:
		return target.Usage{}, trainyard.NotFound("no pod of %s runs", id.Words())
	case wait:
		return target.Usage{}, trainyard.Errorf(trainyard.CodeBusy, "%s was measured a moment ago", id.Words())
	}
	ctx, cancel := context.WithTimeout(ctx, measurePatience)
	defer cancel()
	gpus := d.gpuUse(ctx, t, p)
	text, err := d.api.cat(ctx, p, groupFiles)
	if err != nil {
		return target.Usage{}, fmt.Errorf("measure pod %s: %w", p.Meta.Name, err)
	}
	u, err := readGroup(text)
	told := <-gpus
	u.GPU, u.GPUWhy = told.percent, told.why
	return u, err
}

// cat prints files of a pod's main container, as far as they are there.
func (c *client) cat(ctx context.Context, p *pod, files []string) (string, error) {
	out, err := c.ask(ctx, p, append([]string{"cat"}, files...)...)
	if _, exited := errors.AsType[exec.ExitError](err); exited && out != "" { // of files that are not there
		return out, nil
	}
	if isNoProgram(err) {
		err = trainyard.Errorf(trainyard.CodeUnsupported, "its image has no cat, by which its use could be read")
	}
	return out, err
}

// ask runs a command in a pod's main container and returns the beginning of what it prints.
func (c *client) ask(ctx context.Context, p *pod, command ...string) (string, error) {
	q := url.Values{"container": {p.container().Name}, "stdout": {"true"}, "stderr": {"true"}, "command": command}
	var out, words head
	_, err := c.overSockets(ctx, c.url(c.path(pods, p.Meta.Name, "exec"), q), false, remotecommand.StreamOptions{Stdout: &out, Stderr: &words})
	return out.String(), err
}

// isNoProgram says whether a container has no such command.
func isNoProgram(err error) bool {
	return err != nil && strings.Contains(err.Error(), "executable file not found")
}

// head keeps the beginning of what is written to it: what an image calls cat may print without end, also after nobody listens any more.
type head struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const mostAccounts = 64 << 10 // bytes; a control group's files have some 4,000

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b.Write(p[:min(len(p), mostAccounts-h.b.Len())])
	return len(p), nil
}

// readGroup reads the files of a control group, one behind the other.
func readGroup(text string) (u target.Usage, err error) {
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 1 { // cpuacct.usage
			f = []string{"nanoseconds", f[0]}
		}
		if len(f) == 2 {
			if v, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				if _, twice := values[f[0]]; !twice {
					values[f[0]] = v
				}
			}
		}
	}
	us, v2 := values["usage_usec"]
	ns, v1 := values["nanoseconds"]
	switch {
	case v2:
		u.CPU, u.OOMKills = time.Duration(us)*time.Microsecond, int(values["oom_kill"])
		u.MemoryMB = (values["anon"] + values["shmem"] + values["kernel"]) >> 20
	case v1:
		u.CPU, u.MemoryMB = time.Duration(ns), (values["rss"]+values["shmem"])>>20
	default:
		return u, trainyard.Errorf(trainyard.CodeUnsupported, "the container shows no control group of its own")
	}
	return u, nil
}
