package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newJobCommand(a *app) *cobra.Command {
	cmd := a.noun("job", "Jobs: commands that run on computes", "",
		a.jobCreate(), a.jobStream(), a.jobShow(), a.jobList(), a.jobCancel(), a.jobDownload(), a.jobLogs(), a.jobTimeline(),
		a.jobUpdate(), a.jobArchive(true), a.jobArchive(false), a.jobDelete(), a.jobServices())
	cmd.GroupID = "run"
	return cmd
}

func (a *app) jobShow() *cobra.Command {
	cmd := a.verb(verb{
		use: "show [NAME]", short: "Show a job: its state, why, and its times",
		example: "  trainyard job show --name calm_river_7x2kq9d1aa\n  trainyard job show -n calm_river_7x2kq9d1aa --query status -o tsv",
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
			if flagBool(cmd, "web") {
				a.browseStudio(ctx, c, text(e, "services", "Studio", "endpoint"))
			}
			return a.print(e, a.jobView())
		},
	}, trainyard.KindJob)
	cmd.Flags().BoolP("web", "e", false, "open the job's page in a browser")
	return cmd
}

func (a *app) jobList() *cobra.Command {
	cmd := a.verb(verb{
		use: "list", short: "List jobs, newest first", noName: true,
		example: "  trainyard job list\n  trainyard job list --status Running,Queued --compute cpu-cluster\n  trainyard job list --query \"[?status=='Failed'].name\" -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) error {
			query := viewQuery(cmd)
			if p := flag(cmd, "parent-job-name"); p != "" {
				query.Set("parent", p)
			}
			for _, f := range []string{"status", "compute", "tag"} {
				if v := flag(cmd, f); v != "" {
					query.Set(f, v)
				}
			}
			items, more, err := collect(ctx, c, cmd, trainyard.KindJob, query, nil, "jobs")
			if err != nil {
				return err
			}
			defer a.moreNote(items, more)
			return a.print(items, a.jobView())
		},
	}, trainyard.KindJob)
	f := cmd.Flags()
	f.String("status", "", "only jobs in these states, with commas between")
	f.String("compute", "", "only jobs of this compute")
	f.String("tag", "", "only jobs with this tag: `key or key=value`")
	f.StringP("parent-job-name", "p", "", "only the steps of this pipeline")
	return addListFlags(cmd, true)
}

func (a *app) jobCancel() *cobra.Command {
	return addWaitFlags(a.verb(verb{
		use: "cancel [NAME]", short: "Ask a job to end", example: "  trainyard job cancel --name calm_river_7x2kq9d1aa",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			ans, err := c.Post(ctx, nil, "jobs", n, "cancel")
			if err != nil {
				return err
			}
			if flagBool(cmd, "no-wait") {
				a.say("%s was asked to end", n)
				return nil
			}
			return a.waitCanceled(ctx, c, ans, n)
		},
	}, trainyard.KindJob))
}

// waitCanceled waits until a job that was asked to end has ended, and tells what that waits for if it lasts.
func (a *app) waitCanceled(ctx context.Context, c *client.Client, ans *client.Answer, n string) error {
	err := a.waitTelling(ctx, c, ans, "waiting for "+n+" to end", func() string {
		j, err := c.JobStatus(ctx, n)
		if err != nil || j.Status.Terminal() { // the operation says it
			return ""
		}
		return a.paintErr(stateColor(string(j.Status)), string(j.Status)) + " " + clean(j.Reason.Message)
	})
	if err != nil && ctx.Err() != nil {
		a.note("\nNo longer waiting; %s stays asked to end.\n  look again  trainyard job show --name %s", n, n)
	}
	if err != nil {
		return err
	}
	end, err := c.JobStatus(ctx, n)
	if err != nil {
		return err
	}
	a.say("%s is %s", n, end.Status)
	return nil
}

var jobFields = fields{"display_name": "properties.displayName", "description": "properties.description",
	"experiment_name": "properties.experimentName", "tags.*": "properties.tags", "properties.*": "properties.properties"}

