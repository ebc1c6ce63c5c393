package docker

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/installer"
	"github.com/trainyard/trainyard/internal/target"
)

//go:embed layer.sh
var layerScript string

// What layer.sh ends with when the image lacks something.
const (
	noConda    = 91
	noVersion  = 92
	noInstall  = 93
	wasKilled  = 137     // of a container whose first process was killed
	layerNew   = ".new-" // beginning of the name of a layer under way
	layerIdle  = 30 * 24 * time.Hour
	layerCache = "/.trainyard/layer"
)

// layer finds the environment's Python packages in the cache, or installs them in a container of the image. It is made in a folder of its
// own and gets its name when it is whole, so a builder that is killed leaves nothing that anyone would use.
func (d *Driver) layer(ctx context.Context, e trainyard.EnvironmentPlan, r resolved, f *flight) (string, error) {
	want, err := parseRecipe(e.CondaFile)
	if err != nil {
		return "", fault(trainyard.ClassEnvironment, "%v", err)
	}
	dir := filepath.Join(d.env.Dir, layersDir)
	final := filepath.Join(dir, key(e.Hash, r.Ref))
	if _, err := os.Stat(final); err == nil {
		now := time.Now()
		return final, os.Chtimes(final, now, now)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(dir, layerNew)
	if err != nil {
		return "", err
	}
	err = d.install(ctx, e, r, want, temp, f)
	if err == nil {
		err = os.Rename(temp, final)
	}
	if err != nil {
		return "", errors.Join(err, target.RemoveAll(temp))
	}
	return final, nil
}

// install runs layer.sh in a container of the image.
func (d *Driver) install(ctx context.Context, e trainyard.EnvironmentPlan, r resolved, want recipe, temp string, f *flight) error {
	f.say("installing the Python packages of %s on top of image %s", e.Words(), r.Name)
	f.print("Installing the Python packages of %s on top of image %s", e.Words(), r.Name)
	files := map[string]string{"layer.sh": layerScript, "conda.yaml": e.CondaFile, "requirements.txt": strings.Join(append(want.Lines, ""), "\n")}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(temp, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, note := range want.Notes {
		f.print("Note: %s", note)
	}
	start := time.Now()
	code, last, err := d.runBuilder(ctx, r, want, temp, f)
	if err != nil {
		return err
	}
	if code != 0 {
		f.print("Failed after %.1f s with exit code %d", time.Since(start).Seconds(), code)
		return d.layerFault(code, r, want, last)
	}
	f.print("Installed in %.1f s", time.Since(start).Seconds())
	return nil
}

// layerFault says why packages could not be installed, and what to do, from how the builder ended and what it printed last.
func (d *Driver) layerFault(code int, r resolved, want recipe, last string) error {
	switch code {
	case noConda:
		return fault(trainyard.ClassEnvironment, "its conda file asks for %s, which no Python package index has, and image %q has no conda to get it with; "+
			"use an image that has conda or micromamba, or take it out", strings.Join(want.Conda, ", "), r.Name)
	case noVersion:
		return fault(trainyard.ClassEnvironment, "its conda file asks for Python %s, and image %q has %s and no conda to get another with; "+
			"ask for the Python of the image, or use an image that has conda", want.Python, r.Name, installer.Cause(last))
	case noInstall:
		return fault(trainyard.ClassEnvironment, "image %q has no Python with pip or venv, and no uv or conda, so nothing can be installed on top of it; "+
			"use an image that has one of them (Debian: python3-pip or python3-venv)", r.Name)
	}
	cause := installer.Cause(last)
	switch {
	case code == wasKilled:
		cause = "the installer was killed, as happens when the node has no memory left: " + cause
	case installer.Full(last):
		return fault(trainyard.ClassDisk, "no room on node: the disk was full while its packages were installed on top of image %q: %s; free some space "+
			"where the node keeps them (%s) and where its Docker engine keeps containers, or use a node with a bigger disk; the whole build log is shown by job logs --file %s",
			r.Name, cause, filepath.Join(d.env.Dir, layersDir), buildLog)
	case installer.Unreachable(last):
		return fault(trainyard.ClassEnvironment, "its packages could not be installed on top of image %q: %s could not be reached (%s); "+
			"check the node's network, proxy and pip settings; the whole build log is shown by job logs --file %s", r.Name, installer.Index(last), cause, buildLog)
	}
	return fault(trainyard.ClassEnvironment, "its packages could not be installed on top of image %q: %s; the whole build log is shown by job logs --file %s", r.Name, cause, buildLog)
}

// runBuilder runs the container to its end, and returns its exit code and the end of what it printed.
func (d *Driver) runBuilder(ctx context.Context, r resolved, want recipe, temp string, f *flight) (code int, last string, err error) {
	info, err := d.engine.about(ctx)
	if err != nil {
		return 0, "", err
	}
	env := nodeEnv()
	if who := user(info); who != rootUser {
		env["HOME"] = layerCache
	}
	all := []mount.Mount{bind(temp, inLayer, false)}
	if file := certificates(); file != "" {
		all = append(all, bind(file, inCerts, true))
	}
	created, err := d.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: r.Ref, User: user(info), Env: pairs(env), WorkingDir: inLayer, Entrypoint: []string{"/bin/sh", inLayer + "/layer.sh"},
			Cmd: []string{want.Python, strings.Join(want.Conda, " ")}, Labels: map[string]string{labelGroup: d.env.Group, labelBuild: r.Name}},
		HostConfig: &container.HostConfig{NetworkMode: container.NetworkMode(d.cfg.network()), UsernsMode: "host", Mounts: all, LogConfig: logConfig()},
	})
	if err != nil {
		return 0, "", engineError(err)
	}
	defer func() { // also when nobody waits any more
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workPatience)
		defer cancel()
		err = errors.Join(err, d.engine.remove(ctx, created.ID, true))
	}()
	if _, err := d.engine.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}); err != nil {
		p := plan{rec: record{Image: r.Name}}
		return 0, "", p.explain(err)
	}
	return d.followBuilder(ctx, created.ID, f)
}

// followBuilder hands a container's output on until it ends.
func (d *Driver) followBuilder(ctx context.Context, id string, f *flight) (code int, last string, err error) {
	out, err := d.engine.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		return 0, "", engineError(err)
	}
	defer out.Close()
	tail := &tail{}
	w := io.MultiWriter(f, tail)
	if _, err := stdcopy.StdCopy(w, w, out); err != nil {
		return 0, "", errors.Join(errEngineGone, err)
	}
	ended := d.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case r := <-ended.Result:
		return int(r.StatusCode), string(tail.text), nil
	case err := <-ended.Error:
		return 0, "", engineError(err)
	}
}

// sweepLayers removes layers that an agent before us did not finish, and those that nobody has used for long.
func (d *Driver) sweepLayers() {
	dir := filepath.Join(d.env.Dir, layersDir)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), layerNew) && time.Since(info.ModTime()) < layerIdle {
			continue
		}
		if err := target.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			d.env.Log.Warn("remove unused layer", "layer", e.Name(), "err", err)
		}
	}
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(data []byte) (int, error) {
	const most = 32 << 10
	t.text = append(t.text, data...)
	if over := len(t.text) - most; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(data), nil
}
