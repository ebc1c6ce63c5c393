package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func (a *app) jobDownload() *cobra.Command {
	cmd := a.verb(verb{
		use: "download [NAME]", short: "Download what a job left: its logs and artifacts, an output, or everything",
		long: `Downloads a job's artifacts (its logs, ./outputs and ./logs) to PATH/artifacts. With --output-name, that output to
PATH/named-outputs/NAME. With --all, both, and every named output.`,
		example: "  trainyard job download --name calm_river_7x2kq9d1aa --all --download-path ./result\n  trainyard job download -n calm_river_7x2kq9d1aa --output-name model",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			j, err := c.JobStatus(ctx, n)
			if err != nil {
				return err
			}
			if !j.Status.Terminal() {
				return trainyard.Conflict("job %s is %s: it can be downloaded when it has ended; follow it with \"trainyard job stream --name %s\", "+
					"or read its log with \"trainyard job logs --name %s\"", n, j.Status, n, n)
			}
			parts, err := downloads(j, flag(cmd, "output-name"), flagBool(cmd, "all"))
			if err != nil {
				return err
			}
			return a.download(ctx, c, parts, flag(cmd, "download-path"))
		},
	}, trainyard.KindJob)
	f := cmd.Flags()
	f.Bool("all", false, "logs, artifacts and every output")
	f.String("output-name", "", "only this output")
	f.StringP("download-path", "p", ".", "`FOLDER` to download to")
	_ = cmd.RegisterFlagCompletionFunc("output-name", a.completeOutputs) // fails only for a flag that is not there
	return cmd
}

// part is a piece of a download: from a place in a datastore to a folder below the one the user named.
type part struct {
	what, uri, to string
}

// downloads says what comes from where, as az does.
func downloads(j client.JobStatus, output string, all bool) ([]part, error) {
	artifacts := part{what: "artifacts", uri: "azureml://datastores/" + trainyard.ArtifactDatastore + "/paths/ExperimentRun/dcid." + j.Name + "/", to: "artifacts"}
	if o := j.Outputs["default"]; o != nil && o.URI != "" {
		artifacts.uri = o.URI
	}
	if output == "default" || output == "" && !all {
		return []part{artifacts}, nil
	}
	named := map[string]part{}
	for name, o := range j.Outputs {
		if name == "default" {
			continue
		}
		uri := "azureml://datastores/" + trainyard.BlobDatastore + "/paths/azureml/" + j.Name + "/" + name + "/"
		if o != nil && o.URI != "" {
			uri = o.URI
		}
		named[name] = part{what: name, uri: uri, to: filepath.Join("named-outputs", name)}
	}
	if output != "" && !all {
		p, ok := named[output]
		if !ok {
			known := slices.Sorted(maps.Keys(named))
			if len(known) == 0 {
				return nil, trainyard.NotFound("job %s has no named outputs; its artifacts come without --output-name", j.Name)
			}
			return nil, trainyard.NotFound("job %s has no output %q; it has %s", j.Name, output, strings.Join(known, ", "))
		}
		return []part{p}, nil
	}
	parts := []part{artifacts}
	for _, n := range slices.Sorted(maps.Keys(named)) {
		parts = append(parts, named[n])
	}
	return parts, nil
}

func (a *app) download(ctx context.Context, c *client.Client, parts []part, dir string) error {
	stores := map[string]*client.Container{}
	for _, p := range parts {
		at, err := trainyard.ParseDataPath(c.Scope(), p.uri)
		if err != nil {
			return trainyard.Invalid("%s is at %s, which cannot be downloaded from here", p.what, p.uri)
		}
		store, ok := stores[at.Datastore]
		if !ok {
			if store, err = c.In(at.Scope).Datastore(ctx, at.Datastore); err != nil {
				return err
			}
			stores[at.Datastore] = store
		}
		to := filepath.Join(dir, p.to)
		n, err := store.Download(ctx, at.Path, to, a.progress("downloading "+p.what))
		a.done()
		switch {
		case err != nil:
			return err
		case n == 0:
			a.say("%s: nothing there", p.what)
		default:
			a.say("%s: %s in %s", p.what, plural(n, "file"), to)
		}
	}
	return nil
}

