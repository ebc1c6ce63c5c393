package docker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"

	"github.com/trainyard/trainyard"
)

// Where a task's container has what is ours.
const (
	inBox   = "/.trainyard/task"
	inLayer = "/.trainyard/layer"
	inCerts = "/.trainyard/certificates.pem"
)

// States of a container, as the engine says them.
const (
	stateCreated  = "created"
	stateRunning  = "running"
	statePaused   = "paused"
	stateRestarts = "restarting"
)

// plan is all that a container is made from.
type plan struct {
	rec    record
	config container.Config
	host   container.HostConfig
	gpus   int
	args   string // resources.docker_args
	image  string // its ID, or a name; "" where a job says what lies where in the container
}

// plan decides what the task's container is like. Errors are for the job's author.
func (d *Driver) plan(ctx context.Context, e *task, t trainyard.Task) (*plan, error) {
	info, err := d.engine.about(ctx)
	if err != nil {
		return nil, err
	}
	in, err := d.resolve(t)
	if err != nil {
		return nil, err
	}
	p := &plan{rec: record{ID: t.ID, Image: in.Name}, gpus: t.Resources.GPUs, args: t.DockerArgs}
	env := d.taskEnv(info, t)
	net := container.NetworkMode(d.cfg.network())
	if t.Serve != nil {
		if net, err = d.serveNetwork(ctx); err != nil {
			return nil, err
		}
	}
	p.host = container.HostConfig{
		NetworkMode: net,
		UsernsMode:  "host", // what it writes is to be ours
		LogConfig:   logConfig(),
		Mounts:      d.mounts(e, t, in),
	}
	d.limit(p, info, t)
	if err := d.cfg.shm(&p.host, t.ShmSize); err != nil {
		return nil, err
	}
	if err := d.cfg.applyArgs(t.DockerArgs, &p.host, env); err != nil {
		return nil, err
	}
	if err := d.serve(ctx, p, e, t, env); err != nil {
		return nil, err
	}
	grace := max(1, int(t.Grace.Seconds()))
	p.config = container.Config{
		Image:       in.Ref,
		User:        user(info),
		Env:         pairs(env),
		WorkingDir:  t.Run.Seen(t.Run.Dir),
		Entrypoint:  []string{anyShell, inBox + "/" + scriptFile},
		Cmd:         []string{t.Run.Command},
		Labels:      map[string]string{labelGroup: d.env.Group, labelTask: string(t.ID)},
		StopTimeout: &grace, // an engine that is shut down gives it as long as we would
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},

		ExposedPorts: p.config.ExposedPorts,
	}
	if modelMount(t) == nil {
		p.image = in.Ref
	}
	p.config.Entrypoint[0] = d.shell(p)
	if err := d.ownEntry(ctx, p, t, in.Ref); err != nil {
		return nil, err
	}
	if len(t.Run.Command) > longCommand {
		p.config.Cmd = []string{}
	}
	return p, nil
}

// logConfig is of what the container itself says, which is nothing unless it cannot run; the task's output is a file of ours.
func logConfig() container.LogConfig {
	return container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}}
}

// network is the network of containers here.
func (c *Config) network() string {
	if c.Network == "" {
		return hostNetwork
	}
	return c.Network
}

// shm sets the size of /dev/shm: the job's, or the node's.
func (c *Config) shm(h *container.HostConfig, size string) error {
	from := size
	if from == "" {
		from = c.ShmSize
	}
	if from == "" {
		from = defaultShm
	}
	n, err := units.RAMInBytes(from)
	if err != nil || n <= 0 {
		return fault(trainyard.ClassUser, "resources.shm_size %q is not a size; write it as 2g or 512m", size)
	}
	h.ShmSize = n
	return nil
}

// limit sets what the task may use, and notes what is not held.
func (d *Driver) limit(p *plan, info system.Info, t trainyard.Task) {
	r := &p.host.Resources
	if mb := smaller(t.Resources.MemoryMB, d.env.Limit.MemoryMB); mb > 0 {
		if info.MemoryLimit {
			r.Memory, p.rec.LimitMB = mb<<20, mb
			r.MemorySwap = r.Memory // no swap: a task that is out of its memory should be told, not slowed down
		} else {
			p.note("the memory limit of %d MB is not held: the engine cannot limit memory", mb)
		}
	}
	if cpus := smaller(t.Resources.CPUs, d.env.Limit.CPUs); cpus > 0 && cpus < float64(info.NCPU) {
		if info.CPUCfsQuota {
			r.NanoCPUs = max(int64(cpus*1e9), 1e7)
		} else {
			p.note("the limit of %g CPUs is not held: the engine cannot limit CPU time", cpus)
		}
	}
	if info.PidsLimit {
		pids := d.cfg.Pids
		if pids == 0 {
			pids = defaultPids
		}
		r.PidsLimit = &pids
	}
}

