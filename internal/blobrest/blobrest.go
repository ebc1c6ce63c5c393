// Package blobrest is the door through which clients upload and download: the part of Azure's Blob Storage REST API that
// azure-storage-blob, azblob and azcopy-like tools need for block blobs (Put Blob, Put Block, Put Block List, Get, Head, Set Metadata,
// Delete, List Blobs). It turns requests into calls on a blob store and decides nothing else: what a token may do is signed into it or
// asked of Config.Allow. Leases, snapshots, versions, tags, page and append blobs are not built and refused by name.
//
// A container is there as soon as it is named; datastores are containers, and who may name which is the token's affair.
package blobrest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/trainyard/trainyard"
)

// Blobs is the store behind the door. Keys are "container/blob".
type Blobs interface {
	// PutWith stores all of r or, with an error, nothing. With ifNoneMatch an object that is there stays, and the error is a Conflict.
	PutWith(ctx context.Context, key string, r io.Reader, contentType string, metadata map[string]string, ifNoneMatch bool) (trainyard.BlobInfo, error)
	// OpenRange reads at most length bytes from offset, of the version that the BlobInfo tells of. A negative length is to the end.
	OpenRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, trainyard.BlobInfo, error)
	Stat(ctx context.Context, key string) (trainyard.BlobInfo, error)
	SetMetadata(ctx context.Context, key string, metadata map[string]string) (trainyard.BlobInfo, error)
	// Page lists in the order of keys; those that hold delimiter after prefix are rolled up into prefixes.
	Page(ctx context.Context, prefix, delimiter, marker string, max int) (items []trainyard.BlobInfo, prefixes []string, next string, err error)
	Delete(ctx context.Context, key string) error
	DeletePrefix(ctx context.Context, prefix string) error
}

// Permissions, as they stand in a shared access signature.
const (
	Read   = 'r'
	Write  = 'w'
	Delete = 'd'
	List   = 'l'
)

// Config is what New needs.
type Config struct {
	Blobs  Blobs
	Signer Signer
	// Allow says whether a request without a signature, with a bearer token as a rule, may do what perm (Read, Write, Delete, List)
	// stands for to a key; for List the key is container/prefix. Nil allows none.
	Allow func(r *http.Request, perm byte, key string) error
	// AccountKey is the shared key of a storage account, nil for one that has none. Whoever signs with it may do everything. A nil
	// function means that no account has a key.
	AccountKey func(account string) []byte
	Log        *slog.Logger // nil: slog.Default()
}

type handler struct {
	Config
	swept atomic.Int64 // when abandoned blocks were last looked for, Unix seconds
}

// New serves {container}/{blob…}. Path style is http.StripPrefix("/blob", New(…)); for host style, {account}.blob.{suffix}, it is mounted
// at the root of that host.
func New(c Config) http.Handler {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &handler{Config: c}
}

// request is one request, taken apart.
type request struct {
	*http.Request
	w         http.ResponseWriter
	container string
	blob      string // "" for the container itself
	query     url.Values
}

func (r *request) key() string          { return r.container + "/" + r.blob }
func (r *request) q(name string) string { return r.query.Get(name) }

// operation is a row of the table of what is served.
type operation struct {
	method string
	what   string // "container" or "blob"
	comp   string // the comp parameter
	perm   byte
	do     func(*handler, *request) error
}

var operations = []operation{
	{http.MethodGet, "container", "list", List, (*handler).list},
	{http.MethodGet, "container", "", Read, (*handler).container},
	{http.MethodHead, "container", "", Read, (*handler).container},
	{http.MethodPut, "container", "", Write, (*handler).container},
	{http.MethodGet, "blob", "", Read, (*handler).get},
	{http.MethodHead, "blob", "", Read, (*handler).get},
	{http.MethodPut, "blob", "", Write, (*handler).putBlob},
	{http.MethodPut, "blob", "block", Write, (*handler).putBlock},
	{http.MethodPut, "blob", "blocklist", Write, (*handler).putBlockList},
	{http.MethodPut, "blob", "metadata", Write, (*handler).setMetadata},
	{http.MethodGet, "blob", "metadata", Read, (*handler).get},
	{http.MethodHead, "blob", "metadata", Read, (*handler).get},
	{http.MethodDelete, "blob", "", Delete, (*handler).delete},
}

func (h *handler) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr, w: w, query: hr.URL.Query()}
	r.container, r.blob, _ = strings.Cut(strings.TrimPrefix(hr.URL.Path, "/"), "/")
	head := w.Header()
	head.Set("x-ms-request-id", uuid.NewString())
	head.Set("x-ms-version", versionOf(hr))
	if id := hr.Header.Get("x-ms-client-request-id"); id != "" {
		head.Set("x-ms-client-request-id", id)
	}
	// Blobs are what users and their jobs made: a browser must not run them as pages of this server.
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "sandbox")
	if err := h.serve(r); err != nil {
		h.fail(r, err)
	}
}

// versionOf echoes the API version asked for: all are answered alike.
func versionOf(r *http.Request) string {
	if v := r.Header.Get("x-ms-version"); v != "" {
		return v
	}
	return "2021-12-02"
}

func (h *handler) serve(r *request) error {
	op, err := find(r)
	if err != nil {
		return err
	}
	if err := h.authorize(r, op); err != nil {
		return err
	}
	return op.do(h, r)
}

// find looks the request up in the table of operations.
func find(r *request) (*operation, error) {
	if r.container == "" || r.container == blocksContainer {
		return nil, refuse(http.StatusBadRequest, "InvalidUri", "the path %q names no container: want /container/blob", r.URL.Path)
	}
	what, comp := "blob", r.q("comp")
	if r.blob == "" {
		what = "container"
		if !strings.EqualFold(r.q("restype"), "container") {
			return nil, refuse(http.StatusBadRequest, "InvalidUri", "the path %q names a container and no blob; for the container itself add restype=container", r.URL.Path)
		}
	}
	for _, name := range []string{"snapshot", "versionid"} {
		if r.q(name) != "" {
			return nil, unbuilt("blob snapshots and versions (%s=)", name)
		}
	}
	for i, op := range operations {
		if op.method == r.Method && op.what == what && strings.EqualFold(op.comp, comp) {
			return &operations[i], nil
		}
	}
	if comp != "" {
		return nil, unbuilt("%s of a %s with comp=%s", r.Method, what, comp)
	}
	return nil, unbuilt("%s of a %s", r.Method, what)
}

func unbuilt(format string, args ...any) error {
	return refuse(http.StatusBadRequest, "UnsupportedOperation", "this blob server does not have "+format, args...)
}

// authorize asks the one who can tell, by how the request is signed.
func (h *handler) authorize(r *request, op *operation) error {
	key := r.key()
	if op.what == "container" {
		key = r.container
	}
	if op.perm == List {
		key = r.container + "/" + r.q("prefix")
	}
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case r.q("sig") != "":
		return h.Signer.Verify(r.query, key, op.perm)
	case strings.EqualFold(scheme, "SharedKey"):
		return h.verifySharedKey(r, credential)
	case strings.EqualFold(scheme, "SharedKeyLite"):
		return refuse(http.StatusForbidden, "AuthenticationFailed", "SharedKeyLite is not built; sign with SharedKey, a shared access signature or a bearer token")
	case h.Allow == nil || scheme == "":
		return refuse(http.StatusUnauthorized, "NoAuthenticationInformation", "the request is not signed: it needs a shared access signature (sig=…) or a bearer token")
	}
	return h.Allow(r.Request, op.perm, key)
}
