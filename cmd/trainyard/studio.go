package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func newStudioCommand(a *app) *cobra.Command {
	cmd := a.verb(verb{
		use: "studio", short: "Open the server's pages in a browser", noName: true, example: "  trainyard studio",
		long: "Opens a browser that is logged in, at the workspace's jobs. The address logs one browser in, once, within two minutes;\n" +
			"where no browser can be opened, open it in one yourself.",
		do: func(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) error {
			page, err := a.ticket(ctx, c, "/jobs?wsid="+c.Scope().ID())
			if err != nil {
				return err
			}
			a.browse(ctx, page)
			return nil
		},
	}, trainyard.KindJob)
	cmd.GroupID = "run"
	return cmd
}

// browseStudio opens a page of the Studio in a browser that is logged in by it; one that is not, where the server gives no ticket.
func (a *app) browseStudio(ctx context.Context, c *client.Client, page string) {
	if u, err := url.Parse(page); err == nil && page != "" {
		if with, err := a.ticket(ctx, c, u.RequestURI()); err == nil {
			page = with
		}
	}
	a.browse(ctx, page)
}

// ticket is an address that logs a browser in and leads to next.
func (a *app) ticket(ctx context.Context, c *client.Client, next string) (string, error) {
	ans, err := c.Do(ctx, client.Request{Method: http.MethodPost, Path: "/studio/tickets", Body: map[string]string{"next": next}})
	if err != nil {
		return "", err
	}
	var got struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(ans.Body, &got); err != nil || got.URL == "" {
		return "", trainyard.Errorf(trainyard.CodeInternal, "the server's answer names no address")
	}
	return got.URL, nil
}
