package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// app is what every command of the command line has: the console, the flags that all have, and the server once one is asked for.
type app struct {
	*console
	output        string // -o as written
	query         string
	subscription  string
	resourceGroup string
	workspace     string
	debug         bool
	verbose       bool
	quiet         bool // --only-show-errors
	opened        *client.Client
}

// client opens the server of the profile, for the workspace that the flags say.
func (a *app) client() (*client.Client, error) {
	if a.opened != nil {
		return a.opened, nil
	}
	cfg, err := client.ProfileConfig("")
	if err != nil {
		return nil, err
	}
	cfg.Subscription = cmp.Or(a.subscription, cfg.Subscription)
	cfg.ResourceGroup = cmp.Or(a.resourceGroup, cfg.ResourceGroup)
	cfg.Workspace = cmp.Or(a.workspace, cfg.Workspace)
	if a.debug {
		cfg.Trace = func(method, url string, status int, d time.Duration, err error) {
			a.note("%s %s → %s in %s", method, url, traced(status, err), long(d))
		}
	}
	if a.verbose || a.debug {
		cfg.OnRetry = func(err error) { a.note("trying again: %v", err) }
	}
	a.opened, err = client.New(cfg)
	return a.opened, err
}

func traced(status int, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(status)
}

// usageError is a command written wrongly: exit status 2.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// failed ends a command whose bad news has been told already.
type failed struct{ status int }

func (failed) Error() string { return "" }

// name takes a resource's name from its flag or from the command's argument, and wants one.
func name(cmd *cobra.Command, args []string) (string, error) {
	flag, err := cmd.Flags().GetString("name")
	if err != nil {
		return "", fmt.Errorf("read --name: %w", err)
	}
	switch {
	case len(args) > 0 && flag != "" && args[0] != flag:
		return "", usagef("two names are given: %q and %q", args[0], flag)
	case len(args) > 0:
		return args[0], nil
	case flag == "":
		return "", usagef("a name is missing: %s --name NAME", cmd.CommandPath())
	}
	return flag, nil
}

// confirm asks before something is destroyed, and wants --yes where nobody can be asked.
func (a *app) confirm(ctx context.Context, yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if !a.inTTY || !a.errTTY {
		return usagef("%s? Say so with --yes: there is no terminal to ask on", what)
	}
	fmt.Fprintf(a.console.err, "%s? [y/N] ", what)
	said := make(chan string, 1)
	go func() { // a read of a terminal cannot be cancelled; the program ends before it does
		var answer string
		_, _ = fmt.Fscanln(a.in, &answer) // no answer is no
		said <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.console.err)
		return ctx.Err()
	case answer := <-said:
		if strings.HasPrefix(strings.ToLower(answer), "y") {
			return nil
		}
	}
	return errors.New("nothing was done")
}

// warn tells what did not keep the command from working.
func (a *app) warn(warnings []string) {
	if a.quiet {
		return
	}
	for _, w := range slices.Compact(warnings) {
		a.note("%s %s", a.paintErr(yellow, "warning:"), w)
	}
}

// paintErr colours text that goes to the error stream.
func (c *console) paintErr(code, text string) string {
	if !c.errColor {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// describe is an error in the words that a person should read.
func describe(err error) string {
	if e, ok := errors.AsType[*trainyard.Error](err); ok && e.Code == trainyard.CodeUnknown {
		return err.Error() + "\n  The token is TRAINYARD_TOKEN's or the profile's; \"trainyard server\" writes a profile for the user who starts it."
	}
	return err.Error()
}
