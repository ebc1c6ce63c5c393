package main

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// verb is one command of a noun.
type verb struct {
	use, short, long, example string
	noName                    bool // it takes no name
	do                        func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error
}

// noun makes the command of a noun out of its verbs.
func (a *app) noun(name, short, alias string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: knownVerb, SuggestionsMinimumDistance: 2, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	if alias != "" {
		cmd.Aliases = []string{alias}
	}
	cmd.Example = verbs[0].Example
	cmd.AddCommand(verbs...)
	return cmd
}

// knownVerb refuses a verb that is not there, and says which are.
func knownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("there is no %q; did you mean \"%s %s\"?", cmd.CommandPath()+" "+args[0], cmd.CommandPath(), near[0])
	}
	var known []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			known = append(known, c.Name())
		}
	}
	return usagef("there is no %q; %s has %s", cmd.CommandPath()+" "+args[0], cmd.CommandPath(), strings.Join(known, ", "))
}

func oneName(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("%q is one word too many: %s takes one name", args[1], cmd.CommandPath())
	}
	return nil
}

func noName(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%q is one word too many: %s takes flags only", args[0], cmd.CommandPath())
	}
	return nil
}

// verb makes a command that talks to the server. A name may be given with --name or as the only argument; kind completes it.
func (a *app) verb(v verb, kind trainyard.Kind) *cobra.Command {
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example, Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return v.do(cmd.Context(), c, cmd, args)
		},
	}
	if v.noName {
		cmd.Args = noName
		return cmd
	}
	cmd.Flags().StringP("name", "n", "", "`NAME` of it; may also stand alone")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeNames(cmd, kind)
	}
	_ = cmd.RegisterFlagCompletionFunc("name", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeNames(cmd, kind)
	}) // fails only for a flag that is not there
	return cmd
}

// flag reads a flag that the command is known to have.
func flag(cmd *cobra.Command, name string) string {
	f := cmd.Flags().Lookup(name)
	if f == nil {
		return ""
	}
	return f.Value.String()
}

func flagBool(cmd *cobra.Command, name string) bool { return flag(cmd, name) == "true" }

// flagList reads a flag that may be given several times.
func flagList(cmd *cobra.Command, name string) []string {
	list, err := cmd.Flags().GetStringArray(name)
	if err != nil {
		return nil // it has no such flag
	}
	return list
}

// addListFlags are the flags of every list.
func addListFlags(cmd *cobra.Command, archives bool) *cobra.Command {
	cmd.Flags().IntP("max-results", "r", 50, "at most this many")
	cmd.Flags().Bool("all-results", false, "all of them")
	if archives {
		cmd.Flags().Bool("archived-only", false, "only what is archived")
		cmd.Flags().Bool("include-archived", false, "also what is archived")
	}
	return cmd
}

// viewQuery is the list's view of archived things.
func viewQuery(cmd *cobra.Command) url.Values {
	q := url.Values{}
	switch {
	case flagBool(cmd, "archived-only"):
		q.Set("listViewType", string(trainyard.ViewArchived))
	case flagBool(cmd, "include-archived"):
		q.Set("listViewType", string(trainyard.ViewAll))
	default:
		q.Set("listViewType", string(trainyard.ViewActive))
	}
	return q
}

// collect reads a list as az prints it, up to the number that the flags say, and whether there was more.
func collect(ctx context.Context, c *client.Client, cmd *cobra.Command, kind trainyard.Kind, query url.Values, keep func(map[string]any) bool, path ...string) (items []any, more bool, err error) {
	most, _ := strconv.Atoi(flag(cmd, "max-results"))
	if flagBool(cmd, "all-results") || most <= 0 {
		most = 1 << 30
	}
	if keep == nil && most < 1000 {
		query.Set("$top", strconv.Itoa(most+1))
	}
	items = []any{}
	for raw, err := range c.List(ctx, query, path...) {
		if err != nil {
			return nil, false, err
		}
		m, err := decode(raw)
		if err != nil {
			return nil, false, err
		}
		e := entity(kind, m)
		if keep != nil && !keep(e) {
			continue
		}
		if len(items) == most {
			return items, true, nil
		}
		items = append(items, e)
	}
	return items, false, nil
}

// moreNote says that a list was cut.
func (a *app) moreNote(items []any, more bool) {
	if more && a.outTTY && !a.quiet {
		a.note("%s", a.paintErr(grey, "the newest "+strconv.Itoa(len(items))+" are shown; --all-results shows all"))
	}
}

// shown reads a resource and gives it az's shape.
func shown(kind trainyard.Kind, raw []byte) (map[string]any, error) {
	m, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return entity(kind, m), nil
}

// wait waits for what a call started, with a line that says what is waited for, unless --no-wait.
func (a *app) wait(ctx context.Context, c *client.Client, cmd *cobra.Command, ans *client.Answer, what string) error {
	if flagBool(cmd, "no-wait") {
		return nil
	}
	return a.waitTelling(ctx, c, ans, what, func() string { return "" })
}

// waitTelling waits for what a call started. After a moment, why is asked again and again what keeps it, and told when it says something
// new, more and more seldom; "" is nothing to tell.
func (a *app) waitTelling(ctx context.Context, c *client.Client, ans *client.Answer, what string, why func() string) error {
	const most = 30 * time.Second // between questions
	moment := 2 * time.Second
	start, asked, told := a.now(), a.now(), ""
	defer a.done()
	return c.Wait(ctx, ans, func(client.Operation) {
		now := a.now()
		if now.Sub(asked) >= moment {
			asked = now
			if text := why(); text != "" && text != told {
				told, moment = text, min(2*moment, most)
				a.note("%s", text)
			}
		}
		if now.Sub(start).Milliseconds() > 300 {
			a.status("%s … %s", what, long(now.Sub(start)))
		}
	})
}

// addWaitFlags are the flags of commands that start something long.
func addWaitFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("no-wait", false, "do not wait until it is done")
	return cmd
}

func addYes(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolP("yes", "y", false, "do not ask")
	return cmd
}

// addFileFlags are the flags of commands that read a file.
func addFileFlags(cmd *cobra.Command, what string) *cobra.Command {
	cmd.Flags().StringP("file", "f", "", "YAML `FILE` of the "+what)
	addSetFlags(cmd)
	_ = cmd.MarkFlagFilename("file", "yml", "yaml", "json") // fails only for a flag that is not there
	return cmd
}

func addSetFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArray("set", nil, "set a field: `a.b[0].c=value`; may be repeated")
	return cmd
}

func addUpdateFlags(cmd *cobra.Command) *cobra.Command {
	addSetFlags(cmd)
	cmd.Flags().StringArray("remove", nil, "remove a field: `a.b`; may be repeated")
	return cmd
}

// singular is a kind in sentences.
func singular(kind trainyard.Kind) string {
	return strings.TrimSuffix(string(kind), "s")
}
