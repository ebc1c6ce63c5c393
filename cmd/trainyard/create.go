package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/spec"
)

// document reads the file of a create command with --set applied, and above both the flags, given as sets.
func document(cmd *cobra.Command, args []string, noun string, sets []string) (*spec.Document, error) {
	file := flag(cmd, "file")
	all := append(flagList(cmd, "set"), sets...)
	n := flag(cmd, "name")
	if len(args) > 0 {
		var err error
		if n, err = name(cmd, args); err != nil {
			return nil, err
		}
	}
	if n != "" {
		all = append(all, "name="+strconv.Quote(n))
	}
	if file == "" && len(all) == 0 {
		return nil, usagef("want --file FILE, or --name and the flags that \"%s --help\" lists", cmd.CommandPath())
	}
	if file == "-" {
		return nil, usagef("--file - is not read: name a file, so that relative paths in it have a folder to count from")
	}
	return spec.Load(file, spec.Options{Noun: noun, Set: all, Flags: flagsOf(cmd, all)})
}

// flagsOf says which of the arguments were no --set of the user's, but a flag by the field's name.
func flagsOf(cmd *cobra.Command, sets []string) map[string]string {
	own, flags := flagList(cmd, "set"), map[string]string{}
	for _, arg := range sets {
		field, _, _ := strings.Cut(arg, "=")
		flag := cmd.Flags().Lookup(strings.ReplaceAll(field, "_", "-"))
		if flag != nil && (flag.Changed || field == "name") && !slices.Contains(own, arg) {
			flags[field] = "--" + flag.Name
		}
	}
	return flags
}

// textSets are flags that hold text as --set arguments; from flag to field.
func textSets(cmd *cobra.Command, names map[string]string) []string {
	var sets []string
	for _, f := range sortedNames(names) {
		if fl := cmd.Flags().Lookup(f); fl != nil && fl.Changed {
			sets = append(sets, names[f]+"="+strconv.Quote(fl.Value.String()))
		}
	}
	return sets
}

// here makes a path given with a flag count from the working directory and not from the file's. Addresses stay as they are.
func here(cmd *cobra.Command, flagName string) error {
	f := cmd.Flags().Lookup(flagName)
	if f == nil || !f.Changed || f.Value.String() == "" || strings.Contains(f.Value.String(), "://") || strings.HasPrefix(f.Value.String(), "azureml:") ||
		strings.HasPrefix(f.Value.String(), "runs:/") {
		return nil
	}
	full, err := filepath.Abs(f.Value.String())
	if err != nil {
		return err
	}
	return f.Value.Set(full)
}

// upload sends what a document needs on the server before it can be sent itself.
func (a *app) upload(ctx context.Context, c *client.Client, uploads []spec.Upload) error {
	defer a.done()
	for _, u := range uploads {
		limit := int64(-1)
		if u.What == "code" {
			var err error
			if limit, err = spec.LimitFromEnv(os.Getenv); err != nil {
				return err
			}
		}
		tree, err := spec.Snapshot(u.Path, limit)
		if err != nil {
			return err
		}
		a.warn(tree.Notes)
		title := u.What + " " + filepath.Base(u.Path) + " (" + plural(len(tree.Files), "file") + ", " + size(tree.Size) + ")"
		a.status("reading %s", title)
		hash, err := tree.Hash()
		if err != nil {
			return err
		}
		what := client.Local{Name: filepath.Base(u.Path), Hash: hash, Folder: u.IsDir}
		for _, f := range tree.Files {
			what.Files = append(what.Files, client.File{Name: f.Path, Path: f.Full, Size: f.Size})
		}
		var uri string
		if u.What == "code" {
			uri, _, err = c.UploadCode(ctx, what, a.progress("uploading "+title))
		} else {
			uri, _, err = c.UploadData(ctx, u.Datastore, what, a.progress("uploading "+title))
		}
		if err != nil {
			return err
		}
		u.Set(uri)
	}
	return nil
}

