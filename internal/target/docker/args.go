package docker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"

	"github.com/trainyard/trainyard"
)

// option is an option of "docker run" that docker_args may have.
type option struct {
	flag    bool                               // takes no value
	guarded func(c *Config, value string) bool // only where Config.AllowArgs names it, for this reason; nil: never
	why     string
	set     func(h *container.HostConfig, env map[string]string, value string) error
}

// aliases are short and older names.
var aliases = map[string]string{"-e": "--env", "--net": "--network", "-v": "--volume", "-u": "--user", "-w": "--workdir", "-m": "--memory", "-d": "--detach",
	"-i": "--interactive", "-t": "--tty", "-it": "--interactive", "-ti": "--interactive", "-l": "--label", "-p": "--publish", "-P": "--publish-all", "-h": "--hostname"}

func longName(name string) string {
	if long, ok := aliases[name]; ok {
		return long
	}
	return name
}

// ownCaps are capabilities that give nothing of the computer away.
var ownCaps = []string{"IPC_LOCK", "SYS_NICE", "SYS_PTRACE"}

// always guards an option whatever its value.
func always(*Config, string) bool { return true }

// isHost guards what would have the container share a namespace of the computer.
func isHost(_ *Config, value string) bool { return value == hostNetwork }

// leaves says whether a network leads further than the one that the node has for its containers.
func leaves(c *Config, network string) bool {
	return c.network() != hostNetwork && network != c.network() && network != "none"
}

func beyond(_ *Config, capability string) bool {
	return !slices.Contains(ownCaps, strings.TrimPrefix(strings.ToUpper(capability), "CAP_"))
}

// options are the options that docker_args may have.
var options = map[string]option{
	"--shm-size": {set: func(h *container.HostConfig, _ map[string]string, v string) (err error) {
		h.ShmSize, err = units.RAMInBytes(v)
		return err
	}},
	"--ipc": {guarded: isHost, why: "it would give the job the shared memory of this computer; resources.shm_size gives it more of its own", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.IpcMode = container.IpcMode(v)
		return oneOf(v, "host", "private", "shareable", "none")
	}},
	"--network": {guarded: leaves, why: "its containers have a network of their own", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.NetworkMode = container.NetworkMode(v)
		return oneOf(v, "host", "bridge", "none")
	}},
	"--ulimit": {set: func(h *container.HostConfig, _ map[string]string, v string) error {
		u, err := units.ParseUlimit(v)
		if err == nil {
			h.Ulimits = append(h.Ulimits, u)
		}
		return err
	}},
	"--env": {set: func(_ *container.HostConfig, env map[string]string, v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return errors.New("want NAME=VALUE: the agent's own environment is not handed on")
		}
		env[name] = value
		return nil
	}},
	"--add-host": {set: func(h *container.HostConfig, _ map[string]string, v string) error {
		if name, address, ok := strings.Cut(v, ":"); !ok || name == "" || address == "" {
			return errors.New("want NAME:ADDRESS")
		}
		h.ExtraHosts = append(h.ExtraHosts, v)
		return nil
	}},
	"--tmpfs": {set: func(h *container.HostConfig, _ map[string]string, v string) error {
		path, opts, _ := strings.Cut(v, ":")
		if !strings.HasPrefix(path, "/") {
			return errors.New("want an absolute path")
		}
		if within("/.trainyard", path) || within(path, "/.trainyard") { // the whole container, or what is ours in it
			return errors.New("want a folder of its own")
		}
		if h.Tmpfs == nil {
			h.Tmpfs = map[string]string{}
		}
		h.Tmpfs[path] = opts
		return nil
	}},
	"--cap-drop": {set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.CapDrop = append(h.CapDrop, v)
		return nil
	}},
	"--init": {flag: true, set: func(*container.HostConfig, map[string]string, string) error { return nil }}, // every task has one
	"--cap-add": {guarded: beyond, why: "that capability reaches beyond the container", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.CapAdd = append(h.CapAdd, v)
		return nil
	}},
	"--privileged": {flag: true, guarded: always, why: "it would give the job this computer", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.Privileged = v == "true"
		return oneOf(v, "true", "false")
	}},
	"--volume": {guarded: always, why: "it would give the job folders of this computer; use inputs and outputs", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.Binds = append(h.Binds, v)
		return nil
	}},
	"--device": {guarded: always, why: "it would give the job a device of this computer", set: setDevice},
	"--security-opt": {guarded: always, why: "it would loosen what keeps the job in its container", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.SecurityOpt = append(h.SecurityOpt, v)
		return nil
	}},
	"--runtime": {guarded: always, why: "the node decides what runs containers", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		h.Runtime = v
		return nil
	}},
	"--sysctl": {guarded: always, why: "it would change settings of the kernel", set: func(h *container.HostConfig, _ map[string]string, v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		if h.Sysctls == nil {
			h.Sysctls = map[string]string{}
		}
		h.Sysctls[name] = value
		return nil
	}},
}

