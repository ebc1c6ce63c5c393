package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs, Example: "  trainyard version",
		RunE: func(*cobra.Command, []string) error {
			if a.output == "" && a.query == "" {
				_, err := fmt.Fprintf(a.out, "trainyard %s %s/%s\n", version(), runtime.GOOS, runtime.GOARCH)
				return err
			}
			return a.print(map[string]any{"version": version(), "os": runtime.GOOS, "arch": runtime.GOARCH}, view{})
		},
	}
}
