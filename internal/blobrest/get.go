package blobrest

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// maxRangeMD5 is the longest range of which Azure gives the MD5.
const maxRangeMD5 = 4 << 20

// get is Get Blob, Get Blob Properties (HEAD) and Get Blob Metadata (comp=metadata).
func (h *handler) get(r *request) error {
	if r.Method == http.MethodHead || r.q("comp") != "" {
		info, err := h.Blobs.Stat(r.Context(), r.key())
		if err != nil {
			return err
		}
		if err := condition(r.Request, &info); err != nil {
			return err
		}
		properties(r.w.Header(), info)
		if r.q("comp") == "" {
			r.w.Header().Set("Content-Length", formatInt(info.Size))
		}
		r.w.WriteHeader(http.StatusOK)
		return nil
	}
	text := r.Header.Get("x-ms-range")
	if text == "" {
		text = r.Header.Get("Range")
	}
	want, ranged := parseRange(text)
	if ranged && want.suffix {
		info, err := h.Blobs.Stat(r.Context(), r.key())
		if err != nil {
			return err
		}
		want.offset = max(info.Size-want.length, 0)
	}
	body, info, err := h.Blobs.OpenRange(r.Context(), r.key(), want.offset, want.length)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := condition(r.Request, &info); err != nil {
		return err
	}
	return h.send(r, body, info, want, ranged)
}

func (h *handler) send(r *request, body io.Reader, info trainyard.BlobInfo, want byteRange, ranged bool) error {
	head, status, length := r.w.Header(), http.StatusOK, info.Size
	if ranged {
		if want.offset >= info.Size {
			head.Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
			return refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "blob %q has %d bytes; the range begins at byte %d", r.blob, info.Size, want.offset)
		}
		status, length = http.StatusPartialContent, info.Size-want.offset
		if want.length >= 0 {
			length = min(length, want.length)
		}
		if strings.EqualFold(r.Header.Get("x-ms-range-get-content-md5"), "true") {
			if length > maxRangeMD5 {
				return refuse(http.StatusBadRequest, "OutOfRangeInput", "the MD5 of a range is given for up to %d bytes, not for %d", maxRangeMD5, length)
			}
			data, err := io.ReadAll(body)
			if err != nil {
				return err
			}
			sum := md5.Sum(data)
			head.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
			body = strings.NewReader(string(data))
		}
		head.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", want.offset, want.offset+length-1, info.Size))
	}
	properties(head, info)
	head.Set("Content-Length", formatInt(length))
	r.w.WriteHeader(status)
	if n, err := io.Copy(r.w, body); err != nil || n != length {
		if r.Context().Err() == nil {
			h.Log.Error("blob download cut short", "container", r.container, "blob", r.blob, "sent", n, "of", length, "error", err)
		}
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

// properties writes what is known of a blob into the headers. Metadata names go out in lower case, which is how they came in.
func properties(head http.Header, info trainyard.BlobInfo) {
	version(head, info)
	head.Set("Accept-Ranges", "bytes")
	head.Set("Content-Type", info.Type)
	head.Set("x-ms-blob-type", "BlockBlob")
	head.Set("x-ms-lease-status", "unlocked")
	head.Set("x-ms-lease-state", "available")
	head.Set("x-ms-server-encrypted", "false")
	head.Set("x-ms-creation-time", httpTime(info.Modified))
	for name, value := range info.Metadata {
		head[metaPrefix+name] = []string{value} // not Set: clients of HTTP/1.1 take the case as it is
	}
}

const metaPrefix = "x-ms-meta-"

// version writes what names a blob's version.
func version(head http.Header, info trainyard.BlobInfo) {
	head.Set("ETag", quote(info.ETag))
	head.Set("Last-Modified", httpTime(info.Modified))
}

func quote(etag string) string      { return `"` + etag + `"` }
func httpTime(t time.Time) string   { return t.UTC().Format(http.TimeFormat) }
func seconds(t time.Time) (s int64) { return t.Unix() }
func unquote(etag string) (bare string) {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(etag), "W/"), `"`)
}

// byteRange is a range of a Range header. A negative length is to the end; with suffix, length counts from the end.
type byteRange struct {
	offset, length int64
	suffix         bool
}

// parseRange reads "bytes=0-499", "bytes=500-" and "bytes=-500". Anything else, several ranges too, is no range: as RFC 9110 14.2 has it,
// the whole is sent.
func parseRange(s string) (byteRange, bool) {
	whole := byteRange{length: -1}
	spec, ok := strings.CutPrefix(strings.TrimSpace(s), "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !ok || !dash {
		return whole, false
	}
	from, to = strings.TrimSpace(from), strings.TrimSpace(to)
	last, err := strconv.ParseUint(to, 10, 63)
	if to != "" && err != nil {
		return whole, false
	}
	if from == "" {
		if last == 0 { // "-" and "-0" too
			return whole, false
		}
		return byteRange{length: int64(last), suffix: true}, true
	}
	start, err := strconv.ParseUint(from, 10, 63)
	switch {
	case err != nil, to != "" && last < start:
		return whole, false
	case to == "" || last == 1<<63-1:
		return byteRange{offset: int64(start), length: -1}, true
	}
	return byteRange{offset: int64(start), length: int64(last - start + 1)}, true
}

// condition holds a request's If-… headers against the blob; nil is none. RFC 9110 13.2.2 has the order.
func condition(r *http.Request, info *trainyard.BlobInfo) error {
	failed := refuse(http.StatusPreconditionFailed, "ConditionNotMet", "the blob is not the version that the request's condition names")
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	if tags := r.Header.Get("If-Match"); tags != "" {
		if info == nil || !matches(tags, info.ETag) {
			return failed
		}
	} else if at, err := http.ParseTime(r.Header.Get("If-Unmodified-Since")); err == nil && info != nil && seconds(info.Modified) > seconds(at) {
		return failed
	}
	if info == nil {
		return nil
	}
	unchanged := false
	if tags := r.Header.Get("If-None-Match"); tags != "" {
		unchanged = matches(tags, info.ETag)
		if unchanged && !reading && strings.TrimSpace(tags) == "*" {
			return refuse(http.StatusConflict, "BlobAlreadyExists", "the blob exists already, and the request says to store it only if it does not (If-None-Match: *)")
		}
	} else if at, err := http.ParseTime(r.Header.Get("If-Modified-Since")); err == nil {
		unchanged = seconds(info.Modified) <= seconds(at)
	}
	switch {
	case unchanged && reading:
		return refuse(http.StatusNotModified, "ConditionNotMet", "")
	case unchanged:
		return failed
	}
	return nil
}

func matches(tags, etag string) bool {
	for tag := range strings.SplitSeq(tags, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || unquote(tag) == etag {
			return true
		}
	}
	return false
}
