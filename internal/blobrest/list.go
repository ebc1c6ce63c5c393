package blobrest

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

const maxResults = 5000 // a page of List Blobs, as in Azure

// container answers for a container itself: Get Properties, and Create, which has nothing to do.
func (h *handler) container(r *request) error {
	head := r.w.Header()
	head.Set("ETag", quote("container"))
	head.Set("Last-Modified", httpTime(h.Signer.now()))
	head.Set("x-ms-lease-status", "unlocked")
	head.Set("x-ms-lease-state", "available")
	if r.Method == http.MethodPut {
		r.w.WriteHeader(http.StatusCreated)
		return nil
	}
	r.w.WriteHeader(http.StatusOK)
	return nil
}

// The XML of List Blobs. https://learn.microsoft.com/rest/api/storageservices/list-blobs
type (
	listing struct {
		XMLName         xml.Name `xml:"EnumerationResults"`
		ServiceEndpoint string   `xml:",attr"`
		ContainerName   string   `xml:",attr"`
		Prefix          string
		Marker          string
		MaxResults      int
		Delimiter       string `xml:",omitempty"`
		Blobs           blobs
		NextMarker      string
	}
	blobs struct {
		Blob       []blobItem
		BlobPrefix []blobPrefix
	}
	blobItem struct {
		Name       blobName
		Properties itemProperties
		Metadata   *metadata
	}
	blobPrefix struct{ Name blobName }
	blobName   struct {
		Encoded string `xml:",attr,omitempty"`
		Text    string `xml:",chardata"`
	}
	itemProperties struct {
		CreationTime  string `xml:"Creation-Time"`
		LastModified  string `xml:"Last-Modified"`
		Etag          string
		ContentLength int64  `xml:"Content-Length"`
		ContentType   string `xml:"Content-Type"`
		BlobType      string
		LeaseStatus   string
		LeaseState    string
	}
	metadata map[string]string
)

// MarshalXML writes an element a name.
func (m metadata) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if err := e.EncodeElement(m[name], xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
			return err
		}
	}
	return e.EncodeToken(start.End())
}

// list is List Blobs.
func (h *handler) list(r *request) error {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	out := listing{ServiceEndpoint: scheme + "://" + r.Host + "/", ContainerName: r.container, MaxResults: maxResults,
		Prefix: r.q("prefix"), Marker: r.q("marker"), Delimiter: r.q("delimiter")}
	if text := r.q("maxresults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return refuse(http.StatusBadRequest, "OutOfRangeQueryParameterValue", "maxresults=%q: want a number from 1 to %d", text, maxResults)
		}
		out.MaxResults = min(n, maxResults)
	}
	items, prefixes, next, err := h.Blobs.Page(r.Context(), r.container+"/"+out.Prefix, out.Delimiter, out.Marker, out.MaxResults)
	if trainyard.CodeOf(err) == trainyard.CodeInvalid && out.Marker == "" {
		err = nil // nothing can have a name that begins so
	}
	if err != nil {
		return err
	}
	withMetadata := slices.Contains(strings.Split(r.q("include"), ","), "metadata")
	for _, info := range items {
		out.Blobs.Blob = append(out.Blobs.Blob, itemOf(info, r.container, withMetadata))
	}
	for _, p := range prefixes {
		out.Blobs.BlobPrefix = append(out.Blobs.BlobPrefix, blobPrefix{nameOf(p, r.container)})
	}
	out.NextMarker = next
	body, err := xml.Marshal(out)
	if err != nil {
		return err
	}
	r.w.Header().Set("Content-Type", "application/xml")
	r.w.Header().Set("Content-Length", strconv.Itoa(len(xml.Header)+len(body)))
	io.WriteString(r.w, xml.Header)
	_, _ = r.w.Write(body) // if the client is gone there is nobody to tell
	return nil
}

func itemOf(info trainyard.BlobInfo, container string, withMetadata bool) blobItem {
	item := blobItem{Name: nameOf(info.Key, container), Properties: itemProperties{
		CreationTime: httpTime(info.Modified), LastModified: httpTime(info.Modified), Etag: info.ETag,
		ContentLength: info.Size, ContentType: info.Type, BlobType: "BlockBlob", LeaseStatus: "unlocked", LeaseState: "available"}}
	if withMetadata {
		m := metadata(info.Metadata)
		item.Metadata = &m
	}
	return item
}

// nameOf writes a blob's name so that XML can hold it.
func nameOf(key, container string) blobName {
	name := strings.TrimPrefix(key, container+"/")
	if strings.IndexFunc(name, func(c rune) bool {
		return c < 0x20 || c == 0xFFFE || c == 0xFFFF || c == utf8.RuneError
	}) >= 0 {
		return blobName{Encoded: "true", Text: url.PathEscape(name)}
	}
	return blobName{Text: name}
}
