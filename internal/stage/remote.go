package stage

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// webClient reads from the web with the system's proxy settings, and gives up on servers that say nothing.
func webClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		ForceAttemptHTTP2:     true,
	}}
}

// errUnreachable marks what failed for want of a network.
var errUnreachable = errors.New("could not be reached")

// webAddress turns an input's URI into the address to read it from. folder says that it can hold many objects.
func webAddress(uri string) (u *url.URL, folder bool, err error) {
	u, err = url.Parse(uri)
	if err != nil {
		return nil, false, fmt.Errorf("it is not a URI: %v", errors.Unwrap(err))
	}
	switch strings.ToLower(u.Scheme) {
	case "https", "http":
		return u, false, nil
	case "wasbs", "wasb":
		container, account := u.User.Username(), u.Host
		p := u.Path
		if u.User == nil { // wasbs://account/container/path is often written and clearly meant
			container, p, _ = strings.Cut(strings.TrimPrefix(p, "/"), "/")
		}
		if account == "" || container == "" {
			return nil, false, errors.New("want wasbs://CONTAINER@ACCOUNT_HOST/PATH")
		}
		return &url.URL{Scheme: "https", Host: account, Path: path.Join("/", container) + "/" + strings.TrimPrefix(p, "/")}, true, nil
	case "":
		return nil, false, errors.New("it has no scheme; want azureml://, https:// or wasbs://")
	}
	return nil, false, fmt.Errorf("this node cannot read %s:// addresses; copy the data into a datastore (azureml://) or use https:// or wasbs://", u.Scheme)
}

// webObjects finds what is at a URI on the web. whole says that it is one file.
func (s *Stager) webObjects(ctx context.Context, uri string) (objects []object, whole bool, err error) {
	u, folder, err := webAddress(uri)
	if err != nil {
		return nil, false, err
	}
	if !strings.HasSuffix(u.Path, "/") && u.Path != "" {
		o, err := s.webFile(ctx, u, webName(u))
		switch {
		case err == nil:
			return []object{o}, true, nil
		case !folder || !trainyard.IsNotFound(err):
			return nil, false, err
		}
	} else if !folder {
		return nil, false, errors.New("a web address names one file, and this one names a folder; give the address of each file")
	}
	objects, err = s.webFolder(ctx, u)
	return objects, false, err
}