func (a *app) jobUpdate() *cobra.Command {
	cmd := a.verb(verb{
		use: "update [NAME]", short: "Change a job's display name, description or tags",
		example: "  trainyard job update --name calm_river_7x2kq9d1aa --set display_name=\"first try\" tags.stage=dev",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			patch, err := jobFields.patch(append(flagList(cmd, "set"), unquoted(tagSets(cmd))...), flagList(cmd, "remove"))
			if err != nil {
				return err
			}
			if len(patch) == 0 {
				return usagef("nothing to change: give --set or --remove")
			}
			ans, err := c.Patch(ctx, patch, "jobs", n)
			if err != nil {
				return err
			}
			return a.printOne(trainyard.KindJob, ans.Body, a.jobView())
		},
	}, trainyard.KindJob)
	cmd.Flags().StringArray("tags", nil, "`key=value` pairs")
	return addUpdateFlags(cmd)
}

func (a *app) jobArchive(archive bool) *cobra.Command {
	use, short := "archive", "Hide a job from lists"
	if !archive {
		use, short = "restore", "Show an archived job in lists again"
	}
	return a.verb(verb{
		use: use + " [NAME]", short: short, example: "  trainyard job " + use + " --name calm_river_7x2kq9d1aa",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			if _, err := c.Patch(ctx, map[string]any{"properties": map[string]any{"isArchived": archive}}, "jobs", n); err != nil {
				return err
			}
			a.say("%s is %sd", n, use)
			return nil
		},
	}, trainyard.KindJob)
}

func (a *app) jobDelete() *cobra.Command {
	return addWaitFlags(addYes(a.verb(verb{
		use: "delete [NAME]", short: "Delete a job that has ended, with its logs and outputs", example: "  trainyard job delete --name calm_river_7x2kq9d1aa --yes",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, flagBool(cmd, "yes"), "delete job %s", n); err != nil {
				return err
			}
			if _, err := c.Get(ctx, "jobs", n); err != nil {
				return err
			}
			ans, err := c.Delete(ctx, url.Values{}, "jobs", n)
			if err != nil {
				return err
			}
			if err := a.wait(ctx, c, cmd, ans, "deleting "+n); err != nil {
				return err
			}
			a.say("%s is deleted", n)
			return nil
		},
	}, trainyard.KindJob)))
}

func (a *app) jobServices() *cobra.Command {
	return a.verb(verb{
		use: "show-services [NAME]", short: "Show the addresses that belong to a job", example: "  trainyard job show-services --name calm_river_7x2kq9d1aa",
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
			services := asMap(e["services"])
			return a.print(services, view{detail: func(map[string]any) {
				t := &table{heads: []string{"Service", "Type", "Address"}}
				for _, k := range sortedKeys(services) {
					t.add(k, text(services, k, "type"), text(services, k, "endpoint"))
				}
				t.print(a.console, a.out)
			}})
		},
	}, trainyard.KindJob)
}

func (a *app) jobView() view {
	return view{table: a.jobTable, detail: a.jobDetail}
}

func (a *app) jobTable(items []any) *table {
	t := &table{heads: []string{"Name", "Display name", "Status", "Compute", "Experiment", "Created", "Took", "Why"}, right: []bool{6: true},
		spare: []int{4, 1, 5, 7, 3},
		tint: func(col int, cell string) string {
			if col == 2 {
				return stateColor(cell)
			}
			return ""
		}}
	for _, it := range items {
		e := asMap(it)
		display := text(e, "display_name")
		if display == text(e, "name") {
			display = ""
		}
		t.add(text(e, "name"), display, text(e, "status"), strings.TrimPrefix(text(e, "compute"), "azureml:"), text(e, "experiment_name"),
			ago(a.now(), created(e)), took(a.now(), e), jobWhy(e))
	}
	return t
}

// took is how long a job ran or has run.
func took(now time.Time, e map[string]any) string {
	start, end := parseTime(e["start_time"]), parseTime(e["end_time"])
	if start.IsZero() {
		return ""
	}
	if end.IsZero() {
		end = now
	}
	return long(end.Sub(start))
}

