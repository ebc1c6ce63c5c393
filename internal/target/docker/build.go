package docker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/installer"
)

// repository is the name of the images that are built here; the tag is the environment's hash.
const repository = "trainyard/environment"

// built finds the image of a build context, or builds it. The engine names it only when it is whole.
func (d *Driver) built(ctx context.Context, e trainyard.EnvironmentPlan, folder string, f *flight) (resolved, error) {
	tag := repository + ":" + key(e.Hash)
	id, err := d.imageID(ctx, tag)
	if err != nil {
		return resolved{}, err
	}
	if id == "" {
		if err := d.build(ctx, e, folder, tag, f); err != nil {
			return resolved{}, err
		}
		if id, err = d.imageID(ctx, tag); err != nil {
			return resolved{}, err
		}
		if id == "" {
			return resolved{}, fault(trainyard.ClassEnvironment, "the image was built, and is not there; is something on the node removing images?")
		}
	}
	return resolved{Name: tag, Ref: id}, nil
}

// build has the engine build an image from a folder.
func (d *Driver) build(ctx context.Context, e trainyard.EnvironmentPlan, folder, tag string, f *flight) error {
	dockerfile := path.Clean(filepath.ToSlash(e.Dockerfile))
	if e.Dockerfile == "" {
		dockerfile = "Dockerfile"
	}
	if !filepath.IsLocal(dockerfile) {
		return fault(trainyard.ClassEnvironment, "its Dockerfile %q is outside its build context; name one inside", e.Dockerfile)
	}
	if _, err := os.Stat(filepath.Join(folder, dockerfile)); folder == "" || err != nil {
		return fault(trainyard.ClassEnvironment, "its build context has no %s; name the Dockerfile with build.dockerfile_path", dockerfile)
	}
	f.say("building the image of %s", e.Words())
	f.print("Building the image of %s from %s", e.Words(), dockerfile)
	context, err := pack(folder, dockerfile)
	if err != nil {
		return err
	}
	defer context.Close()
	args := map[string]*string{}
	for name, value := range nodeEnv() {
		if strings.HasSuffix(strings.ToUpper(name), "_PROXY") { // the engine knows these, and keeps them out of the image
			args[name] = &value
		}
	}
	r, err := d.engine.ImageBuild(ctx, context, client.ImageBuildOptions{
		Tags: []string{tag}, Dockerfile: dockerfile, Remove: true, ForceRemove: true, NetworkMode: d.cfg.network(), BuildArgs: args,
		AuthConfigs: logins(), Version: build.BuilderV1, Labels: map[string]string{labelEnvironment: e.Name},
	})
	if err == nil {
		defer r.Body.Close()
		err = follow(r.Body, e.Words(), f)
	}
	if err == nil || passing(ctx, err) {
		return err
	}
	f.print("Failed: %v", err)
	return fault(trainyard.ClassEnvironment, "its image could not be built: %v; the whole build log is shown by job logs --file %s%s", err, buildLog, buildAdvice(err))
}

// colours are what the engine marks with what a step prints as errors.
var colours = strings.NewReplacer("\x1b[91m", "", "\x1b[0m", "")

// follow hands the output of a build on, and returns its error, with what the step that failed gave as its reason.
func follow(body io.Reader, words string, f *flight) error {
	dec := json.NewDecoder(body)
	step, printed := "", &tail{} // of the step
	for {
		var m jsonstream.Message
		err := dec.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.Join(errEngineGone, err)
		case m.Error != nil:
			if cause := installer.Cause(string(printed.text)); cause != "" {
				return fmt.Errorf("%s: %w: %s", step, m.Error, cause)
			}
			return fmt.Errorf("%s: %w", step, m.Error)
		case m.Stream != "":
			text := colours.Replace(m.Stream)
			_, _ = io.WriteString(f, text)
			if !strings.HasPrefix(text, " ---> ") && !strings.HasPrefix(text, "Removing intermediate container ") {
				_, _ = io.WriteString(printed, text)
			}
			if strings.HasPrefix(text, "Step ") {
				printed.text = nil
				step = strings.TrimSpace(text)
				f.say("building the image of %s: %s", words, step)
			}
		case m.Status != "" && (m.Progress == nil || m.Progress.Total == 0):
			f.print("%s", strings.TrimPrefix(m.ID+": "+m.Status, ": "))
		}
	}
}

// buildAdvice is what to do about the commonest causes.
func buildAdvice(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "BuildKit"), strings.Contains(text, "dockerfile parse error") && strings.Contains(text, "unknown instruction"):
		return ". Check how it is written; the node builds without BuildKit, which alone knows such as RUN --mount and here-documents"
	case strings.Contains(text, "no space left"):
		return ". Make room where the Docker engine keeps its images, for instance with \"docker image prune\""
	case strings.Contains(text, "Get \"http"), strings.Contains(text, "lookup "), strings.Contains(text, "TLS handshake"):
		return ". Check that the node's Docker engine reaches the registry, or put the image that it starts from on the node with \"docker load\""
	}
	return ""
}

// pack makes a tar of a build context as it is read, without what its .dockerignore names.
func pack(folder, dockerfile string) (io.ReadCloser, error) {
	var patterns []string
	if f, err := os.Open(filepath.Join(folder, ".dockerignore")); err == nil {
		patterns, err = ignorefile.ReadAll(f)
		f.Close()
		if err != nil {
			return nil, fault(trainyard.ClassEnvironment, "its .dockerignore cannot be read: %v", err)
		}
	}
	patterns = append(patterns, "!"+dockerfile, "!.dockerignore") // the engine wants these in any case
	ignore, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fault(trainyard.ClassEnvironment, "its .dockerignore has a pattern that is none: %v", err)
	}
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || path == folder {
				return err
			}
			return packOne(tw, folder, path, e, ignore)
		})
		if err == nil {
			err = tw.Close()
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// packOne writes one file. Owners and times are left out, so that the engine's cache knows the file again.
func packOne(tw *tar.Writer, folder, path string, e fs.DirEntry, ignore *patternmatcher.PatternMatcher) error {
	name, err := filepath.Rel(folder, path)
	if err != nil {
		return err
	}
	skip, err := ignore.MatchesOrParentMatches(name)
	if err != nil {
		return err
	}
	if skip {
		if e.IsDir() && !ignore.Exclusions() {
			return fs.SkipDir
		}
		return nil
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	var link string
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	} else if !info.IsDir() && !info.Mode().IsRegular() {
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = filepath.ToSlash(name)
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(tw, f); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return nil
}
