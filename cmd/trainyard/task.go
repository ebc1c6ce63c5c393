package main

import (
	goflag "flag"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/internal/taskrun"
)

// newTaskCommand is what engines that have no agent on their nodes start: target.Kind.SelfStaged. A build that carries the small program
// (slim.Unpack) has them start that, which is the same and smaller.
func newTaskCommand() *cobra.Command {
	var f taskrun.Options
	cmd := &cobra.Command{
		Use:    "task",
		Short:  "Run one task where it is (started by Slurm, Kubernetes and the like)",
		Long:   "Stages one task, runs it, prints what it prints, stores its results, and leaves behind how it ended. Engines start it; people do not.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			status, err := f.Run(cmd.Context(), cmd.OutOrStdout())
			if err == nil && status != 0 {
				return failed{status: status} // said in the result, not in the task's log
			}
			return err
		},
	}
	flags := goflag.NewFlagSet("task", goflag.ContinueOnError)
	f.Flags(flags)
	cmd.Flags().AddGoFlagSet(flags)
	_ = cmd.MarkFlagRequired("file")
	return cmd
}
