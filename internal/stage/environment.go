package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// recipeVersion goes into every environment's key: raise it when the same file would be built differently.
const recipeVersion = "1"

// installed is the part of an environment's entry that holds the environment.
const installed = "env"

// stageEnvironment finds or builds the task's environment, and puts the task's own Python on top of it.
func (s *Stager) stageEnvironment(ctx context.Context, t trainyard.Task, w *work) error {
	plan := t.Environment
	if isContext(t) {
		return s.stageContext(ctx, plan, w)
	}
	if plan != nil && !t.Contained && plan.Context != "" {
		return fault(trainyard.ClassEnvironment, "%s is a Docker build context, and this node has no container engine that answers; install Docker on it, or start it", plan.Words())
	}
	if !isBuilt(t) {
		return nil
	}
	return w.span(trainyard.SpanEnvironment, func() (string, error) {
		g, vars, err := s.environment(ctx, plan, w)
		if err != nil {
			return "", s.local(err, trainyard.ClassEnvironment, s.env.dir, 0)
		}
		w.facts.Vars, w.facts.Marks = vars, append(w.facts.Marks, g.mark)
		w.facts.Layer = sharedLayer(filepath.Join(g.dir, installed), g.rec.Python)
		if err := w.facts.Layer.make(ctx, filepath.Join(w.folder, pythonPart)); err != nil {
			return "", err
		}
		note := noteOf(g, fmt.Sprintf("built in %.1f s", g.rec.Took.Seconds()))
		return strings.Join(slices.DeleteFunc([]string{note, g.rec.Note}, func(s string) bool { return s == "" }), "; "), nil
	})
}

// stageContext brings the files that an image is built from.
func (s *Stager) stageContext(ctx context.Context, plan *trainyard.EnvironmentPlan, w *work) error {
	g, err := s.data.get(ctx, order{
		key: keyOf("context", plan.Hash), what: "build context of " + plan.Words(), task: w.folder, good: unaltered,
		wait: func() { w.say("waiting for another job's download of the build context") },
		build: func(ctx context.Context, dir string) (record, error) {
			w.say("downloading the build context of %s", plan.Words())
			objects, _, err := s.blobObjects(ctx, plan.Context)
			if err == nil && len(objects) == 0 {
				err = fault(trainyard.ClassEnvironment, "%s: its build context is not in the server's store; create the environment again", plan.Words())
			}
			if err != nil {
				return record{}, err
			}
			return s.fetch(ctx, dir, objects, func(done, total int64) { w.say("downloading the build context: %s of %s", sized(done), sized(total)) })
		},
	})
	if err != nil {
		return s.local(err, trainyard.ClassEnvironment, s.data.dir, 0)
	}
	w.facts.Marks = append(w.facts.Marks, g.mark)
	w.facts.Context = g.dir
	return nil
}

// sharedLayer stands on a built environment. One that conda built has an interpreter of its own, which sees its packages by itself.
func sharedLayer(root string, p *interpreter) *layer {
	if !p.Venv {
		return &layer{Base: p.Base, Version: p.Version, Shared: root, System: true, Conda: true}
	}
	return &layer{Base: p.Base, Version: p.Version, Shared: root, Sites: []string{sitePackages(root, p.minor())}}
}

// sitePackages is where the packages of a virtual environment are.
func sitePackages(root, minor string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(root, "Lib", "site-packages")
	}
	return filepath.Join(root, "lib", "python"+minor, "site-packages")
}

// environment finds or builds what a plan asks for.
func (s *Stager) environment(ctx context.Context, plan *trainyard.EnvironmentPlan, w *work) (got, map[string]string, error) {
	b := &builder{stager: s, w: w, name: plan.Name, words: plan.Words(), text: plan.CondaFile}
	key, err := b.decide(ctx)
	if err != nil {
		return got{}, nil, environmentFault(plan, err)
	}
	b.tail = &tail{path: s.env.path(key, ".log"), to: w.p}
	waited := false
	g, err := s.env.get(ctx, order{
		key: key, what: plan.Words(), task: w.folder,
		good: func(dir string, rec record) bool {
			return rec.Python != nil && isThere(filepath.Join(dir, installed, binDir))
		},
		wait: func() {
			waited = true
			w.say("waiting for another job's build of %s", plan.Words())
			b.tail.pump()
		},
		build: func(ctx context.Context, dir string) (record, error) {
			w.say("building %s", plan.Words())
			b.dir = dir
			return b.build(ctx)
		},
	})
	if waited {
		b.tail.finish()
	}
	return g, b.recipe.Vars, err
}

// decide reads the conda file, chooses who builds it and with which Python, and returns the key of the result.
func (b *builder) decide(ctx context.Context) (key string, err error) {
	if b.recipe, err = parseRecipe(b.text); err != nil {
		return "", fault(trainyard.ClassEnvironment, "%v", err)
	}
	parts := []string{recipeVersion, runtime.GOOS, runtime.GOARCH}
	if len(b.recipe.Conda) == 0 {
		c, err := b.stager.python.pick(ctx, b.recipe.Python)
		if err != nil {
			return "", err
		}
		b.python, b.warning = c.python, c.warning
		return keyOf(append(append(parts, c.python.Base, c.python.Version), b.recipe.Lines...)...), nil
	}
	if b.conda = condaTool(); b.conda == "" {
		return "", fault(trainyard.ClassEnvironment, "it needs conda for %s, which no Python package index has, and this node has none of "+
			"micromamba, mamba and conda on its PATH; install micromamba on the node, or take these packages out of the conda file",
			strings.Join(b.recipe.Conda, ", "))
	}
	return keyOf(append(parts, "conda", b.text)...), nil
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// condaTool is the first program on PATH that installs conda packages, or "".
func condaTool() string {
	for _, name := range []string{"micromamba", "mamba", "conda"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// environmentFault names the environment in an error that ends a task.
func environmentFault(plan *trainyard.EnvironmentPlan, err error) error {
	if c := trainyard.ClassOf(err); c != "" && !errors.Is(err, context.Canceled) {
		return fault(c, "%s: %v", plan.Words(), err)
	}
	return err
}
