package client

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/trainyard/trainyard"
)

// Progress is told how many bytes of how many are done. Calls may come from several goroutines at once, and done may fall when a part is
// sent again.
type Progress func(done, total int64)

// parallel is how many transfers one Upload or Download makes at a time.
const parallel = 8

// blobVersion is the version of the storage protocol whose parts we use.
const blobVersion = "2023-11-03"

// Container is a blob container together with the right to use it.
type Container struct {
	c    *Client
	base *url.URL // of the container; the query is its signature
}

// Container opens the container at a URL with its signature, as the server hands them out. A URL of the server's own blob door is asked
// for at the address this client uses.
func (c *Client) Container(signed string) (*Container, error) {
	u, err := url.Parse(signed)
	if err != nil || u.Host == "" {
		return nil, trainyard.Invalid("the server gave %q, which is not the URL of a container", signed)
	}
	if strings.HasPrefix(u.Path, "/blob/") {
		u.Scheme, u.Host = c.base.Scheme, c.base.Host
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return &Container{c: c, base: u}, nil
}

// Datastore opens the container of a datastore for a day.
func (c *Client) Datastore(ctx context.Context, name string) (*Container, error) {
	data, err := c.Get(ctx, "datastores", name)
	if err != nil {
		return nil, err
	}
	var store struct {
		Properties struct {
			Type      string `json:"datastoreType"`
			Container string `json:"containerName"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(data, &store); err != nil {
		return nil, fmt.Errorf("read datastore %s: %w", name, err)
	}
	if store.Properties.Container == "" {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "the datastore %q is %s: only blob containers can be read and written from here",
			name, store.Properties.Type)
	}
	a, err := c.Post(ctx, map[string]any{"expirableSecret": true, "expireAfterHours": 24}, "datastores", name, "listSecrets")
	if err != nil {
		return nil, err
	}
	var secret struct {
		SasToken string `json:"sasToken"`
	}
	if err := json.Unmarshal(a.Body, &secret); err != nil {
		return nil, fmt.Errorf("read the secrets of datastore %s: %w", name, err)
	}
	return c.Container(c.URL() + "/blob/" + url.PathEscape(store.Properties.Container) + "?" + strings.TrimPrefix(secret.SasToken, "?"))
}

// URL is the container's address without its signature.
func (b *Container) URL() string {
	u := *b.base
	u.RawQuery = ""
	return u.String()
}

// blobURL is the signed URL of a blob ("" for the container itself), with the query given added.
func (b *Container) blobURL(name string, query url.Values) string {
	u := *b.base
	if name != "" {
		u.Path += "/" + name
		u.RawPath = ""
	}
	q := u.Query()
	for k, v := range query {
		q[k] = v
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// do makes one exchange about a blob and repeats it as Client.Do does. body, which may be nil, is asked for anew for each try.
func (b *Container) do(ctx context.Context, method, name string, query url.Values, header map[string]string, body func() (io.Reader, int64)) (*http.Response, error) {
	var out *http.Response
	err := b.c.persist(ctx, true, func() error {
		var r io.Reader
		var size int64
		if body != nil {
			if r, size = body(); size == 0 {
				r = http.NoBody
			}
		}
		req, err := http.NewRequestWithContext(ctx, method, b.blobURL(name, query), r)
		if err != nil {
			return err
		}
		req.ContentLength = size
		req.Header.Set("X-Ms-Version", blobVersion)
		for k, v := range header {
			req.Header.Set(k, v)
		}
		out, err = b.c.send(req, false)
		return err
	})
	return out, err
}

// Blob is one blob of a listing.
type Blob struct {
	Name string
	Size int64
}

// List lists the blobs whose names begin with prefix, by name.
func (b *Container) List(ctx context.Context, prefix string) ([]Blob, error) {
	var all []Blob
	for marker := ""; ; {
		query := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {prefix}}
		if marker != "" {
			query.Set("marker", marker)
		}
		res, err := b.do(ctx, http.MethodGet, "", query, nil, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Blobs []struct {
				Name string `xml:"Name"`
				Size int64  `xml:"Properties>Content-Length"`
			} `xml:"Blobs>Blob"`
			Next string `xml:"NextMarker"`
		}
		err = errors.Join(xml.NewDecoder(res.Body).Decode(&page), res.Body.Close())
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", b.URL(), err)
		}
		for _, x := range page.Blobs {
			all = append(all, Blob{Name: x.Name, Size: x.Size})
		}
		if marker = page.Next; marker == "" {
			return all, nil
		}
	}
}

// Under lists what a path means: the blob of that name, or all below it as a folder. A path that ends in a slash is a folder only.
func (b *Container) Under(ctx context.Context, path string) ([]Blob, error) {
	folder := strings.TrimRight(path, "/")
	found, err := b.List(ctx, folder)
	if err != nil {
		return nil, err
	}
	var out []Blob
	for _, x := range found {
		if x.Name == folder && !strings.HasSuffix(path, "/") || folder == "" || strings.HasPrefix(x.Name, folder+"/") {
			out = append(out, x)
		}
	}
	return out, nil
}