// progress is a progress line of a transfer.
func (a *app) progress(what string) client.Progress {
	start := a.now()
	return func(done, total int64) {
		rate := ""
		if d := a.now().Sub(start); d.Seconds() > 1 {
			rate = ", " + size(int64(float64(done)/d.Seconds())) + "/s"
		}
		percent := int64(100)
		if total > 0 {
			percent = done * 100 / total
		}
		a.status("%s  %s %3d %%  %s of %s%s", what, bar(done, total), percent, size(done), size(total), rate)
	}
}

func bar(done, total int64) string {
	const most = 20
	n := int64(most)
	if total > 0 {
		n = min(most, done*most/total)
	}
	return strings.Repeat("█", int(n)) + strings.Repeat("·", int(most-n))
}

func (a *app) jobLogs() *cobra.Command {
	cmd := a.verb(verb{
		use: "logs [NAME]", short: "Print a log of a job as it is now",
		example: "  trainyard job logs --name calm_river_7x2kq9d1aa\n  trainyard job logs -n calm_river_7x2kq9d1aa --list\n  trainyard job logs -n calm_river_7x2kq9d1aa --file system_logs/environment.txt",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			run, err := c.Run(ctx, n)
			if err != nil {
				return err
			}
			if flagBool(cmd, "list") {
				names := []any{}
				for _, l := range sortedNames(run.Logs) {
					names = append(names, map[string]any{"name": l})
				}
				return a.print(names, view{})
			}
			which := flag(cmd, "file")
			if which == "" {
				which = run.MainLog()
			}
			switch {
			case which == "" && !run.Status.Terminal():
				return trainyard.NotFound("job %s is %s and has printed nothing yet", n, run.Status)
			case which == "":
				return trainyard.NotFound("job %s has printed nothing; \"trainyard job show --name %s\" says what came of it", n, n)
			case run.Logs[which] == "":
				return trainyard.NotFound("job %s has no log %q; it has %s", n, which, strings.Join(sortedNames(run.Logs), ", "))
			}
			_, err = c.ReadLog(ctx, a.out, n, which, 0)
			return err
		},
	}, trainyard.KindJob)
	cmd.Flags().String("file", "", "`LOG` to print (default: that of the job's first process)")
	cmd.Flags().Bool("list", false, "list the logs that there are")
	return cmd
}

func (a *app) jobTimeline() *cobra.Command {
	return a.verb(verb{
		use: "timeline [NAME]", short: "Show where every second of a job went", example: "  trainyard job timeline --name calm_river_7x2kq9d1aa",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			raw, err := c.Get(ctx, "jobs", n)
			if err != nil {
				return err
			}
			e, err := shown(trainyard.KindJob, raw)
			if err != nil {
				return err
			}
			list, _ := e["timeline"].([]any)
			if list == nil {
				list = []any{}
			}
			return a.print(list, view{table: func([]any) *table { return timelineTable(spansOf(e, a.now())) }})
		},
	}, trainyard.KindJob)
}

func timelineTable(spans []trainyard.Span) *table {
	t := &table{heads: []string{"Part", "From", "Took", "Share", "", "Note"}, right: []bool{2: true, 3: true}, spare: []int{4, 1}}
	total := elapsed(spans)
	for _, s := range spans {
		d := s.End.Sub(s.Start)
		share := ""
		if total > 0 {
			share = fmt.Sprintf("%.0f %%", 100*float64(d)/float64(total))
		}
		t.add(s.Name, s.Start.Local().Format("15:04:05.000"), long(d), share, bar(int64(d), int64(total)), s.Note)
	}
	return t
}

func (a *app) completeOutputs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	n, err := name(cmd, args)
	if err != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return nil, directive
	}
	j, err := c.JobStatus(ctx, n)
	if err != nil {
		return nil, directive
	}
	return sortedNames(j.Outputs), directive
}

// browse opens a page, where there is a browser to open it in, and names it in any case.
func (a *app) browse(ctx context.Context, url string) {
	if url == "" {
		return
	}
	a.note("page: %s", clean(url))
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.CommandContext(context.WithoutCancel(ctx), "open", url)
	case "windows":
		cmd = exec.CommandContext(context.WithoutCancel(ctx), "rundll32", "url.dll,FileProtocolHandler", url)
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return
		}
		cmd = exec.CommandContext(context.WithoutCancel(ctx), "xdg-open", url)
	}
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }() // its end is nobody's concern
	}
}
