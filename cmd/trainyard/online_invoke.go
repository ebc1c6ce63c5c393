package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

func (a *app) endpointInvoke() *cobra.Command {
	cmd := a.verb(verb{
		use: "invoke [NAME]", short: "Send a request to an online endpoint and print the answer",
		long: `Sends what a file holds to the endpoint, with its key, and prints the answer's body as it comes. --deployment-name asks one deployment,
whatever its traffic. --path asks for something else than a score: it is what stands behind the endpoint's address. The exit status is 1 for an answer other than 2xx; its status, the reason and its body then go to standard error.`,
		example: `  trainyard online-endpoint invoke --name iris --request-file sample.json
  trainyard online-endpoint invoke -n iris --deployment-name green -r sample.json
  trainyard online-endpoint invoke -n triton -r sample.json --path v2/models/second/infer
  echo '{"data": [[5.1, 3.5, 1.4, 0.2]]}' | trainyard online-endpoint invoke -n iris -r -`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			return a.invoke(ctx, c, cmd, n)
		},
	}, trainyard.KindOnlineEndpoint)
	f := cmd.Flags()
	f.StringP("deployment-name", "d", "", "`DEPLOYMENT` to ask (default: as the traffic is divided)")
	f.StringP("request-file", "r", "", "`FILE` to send; - is standard input")
	f.String("content-type", "application/json", "what the file is")
	f.String("path", "score", "what is asked, behind the endpoint's address; score is what its model answers by, wherever that is")
	_ = cmd.MarkFlagFilename("request-file") // fails only for a flag that is not there
	_ = cmd.RegisterFlagCompletionFunc("deployment-name", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeDeployments(cmd, cmp.Or(flag(cmd, "name"), strings.Join(args, "")))
	})
	return addLocalFlag(cmd)
}

func (a *app) invoke(ctx context.Context, c *client.Client, cmd *cobra.Command, name string) error {
	if flag(cmd, "request-file") == "" && flag(cmd, "path") == "score" {
		return usagef("what to send is missing: --request-file FILE, or - for standard input")
	}
	body, err := a.requestBody(flag(cmd, "request-file"))
	if err != nil {
		return err
	}
	defer body.Close()
	e, err := onlineEndpointOf(ctx, c, name)
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {flag(cmd, "content-type")}, "Accept": {"*/*"}}
	deployment := flag(cmd, "deployment-name")
	if flagBool(cmd, "local") {
		if deployment, err = localDeployment(ctx, c, e, deployment); err != nil {
			return err
		}
	}
	if deployment != "" {
		header.Set("azureml-model-deployment", deployment)
	}
	key, err := credential(ctx, c, e)
	if err != nil {
		return err
	}
	header.Set("Authorization", "Bearer "+key)
	res, err := c.Score(ctx, address(e)+strings.TrimLeft(flag(cmd, "path"), "/"), header, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return a.scoringFailed(res)
	}
	last := byte('\n')
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			last = buf[n-1]
			if _, err := a.out.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return trainyard.Errorf(trainyard.CodeInternal, "the answer broke off: %v", err)
		}
	}
	if last != '\n' && a.outTTY {
		_, err = a.out.Write([]byte("\n"))
	}
	return err
}

// address is an endpoint's, with the slash at its end. The scoring URI is that, or the path "score" behind it.
func address(e map[string]any) string {
	uri := text(e, "scoring_uri")
	return uri[:strings.LastIndexByte(uri, '/')+1]
}

// requestBody is what is sent: nothing, a file, or standard input.
func (a *app) requestBody(file string) (io.ReadCloser, error) {
	switch file {
	case "":
		return io.NopCloser(bytes.NewReader(nil)), nil
	case "-":
		return io.NopCloser(a.in), nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, trainyard.NotFound("there is no file %s", file)
	}
	return f, err
}

// localDeployment is the deployment that --local means: the one that was named, the only one on this computer, or, where there is traffic, any.
func localDeployment(ctx context.Context, c *client.Client, e map[string]any, named string) (string, error) {
	list, err := deploymentsOf(ctx, c, text(e, "name"))
	if err != nil {
		return "", err
	}
	var here []string
	for _, it := range list {
		if d := asMap(it); text(d, "type") == "local" {
			here = append(here, text(d, "name"))
			if strings.EqualFold(text(d, "name"), named) {
				return named, nil
			}
		}
	}
	switch {
	case named != "":
		return "", trainyard.NotFound("online endpoint %s has no local deployment %q; leave --local out to ask one that is elsewhere", text(e, "name"), named)
	case len(here) == 0:
		return "", trainyard.NotFound("online endpoint %s has no local deployment; make one with \"trainyard online-deployment create --local\"", text(e, "name"))
	case len(here) == 1:
		return here[0], nil
	}
	return "", nil // as the traffic is divided
}

