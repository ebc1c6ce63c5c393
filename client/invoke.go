package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/trainyard/trainyard"
)

// Score sends a request to an endpoint's scoring URI and returns the answer, whatever its status, as it begins to come. The header holds
// the endpoint's own key; this client's token is not sent. It is tried once: who asks knows whether asking twice does harm.
func (c *Client) Score(ctx context.Context, uri string, header http.Header, body io.Reader) (*http.Response, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" {
		return nil, trainyard.Invalid("%q is not the address of an endpoint", uri)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, uri, body)
	if err != nil {
		return nil, err
	}
	if f, ok := body.(*os.File); ok { // many a model server reads no body whose length is not said
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			req.ContentLength = info.Size()
		}
	}
	req.Header = header
	res, err := c.http.Do(req)
	if err != nil && ctx.Err() == nil {
		why := err
		if e, ok := errors.AsType[*url.Error](err); ok {
			why = e.Err
		}
		return nil, trainyard.Errorf(trainyard.CodeBusy, "the gateway does not answer at %s: %v", u.Scheme+"://"+u.Host, why)
	}
	return res, err
}