// refused are options that are never taken, and why.
var refused = map[string]string{
	"--pid":          "a task's processes are found and ended by its container's own process numbers",
	"--uts":          "it would give the job the name of this computer",
	"--cgroupns":     "what a job may use is held by its container's own control group",
	"--userns":       "what a job writes must be the node's to remove",
	"--user":         "what a job writes must be the node's to remove",
	"--gpus":         "the job's resources say how many GPUs it gets",
	"--memory":       "the job's resources say how much memory it gets",
	"--memory-swap":  "the job's resources say how much memory it gets",
	"--cpus":         "the job's resources say how many CPUs it gets",
	"--entrypoint":   "the job's command is what runs",
	"--workdir":      "the command runs in the job's own folder",
	"--rm":           "how a task ended is kept until it has been reported",
	"--name":         "containers are named after their tasks",
	"--restart":      "a job's retries say how often it is tried",
	"--mount":        "it would give the job folders of this computer; use inputs and outputs",
	"--volumes-from": "it would give the job folders of another container",
	"--label":        "labels say which task a container belongs to",
	"--publish":      "the container has the node's own network, so every port is reached as it is",
	"--publish-all":  "the container has the node's own network, so every port is reached as it is",
	"--hostname":     "the container has the node's own network and name",
	"--detach":       "that is how every task runs",
	"--interactive":  "a task has nobody to talk to",
	"--tty":          "a task has nobody to talk to",
}

func setDevice(h *container.HostConfig, _ map[string]string, v string) error {
	parts := strings.Split(v, ":")
	m := container.DeviceMapping{PathOnHost: parts[0], PathInContainer: parts[0], CgroupPermissions: "rwm"}
	if len(parts) > 1 {
		m.PathInContainer = parts[1]
	}
	if len(parts) > 2 {
		m.CgroupPermissions = parts[2]
	}
	if !strings.HasPrefix(parts[0], "/dev/") || len(parts) > 3 {
		return errors.New("want /dev/NAME")
	}
	h.Devices = append(h.Devices, m)
	return nil
}

func oneOf(v string, all ...string) error {
	if slices.Contains(all, v) {
		return nil
	}
	return fmt.Errorf("want one of %s", strings.Join(all, ", "))
}

func guardedNames() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if options[name].guarded != nil {
			names = append(names, name)
		}
	}
	return names
}

// applyArgs puts a job's docker_args into effect. Errors end the task.
func (c *Config) applyArgs(args string, h *container.HostConfig, env map[string]string) error {
	words, err := split(args)
	if err != nil {
		return fault(trainyard.ClassUser, "resources.docker_args %q: %v", args, err)
	}
	for len(words) > 0 {
		name, value, given := strings.Cut(words[0], "=")
		words = words[1:]
		long := longName(name)
		o, known := options[long]
		if !known {
			return unknownOption(name)
		}
		switch {
		case given:
		case o.flag:
			value = "true"
		case len(words) == 0:
			return fault(trainyard.ClassUser, "resources.docker_args: %s wants a value", name)
		default:
			value, words = words[0], words[1:]
		}
		if o.guarded != nil && o.guarded(c, value) && !c.allows(long) {
			shown := name
			if !o.flag {
				shown += " " + value
			}
			return fault(trainyard.ClassUser, "resources.docker_args: %s is not allowed on this node: %s; take it out, or have the node's "+
				"administrator allow it: %s='{\"allowArgs\": [%q]}' in the environment of the node's agent or of its server", shown, o.why, Kind().Variable(), long)
		}
		if err := o.set(h, env, value); err != nil {
			return fault(trainyard.ClassUser, "resources.docker_args: %s %q: %v", name, value, err)
		}
	}
	return nil
}

func (c *Config) allows(name string) bool {
	return slices.ContainsFunc(c.AllowArgs, func(a string) bool { return longName(a) == name })
}

func unknownOption(name string) error {
	if why, ok := refused[longName(name)]; ok {
		return fault(trainyard.ClassUser, "resources.docker_args: %s cannot be used here: %s; take it out", name, why)
	}
	if !strings.HasPrefix(name, "-") {
		return fault(trainyard.ClassUser, "resources.docker_args: %q is not an option; the image comes from the job's environment", name)
	}
	return fault(trainyard.ClassUser, "resources.docker_args: %s is not known here; known are %s", name, strings.Join(slices.Sorted(maps.Keys(options)), ", "))
}

// split cuts a line into words as a shell does, with quotes and backslashes, and nothing else of a shell's.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, in = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote or backslash has no end")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}
