package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// workspaceMLflow prints what an MLflow client outside of jobs needs.
func (a *app) workspaceMLflow() *cobra.Command {
	return a.verb(verb{
		use: "mlflow-env [NAME]", short: "Print the variables by which MLflow logs to a workspace",
		long:    "Prints the variables by which MLflow, outside of jobs, logs to a workspace: address, token, and the server's certificate authority.\nThe token is yours: what is printed is a secret.",
		example: "  eval \"$(trainyard workspace mlflow-env)\" && python train.py",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			at, err := named(c, cmd, args)
			if err != nil {
				return err
			}
			raw, err := at.Get(ctx)
			if err != nil {
				return err
			}
			e, err := shown(trainyard.KindWorkspace, raw)
			if err != nil {
				return err
			}
			uri := text(e, "mlflow_tracking_uri")
			if uri == "" {
				return trainyard.Errorf(trainyard.CodeUnsupported, "the server does not say where workspace %s is tracked", text(e, "name"))
			}
			p, err := client.ReadProfile("")
			if err != nil {
				p = client.Profile{}
			}
			vars := [][2]string{{"MLFLOW_TRACKING_URI", uri}, {"MLFLOW_TRACKING_TOKEN", c.Token()}}
			if p.CA != "" && strings.HasPrefix(uri, "https:") {
				path := filepath.Join(filepath.Dir(client.ProfilePath()), "ca.pem")
				if err := os.WriteFile(path, []byte(p.CA), 0o644); err != nil {
					return fmt.Errorf("write the server's certificate authority: %w", err)
				}
				vars = append(vars, [2]string{"MLFLOW_TRACKING_SERVER_CERT_PATH", path})
			}
			for _, v := range vars {
				fmt.Fprintf(a.out, "export %s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
			}
			return nil
		},
	}, trainyard.KindWorkspace)
}
