package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `Trainyard: compute targets for machine learning on machines you own.

Verbs and flags are those of "az ml", so scripts and job files written for Azure Machine Learning
run here unchanged. "trainyard server" starts a server; everything else talks to one.`

const rootExample = `  trainyard server                               start a server on this computer
  trainyard job create -f job.yml --stream       run a job and watch it
  trainyard compute create --name cpu-cluster --type amlcompute --size STANDARD_DS3_V2 --min-instances 0 --max-instances 4
  trainyard job list                             what ran, what runs, and what waits for what`

// newRoot is the command line.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use: "trainyard", Short: "Compute targets for machine learning on machines you own", Long: rootLong, Example: rootExample,
		SilenceErrors: true, SilenceUsage: true, Args: knownVerb, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() { // of a verb that is not there, a flag says nothing
			if unknown := knownVerb(cmd, cmd.Flags().Args()); unknown != nil {
				return unknown
			}
		}
		said, _, _ := strings.Cut(err.Error(), ": strconv.") // which is Go's
		return usagef("%s\n  see \"%s --help\"", said, cmd.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", "", "json, jsonc, yaml, yamlc, table, tsv or none (default: for people on a terminal, json otherwise)")
	f.StringVar(&a.query, "query", "", "JMESPath `expression` that picks from the output")
	f.StringVarP(&a.resourceGroup, "resource-group", "g", "", "resource group of the workspace (default: the profile's)")
	f.StringVarP(&a.workspace, "workspace-name", "w", "", "workspace (default: the profile's)")
	f.StringVar(&a.subscription, "subscription", "", "subscription of the workspace (default: the profile's)")
	f.BoolVar(&a.debug, "debug", false, "show every call to the server")
	f.BoolVar(&a.verbose, "verbose", false, "say more")
	f.BoolVar(&a.quiet, "only-show-errors", false, "leave warnings out")
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "use", Title: "Use:"})
	commands := []*cobra.Command{
		newJobCommand(a),
		newComputeCommand(a),
		newEnvironmentCommand(a),
		newDataCommand(a),
		newModelCommand(a),
		newComponentCommand(a),
		newOnlineEndpointCommand(a),
		newOnlineDeploymentCommand(a),
		newDatastoreCommand(a),
		newBatchEndpointCommand(a),
		newBatchDeploymentCommand(a),
		newWorkspaceCommand(a),
		newLocationCommand(a),
		newStudioCommand(a),
		newVersionCommand(a),
		newServerCommand(), newGatewayCommand(),
		newAgentCommand(),
		newTaskCommand(),
	}
	for _, c := range commands {
		if c.Name() == "server" {
			c.GroupID = "run"
		}
		if c.GroupID == "" && c.Name() != "version" {
			c.GroupID = "use"
		}
	}
	root.AddCommand(commands...)
	for _, flag := range []string{"output", "workspace-name"} {
		_ = root.RegisterFlagCompletionFunc(flag, completeGlobal(a, flag)) // an error would mean a flag misnamed here: a test looks
	}
	return root
}

// run runs one command and returns its exit status: 0, 1 for what went wrong, 2 for a command written wrongly.
func run(ctx context.Context, c *console, args []string) int {
	a := &app{console: c}
	root := newRoot(a)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetArgs(azArgs(root, args))
	err := root.ExecuteContext(ctx)
	a.done()
	var end failed
	switch {
	case err == nil:
		return 0
	case errors.As(err, &end):
		return end.status
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return 130
	}
	fmt.Fprintln(c.err, a.paintErr(red, "error:"), describe(err))
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}