func (p *plan) note(format string, args ...any) {
	if p.rec.Note != "" {
		p.rec.Note += "; "
	}
	p.rec.Note += fmt.Sprintf(format, args...)
}

// mounts are the task's folders where it sees them, and others at the paths that they have on the computer.
func (d *Driver) mounts(e *task, t trainyard.Task, in resolved) []mount.Mount {
	all := []mount.Mount{bind(d.path(e, boxDir), inBox, false)}
	if in.Layer != "" {
		all = append(all, bind(in.Layer, inLayer, true))
	}
	if file := certificates(); file != "" {
		all = append(all, bind(file, inCerts, true))
	}
	var own []string
	for _, dir := range []string{t.Run.Root, t.Run.Dir, t.Run.LogDir} {
		if dir != "" && !slices.ContainsFunc(own, func(above string) bool { return within(dir, above) }) {
			own = append(own, dir)
			all = append(all, bind(dir, t.Run.Seen(dir), false))
		}
	}
	for _, path := range t.Run.Shared {
		all = append(all, bind(path, path, true))
	}
	return append(all, modelMount(t)...)
}

func bind(from, to string, readOnly bool) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: from, Target: to, ReadOnly: readOnly}
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// passed are the variables of the agent that containers get too: without them a job on a network that has proxies or an index of its own
// reaches nothing. Those that name files are not among them, as containers have other files; see certificates.
var passed = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST",
	"UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INSECURE_HOST"}

// certNames are the variables by which programs are told which certificate authorities to trust.
var certNames = []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"}

// certificates is the file of certificate authorities that the agent was told to trust, if it was.
func certificates() string {
	for _, name := range certNames {
		if path := os.Getenv(name); filepath.IsAbs(path) {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path
			}
		}
	}
	return ""
}

// nodeEnv is what every container is given of the node's settings.
func nodeEnv() map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if value != "" && slices.Contains(passed, strings.ToUpper(name)) {
			env[name] = value
		}
	}
	if certificates() != "" {
		for _, name := range certNames {
			if os.Getenv(name) != "" {
				env[name] = inCerts
			}
		}
	}
	return env
}

// taskEnv is the task's environment on top of its image's.
func (d *Driver) taskEnv(info system.Info, t trainyard.Task) map[string]string {
	env := nodeEnv()
	env["TMPDIR"] = inBox + "/" + tmpDir
	if user(info) != rootUser { // a user whom the image does not know
		env["HOME"], env["USER"], env["LOGNAME"] = inBox+"/"+homeDir, "trainyard", "trainyard"
	}
	maps.Copy(env, t.Run.Env)
	return env
}

func pairs(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// explain puts the engine's reason for refusing a container into words.
func (p *plan) explain(err error) error {
	text := err.Error()
	switch {
	case trainyard.ClassOf(err) != "":
		return err
	case errdefs.IsNotFound(err) && strings.Contains(text, "No such image"):
		return trainyard.NotFound("image %q is not on this node any more, or never was; run the job again, or put it there with \"docker pull\"", p.rec.Image)
	case strings.Contains(text, "/bin/sh") && (strings.Contains(text, "no such file") || strings.Contains(text, "executable file not found")):
		return fault(trainyard.ClassEnvironment, "image %q has no /bin/sh, which runs the command; use an image with a shell", p.rec.Image)
	case p.args != "" && (errdefs.IsInvalidArgument(err) || strings.Contains(text, `error mounting "tmpfs"`)): // nothing else that we ask for can be wrong
		return fault(trainyard.ClassUser, "resources.docker_args %q: the Docker engine refuses the container: %s", p.args, strings.TrimPrefix(text, "Error response from daemon: "))
	case noDriver(err):
		return fault(trainyard.ClassEnvironment, "the Docker engine cannot give GPUs to containers (%v); install the NVIDIA container toolkit on the node", err)
	}
	return engineError(err)
}

func smaller[T int64 | float64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