// webName is the file name that an address ends in.
func webName(u *url.URL) string {
	name := path.Base(u.Path)
	if name == "/" || name == "." || name == ".." {
		return "data"
	}
	return strings.ReplaceAll(name, `\`, "_")
}

// shown is a URI as it may stand in a message: without passwords, and without a web address's query, which may be a signature.
func shown(uri string) string {
	scheme, _, _ := strings.Cut(uri, ":")
	if scheme = strings.ToLower(scheme); scheme != "http" && scheme != "https" {
		return uri
	}
	u, err := url.Parse(uri)
	if err != nil {
		return scheme + "://…"
	}
	query := u.RawQuery != ""
	u.RawQuery = ""
	if query {
		return u.Redacted() + "?…"
	}
	return u.Redacted()
}

// webFile asks for one file's size and version without reading it. A ranged GET is understood where a HEAD is not: signed addresses.
func (s *Stager) webFile(ctx context.Context, u *url.URL, name string) (object, error) {
	o := object{Path: name, Size: -1}
	err := s.again(ctx, func() error {
		res, err := s.webGet(ctx, u, map[string]string{"Range": "bytes=0-0"})
		if err != nil {
			return err
		}
		defer res.Body.Close()
		o.ETag = version(res.Header)
		switch res.StatusCode {
		case http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
			_, total, _ := strings.Cut(res.Header.Get("Content-Range"), "/")
			if n, err := strconv.ParseInt(total, 10, 64); err == nil {
				o.Size = n
			}
		default:
			o.Size = res.ContentLength
		}
		return nil
	})
	o.Open = func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		return s.webRead(ctx, u, o.ETag, offset)
	}
	return o, err
}

// version tells one state of a web resource from another; it is empty where the server does not say.
func version(h http.Header) string {
	if tag := h.Get("ETag"); tag != "" {
		return tag
	}
	return h.Get("Last-Modified")
}

// webRead reads a file from an offset, if it is still the version given.
func (s *Stager) webRead(ctx context.Context, u *url.URL, want string, offset int64) (io.ReadCloser, error) {
	head := map[string]string{"Accept-Encoding": "identity"}
	if offset > 0 {
		head["Range"] = fmt.Sprintf("bytes=%d-", offset)
	}
	res, err := s.webGet(ctx, u, head)
	if err != nil {
		return nil, err
	}
	if got := version(res.Header); got != want {
		res.Body.Close()
		return nil, fmt.Errorf("%s: %w", shown(u.String()), errChanged)
	}
	if offset > 0 && res.StatusCode != http.StatusPartialContent {
		if _, err := io.CopyN(io.Discard, res.Body, offset); err != nil { // the server knows no ranges
			res.Body.Close()
			return nil, fmt.Errorf("read %s: %w", shown(u.String()), err)
		}
	}
	return &patient{body: res.Body, limit: time.Minute}, nil
}

// patient is a body whose reads fail if nothing comes for a while.
type patient struct {
	body  io.ReadCloser
	limit time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	t := time.AfterFunc(p.limit, func() { p.body.Close() })
	defer t.Stop()
	return p.body.Read(b)
}

func (p *patient) Close() error { return p.body.Close() }

// webGet sends one request. Answers that mean no are errors: NotFound, Forbidden, or another try.
func (s *Stager) webGet(ctx context.Context, u *url.URL, head map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", shown(u.String()), err)
	}
	for k, v := range head {
		req.Header.Set(k, v)
	}
	res, err := s.web.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // its text repeats the address, with what secrets it may hold
		}
		return nil, fmt.Errorf("%s %w: %w", u.Host, errUnreachable, err)
	}
	switch code := res.StatusCode; {
	case code < 300, code == http.StatusRequestedRangeNotSatisfiable && head["Range"] == "bytes=0-0":
		return res, nil
	case code == http.StatusNotFound, code == http.StatusGone:
		err = trainyard.NotFound("%s answers %s", u.Host, res.Status)
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		err = fmt.Errorf("%s answers %s", u.Host, res.Status)
	default:
		err = trainyard.Errorf(trainyard.CodeForbidden, "%s answers %s", u.Host, res.Status)
	}
	res.Body.Close()
	return nil, err
}

// webFolder lists a container of Azure's blob storage that the public may list, below the address's path.
func (s *Stager) webFolder(ctx context.Context, u *url.URL) ([]object, error) {
	container, prefix, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	base := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/" + container}
	var out []object
	for marker, first := "", true; first || marker != ""; first = false {
		at := base
		at.RawQuery = url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {prefix}, "marker": {marker}}.Encode()
		page, err := s.webPage(ctx, &at)
		if err != nil {
			return nil, err
		}
		for _, b := range page.Blobs {
			rel := strings.TrimPrefix(b.Name, prefix)
			if rel == "" || strings.HasSuffix(rel, "/") {
				continue
			}
			file := base
			file.Path += "/" + b.Name
			out = append(out, object{Path: rel, Size: b.Size, ETag: b.ETag, Open: func(ctx context.Context, offset int64) (io.ReadCloser, error) {
				return s.webRead(ctx, &file, `"`+strings.Trim(b.ETag, `"`)+`"`, offset)
			}})
		}
		marker = page.Next
	}
	return withoutMarkers(out), nil
}

// blobPage is one answer to List Blobs.
type blobPage struct {
	Blobs []struct {
		Name string `xml:"Name"`
		Size int64  `xml:"Properties>Content-Length"`
		ETag string `xml:"Properties>Etag"`
	} `xml:"Blobs>Blob"`
	Next string `xml:"NextMarker"`
}

func (s *Stager) webPage(ctx context.Context, u *url.URL) (page blobPage, err error) {
	err = s.again(ctx, func() error {
		res, err := s.webGet(ctx, u, nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		page = blobPage{}
		if err := xml.NewDecoder(io.LimitReader(res.Body, 64<<20)).Decode(&page); err != nil {
			return fmt.Errorf("list of %s: %w", u.Path, err)
		}
		return nil
	})
	return page, err
}