func (a *app) createCompute(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	for _, f := range []string{"ssh-private-key-file", "kubeconfig"} {
		if err := here(cmd, f); err != nil {
			return err
		}
	}
	doc, err := document(cmd, args, "compute", computeSets(cmd))
	if err != nil {
		return err
	}
	comp, err := doc.Compute(c.Scope())
	if err != nil {
		return err
	}
	a.warn(comp.Warnings)
	location := comp.Location
	if location == "" {
		if location, err = c.Location(ctx); err != nil {
			return err
		}
	}
	body := map[string]any{"location": location, "properties": comp.Spec, "tags": comp.Tags}
	if comp.Identity != nil {
		body["identity"] = comp.Identity
	}
	ans, err := c.Put(ctx, body, "computes", comp.Name)
	if err != nil {
		return err
	}
	if err := a.wait(ctx, c, cmd, ans, "creating "+comp.Name); err != nil {
		return err
	}
	return a.showCompute(ctx, c, comp.Name)
}

func (a *app) createWorkspace(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	sets := append(textSets(cmd, map[string]string{"display-name": "display_name", "description": "description", "location": "location"}), tagSets(cmd)...)
	doc, err := document(cmd, args, "workspace", sets)
	if err != nil {
		return err
	}
	ws, err := doc.Workspace(c.Scope())
	if err != nil {
		return err
	}
	a.warn(ws.Warnings)
	at := c.In(trainyard.Scope{Workspace: ws.Name})
	if ws.Location == "" {
		ws.Location = trainyard.DefaultLocation
	}
	body := map[string]any{"location": ws.Location, "tags": ws.Tags, "properties": ws.Properties}
	if ws.Identity != nil {
		body["identity"] = ws.Identity
	}
	ans, err := at.Do(ctx, client.Request{Method: http.MethodPut, Path: at.Path(), Body: body})
	if err != nil {
		return err
	}
	if err := a.wait(ctx, at, cmd, ans, "creating "+ws.Name); err != nil {
		return err
	}
	return a.showWorkspace(ctx, at)
}

func (a *app) createDatastore(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	doc, err := document(cmd, args, "datastore", nil)
	if err != nil {
		return err
	}
	store, err := doc.Datastore(c.Scope())
	if err != nil {
		return err
	}
	a.warn(store.Warnings)
	ans, err := c.Put(ctx, map[string]any{"properties": store.Properties}, "datastores", store.Name)
	if err != nil {
		return err
	}
	return a.printOne(trainyard.KindDatastore, ans.Body, a.datastoreView())
}

// createAsset creates a version of an environment, a model or a data asset.
func (a *app) createAsset(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string, kind trainyard.Kind, v view) error {
	for _, f := range []string{"path", "conda-file", "build-context"} {
		if err := here(cmd, f); err != nil {
			return err
		}
	}
	doc, err := document(cmd, args, singular(kind), append(textSets(cmd, map[string]string{"version": "version", "type": "type", "path": "path",
		"datastore": "datastore", "description": "description", "image": "image", "conda-file": "conda_file", "build-context": "build.path",
		"dockerfile-path": "build.dockerfile_path", "os-type": "os_type", "stage": "stage"}), tagSets(cmd)...))
	if err != nil {
		return err
	}
	read := doc.Data
	switch kind {
	case trainyard.KindEnvironment:
		read = doc.Environment
	case trainyard.KindModel:
		read = doc.Model
	}
	asset, err := read(c.Scope())
	if err != nil {
		return err
	}
	a.warn(asset.Warnings)
	if asset.Version == "" {
		if asset.Version, err = c.NextVersion(ctx, kind, asset.Name); err != nil {
			return err
		}
	}
	if err := a.upload(ctx, c, asset.Uploads); err != nil {
		return err
	}
	ans, err := c.Put(ctx, map[string]any{"properties": asset.Properties}, string(kind), asset.Name, "versions", asset.Version)
	if err != nil {
		return err
	}
	return a.printOne(kind, ans.Body, v)
}

