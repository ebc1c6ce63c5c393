package blobrest

import (
	"crypto/md5"
	"encoding/base64"
	"hash"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/trainyard/trainyard"
)

const (
	maxMetadata = 8 << 10  // bytes of names and values, as in Azure
	maxDrain    = 64 << 20 // of a body that is not wanted; the largest that azure-storage-blob sends in one piece
)

// putBlob is Put Blob.
func (h *handler) putBlob(r *request) error {
	if kind := r.Header.Get("x-ms-blob-type"); !strings.EqualFold(kind, "BlockBlob") {
		return unbuilt("blobs of type %q: send x-ms-blob-type: BlockBlob", kind)
	}
	if r.Header.Get("x-ms-copy-source") != "" {
		return unbuilt("copies (x-ms-copy-source): download and upload")
	}
	return h.store(r, r.Body)
}

// store makes body the blob, with the metadata, type and conditions of the request.
func (h *handler) store(r *request, body io.Reader) error {
	meta, err := metadataOf(r.Header)
	if err != nil {
		return err
	}
	if err := h.check(r); err != nil {
		return err
	}
	sum, body, err := checked(r, body)
	if err != nil {
		return err
	}
	kind := r.Header.Get("x-ms-blob-content-type")
	if kind == "" && r.q("comp") == "" {
		kind = r.Header.Get("Content-Type")
	}
	onlyNew := strings.TrimSpace(r.Header.Get("If-None-Match")) == "*"
	info, err := h.Blobs.PutWith(r.Context(), r.key(), body, kind, meta, onlyNew)
	if trainyard.IsConflict(err) && onlyNew {
		if again := h.check(r); again != nil { // someone else was first
			return again
		}
	}
	if err != nil {
		return err
	}
	head := r.w.Header()
	if sum != nil {
		head.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	}
	version(head, info)
	head.Set("x-ms-request-server-encrypted", "false")
	r.w.WriteHeader(http.StatusCreated)
	return nil
}

// check holds the request's conditions, if it has any, against the blob that is there.
func (h *handler) check(r *request) error {
	conditional := false
	for _, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		conditional = conditional || r.Header.Get(name) != ""
	}
	if !conditional {
		return nil
	}
	info, err := h.Blobs.Stat(r.Context(), r.key())
	switch {
	case trainyard.IsNotFound(err):
		return condition(r.Request, nil)
	case err != nil:
		return err
	}
	err = condition(r.Request, &info)
	if err != nil {
		// A client that is still sending takes a closed connection for a fault of the network, and sends it all again.
		io.CopyN(io.Discard, r.Body, maxDrain)
	}
	return err
}

// checked wraps body so that reading it fails at the end if it is not what Content-MD5 says. The hash is nil if the request has none.
func checked(r *request, body io.Reader) (hash.Hash, io.Reader, error) {
	if r.Header.Get("x-ms-structured-body") != "" {
		return nil, nil, unbuilt("structured bodies (x-ms-structured-body): turn the client's content validation to MD5 or off")
	}
	text := r.Header.Get("Content-MD5")
	if text == "" || r.q("comp") == "blocklist" { // there it is of the list, which is checked by being read
		return nil, body, nil
	}
	want, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(want) != md5.Size {
		return nil, nil, refuse(http.StatusBadRequest, "InvalidMd5", "Content-MD5 %q is not the base64 of an MD5", text)
	}
	sum := md5.New()
	return sum, &checkedReader{io.TeeReader(body, sum), sum, string(want)}, nil
}

type checkedReader struct {
	io.Reader
	sum  hash.Hash
	want string
}

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err == io.EOF && string(c.sum.Sum(nil)) != c.want {
		err = errMD5
	}
	return n, err
}

var metadataName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// metadataOf reads the x-ms-meta- headers. HTTP does not keep the case of names, so they are in lower case.
func metadataOf(head http.Header) (map[string]string, error) {
	var meta map[string]string
	size := 0
	for name, values := range head {
		name, ok := strings.CutPrefix(strings.ToLower(name), metaPrefix)
		if !ok {
			continue
		}
		if !metadataName.MatchString(name) {
			return nil, refuse(http.StatusBadRequest, "InvalidMetadata", "the metadata name %q is not a letter or _ followed by letters, digits and _", name)
		}
		if meta == nil {
			meta = map[string]string{}
		}
		meta[name] = strings.Join(values, ",")
		size += len(name) + len(meta[name])
	}
	if size > maxMetadata {
		return nil, refuse(http.StatusBadRequest, "MetadataTooLarge", "the metadata is %d bytes long; at most %d are allowed", size, maxMetadata)
	}
	return meta, nil
}

// setMetadata is Set Blob Metadata.
func (h *handler) setMetadata(r *request) error {
	meta, err := metadataOf(r.Header)
	if err != nil {
		return err
	}
	if err := h.check(r); err != nil {
		return err
	}
	info, err := h.Blobs.SetMetadata(r.Context(), r.key(), meta)
	if err != nil {
		return err
	}
	version(r.w.Header(), info)
	r.w.WriteHeader(http.StatusOK)
	return nil
}

// delete is Delete Blob.
func (h *handler) delete(r *request) error {
	if err := h.check(r); err != nil {
		return err
	}
	if err := h.Blobs.Delete(r.Context(), r.key()); err != nil {
		return err
	}
	r.w.WriteHeader(http.StatusAccepted)
	return nil
}
