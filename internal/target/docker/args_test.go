package docker

import (
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/trainyard/trainyard"
)

func TestDockerArgs(t *testing.T) {
	for _, c := range []struct {
		args, allow string
		network     string
		want        func(h container.HostConfig, env map[string]string) bool
		says        string // of the error; empty: none
	}{
		{args: "", want: func(h container.HostConfig, _ map[string]string) bool { return h.ShmSize == 0 }},
		{args: "--shm-size 3g --ipc=private", want: func(h container.HostConfig, _ map[string]string) bool {
			return h.ShmSize == 3<<30 && h.IpcMode == "private"
		}},
		{args: "--ipc host", allow: "--ipc", want: func(h container.HostConfig, _ map[string]string) bool { return h.IpcMode == "host" }},
		{args: "--network none", network: "bridge", want: func(h container.HostConfig, _ map[string]string) bool { return h.NetworkMode == "none" }},
		{args: "--network bridge", network: "bridge", want: func(h container.HostConfig, _ map[string]string) bool { return h.NetworkMode == "bridge" }},
		{args: "--net host", network: "bridge", allow: "--net", want: func(h container.HostConfig, _ map[string]string) bool { return h.NetworkMode == "host" }},
		{args: "--ulimit memlock=-1 --ulimit stack=67108864:67108864", want: func(h container.HostConfig, _ map[string]string) bool {
			return len(h.Ulimits) == 2 && h.Ulimits[0].Hard == -1 && h.Ulimits[1].Soft == 67108864
		}},
		{args: `-e 'A=b c' --env "B=\"q\""`, want: func(_ container.HostConfig, env map[string]string) bool {
			return env["A"] == "b c" && env["B"] == `"q"`
		}},
		{args: "--net host --add-host db:10.0.0.1 --tmpfs /scratch:size=1g --init --cap-add SYS_PTRACE --cap-add=CAP_IPC_LOCK --cap-drop ALL",
			want: func(h container.HostConfig, _ map[string]string) bool {
				return h.NetworkMode == "host" && h.ExtraHosts[0] == "db:10.0.0.1" && h.Tmpfs["/scratch"] == "size=1g" && len(h.CapAdd) == 2 && len(h.CapDrop) == 1
			}},
		{args: "--privileged -v /data:/data:ro --device /dev/fuse --cap-add SYS_ADMIN", allow: "--privileged -v --device --cap-add",
			want: func(h container.HostConfig, _ map[string]string) bool {
				return h.Privileged && h.Binds[0] == "/data:/data:ro" && h.Devices[0].PathInContainer == "/dev/fuse" && h.CapAdd[0] == "SYS_ADMIN"
			}},
		{args: "--privileged", says: "--privileged is not allowed on this node: it would give the job this computer"},
		{args: "--privileged=true", says: "--privileged is not allowed"},
		{args: "--ipc=host", says: "--ipc host is not allowed on this node: it would give the job the shared memory of this computer; resources.shm_size gives it more of its own; " +
			`take it out, or have the node's administrator allow it: TRAINYARD_DOCKER='{"allowArgs": ["--ipc"]}' in the environment`},
		{args: "--network host", network: "bridge", says: "--network host is not allowed on this node: its containers have a network of their own"},
		{args: "--network bridge", network: "none", says: "--network bridge is not allowed"},
		{args: "--net=host", network: "lab", allow: "--ipc", says: "--net host is not allowed"},
		{args: "--uts=host", says: "--uts cannot be used here"},
		{args: "--cgroupns host", says: "--cgroupns cannot be used here"},
		{args: "--userns=host", says: "--userns cannot be used here"},
		{args: "-v /:/host", says: "-v /:/host is not allowed on this node"},
		{args: "--volume=/:/host", allow: "--device", says: "--volume /:/host is not allowed on this node"},
		{args: "--cap-add SYS_ADMIN", says: "--cap-add SYS_ADMIN is not allowed"},
		{args: "--security-opt seccomp=unconfined", says: "--security-opt seccomp=unconfined is not allowed"},
		{args: "--pid=host", allow: "--privileged", says: "--pid cannot be used here: a task's processes"},
		{args: "--gpus all", says: "--gpus cannot be used here: the job's resources say"},
		{args: "-u root", says: "-u cannot be used here"},
		{args: "--mount type=bind,src=/,dst=/h", says: "--mount cannot be used here"},
		{args: "--network container:other", says: "want one of host, bridge, none"},
		{args: "--ipc container:other", says: "want one of host, private"},
		{args: "--frobnicate", says: "--frobnicate is not known here; known are --add-host"},
		{args: "ubuntu:22.04", says: `"ubuntu:22.04" is not an option`},
		{args: "--shm-size", says: "--shm-size wants a value"},
		{args: "--shm-size lots", says: `--shm-size "lots"`},
		{args: "--tmpfs /", says: "want a folder of its own"},
		{args: "--tmpfs /.trainyard/task:size=1m", says: "want a folder of its own"},
		{args: "--env HOME", says: "want NAME=VALUE"},
		{args: "--env 'A=b", says: "has no end"},
	} {
		var h container.HostConfig
		env := map[string]string{}
		cfg := Config{AllowArgs: strings.Fields(c.allow), Network: c.network}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%q: %v", c.allow, err)
		}
		err := cfg.applyArgs(c.args, &h, env)
		switch {
		case c.says == "" && (err != nil || !c.want(h, env)):
			t.Errorf("%q: %v, made %+v and %v", c.args, err, h, env)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || trainyard.ClassOf(err) != trainyard.ClassUser):
			t.Errorf("%q: error is %v (class %q), want %q", c.args, err, trainyard.ClassOf(err), c.says)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for says, c := range map[string]Config{
		`host "http://x" is not the address`: {Host: "http://x"},
		`network "a b" is not the name`:      {Network: "a b"},
		`shmSize "big" is not a size`:        {ShmSize: "big"},
		`pids is -1`:                         {Pids: -1},
		`allowArgs names "--pid"`:            {AllowArgs: []string{"--pid"}},
		`those are --cap-add, --device, --ipc, --network, --privileged`: {AllowArgs: []string{"--shm-size"}},
	} {
		if err := c.Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: error is %v, want %q", c, err, says)
		}
	}
}