func (a *app) jobCreate() *cobra.Command {
	cmd := a.verb(verb{
		use: "create [NAME]", short: "Run a job",
		long: `Runs the job of a YAML file: uploads its code and local inputs, each once a content, and submits it.
With --stream it then follows the job until it ends.`,
		example: `  trainyard job create --file job.yml --stream
  trainyard job create -f job.yml --set inputs.learning_rate=0.01 compute=azureml:cpu-cluster
  name=$(trainyard job create -f job.yml --query name -o tsv)`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			return a.createJob(ctx, c, cmd, args)
		},
	}, trainyard.KindJob)
	addFileFlags(cmd, "job")
	cmd.ValidArgsFunction = nil // a new job's name cannot be completed
	f := cmd.Flags()
	f.BoolP("stream", "s", false, "follow the job until it ends")
	f.BoolP("web", "e", false, "open the job's page in a browser")
	f.Bool("skip-validation", false, "for az's sake")
	f.StringArray("tags", nil, "`key=value` pairs")
	return cmd
}

func (a *app) createJob(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
	doc, err := document(cmd, args, "job", tagSets(cmd))
	if err != nil {
		return err
	}
	job, err := doc.Job(c.Scope())
	if err != nil {
		return err
	}
	a.warn(job.Warnings)
	named := job.Name != ""
	if !named {
		job.Name = newJobName()
	}
	if job.Spec.DisplayName == "" {
		job.Spec.DisplayName = job.Name
	}
	ans, err := a.submit(ctx, c, job)
	if err != nil {
		return err
	}
	if named && ans.Status == http.StatusOK {
		a.warn([]string{"job " + job.Name + " existed already: its tags and words were updated, and nothing new was run. Choose another name to run it again"})
	}
	e, err := shown(trainyard.KindJob, ans.Body)
	if err != nil {
		return err
	}
	if flagBool(cmd, "web") {
		a.browseStudio(ctx, c, text(e, "services", "Studio", "endpoint"))
	}
	if flagBool(cmd, "stream") {
		return a.streamCreated(ctx, c, job.Name)
	}
	return a.print(e, view{table: a.jobTable, detail: func(e map[string]any) {
		a.jobDetail(e)
		a.note("%s", a.paintErr(grey, "follow it: trainyard job stream --name "+job.Name))
	}})
}

// streamCreated follows a new job; with -o or --query it prints the job at the end, as az does.
func (a *app) streamCreated(ctx context.Context, c *client.Client, name string) error {
	end, err := a.stream(ctx, c, name)
	if err != nil {
		return err
	}
	if a.output != "" || a.query != "" {
		raw, err := c.Get(ctx, "jobs", name)
		if err != nil {
			return err
		}
		if err := a.printOne(trainyard.KindJob, raw, a.jobView()); err != nil {
			return err
		}
	}
	if end.Status != trainyard.JobCompleted {
		return failed{1}
	}
	return nil
}

// submit uploads what a job needs, registers its own environment, and sends it.
func (a *app) submit(ctx context.Context, c *client.Client, job *spec.Job) (*client.Answer, error) {
	if err := a.upload(ctx, c, job.Uploads); err != nil {
		return nil, err
	}
	envs := job.Environments
	if job.Environment != nil {
		envs = append(envs, job.Environment)
	}
	for _, env := range envs {
		if _, err := c.Put(ctx, map[string]any{"properties": env.Properties}, string(env.Kind), env.Name, "versions", env.Version); err != nil {
			return nil, err
		}
	}
	if comp := job.Component; comp != nil {
		comp.Named(spec.AnonymousComponent)
		if err := registerBatch(ctx, c, comp, job.SetComponent); err != nil {
			return nil, err
		}
	}
	if job.Finish != nil {
		job.Finish()
	}
	return c.Put(ctx, map[string]any{"properties": job.Spec}, "jobs", job.Name)
}