// credential is what opens an endpoint: its key, or a token for an hour.
func credential(ctx context.Context, c *client.Client, e map[string]any) (string, error) {
	m, err := credentials(ctx, c, e)
	if err != nil {
		return "", err
	}
	return cmp.Or(text(m, "primaryKey"), text(m, "accessToken"), text(m, "secondaryKey")), nil
}

func credentials(ctx context.Context, c *client.Client, e map[string]any) (map[string]any, error) {
	action := "listKeys"
	if text(e, "auth_mode") != "key" {
		action = "token"
	}
	ans, err := c.Post(ctx, nil, endpointsPath, text(e, "name"), action)
	if err != nil {
		return nil, err
	}
	return decode(ans.Body)
}

// scoringFailed tells of an answer that is none.
func (a *app) scoringFailed(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // what was read of it is enough to report it
	a.note("%s %s", a.paintErr(red, "the endpoint answers"), clean(res.Status))
	for _, h := range []string{"Ms-Azureml-Model-Error-Statuscode", "Ms-Azureml-Model-Error-Reason"} {
		if v := res.Header.Get(h); v != "" {
			a.note("  %s: %s", strings.ToLower(h), clean(v))
		}
	}
	var body struct {
		Error struct{ Message string } `json:"error"`
	}
	if json.Unmarshal(data, &body) == nil && body.Error.Message != "" {
		a.note("  %s", clean(body.Error.Message))
	} else if len(bytes.TrimSpace(data)) > 0 {
		for line := range strings.Lines(string(data)) {
			a.note("%s", clean(strings.TrimRight(line, "\r\n")))
		}
	}
	return failed{1}
}

func (a *app) endpointCredentials() *cobra.Command {
	return a.verb(verb{
		use: "get-credentials [NAME]", short: "Show the keys of an online endpoint, or a token for it",
		example: "  trainyard online-endpoint get-credentials --name iris --query primaryKey -o tsv",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			e, err := onlineEndpointOf(ctx, c, n)
			if err != nil {
				return err
			}
			m, err := credentials(ctx, c, e)
			if err != nil {
				return err
			}
			return a.print(m, view{detail: func(m map[string]any) {
				a.pairs(a.out, [][2]string{{"primary key", text(m, "primaryKey")}, {"secondary key", text(m, "secondaryKey")}, {"token", text(m, "accessToken")}})
			}})
		},
	}, trainyard.KindOnlineEndpoint)
}

func (a *app) endpointRegenerate() *cobra.Command {
	cmd := a.verb(verb{
		use: "regenerate-keys [NAME]", short: "Replace a key of an online endpoint: the old one opens nothing any more",
		example: "  trainyard online-endpoint regenerate-keys --name iris --key-type secondary",
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			n, err := name(cmd, args)
			if err != nil {
				return err
			}
			which := strings.ToLower(flag(cmd, "key-type"))
			kind := map[string]string{"primary": "Primary", "secondary": "Secondary"}[which]
			if kind == "" {
				return usagef("--key-type is %q, want primary or secondary", flag(cmd, "key-type"))
			}
			body := map[string]string{"keyType": kind}
			if v := flag(cmd, "key-value"); v != "" {
				body["keyValue"] = v
			}
			ans, err := c.Post(ctx, body, endpointsPath, n, "regenerateKeys")
			if err != nil {
				return err
			}
			if err := a.wait(ctx, c, cmd, ans, "replacing the "+which+" key of "+n); err != nil {
				return err
			}
			a.say("the %s key of %s is replaced; see it with \"trainyard online-endpoint get-credentials --name %s\"", which, n, n)
			return nil
		},
	}, trainyard.KindOnlineEndpoint)
	cmd.Flags().String("key-type", "primary", "primary or secondary")
	cmd.Flags().String("key-value", "", "the new key (default: one is made)")
	return addWaitFlags(addYes(cmd))
}