func FuzzDockerArgs(f *testing.F) {
	for _, s := range []string{"--shm-size 1g", `-e 'A="b`, "--ulimit=a=b:c", "--ipc host", "--tmpfs :", "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, args string) {
		var h container.HostConfig
		_ = (&Config{}).applyArgs(args, &h, map[string]string{})
		if h.Privileged || len(h.Binds) > 0 || len(h.Devices) > 0 || len(h.SecurityOpt) > 0 || h.IpcMode == "host" || h.PidMode != "" || h.UsernsMode != "" {
			t.Errorf("%q got %+v", args, h)
		}
	})
}

func TestRecipe(t *testing.T) {
	r, err := parseRecipe(`
name: x
channels: [conda-forge]
dependencies:
  - python=3.11
  - pip=23
  - numpy=1.26
  - conda-forge::pytorch>=2.1,<3  # torch
  - cudatoolkit=11.8
  - scikit-learn=1.3.0=py311_0
  - pip:
    - --index-url http://127.0.0.1:1/simple
    - requests==2.31
`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(r.Lines, "|"), "numpy==1.26.*|torch>=2.1,<3|--index-url http://127.0.0.1:1/simple|requests==2.31"; got != want {
		t.Errorf("pip gets %q, want %q", got, want)
	}
	if got := strings.Join(r.Conda, "|"); got != "cudatoolkit|scikit-learn" || r.Python != "==3.11.*" {
		t.Errorf("conda is needed for %q, and Python is %q", got, r.Python)
	}
	for text, says := range map[string]string{"dependencies: [{npm: [x]}]": "line 1 of its conda file", "dependencies: ['!']": "names no package",
		"dependencies: {": "is not what conda reads"} {
		if _, err := parseRecipe(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