// jobWhy is what a person should know of the state: why it waits, or what went wrong.
func jobWhy(e map[string]any) string {
	switch trainyard.JobState(text(e, "status")) {
	case trainyard.JobCompleted:
		return ""
	case trainyard.JobRunning:
		if (trainyard.Reason{Code: text(e, "reason", "code")}).SaysItRuns() {
			return "" // the state says it
		}
	case trainyard.JobFailed:
		return cmp.Or(text(e, "failure", "message"), text(e, "reason", "message"))
	}
	return text(e, "reason", "message")
}

func (a *app) jobDetail(e map[string]any) {
	state := text(e, "status")
	fmt.Fprintf(a.out, "job %s  %s\n", a.paint(bold, clean(text(e, "name"))), a.paint(stateColor(state), state))
	display := text(e, "display_name")
	if display == text(e, "name") {
		display = ""
	}
	exit := ""
	if e["exit_code"] != nil {
		exit = plain(e["exit_code"])
	}
	place := strings.TrimPrefix(text(e, "compute"), "azureml:")
	if n, ok := asMap(e["resources"])["instance_count"].(float64); ok && n > 1 {
		place += ", " + strconv.Itoa(int(n)) + " nodes"
	}
	if n, ok := e["queue_position"].(float64); ok {
		place += fmt.Sprintf(", place %.0f in its queue", n)
	}
	a.pairs(a.out, [][2]string{
		{"why", jobWhy(e)}, {"display name", display}, {"experiment", text(e, "experiment_name")}, {"description", text(e, "description")},
		{"compute", place}, {"steps", stepsText(e["steps"])}, {"command", text(e, "command")}, {"environment", text(e, "environment")}, {"inputs", portsText(e["inputs"])},
		{"outputs", portsText(e["outputs"])}, {"tags", tagsText(e["tags"])}, {"attempts", attemptsText(e)}, {"created", madeBy(a.now(), e)}, {"took", took(a.now(), e)},
		{"exit code", exit}, {"page", text(e, "services", "Studio", "endpoint")}, {"warnings", linesOf(e["warnings"])},
	})
	a.bars(a.out, spansOf(e, a.now()))
}

// stepsText lists the steps of a pipeline with how they are and their jobs, one a line.
func stepsText(v any) string {
	list, _ := v.([]any)
	width := 0
	for _, it := range list {
		width = max(width, len(text(asMap(it), "name")))
	}
	var lines []string
	for _, it := range list {
		m := asMap(it)
		line := fmt.Sprintf("%-*s  %-10s  job %s", width, text(m, "name"), text(m, "status"), text(m, "job"))
		if why := text(m, "why"); why != "" {
			line += ": " + strings.ReplaceAll(why, "\n", " ")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// attemptsText says how it came to more than one attempt.
func attemptsText(e map[string]any) string {
	list, _ := e["attempts"].([]any)
	if len(list) < 2 {
		return ""
	}
	var parts []string
	for _, it := range list {
		m := asMap(it)
		tasks, _ := m["tasks"].([]any)
		node, end := "", text(m, "class")
		if len(tasks) > 0 {
			node = " on " + text(asMap(tasks[0]), "node")
		}
		if end == "" {
			end = "goes on"
		}
		parts = append(parts, fmt.Sprintf("%s%s: %s", plain(m["number"]), node, end))
	}
	return strings.Join(parts, "\n")
}

// portsText lists inputs or outputs, one a line.
func portsText(v any) string {
	m := asMap(v)
	var lines []string
	for _, k := range sortedKeys(m) {
		p := asMap(m[k])
		if p == nil {
			lines = append(lines, k+" = "+plain(m[k]))
			continue
		}
		line := k + " = " + cmp.Or(text(p, "path"), text(p, "type"))
		if mode := text(p, "mode"); mode != "" {
			line += " (" + mode + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// spansOf is a job's timeline; what lasts ends now.
func spansOf(e map[string]any, now time.Time) []trainyard.Span {
	list, _ := e["timeline"].([]any)
	var out []trainyard.Span
	for _, it := range list {
		s := asMap(it)
		span := trainyard.Span{Name: text(s, "name"), Start: parseTime(s["start"]), End: parseTime(s["end"]), Note: text(s, "note")}
		if span.End.IsZero() {
			span.End = now
		}
		out = append(out, span)
	}
	return out
}

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
